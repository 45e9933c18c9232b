import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FakeAdapter } from "@picolet/runtime-test-kit/fake/fake-adapter.ts";
import { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { sweepOrphanedLogs } from "./orphaned-logs.ts";

const { signal } = new AbortController();
const clock = new VirtualClock();
const DAY_S = 24 * 3600;

function makeLogs(folder: TempFolder, name: string, ageS: number): void {
  const container = folder.at(name, "app");
  mkdirSync(container, { recursive: true });
  writeFileSync(join(container, "0.log"), "line\n");
  const at = clock.wall().getTime() / 1000 - ageS;
  for (const path of [join(container, "0.log"), container, folder.at(name)]) utimesSync(path, at, at);
}

function components(others: ReadonlySet<string> | undefined) {
  const runtime = new FakeRuntime({ clock });
  const adapter = new FakeAdapter(runtime);
  const everyPod = others === undefined ? {} : { everyPod: async () => others };
  const adapters = [Object.assign(adapter, everyPod)];
  return { adapters, mounter: { mountPointsWithin: () => [] }, clock, log: new RecordedLog() };
}

test("logs of pods that nobody knows go when they are old; others' and what is no pod's stay", async () => {
  using folder = new TempFolder();
  makeLogs(folder, "default_gone_uid-1", 2 * DAY_S);
  makeLogs(folder, "default_known_uid-2", 2 * DAY_S);
  makeLogs(folder, "default_others_uid-3", 2 * DAY_S);
  makeLogs(folder, "default_new_uid-4", DAY_S / 2);
  makeLogs(folder, "something else", 2 * DAY_S);
  const target = folder.at("something else");
  symlinkSync(target, folder.at("default_link_uid-5"));
  utimesSync(target, 1, 1);
  const removed = await sweepOrphanedLogs(components(new Set(["uid-3"])), folder.path, new Set(["uid-2"]), signal);
  assert.deepEqual(removed, ["uid-1"]);
  assert.deepEqual(readdirSync(folder.path).sort(), [
    "default_known_uid-2",
    "default_link_uid-5",
    "default_new_uid-4",
    "default_others_uid-3",
    "something else",
  ]);
  assert.ok(existsSync(join(target, "app", "0.log")));
});

test("where no runtime tells of others' pods everything stays", async () => {
  using folder = new TempFolder();
  makeLogs(folder, "default_gone_uid-1", 2 * DAY_S);
  assert.deepEqual(await sweepOrphanedLogs(components(undefined), folder.path, new Set(), signal), []);
  assert.equal(readdirSync(folder.path).length, 1);
});
