import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type PodUid, podUid, seconds } from "@picolet/protocol/ports.ts";
import type { Action, DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { placementBoard, scenarioPod } from "@picolet/test/support/unit/agent/placement-scenarios.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { CpusetReconciler, type PlacedContainer } from "./cpuset-reconciler.ts";

const PERIOD = seconds(10);
const NOW = seconds(0);
const MACHINE = {
  cpus: { 0: [0, 0, 0, 0], 1: [0, 0, 1, 0], 2: [0, 0, 2, 0], 3: [0, 0, 3, 0] },
  nodes: [{ id: 0, memoryBytes: 1024 ** 3, hugePages: [], distances: [10] }],
} as const;

/** A node of four CPUs on which a shared container runs, with a runtime that records its calls. */
function makeNode() {
  const board = placementBoard(MACHINE, {
    ...{ options: {}, policy: "none", scope: "container", closest: false, reservedCpus: 1 },
  });
  const clock = new VirtualClock();
  const moves: string[] = [];
  const over = new Set<PodUid>();
  const faults = { next: 0 };
  const apply = async (_: DesiredPod, action: Action): Promise<void> => {
    if (action.kind !== "updateContainer") throw new Error("nothing but moves");
    if (faults.next > 0) {
      faults.next -= 1;
      throw new PicoletError("unavailable", "cannot move it");
    }
    moves.push(`${action.containerId} ${action.cpuset?.cpus}`);
  };
  const adapter = { apply } as unknown as RuntimeAdapter;
  const shared = desired(podOf(), "shared");
  const running: PlacedContainer[] = [{ pod: shared, name: "app", id: "c-shared", adapter }];
  const reconciler = new CpusetReconciler(
    {
      placements: board.placements,
      running: () => running,
      isOver: (uid) => over.has(uid),
      clock,
      log: new RecordedLog(),
    },
    { period: PERIOD },
  );
  return { board, clock, moves, over, faults, running, adapter, reconciler };
}

const alone = (uid: string, cpu: string): DesiredPod =>
  scenarioPod(uid, [{ name: "app", kind: "app", limits: { cpu, memory: "64Mi" } }]);

test("what is shared is moved at once when it becomes less or more, and only then", async () => {
  const { board, clock, moves, reconciler } = makeNode();
  using _ = board;
  const stop = new AbortController();
  const done = endOfRun(reconciler.run(stop.signal));
  await clock.advance(NOW);
  board.placements.admit(alone("a", "2"));
  await clock.advance(NOW);
  board.placements.release(podUid("a"));
  await clock.advance(NOW);
  await clock.advance(seconds(50));
  assert.deepEqual(moves, ["c-shared 0-3", "c-shared 0,3", "c-shared 0-3"]);
  stop.abort();
  await done;
});

test("a move that fails is tried again after a period, and what is over is given back", async () => {
  const { board, clock, moves, faults, over, reconciler } = makeNode();
  using _ = board;
  const stop = new AbortController();
  faults.next = 1;
  const done = endOfRun(reconciler.run(stop.signal));
  await clock.advance(NOW);
  assert.deepEqual(moves, []);
  await clock.advance(PERIOD);
  assert.deepEqual(moves, ["c-shared 0-3"]);
  board.placements.admit(alone("a", "1"));
  await clock.advance(NOW);
  over.add(podUid("a"));
  await clock.advance(PERIOD);
  assert.deepEqual(board.placements.holders, []);
  assert.deepEqual(moves, ["c-shared 0-3", "c-shared 0,2-3", "c-shared 0-3"]);
  stop.abort();
  await done;
});

test("a pod that ran before there was a policy gets its CPUs", async () => {
  const { board, clock, moves, running, adapter, reconciler } = makeNode();
  using _ = board;
  running.push({ pod: alone("early", "3"), name: "app", id: "c-early", adapter });
  running.push({ pod: alone("late", "1"), name: "app", id: "c-late", adapter });
  const stop = new AbortController();
  const done = endOfRun(reconciler.run(stop.signal));
  await clock.advance(NOW);
  assert.deepEqual(moves.toSorted(), ["c-early 1-3", "c-late 0", "c-shared 0"]);
  stop.abort();
  await done;
});
