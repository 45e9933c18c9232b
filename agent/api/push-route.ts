/** Pods that a client pushes, on any listener. Loaded with the first push. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { endAnswer } from "@picolet/kubelet-api/pipes/unread-body.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { PushRefusal } from "@picolet/protocol/local-api/status.ts";
import type { PushedPods } from "../core/pods/pushed-pods.ts";
import { errorAnswer, HTTP_STATUS } from "./api-answers.ts";
import { MAX_PUSH_BYTES, parseRequest, type Query, readText } from "./request-input.ts";

/** The path of pushes, which takes PUT. */
export const PUSH_PATH = /^\/v1\/pushed-pods(?:\?|$)/;

export interface PushReply {
  readonly body: unknown;
  readonly refused?: true;
}

/** @throws `unimplemented` where no pods are taken, `invalid`, `resource_exhausted` */
export async function pushPods(
  pushed: Pick<PushedPods, "replace"> | undefined,
  query: Query,
  message: IncomingMessage,
): Promise<PushReply> {
  const dryRun = query.flag("dryRun");
  query.end();
  if (pushed === undefined) throw new PicoletError("unimplemented", "this agent takes no pods here");
  const outcome = await pushed.replace(await readText(message, MAX_PUSH_BYTES), { dryRun });
  if (outcome.ok) return { body: outcome.answer };
  const { problems } = outcome;
  const error = {
    code: "invalid",
    message: `${problems.length} problem${problems.length === 1 ? "" : "s"}; nothing has been changed`,
  } as const;
  return { body: { error, problems } satisfies PushRefusal, refused: true };
}

/** Answers a request with `PUSH_PATH` as the local socket does. Its caller has judged who asks. Never throws. */
export async function answerPush(
  pushed: Pick<PushedPods, "replace">,
  message: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  let answer: { readonly status: number; readonly body: unknown };
  try {
    const { method, query } = parseRequest(message.method ?? "", message.url ?? "");
    if (method !== "PUT") throw new PicoletError("unimplemented", `method ${method} is not offered here`);
    const { body, refused } = await pushPods(pushed, query, message);
    answer = { status: refused === true ? HTTP_STATUS.invalid : 200, body };
  } catch (error) {
    answer = errorAnswer(error);
  }
  const type = { "content-type": "application/json" };
  await endAnswer(response, answer.status, type, `${JSON.stringify(answer.body)}\n`);
}
