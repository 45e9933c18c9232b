/** A component that exports wasi:http/handler of WASI 0.3: one of its instances, as those of 0.2 are for the pool that serves. */

import type { HandlerInstance } from "../../serving/instance-pool.ts";
import { Failure } from "../failure.ts";
import { trap } from "../handles.ts";
import type { HttpErrorCode } from "../http/error-code.ts";
import { Fields } from "../http/fields.ts";
import { type IncomingRequest, OutgoingResponse, ResponseOutparam } from "../http/messages.ts";
import {
  type AsyncHttp,
  AsyncRequest,
  AsyncResponse,
  ReceivedBody,
  settleWithout,
  transmitted,
} from "./async-messages.ts";

const HANDLER = "wasi:http/handler@";

type Handle = (request: AsyncRequest) => Promise<AsyncResponse>;

/** @param fault rejects when the instance is broken. */
export function asyncHandler(
  exports: Readonly<Record<string, unknown>>,
  http: AsyncHttp,
  fault: Promise<never>,
): HandlerInstance {
  const name = Object.keys(exports).find((each) => each.startsWith(HANDLER)) ?? "";
  const { handle } = exports[name] as { readonly handle: Handle };
  return {
    context: http.http,
    handle: (request, out) => Promise.race([answered(handle, http, request, out), fault]),
  };
}

/** Until the response is whole, which the component may still write when it has returned it. */
async function answered(
  handle: Handle,
  http: AsyncHttp,
  request: IncomingRequest,
  out: ResponseOutparam,
): Promise<void> {
  const received = receivedRequest(http, request);
  let response: AsyncResponse;
  try {
    response = await handle(received);
  } catch (error) {
    const code = codeOf(error);
    if (code === undefined) throw error;
    ResponseOutparam.set(out, { tag: "err", val: code });
    return;
  }
  if (!(response instanceof AsyncResponse)) throw trap("the component returned no response");
  const { fields, status, body } = response.given();
  const answer = new OutgoingResponse(http.http, new Fields(http.http, fields, false));
  answer.setStatusCode(status);
  const target = body.reader === undefined ? undefined : answer.body();
  const { pipe } = answer;
  ResponseOutparam.set(out, { tag: "ok", val: answer });
  if (target === undefined) settleWithout(body);
  else await transmitted(http, body, target, pipe);
}

function receivedRequest(http: AsyncHttp, request: IncomingRequest): AsyncRequest {
  const head = {
    method: request.method(),
    path: request.pathWithQuery(),
    scheme: request.scheme(),
    authority: request.authority(),
  };
  const { fields, pipe } = request.given();
  return new AsyncRequest(http, fields, new ReceivedBody(http, pipe), head);
}

/** What the component itself says went wrong; undefined: it trapped. */
function codeOf(error: unknown): HttpErrorCode | undefined {
  if (error instanceof Failure) return (error as Failure<HttpErrorCode>).payload;
  if (error instanceof Error && Object.hasOwn(error, "payload")) return Reflect.get(error, "payload") as HttpErrorCode;
  return undefined;
}
