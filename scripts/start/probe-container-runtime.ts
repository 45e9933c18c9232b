import { randomUUID } from "node:crypto";
import { accessSync, constants, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { ConsoleLog } from "@picolet/protocol/async/console-log.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { CriAdapter } from "@picolet/runtime-cri/cri-adapter.ts";

/** Where containerd, CRI-O and k3s put their sockets. */
const SOCKETS = ["/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"];
/** Enough for a runtime that has to pull its pause image first. */
const PROBE_LIMIT_MS = 60_000;
const LEFT_OUT = "the sample container is left out";

export interface ContainerRuntimeProbe {
  /** "" when no container can run here. */
  readonly endpoint: string;
  /** Names the runtime, or why there is none. */
  readonly message: string;
}

/** Finds a CRI socket, and checks that a sandbox can really be made there: pause image, network and rights included. */
export async function probeContainerRuntime(): Promise<ContainerRuntimeProbe> {
  const socket = SOCKETS.find((path) => existsSync(path));
  if (socket === undefined) return { endpoint: "", message: `no CRI socket (${SOCKETS.join(", ")}): ${LEFT_OUT}` };
  try {
    accessSync(socket, constants.R_OK | constants.W_OK);
  } catch {
    return { endpoint: "", message: `${socket} may not be used by this user: ${LEFT_OUT}` };
  }
  const endpoint = `unix://${socket}`;
  try {
    return { endpoint, message: `containers run in ${await trySandbox(endpoint)} at ${socket}` };
  } catch (error) {
    return { endpoint: "", message: `${socket} cannot run a pod: ${describeError(error)}: ${LEFT_OUT}` };
  }
}

/** @returns the runtime's name and version. @throws what stands in the way */
async function trySandbox(endpoint: string): Promise<string> {
  const quiet = { format: "text", level: "error", write: () => undefined, now: () => new Date() } as const;
  await using adapter = new CriAdapter(
    { clock: systemClock, log: new ConsoleLog(quiet) },
    {
      endpoint,
      owner: "picolet-probe",
      requestTimeoutMs: PROBE_LIMIT_MS,
      cgroups: { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: -1 },
      memoryCapacityBytes: totalmem(),
      seccompProfileRoot: "/nonexistent",
      seccompDefault: false,
    },
  );
  const signal = AbortSignal.timeout(PROBE_LIMIT_MS);
  const { runtime, version, conditions } = await adapter.status(signal);
  const failing = conditions.find(({ status }) => !status);
  if (failing !== undefined) throw new Error(`${failing.type} is false: ${failing.message}`);
  const logDirectory = mkdtempSync(join(tmpdir(), "picolet-probe-"));
  const pod = probePod();
  try {
    const sandbox = { attempt: 0, logDirectory, cgroupParent: "", hostname: "probe", dns: undefined };
    await adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
  } finally {
    for (const { id } of (await adapter.inspect(pod.uid, signal)).sandboxes) {
      await adapter.apply(pod, { kind: "stopSandbox", sandboxId: id }, signal);
      await adapter.apply(pod, { kind: "removeSandbox", sandboxId: id }, signal);
    }
    rmSync(logDirectory, { recursive: true });
  }
  return `${runtime} ${version}`;
}

function probePod(): DesiredPod {
  const parsed = parsePod({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "picolet-probe", namespace: "default" },
    spec: { containers: [{ name: "none", image: "none" }] },
  });
  if (!parsed.ok) throw new Error("the probe's own pod is not valid");
  return { uid: podUid(randomUUID()), source: "file", origin: "", pod: parsed.pod };
}
