import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { aborted, cancelled } from "@picolet/protocol/async/abort.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { DraDriver } from "./dra-driver.ts";
import { DraDriverTable } from "./dra-driver-table.ts";
import { DriverReport } from "./driver-report.ts";

/** A driver whose process is there until `report(false)`. */
class FakeDriver implements DraDriver {
  report: (isThere: boolean) => void = () => undefined;

  async prepare() {
    return new Map();
  }

  async unprepare() {
    return new Map();
  }

  async follow(report: (isThere: boolean) => void, signal: AbortSignal): Promise<never> {
    this.report = report;
    await aborted(signal);
    throw cancelled("a driver");
  }
}

const DRIVER = new FakeDriver();

/** A report that runs. @returns what it says after so many seconds */
function reportOf(context: TestContext, table: DraDriverTable): (duration: number) => Promise<string | undefined> {
  const clock = new VirtualClock();
  const report = new DriverReport({ clock, table });
  const life = new AbortController();
  const done = endOfRun(report.run(life.signal));
  context.after(async () => {
    life.abort();
    await done;
  });
  return async (duration) => {
    await clock.settle();
    await clock.advance(seconds(duration));
    await clock.settle();
    return report.report.current;
  };
}

test("drivers are reported when they had time to register, and no more when they are away for half a minute", async (context) => {
  const table = new DraDriverTable();
  const after = reportOf(context, table);
  table.set("b.example.com", "one.sock", DRIVER);
  assert.equal(await after(29), undefined);
  table.set("a.example.com", "a.sock", DRIVER);
  assert.equal(await after(1), '["a.example.com","b.example.com"]');

  // An update of a driver: the new one registers before the old one is gone.
  table.set("b.example.com", "two.sock", DRIVER);
  table.remove("b.example.com", "one.sock");
  assert.equal(await after(60), '["a.example.com","b.example.com"]');

  table.remove("b.example.com", "two.sock");
  assert.equal(await after(20), '["a.example.com","b.example.com"]');
  table.set("b.example.com", "three.sock", DRIVER);
  assert.equal(await after(29), '["a.example.com","b.example.com"]');
  table.remove("b.example.com", "three.sock");
  assert.equal(await after(29), '["a.example.com","b.example.com"]');
  assert.equal(await after(1), '["a.example.com"]');
  table.remove("a.example.com", "a.sock");
  assert.equal(await after(31), "[]");
});

test("a driver whose process is gone for half a minute is not reported, though its socket is there", async (context) => {
  const table = new DraDriverTable();
  const after = reportOf(context, table);
  const driver = new FakeDriver();
  table.set("a.example.com", "a.sock", driver);
  assert.equal(await after(30), '["a.example.com"]');
  driver.report(false);
  assert.equal(await after(29), '["a.example.com"]');
  driver.report(true);
  assert.equal(await after(60), '["a.example.com"]');
  driver.report(false);
  assert.equal(await after(31), "[]");
  driver.report(true);
  assert.equal(await after(0), '["a.example.com"]');
});
