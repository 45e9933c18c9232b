/** What the runtime shows of one pod, and how often it is worth looking. */
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { type Millis, type MonotonicMs, millis, type PodUid } from "@picolet/protocol/ports.ts";
import type { ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";
import { INSPECT_TIMEOUT } from "./steps/runtime-calls.ts";
import type { StepFailures } from "./steps/step-failures.ts";

/**
 * When a hint's inspection shows nothing new, the hint came before the change shows: containerd reports an exit some
 * 10 ms before its own status has it. Looked again after these; then the next relist finds it.
 */
const LOOK_AGAIN_MS: readonly number[] = [25, 100, 400];
/** The key of an inspection's failures. */
const INSPECT = "inspect";

export class PodInspection {
  readonly #ports: WorkerPorts;
  readonly #uid: PodUid;
  readonly #failures: StepFailures;
  /** Whether the runtime may have anything of this pod that its last relist does not show. */
  #touched = false;
  /** What the last inspection showed, in short. */
  #fingerprint = "";
  /** How many looks again are left. */
  #looks = 0;

  constructor(ports: WorkerPorts, own: { readonly uid: PodUid; readonly failures: StepFailures }) {
    this.#ports = ports;
    this.#uid = own.uid;
    this.#failures = own.failures;
  }

  /** The runtime says that something has happened. */
  hinted(): void {
    this.#looks = LOOK_AGAIN_MS.length;
  }

  /** Something may be there that the last relist does not show. */
  touched(): void {
    this.#touched = true;
  }

  /** When an inspection that failed is tried again; `undefined`: none has. */
  get retryAt(): MonotonicMs | undefined {
    return this.#failures.current.get(INSPECT)?.retryAt;
  }

  /** How long to wait before the next look, because a hint has shown nothing so far; `undefined`: there is no need. */
  takeLookAgain(): Millis | undefined {
    if (this.#looks === 0) return undefined;
    const wait = LOOK_AGAIN_MS[LOOK_AGAIN_MS.length - this.#looks] ?? 0;
    this.#looks -= 1;
    return millis(wait);
  }

  /**
   * @param wanted whether a source wants the pod now
   * @returns `undefined` when the runtime could not be asked. @throws `cancelled` alone
   */
  async look(
    adapter: RuntimeAdapter | undefined,
    wanted: boolean,
    signal: AbortSignal,
  ): Promise<ObservedPod | undefined> {
    const { observer, isSettled } = this.#ports;
    const uid = this.#uid;
    const nothing: ObservedPod = { uid, sandboxes: [], containers: [], manifest: undefined };
    if (adapter === undefined) return nothing;
    const listing = observer.listing(adapter);
    if (listing === undefined) return undefined;
    // A pod with nothing in the runtime waits until it is known who else may have its name, or may be this very pod.
    if (!listing.has(uid) && !isSettled(adapter)) return undefined;
    if (wanted && !listing.has(uid) && !this.#touched) return nothing;
    this.#touched = true;
    return await this.#inspect(adapter, signal);
  }

  async #inspect(adapter: RuntimeAdapter, signal: AbortSignal): Promise<ObservedPod | undefined> {
    const { clock, log } = this.#ports;
    const uid = this.#uid;
    try {
      const look = (deadline: AbortSignal) => adapter.inspect(uid, deadline);
      const inspected = await withDeadline(clock, INSPECT_TIMEOUT, `inspect pod ${uid}`, look, signal);
      // What is kept of it must not keep a second copy of the pod.
      const observed: ObservedPod = { ...inspected, manifest: undefined };
      this.#failures.delete(INSPECT);
      const fingerprint = fingerprintOf(observed);
      if (fingerprint !== this.#fingerprint) this.#looks = 0;
      this.#fingerprint = fingerprint;
      return observed;
    } catch (error) {
      if (isCancelled(error)) throw error;
      const { count, message } = this.#failures.add(INSPECT, error, "InspectFailed");
      if (count === 1) log.warn("cannot inspect a pod", { pod: uid, error: message });
      return undefined;
    }
  }
}

const fingerprintOf = ({ sandboxes, containers }: ObservedPod): string =>
  [...sandboxes, ...containers]
    .map(({ id, state }) => `${id} ${typeof state === "string" ? state : state.kind}`)
    .join();
