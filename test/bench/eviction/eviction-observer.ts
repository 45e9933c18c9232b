/**
 * Beside the agent and independent of it: when the pods' memory crosses the threshold, and when nothing of the pod that
 * leaks is left. cgroup v1. A child of `leak-board.ts`, one for each leak.
 */
import { readdirSync, readFileSync } from "node:fs";
import { setPriority } from "node:os";
import { join } from "node:path";

export interface ObserverOrder {
  /** Folder of the memory controller: of all pods. */
  readonly pods: string;
  /** Above that working set the threshold is crossed. */
  readonly crossingBytes: number;
  /** Folder of the memory controller: of the pod that leaks. */
  readonly leaker: string;
}

export interface ObserverAnswer {
  /** Undefined: the pod was gone before. */
  readonly crossingToGoneMs: number | undefined;
  readonly peakBytes: number;
  /** Milliseconds since the epoch, to be held against logs. */
  readonly crossedAtMs: number | undefined;
}

/** The resolution of the times. It takes some percent of a core. */
const PAUSE_MS = 1;
const GIVE_UP_MS = 60_000;
const AHEAD_OF_ALL = -10;

const ticks = new Int32Array(new SharedArrayBuffer(4));
const pause = (): unknown => Atomics.wait(ticks, 0, 0, PAUSE_MS);

const read = (path: string): string => {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
};

/**
 * The working set of all pods. Far below the threshold it is an upper bound, because the long file is not read then.
 */
function workingSetOf({ pods, crossingBytes }: ObserverOrder): number {
  const usage = Number(read(join(pods, "memory.usage_in_bytes")));
  if (usage <= crossingBytes) return usage;
  const inactive = /^total_inactive_file (\d+)$/m.exec(read(join(pods, "memory.stat")))?.[1] ?? "0";
  return usage - Number(inactive);
}

function observe(order: ObserverOrder): ObserverAnswer {
  // The sandbox and the container.
  const folders = readdirSync(order.leaker, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const lists = folders.map(({ name }) => join(order.leaker, name, "cgroup.procs"));
  const isGone = (): boolean => lists.every((list) => read(list) === "");
  const giveUpAt = performance.now() + GIVE_UP_MS;
  let peakBytes = 0;
  let crossed: { readonly at: number; readonly wallMs: number } | undefined;
  while (performance.now() < giveUpAt) {
    const bytes = workingSetOf(order);
    if (bytes > order.crossingBytes) {
      peakBytes = Math.max(peakBytes, bytes);
      crossed ??= { at: performance.now(), wallMs: Date.now() };
    }
    if (isGone()) {
      const crossingToGoneMs = crossed === undefined ? undefined : performance.now() - crossed.at;
      return { crossingToGoneMs, peakBytes, crossedAtMs: crossed?.wallMs };
    }
    pause();
  }
  throw new Error(`${order.leaker} is not gone`);
}

process.once("message", (order: ObserverOrder) => {
  setPriority(AHEAD_OF_ALL);
  process.send?.("observing");
  // The answer is on its way before the loop begins.
  setImmediate(() => {
    process.send?.(observe(order));
    process.disconnect();
  });
});
