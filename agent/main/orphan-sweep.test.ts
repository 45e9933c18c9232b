import assert from "node:assert/strict";
import { test } from "node:test";
import { podUid, seconds } from "../../protocol/ports.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { FakeAdapter } from "../../runtime-adapters/fake/fake-adapter.ts";
import { FakeRuntime } from "../../runtime-adapters/fake/fake-runtime.ts";
import { MemoryDesiredStore } from "../../test/support/memory-desired-store.ts";
import { podOf } from "../../test/support/pods.ts";
import { RecordedLog } from "../../test/support/recorders.ts";
import { seededRandom } from "../../test/support/seeded-random.ts";
import { VirtualClock } from "../../test/support/virtual-clock.ts";
import { Pleg } from "../observe/pleg.ts";
import { OrphanSweep } from "./orphan-sweep.ts";

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
  const running = sweep.run(stop.signal);
  await clock.settle();
  assert.deepEqual(known, []);
  const watching = observer.run(stop.signal).catch(() => undefined);
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
