/** Judges whether a board is as healthy after an update as before. Pure. */

/** The state before the update, which must be reached again. */
export interface HealthBefore {
  readonly isReady: boolean;
  readonly isConnected: boolean;
  readonly pods: readonly PodHealth[];
}

export interface PodHealth {
  /** `namespace/name`. */
  readonly name: string;
  readonly uid: string;
  /** Else it only ran. */
  readonly isReady: boolean;
}

export interface HealthNow {
  /** Message of the condition Ready that is not True; "" when it is. */
  readonly notReady: string;
  readonly isConnected: boolean;
  /** Why it is not; "" for nothing known. */
  readonly tunnelProblem: string;
  /** By UID. One that is missing is not wanted any more. */
  readonly pods: ReadonlyMap<string, PodNow>;
}

export interface PodNow {
  readonly isRunning: boolean;
  readonly isReady: boolean;
  /** It has ended for good: completed, or ended by the drain, after which its controller replaces it. */
  readonly isOver: boolean;
}

/** Bounds the pods that a message names. */
const MAX_NAMED = 5;

/** @returns what is not as healthy as before; undefined: everything is. */
export function healthProblem(before: HealthBefore, now: HealthNow): string | undefined {
  if (before.isReady && now.notReady !== "") return `the node is not ready: ${now.notReady}`;
  if (before.isConnected && !now.isConnected)
    return `no connection to the hub${now.tunnelProblem === "" ? "" : `: ${now.tunnelProblem}`}`;
  const missing = before.pods.filter(({ uid, isReady }) => {
    const pod = now.pods.get(uid);
    return pod !== undefined && !pod.isOver && !(isReady ? pod.isReady : pod.isRunning);
  });
  if (missing.length === 0) return undefined;
  const names = missing.slice(0, MAX_NAMED).map(({ name }) => name);
  const more = missing.length > MAX_NAMED ? ` and ${missing.length - MAX_NAMED} more` : "";
  return `not running as before: ${names.join(", ")}${more}`;
}
