/** What wasi:http's resources of one component instance share. */
import { HandlePool } from "../handles.ts";
import type { StreamContext } from "../streams.ts";

export class HttpPools {
  readonly fields = new HandlePool("sets of header fields");
  readonly incomingRequests = new HandlePool("incoming requests");
  readonly outgoingRequests = new HandlePool("outgoing requests");
  readonly options = new HandlePool("request options");
  readonly outparams = new HandlePool("response-outparams");
  readonly incomingResponses = new HandlePool("incoming responses");
  readonly outgoingResponses = new HandlePool("outgoing responses");
  readonly incomingBodies = new HandlePool("incoming bodies");
  readonly outgoingBodies = new HandlePool("outgoing bodies");
  readonly futureTrailers = new HandlePool("future trailers");
  readonly futureResponses = new HandlePool("future responses");
}

export interface HttpContext extends StreamContext {
  readonly pools: HttpPools;
}
