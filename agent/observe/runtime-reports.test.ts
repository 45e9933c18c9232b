import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter, RuntimeStatus } from "@picolet/runtime-contract/runtime-adapter.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import { RuntimeReports } from "./runtime-reports.ts";

const WELL: RuntimeHealth = { name: "cri", healthy: true, reason: "", message: "", sinceMs: 0 };
const SILENT: RuntimeHealth = { ...WELL, healthy: false, reason: "RuntimeNotReady", message: "no answer" };

test("a runtime that answers nothing is reported at once, and as well again only with what it says of itself then", async () => {
  const clock = new VirtualClock();
  const relists = new WatchSource<readonly RuntimeHealth[]>([WELL]);
  let networkReady = true;
  let answers = true;
  const status = async (): Promise<RuntimeStatus> => {
    if (!answers) await new Promise(() => undefined);
    const network = { type: "NetworkReady", status: networkReady, reason: "NetworkPluginNotReady", message: "no CNI" };
    return { runtime: "containerd", version: "1", conditions: [network] } as RuntimeStatus;
  };
  const adapter = { name: "cri", status } as unknown as RuntimeAdapter;
  const reports = new RuntimeReports({ adapters: [adapter], relists, clock, log: new RecordedLog() });
  const stop = new AbortController();
  const running = endOfRun(reports.run(stop.signal));
  await clock.advance(seconds(60));
  assert.deepEqual(reports.health.current, [WELL]);
  answers = false;
  relists.set([SILENT]);
  await clock.advance(millis(0));
  assert.deepEqual(reports.health.current, [SILENT], "without waiting for its status");
  assert.equal(reports.reports[0]?.message, "no answer");
  await clock.advance(seconds(30));
  answers = true;
  networkReady = false;
  relists.set([WELL]);
  const seen: boolean[] = [];
  for (let second = 0; second < 20; second += 1) {
    await clock.advance(seconds(1));
    seen.push(reports.health.current[0]?.healthy ?? false);
  }
  assert.ok(!seen.includes(true), "never ready by an answer of before");
  assert.match(reports.health.current[0]?.message ?? "", /^NetworkReady=false reason:NetworkPluginNotReady/);
  stop.abort();
  await running;
});
