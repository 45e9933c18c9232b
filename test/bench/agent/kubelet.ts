/**
 * A real kubelet at rest, in front of the same containerd and the same pods as the agent, without an API server: beside
 * `agent.atRest`. Fields of its configuration: kubelet.config.k8s.io/v1beta1, as of Kubernetes 1.34.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { mountPointsWithin, parseMountInfo } from "@picolet/agent/core/node/mount-info.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { RuntimeService } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { containerPod } from "../../support/agent/node-fixtures.ts";
import type { Containerd } from "../../support/containerd/containerd.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { removeCgroups } from "../../support/unit/machine/test-cgroups.ts";
import { type RestFigures, restOf } from "./agent-figures.ts";

const RUN_LIMIT_MS = 180_000;
const LOOK_MS = 500;
const CALL_LIMIT_MS = 60_000;
const STOP_LIMIT_MS = 30_000;
const MAX_LOG_CHARACTERS = 4000;
/** CRI's ContainerState CONTAINER_RUNNING. */
const RUNNING = 1;

/** What `kubelet --version` says: "Kubernetes v1.34.9". @throws when the file is no program that does so */
export function kubeletVersion(file: string): string {
  try {
    return execFileSync(file, ["--version"], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
  } catch (error) {
    throw new Error(`${file} is no kubelet that runs here`, { cause: error });
  }
}

export async function kubeletAtRest(
  file: string,
  { containerd, pods, windowMs }: { readonly containerd: Containerd; readonly pods: number; readonly windowMs: number },
): Promise<RestFigures> {
  await using kubelet = await Kubelet.start(file, containerd, pods);
  await kubelet.untilRunning(pods);
  return await restOf(kubelet.pid, windowMs);
}

class Kubelet implements AsyncDisposable {
  readonly #folder = new TempFolder();
  readonly #containerd: Containerd;
  readonly #cgroup = `/picolet-kubelet-${process.pid}`;
  #process: ChildProcess | undefined;
  #log = "";

  private constructor(containerd: Containerd) {
    this.#containerd = containerd;
  }

  static async start(file: string, containerd: Containerd, pods: number): Promise<Kubelet> {
    await using started = new AsyncDisposableStack();
    const kubelet = started.use(new Kubelet(containerd));
    const folder = kubelet.#folder;
    for (const name of ["manifests", "root", "certificates", "logs", "plugins"]) mkdirSync(folder.at(name));
    writeFileSync(folder.at("resolv.conf"), "");
    for (let index = 0; index < pods; index += 1) {
      writeFileSync(folder.at("manifests", `p${index}.json`), JSON.stringify(containerPod(`p${index}`)));
    }
    kubelet.#makeCgroup();
    writeFileSync(folder.at("config.json"), JSON.stringify(kubelet.#configuration(await fixedPort())));
    kubelet.#spawn(file);
    started.move();
    return kubelet;
  }

  get pid(): number {
    return this.#running().pid ?? 0;
  }

  /** As it is by default but for its folders, and for what ends pods or itself on a machine that does other things too. */
  #configuration(port: number): unknown {
    const folder = this.#folder;
    return {
      ...{ apiVersion: "kubelet.config.k8s.io/v1beta1", kind: "KubeletConfiguration" },
      staticPodPath: folder.at("manifests"),
      podLogsDir: folder.at("logs"),
      volumePluginDir: folder.at("plugins"),
      resolvConf: folder.at("resolv.conf"),
      containerRuntimeEndpoint: `unix://${this.#containerd.socketPath}`,
      ...{ cgroupDriver: "cgroupfs", cgroupRoot: this.#cgroup, enforceNodeAllocatable: ["none"] },
      ...{ failSwapOn: false, failCgroupV1: false, oomScoreAdj: 0, makeIPTablesUtilChains: false },
      ...{ address: "127.0.0.1", port, healthzPort: 0 },
      authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
      authorization: { mode: "AlwaysAllow" },
      evictionHard: {
        ...{ "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%" },
        ...{ "imagefs.available": "0%", "imagefs.inodesFree": "0%" },
      },
      imageGCHighThresholdPercent: 100,
    };
  }

  /** Unlike its children it has to be there, on every controller. */
  #makeCgroup(): void {
    const mount = "/sys/fs/cgroup";
    const controllers = readdirSync(mount, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    for (const { name } of controllers) mkdirSync(join(mount, name, this.#cgroup), { recursive: true });
  }

  #spawn(file: string): void {
    const folder = this.#folder;
    const flags = ["--config", folder.at("config.json"), "--root-dir", folder.at("root")];
    const identity = ["--cert-dir", folder.at("certificates"), "--hostname-override", "node"];
    // It ends with the bench.
    const child = spawn("setpriv", ["--pdeathsig", "KILL", file, ...flags, ...identity], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#log = (this.#log + text).slice(-MAX_LOG_CHARACTERS);
    });
    this.#process = child;
  }

  #running(): ChildProcess {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) {
      throw new Error(`the kubelet has ended (${child?.exitCode ?? child?.signalCode}):\n${this.#log}`);
    }
    return child;
  }

  async untilRunning(count: number): Promise<void> {
    const limit = performance.now() + RUN_LIMIT_MS;
    for (;;) {
      this.#running();
      const running = await this.#runtime(async (client, signal) => {
        const { containers } = await client.unary(RuntimeService.listContainers, {}, CALL_LIMIT_MS, signal);
        return containers.filter(({ state }) => state === RUNNING).length;
      });
      if (running === count) return;
      if (performance.now() > limit) {
        throw new Error(`the kubelet runs ${running} of ${count} pods after ${RUN_LIMIT_MS / 1000} s:\n${this.#log}`);
      }
      await delay(LOOK_MS);
    }
  }

  async #runtime<T>(work: (client: GrpcClient, signal: AbortSignal) => Promise<T>): Promise<T> {
    using client = new GrpcClient({ clock: systemClock }, { path: this.#containerd.socketPath });
    return await work(client, new AbortController().signal);
  }

  async #end(): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_LIMIT_MS);
    await ended;
    clearTimeout(timer);
  }

  /** Its pods run on when it ends: whoever is measured next must not find them. */
  async #removePods(): Promise<void> {
    await this.#runtime(async (client, signal) => {
      const { items } = await client.unary(RuntimeService.listPodSandbox, {}, CALL_LIMIT_MS, signal);
      for (const { id: podSandboxId } of items) {
        await client.unary(RuntimeService.stopPodSandbox, { podSandboxId }, CALL_LIMIT_MS, signal);
        await client.unary(RuntimeService.removePodSandbox, { podSandboxId }, CALL_LIMIT_MS, signal);
      }
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
    await this.#removePods();
    await removeCgroups(this.#cgroup);
    this.#unmountVolumes();
    this.#folder[Symbol.dispose]();
  }

  /** Service account tokens and the like, in memory. */
  #unmountVolumes(): void {
    const mounts = parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8"));
    for (const target of mountPointsWithin(mounts, this.#folder.path)) execFileSync("umount", ["-l", target]);
  }
}
