/** The tests' own machine with systemd is apart from this one, and leaves nothing: not when the test run is killed. */
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runningProcesses } from "../unit/machine/processes.ts";
import { settled } from "../unit/ports/settled.ts";
import { SystemdMachine, systemdMachineMissing } from "./systemd-machine.ts";

const skip = systemdMachineMissing() ?? false;
const VICTIM = "victim";
const NAMESPACES = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];

/** All traces of it that this machine has. */
function traces({ directory, pid }: { readonly directory: string; readonly pid: number }): string[] {
  const seen: Record<string, boolean> = {
    directory: existsSync(directory),
    mounts: readFileSync("/proc/self/mountinfo", "utf8").includes(directory),
    // One that waits for its parent has no command line.
    processes: runningProcesses().some((each) => each.pid === pid && each.words.length > 0),
    supervisor: runningProcesses().some(({ words }) => words.includes(directory)),
    cgroups: readdirSync("/sys/fs/cgroup").some((each) => existsSync(`/sys/fs/cgroup/${each}/${basename(directory)}`)),
  };
  return Object.keys(seen).filter((name) => seen[name]);
}

if (process.argv[2] === VICTIM) {
  const { directory, pid } = await SystemdMachine.start();
  process.send?.({ directory, pid });
} else {
  test("a machine with systemd is apart from this one, and ends with nothing left", { skip }, async () => {
    const machine = await SystemdMachine.start();
    assert.deepEqual(traces(machine).sort(), ["cgroups", "directory", "processes", "supervisor"]);
    assert.equal(await machine.output("cat /proc/1/comm; hostname"), "systemd\nguest\n");
    for (const each of NAMESPACES)
      assert.notEqual(readlinkSync(`/proc/${machine.pid}/ns/${each}`), readlinkSync(`/proc/self/ns/${each}`), each);
    assert.notEqual(
      (await machine.run("sysctl -w kernel.panic=7")).exitCode,
      0,
      "the kernel's settings are this one's",
    );
    assert.equal((await machine.run("kill -9 $$")).exitCode, 137);
    await assert.rejects(machine.run("sleep 1000 & wait", { timeoutMs: 200 }), /took longer than 200 ms/);
    await machine[Symbol.asyncDispose]();
    assert.deepEqual(traces(machine), []);
  });

  test("a machine of a killed test run ends with nothing left", { skip }, async () => {
    const victim = fork(fileURLToPath(import.meta.url), [VICTIM], { execArgv: [] });
    const [machine] = (await once(victim, "message")) as [{ directory: string; pid: number }];
    assert.ok(traces(machine).includes("processes"));
    victim.kill("SIGKILL");
    assert.deepEqual(await settled(() => traces(machine)), []);
  });
}
