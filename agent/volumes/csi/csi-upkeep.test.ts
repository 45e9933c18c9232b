import assert from "node:assert/strict";
import { test } from "node:test";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedEvents } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { type CsiVolume, persistentVolume } from "./csi-source.ts";
import { CsiUpkeep } from "./csi-upkeep.ts";

class Bench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly events = new RecordedEvents();
  /** `<pod>/<volume>` at seconds. */
  readonly republished: string[] = [];
  failure: string | undefined;
  readonly upkeep: CsiUpkeep;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor() {
    const republish = async (pod: DesiredPod, { specName }: CsiVolume): Promise<void> => {
      this.republished.push(`${pod.uid}/${specName} ${this.clock.monotonic() / 1000}`);
      if (this.failure !== undefined) throw new PicoletError("unavailable", this.failure, { retryable: true });
    };
    const { clock, events } = this;
    this.upkeep = new CsiUpkeep({ clock, events, volumes: { republish } });
    this.#running = this.upkeep.run(this.#stop.signal).catch(ignore("it ends with the test"));
  }

  add(uid: string, name: string): void {
    const pod = podOf({ containers: [{ name: "app", image: "app" }] }, { uid });
    const spec = { csi: { driver: "disk.example", volumeHandle: name } };
    this.upkeep.add({ uid: podUid(uid), source: "api", origin: "", pod }, persistentVolume(name, spec, false));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    assert.equal(this.clock.sleeping, 0);
  }
}

test("each volume is published again a minute after its last publication, while its pod has it", async () => {
  await using bench = new Bench();
  bench.add("pod-1", "a");
  await bench.clock.advance(millis(20_000));
  bench.add("pod-2", "a");
  await bench.clock.advance(millis(130_000));
  bench.upkeep.forget("pod-1");
  await bench.clock.advance(millis(60_000));
  assert.deepEqual(bench.republished, ["pod-1/a 60", "pod-2/a 80", "pod-1/a 120", "pod-2/a 140", "pod-2/a 200"]);
  bench.upkeep.forget("pod-2");
  await bench.clock.advance(millis(600_000));
  assert.equal(bench.republished.length, 5);
});

test("a refusal is one event of the pod, and the next one after a success is another", async () => {
  await using bench = new Bench();
  bench.add("pod-1", "a");
  bench.failure = "no vault";
  await bench.clock.advance(millis(180_000));
  assert.deepEqual(bench.events.lines, ["Warning FailedMount: no vault"]);
  bench.failure = undefined;
  await bench.clock.advance(millis(60_000));
  bench.failure = "no vault";
  await bench.clock.advance(millis(60_000));
  assert.equal(bench.events.lines.length, 2);
  assert.equal(bench.republished.length, 5);
});
