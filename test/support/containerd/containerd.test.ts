/** The tests' own containerd leaves nothing behind: not when it is stopped, and not when the test run is killed. */
import assert from "node:assert/strict";
import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import { criAdapter } from "../unit/cri/cri-adapters.ts";
import { runningProcesses } from "../unit/machine/processes.ts";
import { Containerd, containerdMissing } from "./containerd.ts";
import { BUSYBOX_IMAGE } from "./test-images.ts";

const skip = containerdMissing() ?? false;
const VICTIM = "victim";

/** A pod with an address, a host port and a cgroup of its own. */
async function runPod(containerd: Containerd): Promise<string> {
  const ports = [{ containerPort: 80, hostPort: 30_000 + (process.pid % 10_000) }];
  const containers = [{ name: "main", image: BUSYBOX_IMAGE, ports }];
  const parsed = parsePod({ apiVersion: "v1", kind: "Pod", metadata: { name: "left" }, spec: { containers } });
  assert.ok(parsed.ok);
  const pod = { uid: podUid("left"), source: "file", origin: "", pod: parsed.pod } as const;
  await using adapter = criAdapter(containerd.socketPath);
  const cgroupParent = `/picolet-test-${basename(containerd.directory).slice(-6)}/podleft`;
  const sandbox = { attempt: 0, hostname: "left", dns: undefined, logDirectory: containerd.directory, cgroupParent };
  const { signal } = new AbortController();
  await adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
  return (await adapter.inspect(pod.uid, signal)).sandboxes[0]?.id ?? "";
}

/** All traces of this containerd that the machine still has. */
function traces(directory: string, sandboxId: string): string[] {
  const run = (program: string, ...args: string[]) => execFileSync(program, args, { encoding: "utf8" });
  const suffix = basename(directory).slice(-6);
  const seen: Record<string, boolean> = {
    directory: existsSync(directory),
    mounts: readFileSync("/proc/self/mountinfo", "utf8").includes(directory),
    processes: runningProcesses().some(({ words }) => words.some((word) => word.includes(`${directory}/`))),
    bridge: run("ip", "link").includes(`pico${suffix}`),
    nat: run("iptables-save", "--table", "nat").includes(`pico${suffix}`),
    records: readdirSync("/var/lib/cni/results").some((name) => name.includes(sandboxId)),
    cgroups: readdirSync("/sys/fs/cgroup").some((each) => existsSync(`/sys/fs/cgroup/${each}/picolet-test-${suffix}`)),
  };
  return Object.keys(seen).filter((name) => seen[name]);
}

if (process.argv[2] === VICTIM) {
  const containerd = await Containerd.start();
  const sandboxId = await runPod(containerd);
  process.send?.({ directory: containerd.directory, sandboxId });
} else {
  test("what is stopped leaves nothing", { skip }, async () => {
    const containerd = await Containerd.start();
    const sandboxId = await runPod(containerd);
    assert.deepEqual(traces(containerd.directory, sandboxId).sort(), [
      "bridge",
      "cgroups",
      "directory",
      "mounts",
      "nat",
      "processes",
      "records",
    ]);
    await containerd[Symbol.asyncDispose]();
    assert.deepEqual(traces(containerd.directory, sandboxId), []);
  });

  test("what a killed test run left is taken away by the next start", { skip }, async () => {
    const victim = fork(fileURLToPath(import.meta.url), [VICTIM], { execArgv: [] });
    const [{ directory, sandboxId }] = (await once(victim, "message")) as [{ directory: string; sandboxId: string }];
    assert.ok(traces(directory, sandboxId).includes("processes"));
    const exited = once(victim, "exit");
    victim.kill("SIGKILL");
    await exited;
    await using _next = await Containerd.start();
    assert.deepEqual(traces(directory, sandboxId), []);
  });
}
