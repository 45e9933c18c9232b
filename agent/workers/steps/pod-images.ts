/** The images of one pod's containers on their way to the node, while the worker goes on with other things. */

import { type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ResolvedImage, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ImageManager } from "../../core/pods/pod-ports.ts";

/** To look up an image that is on the node takes a few ms; what takes longer is a pull, which nobody waits for. */
const PATIENCE = millis(500);
/**
 * An image that a round got and did not come to use, because its pod had no sandbox, is good for the next ones this
 * long; later it may have been removed, or its tag may be another image's.
 */
const FRESH = seconds(60);

interface Track {
  readonly image: string;
  readonly adapter: RuntimeAdapter;
  readonly joined: JoinedSignal;
  readonly settled: Promise<void>;
  result: { readonly image: ResolvedImage; readonly at: MonotonicMs } | { readonly error: unknown } | undefined;
  waitedFor: boolean;
}

/** One track for each container at most. */
export class PodImages {
  readonly #components: { readonly images: ImageManager; readonly clock: Clock };
  readonly #arrived: () => void;
  readonly #tracks = new Map<string, Track>();

  /** @param arrived called when an image that `take` did not wait for is there, or has failed. */
  constructor(components: { readonly images: ImageManager; readonly clock: Clock }, arrived: () => void) {
    this.#components = components;
    this.#arrived = arrived;
  }

  /**
   * Begins to get the image unless that is under way, or its arrival has been told of and not been used yet.
   * @param life of the whole undertaking.
   */
  begin(pod: DesiredPod, container: Container, adapter: RuntimeAdapter, life: AbortSignal): void {
    const known = this.#tracks.get(container.name);
    if (known?.image === container.image && known.adapter === adapter && this.#isFresh(known)) return;
    if (known !== undefined) this.#end(container.name, known);
    const joined = joinSignals(life);
    const ensured = this.#components.images.ensure(pod, container, adapter, joined.signal);
    const track: Track = {
      image: container.image,
      adapter,
      joined,
      settled: ensured.then(
        (image) => this.#settle(track, { image, at: this.#components.clock.monotonic() }),
        (error: unknown) => this.#settle(track, { error }),
      ),
      result: undefined,
      waitedFor: false,
    };
    this.#tracks.set(container.name, track);
  }

  /**
   * @returns `undefined` while the image is still on its way; `arrived` will be called.
   * @throws what the image manager throws.
   */
  async take(name: string, signal: AbortSignal): Promise<ResolvedImage | undefined> {
    const track = this.#tracks.get(name);
    if (track === undefined) return undefined;
    if (track.result === undefined && !track.waitedFor) {
      await withDeadline(this.#components.clock, PATIENCE, "wait for an image", () => track.settled, signal).catch(
        (error: unknown) => {
          if (!isPicoletError(error, "deadline_exceeded")) throw error;
        },
      );
      track.waitedFor = true;
    }
    if (track.result === undefined) return undefined;
    this.#end(name, track);
    if ("error" in track.result) throw track.result.error;
    return track.result.image;
  }

  /** Gives up all that is under way. */
  abandon(): void {
    for (const [name, track] of this.#tracks) this.#end(name, track);
  }

  #isFresh({ result, waitedFor }: Track): boolean {
    if (result === undefined || waitedFor) return true;
    return "image" in result && this.#components.clock.monotonic() - result.at < FRESH;
  }

  #settle(track: Track, result: Track["result"]): void {
    track.result = result;
    if (track.waitedFor && !track.joined.signal.aborted) this.#arrived();
  }

  #end(name: string, track: Track): void {
    this.#tracks.delete(name);
    track.joined.abort();
    track.joined[Symbol.dispose]();
  }
}
