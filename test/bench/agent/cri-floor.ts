/**
 * The cost of containers with nothing around the CRI calls: the floor under the agent's latencies, and the client's own
 * throughput and memory. Run by itself, `node test/bench/agent/cri-floor.ts` prints all of it.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { containerConfig, sandboxConfig } from "@picolet/runtime-cri/pods/pod-config.ts";
import { RuntimeService } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { build } from "esbuild";
import { containerPod } from "../../support/agent/node-fixtures.ts";
import { Containerd } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { POD_CONFIG_SETTINGS } from "../../support/unit/cri/cri-adapters.ts";
import { removeCgroups } from "../../support/unit/machine/test-cgroups.ts";
import { percentile, round } from "../measure/process-usage.ts";
import { startedAtMs } from "./agent-figures.ts";

const TIMEOUT_MS = 60_000;
const CGROUP = "/picolet-floor";

/** Seconds from the first of RunPodSandbox, CreateContainer and StartContainer to the container's start. */
export async function floorManifestToStarted(containerd: Containerd, runs: number): Promise<number[]> {
  using client = new GrpcClient({ clock: systemClock }, { path: containerd.socketPath });
  const signal = new AbortController().signal;
  const samples: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    const { pod, sandbox, container } = configsOf(containerd, run);
    const startedAt = Date.now();
    const request = { config: sandboxConfig(pod, sandbox, POD_CONFIG_SETTINGS, true) };
    const { podSandboxId } = await client.unary(RuntimeService.runPodSandbox, request, TIMEOUT_MS, signal);
    const { containerId } = await client.unary(
      RuntimeService.createContainer,
      { podSandboxId, config: container, sandboxConfig: sandboxConfig(pod, sandbox, POD_CONFIG_SETTINGS, false) },
      TIMEOUT_MS,
      signal,
    );
    await client.unary(RuntimeService.startContainer, { containerId }, TIMEOUT_MS, signal);
    samples.push(((await startedAtMs(containerd, containerId)) - startedAt) / 1000);
    await client.unary(RuntimeService.stopPodSandbox, { podSandboxId }, TIMEOUT_MS, signal);
    await client.unary(RuntimeService.removePodSandbox, { podSandboxId }, TIMEOUT_MS, signal);
  }
  await removeCgroups(CGROUP);
  return samples;
}

function configsOf(containerd: Containerd, run: number) {
  const parsed = parsePod(containerPod("floor"));
  if (!parsed.ok) throw new Error("the bench's own pod is not valid");
  const pod: DesiredPod = { uid: podUid(`floor-${run}`), source: "file", origin: "", pod: parsed.pod };
  const logDirectory = join(containerd.directory, "floor-logs", String(run));
  mkdirSync(logDirectory, { recursive: true });
  const [spec] = parsed.pod.spec.containers;
  const sandbox = { attempt: 0, logDirectory, cgroupParent: `${CGROUP}/pod${run}`, hostname: "floor", dns: undefined };
  const launch = {
    name: "app",
    attempt: 0,
    hash: "0",
    backoff: millis(0),
    image: { requested: BUSYBOX_IMAGE, id: BUSYBOX_IMAGE },
    command: spec?.command ?? [],
    args: [],
    env: [],
    workingDir: "",
    mounts: [],
    logPath: "0.log",
  };
  return {
    pod,
    sandbox,
    container: containerConfig(pod, launch, { imageUser: undefined, sandbox }, POD_CONFIG_SETTINGS),
  };
}

export interface ClientFigures {
  /** Lists that were asked for. */
  readonly calls: number;
  readonly callsPerSecond: number;
  readonly cpuMicrosecondsPerCall: number;
  /** The memory of a process that has only the client, after the first tenth of the calls and after all of them. */
  readonly anonMiBBefore: number;
  readonly anonMiBAfter: number;
}

/** A bundled client in a process of its own, with the agent's flags, asks for the list of sandboxes again and again. */
export async function clientFigures(containerd: Containerd, calls = 20_000): Promise<ClientFigures> {
  const bundle = join(containerd.directory, "list-client.mjs");
  const entry = fileURLToPath(new URL("list-client-main.ts", import.meta.url));
  await build({ entryPoints: [entry], outfile: bundle, bundle: true, platform: "node", format: "esm", minify: true });
  const flags = ["--max-semi-space-size=1", "--optimize-for-size", "--no-opt", "--no-maglev", "--v8-pool-size=0"];
  const child = fork(bundle, [containerd.socketPath, String(calls)], {
    execArgv: [...flags, "--max-old-space-size=48"],
  });
  const [figures] = await once(child, "message");
  rmSync(bundle);
  return figures as ClientFigures;
}

if (import.meta.main) {
  await using containerd = await Containerd.start();
  const samples = await floorManifestToStarted(containerd, 20);
  const manifestToStarted = { p50: round(percentile(samples, 0.5)), p95: round(percentile(samples, 0.95)) };
  console.log(JSON.stringify({ manifestToStarted, client: await clientFigures(containerd) }, null, 2));
}
