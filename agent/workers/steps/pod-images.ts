/** Pulls the images of one pod's containers while the worker continues with other steps. */

import { type JoinedSignal, joinSignals } from "@picolet/protocol/async/abort.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { type Clock, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ResolvedImage, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ImageManager } from "../../core/pods/pod-ports.ts";

/** A lookup of an image on the node takes a few ms. A longer one is a pull, for which no round waits. */
const PATIENCE = millis(500);
/**
 * How long an image that a round did not use, because the pod had no sandbox, serves later rounds. After that it may
 * have been removed, or its tag may name another image.
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

/** Has at most one track for each container. */
export class PodImages {
  readonly #components: { readonly images: ImageManager; readonly clock: Clock };
  readonly #arrived: () => void;
  readonly #tracks = new Map<string, Track>();

  /** @param arrived called when the pull of an image for which `take` did not wait succeeds or fails */
  constructor(components: { readonly images: ImageManager; readonly clock: Clock }, arrived: () => void) {
    this.#components = components;
    this.#arrived = arrived;
  }

  /**
   * Starts the pull unless it is under way, or its image has arrived and was not used yet.
   * @param life ends the pull
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
   * @returns `undefined` while the image is being pulled; `arrived` is called later
   * @throws what the image manager throws
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

  /** Cancels all pulls. */
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
