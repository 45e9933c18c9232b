/**
 * Messages of systemd's interface on a real message bus, whose daemon disconnects a client that sends a malformed
 * message.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { UnitProperty } from "@picolet/agent/core/node/cgroup-units.ts";
import { SystemdUnits } from "@picolet/agent/node/systemd-units.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { MessageBus, messageBusMissing } from "../support/agent/message-bus.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

const SLICE = "kubepods-burstable-pod1_2.slice";
const LIMIT: UnitProperty = { name: "MemoryMax", type: "t", value: 2n ** 26n };
const NONE: UnitProperty = { name: "TasksMax", type: "t", value: 2n ** 64n - 1n };

async function setUp() {
  const bus = await MessageBus.start();
  await bus.startSystemd();
  const log = new RecordedLog();
  const units = new SystemdUnits({ clock: systemClock, log }, { busPath: bus.socketPath });
  const end = async (): Promise<void> => {
    units[Symbol.dispose]();
    await bus[Symbol.asyncDispose]();
  };
  return { bus, units, log, [Symbol.asyncDispose]: end };
}

describe("slices by systemd's interface", { skip: messageBusMissing() ?? false }, () => {
  test("one is started with its values, changed while it runs, and stopped", async () => {
    await using here = await setUp();
    const { bus, units } = here;
    await units.ensureSlice(SLICE, [LIMIT, NONE]);
    await units.ensureSlice(SLICE, [NONE]);
    await units.removeSlice(SLICE);
    await units.removeSlice(SLICE);
    const accounting = { CPUAccounting: true, MemoryAccounting: true, TasksAccounting: true, IOAccounting: true };
    const started = {
      Description: `picolet cgroup ${SLICE}`,
      Wants: ["kubepods-burstable.slice"],
      DefaultDependencies: false,
      ...accounting,
      MemoryMax: "UInt64 67108864",
      TasksMax: "UInt64 18446744073709551615",
    };
    assert.deepEqual(await said(bus, 3), [
      ["start", SLICE, started],
      ["set", SLICE, { TasksMax: "UInt64 18446744073709551615" }],
      ["stop", SLICE, undefined],
    ]);
  });

  test("one that is there already gets the values; one that somebody stopped is started anew", async () => {
    await using here = await setUp();
    const { bus, units } = here;
    const another = new SystemdUnits({ clock: systemClock, log: new RecordedLog() }, { busPath: bus.socketPath });
    await another.ensureSlice("kubepods.slice", [LIMIT]);
    await units.ensureSlice("kubepods.slice", [LIMIT]);
    assert.deepEqual(
      (await said(bus, 3)).map(([what]) => what),
      ["start", "set", "run"],
    );
    await another.removeSlice("kubepods.slice");
    await units.ensureSlice("kubepods.slice", [LIMIT]);
    assert.deepEqual(
      (await said(bus, 5)).map(([what]) => what),
      ["start", "set", "run", "stop", "start"],
    );
    another[Symbol.dispose]();
  });

  test("what systemd cannot do is told, and tried again", async () => {
    await using here = await setUp();
    await assert.rejects(here.units.ensureSlice("fail.slice", []), (error) => {
      assert.ok(isPicoletError(error, "failed") && error.retryable);
      assert.match(String((error.cause as Error).cause), /failed/);
      return true;
    });
  });

  test("a message bus that goes is found again", async () => {
    await using here = await setUp();
    const { bus, units, log } = here;
    await units.ensureSlice("a.slice", []);
    await bus.stopDaemon();
    await assert.rejects(units.ensureSlice("b.slice", []), (error) => isPicoletError(error) && error.retryable);
    assert.equal(log.problems.length, 1);
    await bus.startDaemon();
    await bus.startSystemd();
    await units.ensureSlice("b.slice", []);
  });

  test("calls for one slice at the same time, which systemd gives one job, all see its end", async () => {
    await using here = await setUp();
    await Promise.all([here.units.ensureSlice("slow.slice", []), here.units.ensureSlice("slow.slice", [])]);
    assert.deepEqual(
      (await said(here.bus, 3)).map(([what]) => what),
      ["start", "set", "run"],
    );
  });

  test("calls at the same time each wait for their own job", async () => {
    await using here = await setUp();
    const names = Array.from({ length: 40 }, (_, index) => `x-${index}.slice`);
    const results = await Promise.allSettled(
      [...names, "x-fail.slice"].map((name) => here.units.ensureSlice(name, [])),
    );
    assert.deepEqual(
      results.map(({ status }) => status),
      [...names.map(() => "fulfilled"), "rejected"],
    );
  });
});

/** The calls that the fake systemd received, with their properties. */
async function said(bus: MessageBus, atLeast: number): Promise<readonly (readonly [string, string, unknown])[]> {
  return (await bus.rest(atLeast)).flatMap((line) => {
    const match = /^(\S+) (\S+)(?: (.*))?$/.exec(line);
    if (match === null) return [];
    const [, what = "", name = "", properties] = match;
    return [[what, name, properties === undefined ? undefined : JSON.parse(properties)] as const];
  });
}
