/** Answers pods that ask why, with the story in the black box of their board, for `kubectl describe pod`. */
import type { Fleet } from "@picolet/hub-core/fleet.ts";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { KubeletParams, OpenedStream } from "@picolet/protocol/tunnel/stream.ts";
import { logFailure, type NodeConnection } from "./node-connection.ts";
import { WHY_ANNOTATION } from "./well-known.ts";

/** A board's own limit is 4,096 characters (`agent/streams/why-path.ts`); Kubernetes' is 256 KiB for all annotations. */
const MAX_WHY_LENGTH = 4096;
/** Bytes of an answer; more is not read. */
const MAX_ANSWER_BYTES = 4 * MAX_WHY_LENGTH;
const ANSWER_TIMEOUT = seconds(30);
/** The time between answers of one node, so that its pods' owners cannot keep the hub or the board busy. */
const PAUSE = seconds(1);

/** The pods of one node that ask, answered one after the other. */
export class WhyAnnotations {
  readonly #connection: NodeConnection;
  readonly #boards: Pick<Fleet, "open">;
  /** The UIDs of pods by path, so at most one for each pod of the node. */
  readonly #asking = new Map<string, string>();
  #isAnswering = false;

  constructor(connection: NodeConnection, boards: Pick<Fleet, "open">) {
    this.#connection = connection;
    this.#boards = boards;
  }

  /** A pod whose answer fails is asked for again with its next change, or when its node comes back. */
  ask(path: string, uid: string, signal: AbortSignal): void {
    this.#asking.set(path, uid);
    if (this.#isAnswering) return;
    this.#isAnswering = true;
    const { log, node } = this.#connection;
    this.#answerAll(signal).catch(logFailure(log, "cannot tell pods why", { node }));
  }

  async #answerAll(signal: AbortSignal): Promise<void> {
    const { clock, log, node } = this.#connection;
    try {
      for (const [path, uid] of this.#asking) {
        this.#asking.delete(path);
        await this.#answer(path, uid, signal).catch(logFailure(log, "cannot tell a pod why", { node, pod: path }));
        await clock.sleep(PAUSE, signal);
      }
    } finally {
      this.#isAnswering = false;
    }
  }

  async #answer(path: string, uid: string, signal: AbortSignal): Promise<void> {
    const { cache, clock, hubClient, node } = this.#connection;
    const pod = cache.pod(node, path);
    if (pod?.uid !== uid || !pod.asksWhy) return;
    const what = "read what the board tells";
    const told = await withDeadline(clock, ANSWER_TIMEOUT, what, (stop) => this.#read(path, stop), signal);
    const text = `As of ${kubeTime(clock.wall())}, in UTC:\n${printable(told)}`.slice(0, MAX_WHY_LENGTH);
    const [namespace = "", name = ""] = path.split("/");
    const patch = { metadata: { uid, annotations: { [WHY_ANNOTATION]: text } } };
    try {
      await hubClient.patch(PODS, { namespace, name }, "merge", patch, {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found") && !isPicoletError(error, "conflict")) throw error;
    }
  }

  async #read(path: string, signal: AbortSignal): Promise<string> {
    const [namespace = "", name = ""] = path.split("/");
    const params: KubeletParams = { method: "GET", path: `/why/${namespace}/${name}?output=text` };
    const stream = await this.#boards.open(this.#connection.node, "kubelet", params, "bulk", signal);
    stream.end();
    const body = await bodyOf(stream, signal);
    const { status } = (stream.reply ?? {}) as { readonly status?: unknown };
    return status === 200 ? body : `The board does not tell: ${body}`;
  }
}

async function bodyOf(stream: OpenedStream, signal: AbortSignal): Promise<string> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const piece = await stream.read(signal);
    if (piece !== undefined) pieces.push(piece);
    length += piece?.length ?? 0;
    if (length > MAX_ANSWER_BYTES) stream.reset({ code: "cancelled", message: "the answer is too long" });
    if (piece === undefined || length > MAX_ANSWER_BYTES) break;
  }
  return Buffer.concat(pieces).subarray(0, MAX_ANSWER_BYTES).toString("utf8");
}

/** A board's words reach terminals: control characters, and what turns the direction of text, are replaced. */
const printable = (text: string): string => text.trimEnd().replace(/[^\P{C}\n]/gu, "?");
