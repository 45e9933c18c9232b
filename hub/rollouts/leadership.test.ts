import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeClient, KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { aborted } from "@picolet/protocol/async/abort.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { Leadership } from "./leadership.ts";

/** One Lease of an API server: an update of another version than the stored one is a conflict. */
class MemoryLease {
  stored: KubeObject | undefined;
  #version = 0;
  readonly cutOff = new Set<string>();

  clientOf(identity: string): KubeClient {
    const reach = (): void => {
      if (this.cutOff.has(identity)) throw new PicoletError("unavailable", "no way there");
    };
    const store = (object: KubeObject): KubeObject => {
      this.#version += 1;
      this.stored = { ...object, metadata: { ...object.metadata, resourceVersion: String(this.#version) } };
      return this.stored;
    };
    const client = {
      get: async () => {
        reach();
        if (this.stored === undefined) throw new PicoletError("not_found", "there is none");
        return this.stored;
      },
      create: async (_type: unknown, _ref: unknown, object: KubeObject) => {
        reach();
        if (this.stored !== undefined) throw new PicoletError("already_exists", "there is one");
        return store(object);
      },
      update: async (_type: unknown, _ref: unknown, object: KubeObject) => {
        reach();
        if (object.metadata.resourceVersion !== this.stored?.metadata.resourceVersion)
          throw new PicoletError("conflict", "it has changed");
        return store(object);
      },
    };
    return client as unknown as KubeClient;
  }
}

interface Replica {
  readonly stop: () => Promise<void>;
}

function start(lease: MemoryLease, clock: VirtualClock, leaders: string[], identity: string, seed: number): Replica {
  const life = new AbortController();
  const parts = { client: lease.clientOf(identity), clock, random: seededRandom(seed), log: new RecordedLog() };
  const leadership = new Leadership(parts, { namespace: "n", name: "l", identity });
  const lead = async (signal: AbortSignal): Promise<void> => {
    leaders.push(identity);
    assert.ok(leaders.length <= 1, `${leaders.join(" and ")} lead at the same time`);
    await aborted(signal);
    leaders.splice(leaders.indexOf(identity), 1);
  };
  const end = endOfRun(leadership.run(lead, life.signal));
  return {
    stop: async () => {
      life.abort();
      await end;
    },
  };
}

test("one replica leads, another one at once when it ends, and after the Lease when it is gone", async () => {
  const [lease, clock, leaders] = [new MemoryLease(), new VirtualClock(), [] as string[]];
  const first = start(lease, clock, leaders, "a", 1);
  await clock.advance(seconds(1));
  const second = start(lease, clock, leaders, "b", 2);
  await clock.advance(seconds(120));
  assert.deepEqual(leaders, ["a"]);
  await first.stop();
  await clock.advance(seconds(6));
  assert.deepEqual(leaders, ["b"], "the first has given it back");
  const third = start(lease, clock, leaders, "c", 3);
  lease.cutOff.add("b");
  await clock.advance(seconds(26));
  assert.deepEqual(leaders, [], "a leader that cannot renew ends before another one begins");
  await clock.advance(seconds(20));
  assert.deepEqual(leaders, ["c"]);
  lease.cutOff.clear();
  await clock.advance(seconds(120));
  assert.deepEqual(leaders, ["c"]);
  await Promise.all([second.stop(), third.stop()]);
  assert.equal(clock.sleeping, 0);
});

test("never do two lead, however the way to the API server comes and goes", async () => {
  for (let seed = 1; seed <= 10; seed += 1) {
    const [lease, clock, leaders, lots] = [new MemoryLease(), new VirtualClock(), [] as string[], seededRandom(seed)];
    const replicas = ["a", "b", "c"].map((identity, index) => start(lease, clock, leaders, identity, seed + index));
    for (let step = 0; step < 60; step += 1) {
      const identity = ["a", "b", "c"][Math.floor(lots.next() * 3)] ?? "a";
      if (lots.next() < 0.5) lease.cutOff.add(identity);
      else lease.cutOff.delete(identity);
      await clock.advance(seconds(lots.next() * 20));
    }
    lease.cutOff.clear();
    await clock.advance(seconds(60));
    assert.equal(leaders.length, 1, `seed ${seed}`);
    await Promise.all(replicas.map((each) => each.stop()));
  }
});
