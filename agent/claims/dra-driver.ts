/** Port of the drivers that have registered for dynamic resource allocation. */
import type { ClaimedDevice } from "../core/pods/pod-claims.ts";

export interface ClaimReference {
  readonly namespace: string;
  readonly uid: string;
  readonly name: string;
}

/** A driver's answer for one claim. */
export interface PreparedClaim {
  readonly devices: readonly ClaimedDevice[];
  /** "": it is prepared. */
  readonly error: string;
}

/** The service `DRAPlugin` of k8s.io/kubelet/pkg/apis/dra. Answers are by the UID of the claim. */
export interface DraDriver {
  /** @throws `unavailable`, `deadline_exceeded` and what else a call throws */
  prepare(claims: readonly ClaimReference[], signal: AbortSignal): Promise<ReadonlyMap<string, PreparedClaim>>;
  /** @returns the error of each claim; "": it is unprepared */
  unprepare(claims: readonly ClaimReference[], signal: AbortSignal): Promise<ReadonlyMap<string, string>>;
  /** Reports whether its process is there, and each change of it, until `signal` aborts. @throws `cancelled` alone */
  follow(report: (isThere: boolean) => void, signal: AbortSignal): Promise<never>;
}

export interface DraDrivers {
  driver(name: string): DraDriver | undefined;
}
