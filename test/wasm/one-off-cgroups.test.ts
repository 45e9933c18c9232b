/** Transpilations and pulls leave no cgroup behind: neither one that is cancelled, nor one whose agent was killed. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { CgroupPort } from "@picolet/runtime-contract/cgroup-port.ts";
import { runOneOffChild } from "@picolet/runtime-wasm/adapter/processes/one-off-child.ts";
import type { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { artifact } from "../support/unit/images/oci-content.ts";
import { runningProcesses } from "../support/unit/machine/processes.ts";
import { testComponent } from "../support/wasm/components.ts";
import { PullBench } from "../support/wasm/pull-bench.ts";
import { WasmRuntime } from "../support/wasm/wasm-runtime.ts";

const NEVER = new AbortController().signal;

/** Names of those that there are now. */
async function oneOffCgroups({ cgroups, adapterInit }: WasmRuntime): Promise<readonly string[]> {
  const { transpileCgroup = "", pullCgroup = "" } = adapterInit;
  const names = (await cgroups?.children(dirname(transpileCgroup))) ?? new Set();
  const [transpile, pull] = [basename(transpileCgroup), basename(pullCgroup)];
  return [...names].filter((name) => name === transpile || name.startsWith(pull)).sort();
}

const firstCalls: Readonly<Record<string, (adapter: WasmAdapter) => Promise<unknown>>> = {
  "looks at its runtime": (adapter) => adapter.status(NEVER),
  "looks at its images": (adapter) => adapter.images.list(NEVER),
};

for (const [what, call] of Object.entries(firstCalls))
  test(`what a killed agent's children left ends with the next agent that ${what}`, async () => {
    await using runtime = await WasmRuntime.create();
    const { transpileCgroup = "", pullCgroup = "" } = runtime.adapterInit;
    const joined = await runtime.cgroups?.create(transpileCgroup, { memoryLimitBytes: 67_108_864 });
    await runtime.cgroups?.create(`${pullCgroup}-2`, {});
    assert.deepEqual(await oneOffCgroups(runtime), ["pull-2", "transpile"]);
    const orphan = spawn("sleep", ["infinity"], { stdio: "ignore" });
    const ended = once(orphan, "exit");
    for (const file of joined?.procsFiles ?? []) writeFileSync(file, String(orphan.pid));
    await using adapter = runtime.adapter();
    await call(adapter);
    assert.deepEqual(await oneOffCgroups(runtime), []);
    assert.deepEqual(await ended, [null, "SIGKILL"]);
  });

test("a pull that is cancelled takes its cgroup with it", async () => {
  await using bench = await PullBench.create();
  bench.registry.add(artifact(readFileSync(await testComponent("workload.c"))), [], "1");
  const asked = Promise.withResolvers<void>();
  bench.registry.intercept = () => {
    asked.resolve();
    return true;
  };
  const stop = new AbortController();
  const pull = bench.pull("app:1", {}, stop.signal);
  pull.catch(() => undefined);
  await asked.promise;
  assert.deepEqual(await oneOffCgroups(bench.runtime), ["pull-0"]);
  stop.abort();
  await assert.rejects(pull, (error) => isPicoletError(error));
  assert.deepEqual(await oneOffCgroups(bench.runtime), []);
});

const notMade = "a child whose cgroup cannot be made is ended, not left to run or to wait without limits";
const notJoined = "a child that cannot be put into its cgroup is ended, and the cgroup is taken away";

for (const what of [notMade, notJoined])
  test(what, async () => {
    await using runtime = await WasmRuntime.create();
    const { cgroups } = runtime;
    const { transpileCgroup = "" } = runtime.adapterInit;
    assert.ok(cgroups);
    if (what === notMade) await cgroups.create(transpileCgroup, {});
    const name = `left-${randomUUID()}`;
    const init = {
      ...{ nodePath: process.execPath, timeout: seconds(30), memoryLimitBytes: 134_217_728 },
      // A file stands in its place.
      cgroupPath: what === notMade ? `${transpileCgroup}/cgroup.procs` : transpileCgroup,
    };
    const task = { name: "the child", task: "waiting", input: "{}" };
    const program = { ...task, command: ["-e", "process.stdin.resume()", name] };
    const withoutOne: CgroupPort = {
      create: async (path, values) => {
        const created = await cgroups.create(path, values);
        return created && { procsFiles: [...created.procsFiles, `${created.procsFiles.at(-1)}/none`] };
      },
      kill: (path, signal) => cgroups.kill(path, signal),
      remove: (path) => cgroups.remove(path),
      oomKills: (path) => cgroups.oomKills(path),
    };
    await assert.rejects(
      runOneOffChild({ clock: systemClock, cgroups: withoutOne }, init, program, NEVER),
      (error) => isPicoletError(error, "failed") && /cannot (create|limit|write)/.test(describeError(error)),
    );
    assert.deepEqual(
      runningProcesses().filter(({ words }) => words.includes(name)),
      [],
    );
    if (what === notJoined) assert.deepEqual(await oneOffCgroups(runtime), []);
  });
