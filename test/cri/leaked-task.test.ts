/**
 * A process that containerd's CRI plugin has lost sight of: what is left when an agent dies in the middle of a start.
 */
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { containerConfig, sandboxConfig } from "@picolet/runtime-cri/pods/pod-config.ts";
import { RuntimeService } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { containerPod } from "../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { criAdapter, POD_CONFIG_SETTINGS } from "../support/unit/cri/cri-adapters.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

const TIMEOUT_MS = 60_000;

function leakyPod(): DesiredPod {
  const parsed = parsePod(containerPod("leaky"));
  assert.ok(parsed.ok);
  return { uid: podUid("leaky"), source: "file", origin: "", pod: parsed.pod };
}

test("a sandbox goes although a process runs in it that the runtime says was never started", {
  skip: containerdMissing() ?? false,
}, async () => {
  await using containerd = await Containerd.start();
  const log = new RecordedLog();
  await using adapter = criAdapter(containerd.socketPath, { log });
  using client = new GrpcClient({ clock: systemClock }, { path: containerd.socketPath });
  const { signal } = new AbortController();
  const pod = leakyPod();
  const logDirectory = join(containerd.directory, "logs");
  mkdirSync(logDirectory);
  const sandbox = { attempt: 0, logDirectory, cgroupParent: "", hostname: "leaky", dns: undefined };
  await adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
  const [{ id: podSandboxId } = { id: "" }] = (await adapter.inspect(pod.uid, signal)).sandboxes;
  const command = pod.pod.spec.containers[0]?.command ?? [];
  const image = { requested: BUSYBOX_IMAGE, id: BUSYBOX_IMAGE };
  const run = { name: "app", attempt: 0, hash: "0", backoff: millis(0), image, command, args: [], env: [] };
  const config = containerConfig(
    pod,
    { ...run, workingDir: "", mounts: [], logPath: "0.log" },
    { imageUser: undefined, sandbox },
    POD_CONFIG_SETTINGS,
  );
  const request = { podSandboxId, config, sandboxConfig: sandboxConfig(pod, sandbox, POD_CONFIG_SETTINGS, false) };
  const { containerId } = await client.unary(RuntimeService.createContainer, request, TIMEOUT_MS, signal);
  containerd.ctr("tasks", "start", "--detach", "--null-io", containerId);
  assert.ok(containerd.pidOf(containerId) > 1, "it runs");
  await adapter.apply(pod, { kind: "removeSandbox", sandboxId: podSandboxId }, signal);
  assert.deepEqual(await adapter.list(signal), []);
  assert.equal(containerd.ctr("containers", "list", "--quiet").trim(), "");
  assert.deepEqual(log.problems, ["ending a process that the runtime has lost sight of"]);
});
