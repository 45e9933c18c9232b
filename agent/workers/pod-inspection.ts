/** Inspects one pod in its runtime, no more often than useful. */
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { type Millis, type MonotonicMs, millis, type PodUid } from "@picolet/protocol/ports.ts";
import type { ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { RECHECK_MS } from "../plan/worker-memory.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";
import { INSPECT_TIMEOUT } from "./steps/runtime-calls.ts";
import { nextFailure } from "./steps/step-failures.ts";
import { failuresOf, type WorkerAccess } from "./steps/worker-access.ts";

/** The key of an inspection's failures. */
const INSPECT = "inspect";

export class PodInspection {
  readonly #ports: WorkerPorts;
  readonly #uid: PodUid;
  readonly #worker: WorkerAccess;

  constructor(ports: WorkerPorts, uid: PodUid, worker: WorkerAccess) {
    this.#ports = ports;
    this.#uid = uid;
    this.#worker = worker;
  }

  /** When an inspection that failed is tried again; `undefined`: the last one succeeded. */
  get retryAt(): MonotonicMs | undefined {
    return failuresOf(this.#worker.state).get(INSPECT)?.retryAt;
  }

  /** How long to wait before the next inspection after a hint that showed nothing; `undefined`: none is needed. */
  takeRecheck(): Millis | undefined {
    const { state } = this.#worker;
    if (state.kind === "gone" || state.inspection.rechecks === 0) return undefined;
    const wait = RECHECK_MS[RECHECK_MS.length - state.inspection.rechecks] ?? 0;
    this.#worker.dispatch({ kind: "rechecked" });
    return millis(wait);
  }

  /** @returns `undefined` when the runtime cannot be asked. @throws `cancelled` alone */
  async inspect(adapter: RuntimeAdapter | undefined, signal: AbortSignal): Promise<ObservedPod | undefined> {
    const { observer, isSettled } = this.#ports;
    const { state } = this.#worker;
    const uid = this.#uid;
    const nothing: ObservedPod = { uid, sandboxes: [], containers: [], manifest: undefined };
    if (adapter === undefined || state.kind === "gone") return nothing;
    const listing = observer.listing(adapter);
    if (listing === undefined) return undefined;
    // A pod without traces waits until all pods of the runtime are identified: one may have its name, or be this pod.
    if (!listing.has(uid) && !isSettled(adapter)) return undefined;
    if (state.kind !== "terminating" && !listing.has(uid) && !state.inspection.mayHaveTraces) return nothing;
    this.#worker.dispatch({ kind: "touched" });
    return await this.#call(adapter, signal);
  }

  async #call(adapter: RuntimeAdapter, signal: AbortSignal): Promise<ObservedPod | undefined> {
    const { clock, log } = this.#ports;
    const uid = this.#uid;
    try {
      const inspect = (deadline: AbortSignal) => adapter.inspect(uid, deadline);
      const inspected = await withDeadline(clock, INSPECT_TIMEOUT, `inspect pod ${uid}`, inspect, signal);
      // The manifest would keep a second copy of the pod in memory.
      const observed: ObservedPod = { ...inspected, manifest: undefined };
      this.#worker.dispatch({ kind: "failureCleared", step: INSPECT });
      this.#worker.dispatch({ kind: "inspected", fingerprint: fingerprintOf(observed) });
      return observed;
    } catch (error) {
      if (isCancelled(error)) throw error;
      const known = failuresOf(this.#worker.state);
      const failure = nextFailure(known, { step: INSPECT, error, reason: "InspectFailed" }, this.#ports);
      this.#worker.dispatch({ kind: "stepFailed", step: INSPECT, failure });
      if (failure.count === 1) log.warn("cannot inspect a pod", { pod: uid, error: failure.message });
      return undefined;
    }
  }
}

const fingerprintOf = ({ sandboxes, containers }: ObservedPod): string =>
  [...sandboxes, ...containers]
    .map(({ id, state }) => `${id} ${typeof state === "string" ? state : state.kind}`)
    .join();
