/**
 * Pulls one image and ends. The request is the first line of standard input, the answers are lines of standard output.
 * When the input ends, the agent that wanted the image has gone.
 */
import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { ownPeakRssKiB } from "../shared/files/peak-memory.ts";
import type { PullAnswer, PullRequest } from "../shared/messages/pull-request.ts";
import { findPlatforms, findSignatures, pullComponent } from "./image-pull.ts";

/** Bounds how often progress is reported. */
const PROGRESS_INTERVAL_MS = 250;
/**
 * Buffers of received chunks are freed by a collection only, and V8 hardly counts them towards the next one: 8 MiB more
 * without this.
 */
const COLLECT_EVERY_BYTES = 262_144;

function answer(message: PullAnswer): void {
  writeSync(1, `${JSON.stringify(message)}\n`);
}

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

async function main(text: string): Promise<void> {
  try {
    answer(await run(JSON.parse(text) as PullRequest, new AbortController().signal));
  } catch (error) {
    const { code, retryable } = isPicoletError(error) ? error : { code: "failed" as const, retryable: true };
    answer({ kind: "failed", code, retryable, message: describeError(error) });
  }
  process.exit(0);
}

const lines = createInterface({ input: process.stdin });
lines.once("line", (line) => void main(line));
lines.once("close", () => process.exit(1));
