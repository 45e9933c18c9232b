import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { EmbeddedCluster } from "@picolet/test/support/unit/embedded/in-process-cluster.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { EVENTS, EventRecorder } from "./event-recorder.ts";

const pod: KubeObject = { apiVersion: "v1", kind: "Pod", metadata: { name: "web", namespace: "default", uid: "u" } };
const event = { type: "Warning", reason: "Odd", message: "it is odd", component: "test" } as const;

test("an event that repeats is counted, at most every ten seconds, and made again when it has gone", async () => {
  const clock = new VirtualClock();
  await using cluster = await EmbeddedCluster.start({ clock });
  await cluster.stopControllers();
  const { client } = cluster;
  const recorder = new EventRecorder({ client, clock, log: new RecordedLog() });
  const stop = new AbortController();
  const running = endOfRun(recorder.run(stop.signal));
  const { signal } = stop;
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 20; turn += 1) await clock.settle();
  };
  const counts = async (): Promise<unknown[]> =>
    (await client.list(EVENTS, {}, signal)).items.map(({ count }) => count);
  recorder.record(pod, event);
  await settle();
  assert.deepEqual(await counts(), [1]);
  for (let times = 0; times < 5; times += 1) recorder.record(pod, event);
  await settle();
  assert.deepEqual(await counts(), [1]);
  await clock.advance(seconds(10));
  await settle();
  assert.deepEqual(await counts(), [6]);
  const [stored] = (await client.list(EVENTS, {}, signal)).items;
  await client.delete(EVENTS, { namespace: "default", name: stored?.metadata.name ?? "" }, {}, signal);
  await clock.advance(seconds(10));
  recorder.record(pod, event);
  await settle();
  assert.deepEqual(await counts(), [1]);
  recorder.record(pod, { ...event, message: "it is odd in another way" });
  await settle();
  assert.deepEqual(await counts(), [1, 1]);
  stop.abort();
  await running;
});
