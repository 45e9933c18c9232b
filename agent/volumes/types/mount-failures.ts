/** The kubelet's events about volumes of a pod that cannot be set up. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type MonotonicMs, type PodUid, seconds } from "@picolet/protocol/ports.ts";

/** The kubelet's time of waiting for all volumes of a pod; then it reports which are missing, and waits again. */
const SUMMED_UP_AFTER = seconds(123);

export class MountFailures {
  readonly #clock: Pick<Clock, "monotonic">;
  /**
   * The time since which volumes of a pod have been missing, or of the last summary. Only pods that wait have one.
   */
  readonly #since = new Map<PodUid, MonotonicMs>();

  constructor(components: { readonly clock: Pick<Clock, "monotonic"> }) {
    this.#clock = components.clock;
  }

  /**
   * @param failures of volumes that were tried, by name
   * @param unprocessed failures of volumes that could not be processed, by name
   * @returns the error that names all, with the reason `FailedMount`, and one error for each event in its cause, an
   *   `AggregateError`; `undefined` where all is well
   */
  report(
    uid: PodUid,
    failures: ReadonlyMap<string, PicoletError>,
    unprocessed: ReadonlyMap<string, PicoletError>,
  ): PicoletError | undefined {
    if (failures.size + unprocessed.size === 0) {
      this.#since.delete(uid);
      return undefined;
    }
    const reported = [...failures.values()];
    // A kubelet that cannot process a volume does not wait for the others.
    if (unprocessed.size > 0) reported.push(summary(failures, unprocessed));
    else if (this.#isDue(uid)) reported.push(timedOut(failures));
    const [first, ...others] = reported;
    if (first === undefined) return undefined;
    const retryable = reported.every((failure) => failure.retryable);
    const message = reported.map((failure) => failure.message).join("; ");
    const cause = others.length === 0 ? {} : { cause: new AggregateError(reported) };
    return new PicoletError(first.code, message, { reason: "FailedMount", retryable, ...cause });
  }

  forget(uid: PodUid): void {
    this.#since.delete(uid);
  }

  #isDue(uid: PodUid): boolean {
    const now = this.#clock.monotonic();
    const since = this.#since.get(uid);
    const isDue = since !== undefined && now - since >= SUMMED_UP_AFTER;
    if (since === undefined || isDue) this.#since.set(uid, now);
    return isDue;
  }
}

type ByVolume = ReadonlyMap<string, PicoletError>;

function summary(failures: ByVolume, unprocessed: ByVolume): PicoletError {
  const errors = [...unprocessed.values()];
  const causes = errors.map((error) => error.message).join("; ");
  const retryable = errors.every((error) => error.retryable);
  const text = `${unmounted([...unprocessed.keys(), ...failures.keys()], unprocessed.keys())}: ${causes}`;
  return new PicoletError(retryable ? "unavailable" : "invalid", text, { retryable });
}

const timedOut = (failures: ByVolume): PicoletError =>
  new PicoletError("deadline_exceeded", `${unmounted(failures.keys(), [])}: context deadline exceeded`, {
    retryable: true,
  });

const unmounted = (missing: Iterable<string>, unprocessed: Iterable<string>): string =>
  `Unable to attach or mount volumes: unmounted volumes=${list(missing)}, unattached volumes=[], failed to process volumes=${list(unprocessed)}`;

const list = (names: Iterable<string>): string => `[${[...names].sort().join(" ")}]`;
