import assert from "node:assert/strict";
import { test } from "node:test";
import { usagePod } from "@picolet/test/support/unit/pods/usage-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { FilesystemUsage, NodeUsage, PodUsage, Usage } from "../core/node/usage.ts";
import { SampleTaker } from "./sample-taker.ts";

const NEVER = new AbortController().signal;
const MILLISECOND = 1e6;

const used = (cpuMs: number, workingSetBytes = 4096): Usage => ({
  ...{ cpuNanoseconds: cpuMs * MILLISECOND + 400_000, workingSetBytes, memoryBytes: 0, rssBytes: 0, swapBytes: 0 },
  ...{ pageFaults: 0, majorPageFaults: 0, memoryLimitBytes: undefined },
});

const filesystem = (usedBytes: number): FilesystemUsage => ({
  ...{ capacityBytes: 9000, availableBytes: 9000 - usedBytes, usedBytes, inodes: 90, inodesFree: 80, inodesUsed: 10 },
});

function podUsage(cpuMs: number, startedAtMs: number): PodUsage {
  const pod = usagePod("a", ["main"]);
  const [container] = pod.containers;
  assert.ok(container !== undefined);
  return {
    ...{ pod, path: "/a", usage: used(cpuMs + 5) },
    containers: [{ container, startedAtMs, path: "/a/main", usage: used(cpuMs) }],
  };
}

/** A board whose usage a test sets. */
class Board {
  usage: NodeUsage = { atMs: 1_700_000_000_123, node: used(77), allPods: undefined, pods: [] };
  nodefs = filesystem(100);
  imagefs = this.nodefs;
  failing: Error | undefined;
  isTimeKnown = true;
  readonly taker = new SampleTaker(
    {
      usage: {
        sample: () => Promise.resolve(this.usage),
        filesystems: () =>
          this.failing === undefined
            ? Promise.resolve({ nodefs: this.nodefs, imagefs: this.imagefs, containerfs: this.imagefs })
            : Promise.reject(this.failing),
      },
      board: (_, filesystems) => ({ tunnelSessions: filesystems === undefined ? 0 : 1 }),
      clock: new VirtualClock(),
      isTimeKnown: () => this.isTimeKnown,
    },
    { bootId: "boot", agentSinceSeconds: 3 },
  );

  /** @returns the beginnings of the pod and its container */
  async sinceWith(cpuMs: number, startedAtMs: number): Promise<readonly (number | undefined)[]> {
    this.usage = { ...this.usage, pods: [podUsage(cpuMs, startedAtMs)] };
    const [pod] = (await this.taker.take(NEVER)).pods;
    return [pod?.pod.sinceSeconds, pod?.pod.containers[0]?.sinceSeconds];
  }
}

test("a sample has the figures of the node, its file systems, its pods and containers", async () => {
  const board = new Board();
  board.usage = {
    ...board.usage,
    node: { ...used(77), memoryLimitBytes: 8192, pids: 12 },
    pods: [podUsage(20, 7_900)],
  };
  board.imagefs = filesystem(300);
  const sample = await board.taker.take(NEVER);
  assert.deepEqual(sample, {
    ...{ bootId: "boot", agentSinceSeconds: 3, atMs: 1_700_000_000_123, isEstimated: false },
    node: { cpuMs: 77, workingSetBytes: 4096, swapBytes: 0, memoryCapacityBytes: 8192, processes: 12 },
    filesystems: {
      nodefs: { capacityBytes: 9000, availableBytes: 8900, usedBytes: 100, inodes: 90, inodesFree: 80 },
      imagefs: { capacityBytes: 9000, availableBytes: 8700, usedBytes: 300, inodes: 90, inodesFree: 80 },
    },
    board: { tunnelSessions: 1 },
    pods: [
      {
        pod: {
          ...{ namespace: "default", name: "a", uid: "a", sinceSeconds: 0 },
          containers: [{ name: "main", sinceSeconds: 7 }],
        },
        usage: { cpuMs: 25, workingSetBytes: 4096 },
        containers: [{ cpuMs: 20, workingSetBytes: 4096 }],
      },
    ],
  });
});

test("a counter that fell has another beginning, whether or not its container was started again", async () => {
  const board = new Board();
  assert.deepEqual(await board.sinceWith(500, 7_000), [0, 7]);
  assert.deepEqual(await board.sinceWith(600, 7_000), [0, 7]);
  assert.deepEqual(await board.sinceWith(10, 90_000), [1, 90], "started again, in a cgroup that was made again");
  assert.deepEqual(await board.sinceWith(5, 90_000), [2, 91], "only the counter began again");
  assert.deepEqual(await board.sinceWith(6, 90_000), [2, 91]);
});

test("file systems that cannot be read are missing, and the rest is there", async () => {
  const board = new Board();
  board.failing = new Error("the disk hangs");
  board.isTimeKnown = false;
  const { filesystems, node, isEstimated } = await board.taker.take(NEVER);
  assert.deepEqual([filesystems, node.cpuMs, isEstimated], [{}, 77, true]);
});
