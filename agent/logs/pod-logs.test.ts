import assert from "node:assert/strict";
import { mkdirSync, utimesSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { ContainerState, ObservedContainer } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { LogRequest } from "../core/pods/container-logs.ts";
import { PodLogs } from "./pod-logs.ts";

const ALL: LogRequest = {
  ...{ tailLines: undefined, sinceMs: undefined, timestamps: false, limitBytes: undefined },
  follow: false,
};
const LINE = "2026-11-20T11:00:00.5Z stdout F last words\n";

/** A pod whose only container ended so many ms ago, of whose log nothing is in its file yet. */
async function endedPod(t: TestContext, endedMsAgo: number | undefined) {
  const folder = new TempFolder();
  t.after(() => folder[Symbol.dispose]());
  const clock = new VirtualClock();
  const now = clock.wall().getTime();
  const exit = { kind: "exited", startedAtMs: 0, exitCode: 0, reason: "Completed", message: "" } as const;
  const state: ContainerState =
    endedMsAgo === undefined ? { kind: "running", startedAtMs: 0 } : { ...exit, finishedAtMs: now - endedMsAgo };
  const path = folder.at("app/0.log");
  mkdirSync(dirname(path));
  writeFileSync(path, "");
  const container = { id: "c", name: "app", attempt: 0, state, logPath: path } as ObservedContainer;
  const pod: AgentPod = {
    desired: desired(podOf()),
    ...{ status: undefined, terminatingSinceMs: undefined, runtime: "cri" },
    containers: [container],
    logDirectory: folder.path,
  };
  const logs = new PodLogs({ pods: { pods: () => [pod], podsChanged: new WatchSource(0) }, clock });
  const abort = new AbortController();
  const found = await logs.find(pod, { container: undefined, previous: false });
  const read = async (request: Partial<LogRequest> = {}): Promise<string> => {
    let text = "";
    for await (const chunk of found.read({ ...ALL, ...request }, abort.signal)) text += Buffer.from(chunk).toString();
    return text;
  };
  return { clock, path, read, abort };
}

for (const follow of [false, true]) {
  test(`a log is read when the runtime has copied the last of it, ${follow ? "followed" : "not followed"}`, async (t) => {
    const { clock, path, read } = await endedPod(t, 50);
    const reading = read({ follow });
    while (clock.sleeping === 0) await nextTurn();
    await clock.advance(millis(199));
    writeFileSync(path, LINE);
    await clock.advance(millis(1));
    assert.equal(await reading, "last words\n");
  });
}

test("a log that was rotated just now is read when the runtime has copied the last of the old one", async (t) => {
  const { clock, path, read } = await endedPod(t, undefined);
  const renamed = `${path}.20261120-110000`;
  writeFileSync(renamed, "");
  const changedAt = clock.wall().getTime() / 1000 - 0.05;
  utimesSync(renamed, changedAt, changedAt);
  const reading = read();
  while (clock.sleeping === 0) await nextTurn();
  await clock.advance(millis(199));
  writeFileSync(renamed, LINE);
  await clock.advance(millis(1));
  assert.equal(await reading, "last words\n");
});

test("nobody waits for a container that runs, that ended a while ago, or whose end is still to come", async (t) => {
  for (const endedMsAgo of [undefined, 250, 10_000, -60_000]) {
    const { clock, read } = await endedPod(t, endedMsAgo);
    assert.equal(await read(), "");
    assert.equal(clock.sleeping, 0);
  }
});

test("a reader who goes away meanwhile is let go", async (t) => {
  const { clock, read, abort } = await endedPod(t, 0);
  const reading = read();
  while (clock.sleeping === 0) await nextTurn();
  abort.abort();
  assert.equal(await reading, "");
  assert.equal(clock.sleeping, 0);
});
