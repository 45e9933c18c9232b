import assert from "node:assert/strict";
import { test } from "node:test";
import { podUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { FakeAdapter } from "@picolet/runtime-test-kit/fake/fake-adapter.ts";
import { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { MemoryDesiredStore } from "@picolet/test/support/unit/store/memory-desired-store.ts";
import { OrphanSweep } from "./orphan-sweep.ts";
import { Pleg } from "./pleg.ts";

const podNamed = (name: string): DesiredPod => ({
  ...{ uid: podUid(name), source: "file", origin: "" },
  pod: podOf({ containers: [{ name: "app", image: "app" }] }, { name }),
});

test("once when every runtime has been listed, and then after pods have gone, at most every five minutes", async () => {
  const clock = new VirtualClock();
  const log = new RecordedLog();
  const store = new MemoryDesiredStore();
  using runtime = new FakeRuntime({ clock });
  const adapters = [new FakeAdapter(runtime)];
  const observer = new Pleg({ adapters, clock, random: seededRandom(1), log });
  const known: string[][] = [];
  let failures = 0;
  const sweep = new OrphanSweep({
    ...{ adapters, observer, store, clock, log },
    sweeps: [
      async () => {
        failures += 1;
        throw new Error("the disk is slow");
      },
      async (pods) => {
        known.push(["a", "b", "c"].filter((uid) => pods.has(uid)));
        return [];
      },
    ],
  });
  const stop = new AbortController();
  store.replace("file", 1, ["a", "b", "c"].map(podNamed));
  const running = endOfRun(sweep.run(stop.signal));
  await clock.settle();
  assert.deepEqual(known, []);
  const watching = endOfRun(observer.run(stop.signal));
  await clock.advance(seconds(2));
  assert.deepEqual(known, [["a", "b", "c"]]);
  await clock.advance(seconds(3600));
  assert.equal(known.length, 1);
  store.replace("file", 2, ["a", "b"].map(podNamed));
  for (const uid of store.desired.current.removed.keys()) store.forget(uid);
  await clock.advance(seconds(60));
  store.replace("file", 3, ["a"].map(podNamed));
  for (const uid of store.desired.current.removed.keys()) store.forget(uid);
  await clock.advance(seconds(230));
  assert.equal(known.length, 1);
  await clock.advance(seconds(20));
  assert.deepEqual(known.slice(1), [["a"]]);
  await clock.advance(seconds(3600));
  assert.equal(known.length, 2);
  assert.equal(failures, 2);
  stop.abort();
  await Promise.all([running, watching]);
});
