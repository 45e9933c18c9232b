import assert from "node:assert/strict";
import { test } from "node:test";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import {
  NOW_MS,
  removed,
  run,
  running,
  sandbox,
  takenUp,
  type ViewOptions,
  viewOf,
} from "@picolet/test/support/unit/pods/pod-views.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import type { PodStatusRecord, StatusOutbox } from "../core/store/store-ports.ts";
import { StatusManager } from "./status-manager.ts";

/** In memory; what was put, in order. */
class MemoryOutbox implements StatusOutbox {
  readonly puts: PodStatusRecord[] = [];
  readonly stored = new Map<PodUid, PodStatusRecord>();
  isBroken = false;

  put(record: PodStatusRecord): void {
    if (this.isBroken) throw new Error("no disk");
    this.puts.push(record);
    this.stored.set(record.uid, record);
  }

  get(uid: PodUid): PodStatusRecord | undefined {
    if (this.isBroken) throw new Error("no disk");
    return this.stored.get(uid);
  }

  has(uid: PodUid): boolean {
    return this.get(uid) !== undefined;
  }

  readonly gone: ReadonlyMap<PodUid, string> = new Map();
  readonly again: PodUid[] = [];

  resend(uid: PodUid): void {
    this.again.push(uid);
  }

  flush(): void {
    // Everything is there.
  }

  finish({ uid }: PodStatusRecord): void {
    this.delete(uid);
  }

  delete(uid: PodUid): void {
    this.stored.delete(uid);
  }
}

const pod = podOf();
const states: Readonly<Record<"new" | "up", ViewOptions>> = {
  new: { pod },
  up: { pod, sandboxes: [sandbox(0)], containers: [run(pod, "app", 0, running)] },
};

function bench() {
  const outbox = new MemoryOutbox();
  const log = new RecordedLog();
  const manager = new StatusManager({ outbox, log });
  /** As a worker does it. */
  const publish = (options: ViewOptions): PodStatus | undefined => {
    const view = viewOf({ worker: takenUp(), ...options });
    const previous = manager.previous(view.desired.uid);
    manager.publish({ ...view, previous });
    return manager.pods.get(view.desired.uid)?.status;
  };
  return { outbox, log, manager, publish };
}

test("a status is written when it changed, and only then", () => {
  const { outbox, manager, publish } = bench();
  publish(states.new);
  publish({ ...states.new, wallMs: NOW_MS + 60_000 });
  assert.equal(outbox.puts.length, 1);
  const told = manager.changes.current;
  assert.equal(told, 1);
  publish({ ...states.up, wallMs: NOW_MS + 120_000 });
  assert.deepEqual(
    outbox.puts.map(({ name, status }) => [name, status.phase]),
    [
      ["web", "Pending"],
      ["web", "Running"],
    ],
  );
  assert.equal(manager.changes.current, told + 1);
});

test("a change of the worker's state is told even if the status is the same", () => {
  const { outbox, manager, publish } = bench();
  publish(states.up);
  const told = manager.changes.current;
  publish({ ...states.up, worker: removed() });
  assert.equal(manager.changes.current, told + 1);
  assert.equal(outbox.puts.length, 1);
});

test("what an earlier agent wrote is the status before", () => {
  const { outbox, publish, manager } = bench();
  publish(states.up);
  const next = new StatusManager({ outbox, log: new RecordedLog() });
  const { uid } = viewOf(states.up).desired;
  assert.deepEqual(next.previous(uid), manager.previous(uid));
});

test("a pod that is gone is deleted everywhere, and told of once", () => {
  const { outbox, manager, publish } = bench();
  publish(states.up);
  const { desired } = viewOf(states.up);
  const told = manager.changes.current;
  manager.finish(desired);
  manager.finish(desired);
  assert.deepEqual([manager.pods.size, outbox.stored.size, manager.changes.current], [0, 0, told + 1]);
});

test("a status that is the same under another UID is written again, under that", () => {
  const { outbox, publish } = bench();
  publish(states.up);
  publish({ ...states.up, pod: { ...pod, metadata: { ...pod.metadata, uid: "another" } } });
  const [first, second] = outbox.puts;
  assert.deepEqual(second, { ...first, apiUid: "another" });
  assert.equal(outbox.stored.size, 1);
});

test("a status that the store has lost is written again", () => {
  const { outbox, publish } = bench();
  publish(states.up);
  outbox.stored.clear();
  publish(states.up);
  assert.equal(outbox.puts.length, 2);
  assert.equal(outbox.stored.size, 1);
});

test("a disk that cannot be written or read stops no worker", () => {
  const { outbox, log, manager, publish } = bench();
  outbox.isBroken = true;
  assert.equal(publish(states.up)?.phase, "Running");
  assert.deepEqual(log.problems, ["cannot read a pod's status", "cannot write a pod's status"]);
  outbox.isBroken = false;
  publish(states.new);
  assert.equal(outbox.puts.length, 1);
  assert.equal(manager.pods.size, 1);
});

test("what an agent before this one may have told ahead of its disk is told again, once", () => {
  const { outbox, publish } = bench();
  publish(states.up);
  publish(states.up);
  publish(states.new);
  assert.equal(outbox.again.length, 1);
});
