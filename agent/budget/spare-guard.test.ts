import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import type { PressureCondition } from "../core/node/node-pressure.ts";
import { SpareGuard } from "./spare-guard.ts";

const condition = (type: PressureCondition["type"], status: PressureCondition["status"]): PressureCondition => ({
  ...{ type, status },
  reason: "",
  message: "",
});

test("what runtimes keep ready goes when memory is short, and for nothing else", async () => {
  const pressure = new WatchSource<readonly PressureCondition[]>([condition("MemoryPressure", "False")]);
  const asked: string[] = [];
  const shed = Promise.withResolvers<void>();
  const stop = new AbortController();
  const adapters = [
    {
      shed() {
        asked.push(pressure.current.map(({ type, status }) => `${type} ${status}`).join());
        shed.resolve();
      },
    },
    {},
  ];
  const guard = new SpareGuard({ adapters, pressure });
  const running = endOfRun(guard.run(stop.signal));
  await new Promise(setImmediate);
  pressure.set([condition("DiskPressure", "True")]);
  await new Promise(setImmediate);
  pressure.set([condition("DiskPressure", "True"), condition("MemoryPressure", "True")]);
  await shed.promise;
  assert.deepEqual(asked, ["DiskPressure True,MemoryPressure True"]);
  stop.abort();
  await running;
});
