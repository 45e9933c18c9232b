import type { TunnelReport } from "@picolet/protocol/local-api/status.ts";
import type { MonotonicMs } from "@picolet/protocol/ports.ts";
import type { HubAddress } from "../core/hub/hub-address.ts";
import type { IdentityState } from "../core/hub/identity.ts";
import type { TunnelState } from "./session-state.ts";

export interface TunnelCounters {
  readonly bytesSent: number;
  readonly bytesReceived: number;
  readonly sessions: number;
}

export interface TunnelReportInit {
  readonly now: MonotonicMs;
  readonly wall: Date;
  readonly hubs: readonly HubAddress[];
  readonly pendingStatuses: number;
  readonly counters: TunnelCounters;
  readonly identity: IdentityState;
}

/**
 * For people and scripts. Times follow the wall clock as it is now: a board that started in 1970 shows no such time.
 */
export function reportOf(state: TunnelState, init: TunnelReportInit): TunnelReport {
  const { now, wall, hubs, pendingStatuses, counters, identity } = init;
  const timeOf = (at: MonotonicMs): string => new Date(wall.getTime() + (at - now)).toISOString();
  const details = { ...counters, pendingStatuses, ...certificateOf(identity) };
  if ("session" in state) {
    const { hub, since, rttMs } = state.session;
    const url = hubs[hub]?.url ?? "";
    return { state: "connected", since: timeOf(since), rttMs: Math.round(rttMs * 10) / 10, hub: url, ...details };
  }
  const { outage, attempt } = state;
  const hub = hubs[attempt.hub]?.url ?? "";
  if (outage.problem === "") return { state: "connecting", since: null, rttMs: null, hub, ...details };
  return {
    state: "disconnected",
    since: timeOf(outage.since),
    rttMs: null,
    hub,
    problem: outage.problem,
    refused: outage.isRefused,
    nextTry: state.kind === "backingOff" ? timeOf(state.until) : null,
    ...details,
  };
}

function certificateOf(identity: IdentityState): Pick<TunnelReport, "certificate"> {
  if (identity.kind !== "joined") return {};
  const { notBeforeMs, notAfterMs } = identity.credentials;
  return {
    certificate: { notBefore: new Date(notBeforeMs).toISOString(), notAfter: new Date(notAfterMs).toISOString() },
  };
}
