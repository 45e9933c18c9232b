/** State that wasi:http's resources of one component instance share. */
import { HandlePool, type LiveResources } from "../resources/handles.ts";
import type { StreamContext } from "../resources/streams.ts";

export class HttpPools {
  readonly fields: HandlePool;
  readonly incomingRequests: HandlePool;
  readonly outgoingRequests: HandlePool;
  readonly options: HandlePool;
  readonly outparams: HandlePool;
  readonly incomingResponses: HandlePool;
  readonly outgoingResponses: HandlePool;
  readonly incomingBodies: HandlePool;
  readonly outgoingBodies: HandlePool;
  readonly futureTrailers: HandlePool;
  readonly futureResponses: HandlePool;

  constructor(live?: LiveResources) {
    const pool = (what: string): HandlePool => new HandlePool(what, live);
    this.fields = pool("sets of header fields");
    this.incomingRequests = pool("incoming requests");
    this.outgoingRequests = pool("outgoing requests");
    this.options = pool("request options");
    this.outparams = pool("response-outparams");
    this.incomingResponses = pool("incoming responses");
    this.outgoingResponses = pool("outgoing responses");
    this.incomingBodies = pool("incoming bodies");
    this.outgoingBodies = pool("outgoing bodies");
    this.futureTrailers = pool("future trailers");
    this.futureResponses = pool("future responses");
  }
}

export interface HttpContext extends StreamContext {
  readonly pools: HttpPools;
}
