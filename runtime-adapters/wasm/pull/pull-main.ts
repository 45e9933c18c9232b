/** Pulls one image and ends. */
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { ownPeakRssKiB } from "../shared/files/peak-memory.ts";
import type { PullAnswer, PullRequest } from "../shared/messages/pull-request.ts";
import { answerLine, runOneTask } from "../shared/programs/one-task.ts";
import { findPlatforms, findSignatures, pullComponent } from "./image-pull.ts";

/** Bounds how often progress is reported. */
const PROGRESS_INTERVAL_MS = 250;
/**
 * Buffers of received chunks are freed by a collection only, and V8 hardly counts them towards the next one: 8 MiB more
 * without this.
 */
const COLLECT_EVERY_BYTES = 262_144;

const answer = (message: PullAnswer): void => answerLine(message);

/** Tells how far it is, whenever that has changed. */
class Progress {
  #reported: readonly [bytes: number, totalBytes: number] = [0, 0];
  #now = this.#reported;

  start(): void {
    setInterval(() => this.#report(), PROGRESS_INTERVAL_MS).unref();
  }

  set(bytes: number, totalBytes: number): void {
    this.#now = [bytes, totalBytes];
    if (bytes === totalBytes) this.#report();
  }

  #report(): void {
    if (this.#reported === this.#now) return;
    this.#reported = this.#now;
    const [bytes, totalBytes] = this.#now;
    answer({ kind: "progress", bytes, totalBytes });
  }
}

class ChunkCollector {
  #collectedAt = 0;

  /** @param bytes since the pull began; fewer than before when a blob is asked for again */
  received(bytes: number): void {
    if (Math.abs(bytes - this.#collectedAt) < COLLECT_EVERY_BYTES) return;
    this.#collectedAt = bytes;
    void globalThis.gc?.({ type: "minor", execution: "sync" });
  }
}

async function run(request: PullRequest, signal: AbortSignal): Promise<PullAnswer> {
  const peak = (): { readonly peakRssKiB: number } => ({ peakRssKiB: ownPeakRssKiB() });
  if (request.want === "platforms") {
    return { kind: "platforms", platforms: await findPlatforms(request, signal), ...peak() };
  }
  if (request.want === "signatures") {
    return { kind: "signatures", signed: await findSignatures(request, signal), ...peak() };
  }
  const progress = new Progress();
  progress.start();
  const collector = new ChunkCollector();
  const onProgress = (bytes: number, totalBytes: number): void => {
    progress.set(bytes, totalBytes);
    collector.received(bytes);
  };
  const components = { clock: systemClock, random: { next: Math.random }, onProgress };
  return { kind: "component", component: await pullComponent(components, request, signal), ...peak() };
}

runOneTask<PullRequest>(run);
