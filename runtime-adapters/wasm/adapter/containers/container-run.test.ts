import assert from "node:assert/strict";
import { test } from "node:test";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { ContainerFile } from "../state/state-files.ts";
import type { StateFolder } from "../state/state-folder.ts";
import { ContainerRun } from "./container-run.ts";

test("that a container has ended is reported before its cgroup is read and its end written", async () => {
  const order: string[] = [];
  const gone = { pid: 0x7fff_ffff, startTime: "1" };
  const run = new ContainerRun(
    {
      clock: new VirtualClock(),
      log: new RecordedLog(),
      cgroups: {
        oomKills: async () => order.push("cgroup read") && 0,
        remove: async () => undefined,
      } as unknown as CgroupPort,
      state: {
        reaper: () => gone,
        startedAtMs: () => 1,
        exit: () => ({ exitCode: 0, finishedAtMs: 2 }),
        writeExited: () => order.push("end written"),
      } as unknown as StateFolder,
      disposed: new AbortController().signal,
      onChange: () => order.push("changed"),
      onExit: () => order.push("ended"),
    },
    { uid: "pod", id: "container", createdAtMs: 1, cgroupPath: "/pod/container" } as ContainerFile,
  );
  assert.ok(run.markRunning());
  await run.takeExit();
  assert.deepEqual(order, ["ended", "cgroup read", "end written", "changed"]);
});
