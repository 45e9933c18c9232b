import assert from "node:assert/strict";
import { test } from "node:test";
import { seconds } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { DraDriver } from "./dra-driver.ts";
import { DraDriverTable } from "./dra-driver-table.ts";
import { DriverReport } from "./driver-report.ts";

const DRIVER: DraDriver = { prepare: async () => new Map(), unprepare: async () => new Map() };

test("drivers are reported when they had time to register, and no more when they are away for half a minute", async () => {
  const clock = new VirtualClock();
  const table = new DraDriverTable();
  const report = new DriverReport({ clock, table });
  const life = new AbortController();
  const done = endOfRun(report.run(life.signal));
  const after = async (duration: number): Promise<string | undefined> => {
    await clock.advance(seconds(duration));
    await clock.settle();
    return report.report.current;
  };
  await clock.settle();
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
  life.abort();
  await done;
});
