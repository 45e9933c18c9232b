/**
 * wasi:http/{types,client} of WASI 0.3 for one instance: requests go out as those of 0.2 do, by the same rules and
 * limits.
 */

import type { Imports } from "../../shared/host/host.ts";
import type { HttpErrorCode } from "../../shared/http/error-code.ts";
import { type FieldEntry, FieldList, Fields } from "../../shared/http/fields.ts";
import { httpContext } from "../../shared/http/http.ts";
import { type IncomingResponse, OutgoingRequest, RequestOptions } from "../../shared/http/messages.ts";
import type { FutureIncomingResponse, OutgoingHttp } from "../../shared/http/outgoing.ts";
import { Failure } from "../../shared/resources/failure.ts";
import { makeConstructor, trap, trapOnNew } from "../../shared/resources/handles.ts";
import type { AsyncContext } from "./async-context.ts";
import { AsyncFields, AsyncOptions } from "./async-fields.ts";
import {
  type AsyncHttp,
  AsyncRequest,
  AsyncResponse,
  type BodyPair,
  type FutureOf,
  IncomingHostBody,
  OutgoingComponentBody,
  type Sent,
  settleWithoutBody,
  type Trailers,
  transmitBody,
} from "./async-messages.ts";
import { type ByteReader, waitUntilReady } from "./byte-flow.ts";

type Outcome =
  | undefined
  | { readonly tag: "ok"; readonly val: { readonly tag: "ok"; readonly val: IncomingResponse } }
  | { readonly tag: "ok"; readonly val: { readonly tag: "err"; readonly val: HttpErrorCode } };

export const asyncHttp = (context: AsyncContext): AsyncHttp => ({ context, http: httpContext(context) });

export const asyncHttpImports = (http: AsyncHttp, outgoing: OutgoingHttp): Imports => ({
  "wasi:http/types": {
    Fields: makeConstructor(AsyncFields, () => new AsyncFields(http.http, new FieldList(), false), {
      fromList: (entries: readonly FieldEntry[]) => AsyncFields.fromList(http.http, entries),
    }),
    Request: makeConstructor(AsyncRequest, trapOnNew, {
      new: (
        headers: Fields,
        contents: ByteReader | undefined,
        trailers: FutureOf<Trailers>,
        options?: AsyncOptions,
      ) => {
        const body = new OutgoingComponentBody(contents, trailers);
        const request = new AsyncRequest(http, headers.given(), body, undefined, options?.fixed());
        options?.[Symbol.dispose]();
        return [request, body.sent];
      },
      consumeBody,
    }),
    Response: makeConstructor(AsyncResponse, trapOnNew, {
      new: (headers: Fields, contents: ByteReader | undefined, trailers: FutureOf<Trailers>) => {
        const body = new OutgoingComponentBody(contents, trailers);
        return [new AsyncResponse(http, headers.given(), body), body.sent];
      },
      consumeBody,
    }),
    RequestOptions: makeConstructor(AsyncOptions, () => new AsyncOptions(http.context)),
  },
  "wasi:http/client": {
    send: (request: AsyncRequest) => http.context.watched(sent(http, outgoing, request)),
  },
});

const consumeBody = (message: AsyncRequest | AsyncResponse, outcome: FutureOf<Sent>): BodyPair =>
  message.given().body.consumed(outcome);

async function sent(http: AsyncHttp, outgoing: OutgoingHttp, request: AsyncRequest): Promise<AsyncResponse> {
  const { body } = request.given();
  const out = outgoingRequest(http, request);
  const hasBody = body.reader !== undefined;
  const target = hasBody ? out.body() : undefined;
  let future: FutureIncomingResponse;
  try {
    future = outgoing.handle(http.http, out, optionsOf(http, request));
  } catch (error) {
    if (error instanceof Failure) body.settle({ tag: "err", val: (error as Failure<HttpErrorCode>).payload });
    target?.[Symbol.dispose]();
    body.discard();
    throw error;
  }
  if (target === undefined) settleWithoutBody(body);
  else void http.context.watched(transmitBody(http, body, target, out.pipe));
  try {
    await waitUntilReady(future.readiness);
    return received(http, future.get() as Outcome);
  } finally {
    future[Symbol.dispose]();
  }
}

function outgoingRequest(http: AsyncHttp, { head, fields }: AsyncRequest): OutgoingRequest {
  const out = new OutgoingRequest(http.http, new Fields(http.http, fields, false));
  out.setMethod(head.method);
  out.setPathWithQuery(head.path);
  out.setScheme(head.scheme);
  out.setAuthority(head.authority);
  return out;
}

function optionsOf(http: AsyncHttp, { options }: AsyncRequest): RequestOptions | undefined {
  if (options === undefined) return undefined;
  const { connect, firstByte, betweenBytes } = options.timeouts;
  options[Symbol.dispose]();
  const makeConstructor = new RequestOptions(http.http);
  makeConstructor.setConnectTimeout(connect);
  makeConstructor.setFirstByteTimeout(firstByte);
  makeConstructor.setBetweenBytesTimeout(betweenBytes);
  return makeConstructor;
}

/** @throws the error code */
function received(http: AsyncHttp, outcome: Outcome): AsyncResponse {
  if (outcome === undefined) throw trap("a response is said to be there that is not");
  if (outcome.val.tag === "err") throw new Failure(outcome.val.val);
  const response = outcome.val.val;
  const status = response.status();
  const { fields, pipe } = response.given();
  return new AsyncResponse(http, fields, new IncomingHostBody(http, pipe), status);
}
