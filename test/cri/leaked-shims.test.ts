/** Shims that a real containerd has lost, beside those that it has not. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import { endLeakedShims } from "@picolet/runtime-cri/containerd/leaked-shims.ts";
import { CriClient } from "@picolet/runtime-cri/wire/cri-client.ts";
import { containerPod } from "../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { criAdapter } from "../support/unit/cri/cri-adapters.ts";

const { signal } = new AbortController();
const ANY_AGE = { minAge: millis(0) };
const RETRY_MS = 20;

/** Starts a shim as containerd does when it makes a sandbox, and forgets it. @returns its pid */
async function leakShim(containerd: Containerd, namespace: string, id: string): Promise<number> {
  const bundle = join(containerd.directory, "state/io.containerd.runtime.v2.task", namespace, id);
  mkdirSync(bundle, { recursive: true });
  writeFileSync(join(bundle, "config.json"), JSON.stringify({ ociVersion: "1.0.2", annotations: {} }));
  // Where it logs to: it ends at once without.
  execFileSync("mkfifo", [join(bundle, "log")]);
  const args = ["-namespace", namespace, "-address", containerd.socketPath, "-id", id, "start"];
  const env = { ...process.env, TTRPC_ADDRESS: `${containerd.socketPath}.ttrpc`, MAX_SHIM_VERSION: "2" };
  execFileSync("/usr/bin/containerd-shim-runc-v2", args, { cwd: bundle, env, stdio: ["ignore", "ignore", "ignore"] });
  for (;;) {
    const [pid] = shimsOf(containerd, id);
    // The shim opens its log last before it serves.
    if (pid !== undefined && openFilesOf(pid).includes(join(bundle, "log"))) return pid;
    await wait(RETRY_MS);
  }
}

function openFilesOf(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      return [];
    }
  });
}

/** Those whose arguments name this containerd, and this id. */
function shimsOf(containerd: Containerd, id = ""): number[] {
  return readdirSync("/proc").flatMap((name) => {
    const path = `/proc/${name}/cmdline`;
    if (!/^\d+$/.test(name) || !existsSync(path)) return [];
    try {
      const words = readFileSync(path, "utf8").split("\0");
      const isShim = words[0]?.endsWith("containerd-shim-runc-v2") === true;
      return isShim && words.includes(containerd.socketPath) && (id === "" || words.includes(id)) ? [Number(name)] : [];
    } catch {
      return [];
    }
  });
}

async function untilGone(containerd: Containerd, id: string): Promise<void> {
  while (shimsOf(containerd, id).length > 0) await wait(RETRY_MS);
}

test("a shim that containerd lost is ended with its folder or without, and no other", {
  skip: containerdMissing() ?? false,
}, async () => {
  await using containerd = await Containerd.start();
  await using other = await Containerd.start();
  await using adapter = criAdapter(containerd.socketPath);
  using client = new CriClient({ clock: systemClock }, { endpoint: containerd.socketPath, requestTimeoutMs: 60_000 });
  const parsed = parsePod(containerPod("living"));
  assert.ok(parsed.ok);
  const pod = { uid: podUid("living"), source: "file", origin: "", pod: parsed.pod } as const;
  const logDirectory = join(containerd.directory, "logs");
  mkdirSync(logDirectory);
  const sandbox = { attempt: 0, logDirectory, cgroupParent: "", hostname: "living", dns: undefined };
  await adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
  const living = shimsOf(containerd);
  assert.equal(living.length, 1);

  const [lost, withoutFolder, ofTool, elsewhere, named] = Array.from({ length: 5 }, () =>
    randomBytes(32).toString("hex"),
  );
  assert.ok(lost && withoutFolder && ofTool && elsewhere && named);
  await leakShim(containerd, "k8s.io", lost);
  await leakShim(containerd, "k8s.io", withoutFolder);
  rmSync(join(containerd.directory, "state/io.containerd.runtime.v2.task/k8s.io", withoutFolder), { recursive: true });
  await leakShim(containerd, "moby", ofTool);
  await leakShim(other, "k8s.io", elsewhere);
  // A container that is known and has no task yet, as for a moment of every start.
  containerd.ctr("containers", "create", BUSYBOX_IMAGE, named);
  await leakShim(containerd, "k8s.io", named);

  const young = await endLeakedShims(client, signal);
  assert.equal(young.length, 1, "the one without a folder, whatever its age");
  await untilGone(containerd, withoutFolder);
  const old = await endLeakedShims(client, signal, ANY_AGE);
  assert.equal(old.length, 1);
  await untilGone(containerd, lost);
  assert.deepEqual(await endLeakedShims(client, signal, ANY_AGE), []);

  for (const id of [ofTool, named]) assert.equal(shimsOf(containerd, id).length, 1);
  assert.equal(shimsOf(other, elsewhere).length, 1);
  assert.ok(living.every((pid) => shimsOf(containerd).includes(pid)));
  assert.equal((await adapter.inspect(pod.uid, signal)).sandboxes[0]?.state, "ready");
});
