/** wasi:http for one instance of a component. */

import type { Imports } from "../host/host.ts";
import { makeConstructor } from "../resources/handles.ts";
import type { HostError, StreamContext } from "../resources/streams.ts";
import { FieldList, Fields } from "./fields.ts";
import { type HttpContext, HttpPools } from "./http-context.ts";
import { FutureTrailers, IncomingBody } from "./incoming-body.ts";
import {
  IncomingRequest,
  IncomingResponse,
  OutgoingRequest,
  OutgoingResponse,
  RequestOptions,
  ResponseOutparam,
} from "./messages.ts";
import { FutureIncomingResponse, type OutgoingHttp } from "./outgoing.ts";
import { OutgoingBody } from "./outgoing-body.ts";

export const httpContext = (streams: StreamContext): HttpContext => ({
  ...streams,
  pools: new HttpPools(streams.handles.live),
});

/** @param outgoing makes its requests */
export const httpImports = (context: HttpContext, outgoing: OutgoingHttp): Imports => ({
  "wasi:http/types": {
    Fields: makeConstructor(Fields, () => new Fields(context, new FieldList(), false), {
      fromList: (entries: Parameters<typeof Fields.fromList>[1]) => Fields.fromList(context, entries),
    }),
    IncomingRequest,
    IncomingResponse,
    IncomingBody,
    FutureTrailers,
    OutgoingRequest: makeConstructor(OutgoingRequest, (headers: Fields) => new OutgoingRequest(context, headers)),
    OutgoingResponse: makeConstructor(OutgoingResponse, (headers: Fields) => new OutgoingResponse(context, headers)),
    OutgoingBody,
    RequestOptions: makeConstructor(RequestOptions, () => new RequestOptions(context)),
    ResponseOutparam,
    FutureIncomingResponse,
    httpErrorCode: (error: HostError) => error.codeIn("http"),
  },
  "wasi:http/outgoing-handler": {
    handle: (request: OutgoingRequest, options: RequestOptions | undefined) =>
      outgoing.handle(context, request, options),
  },
});
