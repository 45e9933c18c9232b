import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { runningProcesses } from "../../support/unit/machine/processes.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { cgroupFolders, removeCgroups } from "../../support/unit/machine/test-cgroups.ts";
import { settled } from "../../support/unit/ports/settled.ts";
import { Kubelet } from "./kubelet-process.ts";

const skip = containerdMissing() ?? false;
const NAME = `picolet-kubelet-${process.pid}`;
const FOLDER = join(tmpdir(), NAME);
const VOLUME = join(FOLDER, "root/volume");
/** Above the largest pid_max. */
const NOBODY = 4_194_305;
const SYSCTL = "/proc/sys/kernel/keys/root_maxkeys";
const MARK = `mark-${process.pid}`;
/** Marks the process that the fake leaves in its cgroup, as a kubelet leaves its pods. */
const LEFT_SECONDS = `${100_000 + process.pid}`;

/** A cgroup of another program. */
const OTHER = `picolet-test-other-${process.pid}`;

/** Does to the machine what a kubelet does, then serves /healthz. */
const FAKE = `#!${process.execPath}
const { execFileSync, spawn } = require("node:child_process");
const { mkdirSync, readdirSync, readFileSync, writeFileSync } = require("node:fs");
const file = process.argv[process.argv.indexOf("--config") + 1];
const { healthzPort, cgroupRoot } = JSON.parse(readFileSync(file, "utf8"));
for (const folder of ["/var/lib/kubelet", "/var/log/containers"]) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(folder + "/${MARK}", "");
}
writeFileSync("${SYSCTL}", String(Number(readFileSync("${SYSCTL}", "utf8")) + 1));
mkdirSync("${VOLUME}");
execFileSync("mount", ["-t", "tmpfs", "tmpfs", "${VOLUME}"]);
const others = readdirSync("/sys/fs/cgroup/memory/${OTHER}");
if (others.length > 0) throw new Error("other cgroups are seen: " + others.slice(0, 3));
const cgroup = "/sys/fs/cgroup/memory" + cgroupRoot + "/pod";
mkdirSync(cgroup);
const left = spawn("sleep", ["${LEFT_SECONDS}"], { detached: true, stdio: "ignore" });
writeFileSync(cgroup + "/cgroup.procs", String(left.pid));
require("node:http").createServer((_, response) => response.end("ok")).listen(healthzPort, "127.0.0.1");
`;

const BROKEN = `#!/bin/sh
echo "I1123 09:53:11.000000 1 server.go:1] it begins" >&2
echo "E1123 09:53:11.000000 1 run.go:72] it cannot" >&2
exit 3
`;

let containerd: Containerd;
const programs = new TempFolder();

before(async () => {
  if (skip !== false) return;
  containerd = await Containerd.start();
  mkdirSync(`/sys/fs/cgroup/memory/${OTHER}`);
});

after(async () => {
  if (skip === false) {
    await removeCgroups(`/${OTHER}`);
    await containerd[Symbol.asyncDispose]();
  }
  programs[Symbol.dispose]();
});

function start(program: string): Promise<Kubelet> {
  const file = programs.at("kubelet");
  writeFileSync(file, program, { mode: 0o755 });
  return Kubelet.start({ file, containerd, nodeName: "node" });
}

const mounts = (): string => readFileSync("/proc/self/mountinfo", "utf8");
const isLeftRunning = (): boolean => runningProcesses().some(({ words }) => words.includes(LEFT_SECONDS));

async function assertNothingLeft(): Promise<void> {
  assert.deepEqual(await settled(() => (isLeftRunning() ? ["a process of a pod"] : [])), []);
  assert.equal(mounts().includes(FOLDER), false, "mounts");
  assert.deepEqual(cgroupFolders(`/${NAME}`), []);
  assert.deepEqual(readdirSync(tmpdir()).includes(NAME), false, "files");
}

test("a kubelet changes nothing on the machine, shares its volumes, and leaves nothing", {
  skip,
}, async () => {
  const sysctl = readFileSync(SYSCTL, "utf8");
  {
    await using kubelet = await start(FAKE);
    assert.ok(existsSync(`/proc/${kubelet.pid}`));
    assert.ok(mounts().includes(VOLUME), "the volume is seen from outside");
    assert.ok(isLeftRunning());
    for (const folder of ["/var/lib/kubelet", "/var/log/containers"])
      assert.equal(existsSync(join(folder, MARK)), false);
    assert.equal(readFileSync(SYSCTL, "utf8"), sysctl);
  }
  await assertNothingLeft();
});

test("a kubelet that does not start fails with its exit code and errors, and leaves nothing", { skip }, async () => {
  await assert.rejects(start(BROKEN), ({ message }: Error) => {
    assert.match(message, /ended with 3.*it cannot/s);
    assert.doesNotMatch(message, /it begins/);
    return true;
  });
  await assertNothingLeft();
});

test("a wait fails when the kubelet dies, and nothing is left", { skip }, async () => {
  {
    await using kubelet = await start(FAKE);
    const waiting = kubelet.during(async (signal) => await once(signal, "abort"));
    process.kill(kubelet.pid, "SIGKILL");
    await assert.rejects(waiting, /the kubelet fails \(ended with SIGKILL\)/);
    assert.throws(() => kubelet.pid, /the kubelet has ended \(ended with SIGKILL\)/);
  }
  await assertNothingLeft();
});

test("the next start removes what a killed bench has left", { skip }, async () => {
  const folder = join(tmpdir(), `picolet-kubelet-${NOBODY}`);
  const cgroup = `/sys/fs/cgroup/memory/picolet-kubelet-${NOBODY}`;
  for (const path of [folder, cgroup, join(cgroup, "pod")]) mkdirSync(path);
  await assert.rejects(start(BROKEN));
  assert.deepEqual([existsSync(folder), existsSync(cgroup)], [false, false]);
});
