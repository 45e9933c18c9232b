import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { HealthCheck } from "../api/health-port.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import type { StoreState } from "../store/store-file.ts";

export interface HealthSources {
  /** Joined with what the runtimes say of themselves. */
  readonly runtimes: Watch<readonly RuntimeHealth[]>;
  readonly store: Watch<StoreState>;
  readonly wantedPods: () => number;
  readonly workers: () => number;
}

const PLEG_REASON = "PLEGNotHealthy";

/** What `/healthz` asks. That it is answered at all shows that the agent's one thread goes round. */
export function healthChecks({ runtimes, store, wantedPods, workers }: HealthSources): readonly HealthCheck[] {
  const failing = (isPleg: boolean): string | undefined => {
    const ill = runtimes.current.filter(({ healthy, reason }) => !healthy && (reason === PLEG_REASON) === isPleg);
    return ill.length === 0 ? undefined : ill.map(({ name, message }) => `${name}: ${message}`).join(", ");
  };
  return [
    { name: "ping", problem: () => undefined },
    { name: "PLEG", problem: () => failing(true) },
    {
      name: "runtime",
      problem: () => (runtimes.current.length === 0 ? "no runtime has answered yet" : failing(false)),
    },
    { name: "store", problem: () => storeProblem(store.current) },
    {
      name: "syncloop",
      problem: () => {
        const idle = wantedPods() - workers();
        return idle > 0 ? `${idle} wanted pods have no worker` : undefined;
      },
    },
  ];
}

function storeProblem(state: StoreState): string | undefined {
  if (state.kind === "durable") return undefined;
  return `${state.kind === "unwritable" ? "cannot be written to" : "is in memory only"}: ${state.reason}`;
}
