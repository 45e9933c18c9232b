import { joinSignals, onAbort } from "@picolet/protocol/async/abort.ts";
import { type BackoffPolicy, backoffDelay } from "@picolet/protocol/async/backoff.ts";
import { describeError, ignore, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import { HintQueue } from "@picolet/runtime-contract/hint-queue.ts";
import type { RuntimeEvent } from "../wire/containerd-services.ts";
import type { CriClient } from "../wire/cri-client.ts";
import { ContainerState, RuntimeService, SandboxState } from "../wire/cri-messages.ts";
import { LABEL } from "./labels.ts";
import type { Owned, OwnedIds } from "./owned-ids.ts";
import type { PodInspector } from "./pod-inspector.ts";

/**
 * After a stream broke: a restarting containerd is back within a second or two. No jitter: it is one client of a local
 * socket.
 */
const RECONNECT: BackoffPolicy = { first: millis(50), max: seconds(5) };
/** A runtime without events may have been replaced by one that has them. */
const NO_EVENTS_RETRY = seconds(600);
/**
 * containerd reports an end, or an OOM kill, some milliseconds before its CRI plugin has recorded it. The container is
 * inspected after each of these pauses, and after the last the hint is given in any case.
 */
const SETTLE_PAUSES_MS = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];

/**
 * The source of changes, the better one first: events of containerd's own can be asked for on a quiet node, and carry
 * no statuses.
 */
type Source = "containerdEvents" | "criEvents";

/** Turns what the runtime streams into hints. Reconnects by itself; what was missed meanwhile a relist finds. */
export class RuntimeHints {
  readonly #client: CriClient;
  readonly #owned: OwnedIds;
  readonly #inspector: PodInspector;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #owner: string;
  /** Expected echoes by their text: as many as there are calls of `echo`. */
  readonly #echoes = new Map<string, () => void>();
  /** Undefined while nothing is read. */
  #source: Source | undefined;

  constructor(
    components: {
      readonly client: CriClient;
      readonly owned: OwnedIds;
      readonly inspector: PodInspector;
      readonly clock: Clock;
      readonly log: Log;
    },
    init: { readonly owner: string },
  ) {
    this.#client = components.client;
    this.#owned = components.owned;
    this.#inspector = components.inspector;
    this.#clock = components.clock;
    this.#log = components.log;
    this.#owner = init.owner;
  }

  async *hints(signal: AbortSignal): AsyncGenerator<PodUid> {
    using reader = joinSignals(signal);
    const queue = new HintQueue();
    const reading = this.#readForEver(queue, reader.signal);
    try {
      yield* queue.take(reader.signal);
    } finally {
      reader.abort();
      await reading;
    }
  }

  /** @see RuntimeAdapter.tryHints. CRI's own events always concern a pod, so none can serve as an echo. */
  async echo(signal: AbortSignal): Promise<boolean> {
    if (this.#source !== "containerdEvents") return false;
    const text = `${this.#owner} ${this.#clock.wall().getTime()} ${this.#clock.monotonic()}`;
    const { promise: back, resolve } = Promise.withResolvers<boolean>();
    this.#echoes.set(text, () => resolve(true));
    using _stop = onAbort(signal, () => resolve(false));
    try {
      await this.#client.containerd.publishEcho(text, signal);
      return await back;
    } catch (error) {
      if (isCancelled(error) || !isPicoletError(error)) throw error;
      return false;
    } finally {
      this.#echoes.delete(text);
    }
  }

  /** Never rejects. */
  async #readForEver(queue: HintQueue, signal: AbortSignal): Promise<void> {
    let source: Source = "containerdEvents";
    let losses = 0;
    let without = false;
    while (!signal.aborted) {
      let pause: Millis | undefined;
      this.#source = source;
      try {
        await this.#read(source, queue, signal, () => {
          losses = 0;
          without = false;
        });
      } catch (error) {
        if (isCancelled(error)) return;
        if (isPicoletError(error, "unimplemented")) {
          if (source === "containerdEvents") {
            source = "criEvents";
            continue;
          }
          if (!without) this.#log.info("the container runtime streams no events: changes are found by relisting alone");
          without = true;
          pause = NO_EVENTS_RETRY;
        }
      }
      // Lost, or ended by a runtime that stops. The next one may be of another kind.
      this.#source = undefined;
      source = "containerdEvents";
      losses += 1;
      await this.#clock
        .sleep(pause ?? backoffDelay(RECONNECT, losses), signal)
        .catch(ignore("the loop ends with the signal"));
    }
  }

  async #read(source: Source, queue: HintQueue, signal: AbortSignal, onEvent: () => void): Promise<void> {
    if (source === "criEvents") await this.#readCriEvents(queue, signal, onEvent);
    else await this.#readContainerdEvents(queue, signal, onEvent);
  }

  async #readCriEvents(queue: HintQueue, signal: AbortSignal, onEvent: () => void): Promise<void> {
    const events = this.#client.grpc.serverStream(RuntimeService.getContainerEvents, {}, undefined, signal);
    for await (const { containerId, podSandboxStatus } of events) {
      onEvent();
      const labels = podSandboxStatus?.labels;
      const uid = labels?.get(LABEL.owner) === this.#owner ? labels.get(LABEL.podUid) : undefined;
      const owned = this.#owned.get(containerId)?.uid ?? (uid as PodUid | undefined);
      if (owned !== undefined) queue.add(owned);
    }
  }

  async #readContainerdEvents(queue: HintQueue, signal: AbortSignal, onEvent: () => void): Promise<void> {
    for await (const event of this.#client.containerd.events(signal)) {
      onEvent();
      if (event.kind === "echo") {
        this.#echoes.get(event.text)?.();
        continue;
      }
      const { kind, containerId } = event;
      this.#settle(kind, containerId, queue, signal).catch((error: unknown) => {
        if (!isCancelled(error)) this.#log.debug("a hint is lost", { containerId, error: describeError(error) });
      });
    }
  }

  async #settle(
    kind: Exclude<RuntimeEvent["kind"], "echo">,
    id: string,
    queue: HintQueue,
    signal: AbortSignal,
  ): Promise<void> {
    const owned = await this.#find(id, signal);
    if (owned === undefined) return;
    for (const pauseMs of SETTLE_PAUSES_MS) {
      if (pauseMs > 0) await this.#clock.sleep(millis(pauseMs), signal);
      const isWritten =
        kind === "outOfMemory" ? this.#inspector.isOomKilled(id, signal) : this.#hasEnded(id, owned, signal);
      if (await isWritten) break;
    }
    queue.add(owned.uid);
  }

  async #hasEnded(id: string, { kind }: Owned, signal: AbortSignal): Promise<boolean> {
    return kind === "container"
      ? (await this.#inspector.containerState(id, signal)) !== ContainerState.running
      : (await this.#inspector.sandboxState(id, signal)) !== SandboxState.ready;
  }

  /** `undefined` for one that is not ours. */
  async #find(id: string, signal: AbortSignal): Promise<Owned | undefined> {
    const known = this.#owned.get(id);
    if (known !== undefined) return known;
    try {
      return (await this.#owned.require(id, "container", signal)) ?? (await this.#owned.require(id, "sandbox", signal));
    } catch (error) {
      if (isPicoletError(error, "permission_denied")) return undefined;
      throw error;
    }
  }
}
