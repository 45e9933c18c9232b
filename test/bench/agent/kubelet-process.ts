/**
 * A real kubelet in front of the bench's containerd. Disposal removes everything that it made, also after a failure;
 * the next start removes what a killed bench has left. Configuration: kubelet.config.k8s.io/v1beta1 of Kubernetes 1.34.
 *
 * A kubelet writes to fixed places of the machine: /var/lib/kubelet/device-plugins, /var/log/containers, six sysctls.
 * It runs in a mount namespace that redirects them into its own folder. Only that folder is shared with the machine's
 * namespace, because containerd must see the volumes that the kubelet mounts. Cgroups of other programs are hidden:
 * cAdvisor watches each by inotify, and 6,500 of other tests cost the kubelet 5 MiB.
 */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { mountPointsWithin, parseMountInfo } from "@picolet/agent/core/node/mount-info.ts";
import type { ClusterAccess } from "@picolet/hub/kubernetes/cluster-access.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { RuntimeService } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import type { Containerd } from "../../support/containerd/containerd.ts";
import { fixedPorts } from "../../support/unit/machine/fixed-port.ts";
import { killAll } from "../../support/unit/machine/processes.ts";
import { cgroupFolders, removeCgroups } from "../../support/unit/machine/test-cgroups.ts";

const HEALTHY_LIMIT_MS = 60_000;
const RUN_LIMIT_MS = 180_000;
const LOOK_MS = 500;
const CALL_LIMIT_MS = 60_000;
const STOP_LIMIT_MS = 30_000;
const MAX_LOG_CHARACTERS = 4000;
/** CRI's ContainerState CONTAINER_RUNNING. */
const RUNNING = 1;
const CGROUPS = "/sys/fs/cgroup";
/** Folder and cgroup have this name with the pid of the bench. */
const NAME_PREFIX = "picolet-kubelet-";

/** The sysctls that a kubelet sets (setupKernelTunables of its container manager). */
const SYSCTLS = [
  ...["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"],
  ...["kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"],
];

/**
 * Run as `sh -c ISOLATED sh FOLDER PROGRAM ARGUMENT...` in a new mount namespace. What may fail: `--make-slave` on what
 * is no mount point, and hiding a cgroup that another program has just removed.
 */
const ISOLATED = `set -e
for mount in / /proc /var /var/lib /var/log; do mount --make-slave "$mount" 2>/dev/null || true; done
for name in lib log; do
  mkdir -p "$1/var/$name/upper" "$1/var/$name/work"
  mount -t overlay -o "lowerdir=/var/$name,upperdir=$1/var/$name/upper,workdir=$1/var/$name/work" overlay "/var/$name"
done
for key in ${SYSCTLS.join(" ")}; do
  mkdir -p "$1/sysctl/$(dirname "$key")"
  cat "/proc/sys/$key" > "$1/sysctl/$key"
  mount --bind "$1/sysctl/$key" "/proc/sys/$key"
done
mount --make-rslave ${CGROUPS}
mount --all --fstab "$1/hidden-cgroups" 2>/dev/null || true
shift
exec "$@"`;

/** Joins an API server as a new node does: a bootstrap token, a CertificateSigningRequest, a client certificate. */
export interface KubeletJoin {
  readonly api: ClusterAccess;
  readonly token: string;
}

export interface KubeletInit {
  /** Path of the binary. */
  readonly file: string;
  readonly containerd: Containerd;
  readonly nodeName: string;
  /** Static pods by file name. */
  readonly manifests?: Readonly<Record<string, unknown>>;
  /** Undefined: standalone. */
  readonly join?: KubeletJoin;
}

export class Kubelet implements AsyncDisposable {
  readonly #init: KubeletInit;
  readonly #name = `${NAME_PREFIX}${process.pid}`;
  readonly #folder = join(tmpdir(), this.#name);
  #process: ChildProcess | undefined;
  #log = "";

  private constructor(init: KubeletInit) {
    this.#init = init;
  }

  /** @returns when its /healthz answers 200 */
  static async start(init: KubeletInit): Promise<Kubelet> {
    await removeLeftovers();
    await using started = new AsyncDisposableStack();
    const kubelet = started.use(new Kubelet(init));
    const port = await fixedPorts(2);
    await kubelet.#prepare(port);
    await kubelet.#spawn();
    await kubelet.#untilHealthy(port + 1);
    started.move();
    return kubelet;
  }

  get pid(): number {
    return this.#running().pid ?? 0;
  }

  /** Runs `work`, and rejects as soon as the kubelet ends. @throws with the kubelet's last errors */
  async during<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const child = this.#running();
    const over = new AbortController();
    const ended = once(child, "close", { signal: over.signal }).then(() => {
      throw new Error("the process has ended");
    });
    try {
      return await Promise.race([work(over.signal), ended]);
    } catch (cause) {
      throw this.#failed("fails", cause);
    } finally {
      over.abort();
    }
  }

  /** Waits until `count` containers run. @returns their ids, sorted */
  async untilRunning(count: number): Promise<readonly string[]> {
    return await this.#until(RUN_LIMIT_MS, async () => {
      const running = await this.runningContainers();
      return running.length === count ? { reached: running } : `${running.length} of ${count} containers run`;
    });
  }

  /** Their ids, sorted. */
  async runningContainers(): Promise<readonly string[]> {
    const { containers } = await this.#runtime((client, signal) =>
      client.unary(RuntimeService.listContainers, {}, CALL_LIMIT_MS, signal),
    );
    return containers
      .filter(({ state }) => state === RUNNING)
      .map(({ id }) => id)
      .toSorted();
  }

  /** Polls. @param look the result, or a text that says what is missing */
  async #until<T>(limitMs: number, look: () => Promise<{ readonly reached: T } | string>): Promise<T> {
    const limit = performance.now() + limitMs;
    return await this.during(async (signal) => {
      for (;;) {
        const seen = await look();
        if (typeof seen === "object") return seen.reached;
        if (performance.now() > limit) throw new Error(`${seen} after ${limitMs / 1000} s`);
        await delay(LOOK_MS, undefined, { signal });
      }
    });
  }

  async #prepare(port: number): Promise<void> {
    const { manifests = {}, join: joined } = this.#init;
    mkdirSync(this.#folder);
    execFileSync("mount", ["--bind", this.#folder, this.#folder]);
    execFileSync("mount", ["--make-shared", this.#folder]);
    for (const name of ["manifests", "root", "certificates", "logs", "plugins"]) mkdirSync(this.#at(name));
    for (const [name, pod] of Object.entries(manifests))
      writeFileSync(this.#at("manifests", name), JSON.stringify(pod));
    writeFileSync(this.#at("resolv.conf"), "");
    if (joined !== undefined) await this.#writeBootstrap(joined);
    // The kubelet makes the cgroups below its root, but not the root.
    for (const controller of controllers()) mkdirSync(join(controller, this.#name), { recursive: true });
    this.#hideOtherCgroups();
    writeFileSync(this.#at("config.json"), JSON.stringify(this.#configuration(port)));
  }

  /** All but its own, and those that it lives in. */
  #hideOtherCgroups(): void {
    const own = readFileSync("/proc/self/cgroup", "utf8").matchAll(/:\/([^/\n]+)/g);
    const seen = new Set([this.#name, ...own.map(([, name = ""]) => name)]);
    mkdirSync(this.#at("empty"));
    const others = controllers().flatMap((controller) =>
      foldersIn(controller).filter((name) => !seen.has(basename(name))),
    );
    writeFileSync(
      this.#at("hidden-cgroups"),
      others.map((path) => `${this.#at("empty")} ${path} none bind 0 0\n`).join(""),
    );
  }

  async #writeBootstrap({ api, token }: KubeletJoin): Promise<void> {
    const { tls } = await api.credentials();
    writeFileSync(this.#at("ca.pem"), tls.ca ?? "");
    const [cluster, user, name] = ["hub", "token", "bootstrap"];
    const kubeconfig = {
      ...{ apiVersion: "v1", kind: "Config", "current-context": name },
      clusters: [{ name: cluster, cluster: { server: api.server, "certificate-authority": this.#at("ca.pem") } }],
      users: [{ name: user, user: { token } }],
      contexts: [{ name, context: { cluster, user } }],
    };
    writeFileSync(this.#at("bootstrap.json"), JSON.stringify(kubeconfig), { mode: 0o600 });
  }

  /**
   * The defaults, except for folders and for thresholds that other load on the machine could cross. A joined kubelet
   * delegates authentication and authorization to the API server and rotates its certificate, as kubeadm configures it.
   */
  #configuration(port: number): unknown {
    const isJoined = this.#init.join !== undefined;
    return {
      ...{ apiVersion: "kubelet.config.k8s.io/v1beta1", kind: "KubeletConfiguration" },
      ...(isJoined ? { rotateCertificates: true } : { staticPodPath: this.#at("manifests") }),
      podLogsDir: this.#at("logs"),
      volumePluginDir: this.#at("plugins"),
      resolvConf: this.#at("resolv.conf"),
      containerRuntimeEndpoint: `unix://${this.#init.containerd.socketPath}`,
      ...{ cgroupDriver: "cgroupfs", cgroupRoot: `/${this.#name}`, enforceNodeAllocatable: ["none"] },
      ...{ failSwapOn: false, failCgroupV1: false, oomScoreAdj: 0, makeIPTablesUtilChains: false },
      ...{ address: "127.0.0.1", port, healthzBindAddress: "127.0.0.1", healthzPort: port + 1 },
      authentication: {
        anonymous: { enabled: !isJoined },
        webhook: { enabled: isJoined },
        ...(isJoined && { x509: { clientCAFile: this.#at("ca.pem") } }),
      },
      authorization: { mode: isJoined ? "Webhook" : "AlwaysAllow" },
      evictionHard: {
        ...{ "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%" },
        ...{ "imagefs.available": "0%", "imagefs.inodesFree": "0%" },
      },
      imageGCHighThresholdPercent: 100,
    };
  }

  async #spawn(): Promise<void> {
    const { file, containerd, nodeName, join: joined } = this.#init;
    const flags = ["--config", this.#at("config.json"), "--root-dir", this.#at("root")];
    flags.push("--cert-dir", this.#at("certificates"), "--hostname-override", nodeName);
    // The default is /run/containerd/containerd.sock; cAdvisor ignores containers of another one.
    flags.push("--containerd", containerd.socketPath);
    if (joined !== undefined) {
      flags.push("--bootstrap-kubeconfig", this.#at("bootstrap.json"), "--kubeconfig", this.#at("kubeconfig"));
    }
    const isolated = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", ISOLATED, "sh", this.#folder];
    // A killed bench takes its kubelet with it.
    const child = spawn("setpriv", ["--pdeathsig", "KILL", ...isolated, file, ...flags], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    let rest = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (!isInformation(line)) this.#log += `${line}\n`;
      this.#log = this.#log.slice(-MAX_LOG_CHARACTERS);
    });
    await once(child, "spawn");
    this.#process = child;
  }

  async #untilHealthy(port: number): Promise<void> {
    await this.#until(HEALTHY_LIMIT_MS, async () => {
      try {
        const response = await fetch(`http://127.0.0.1:${port}/healthz`);
        const text = await response.text();
        return response.ok ? { reached: true } : `its /healthz answers ${response.status} ${text}`;
      } catch (error) {
        return `its /healthz does not answer (${describeError(error)})`;
      }
    });
  }

  #running(): ChildProcess {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) {
      throw this.#failed("has ended");
    }
    return child;
  }

  #failed(what: string, cause?: unknown): Error {
    const { exitCode = null, signalCode = null } = this.#process ?? {};
    const end = exitCode ?? signalCode;
    const said = this.#log === "" ? "it logged no error" : `its last errors:\n${this.#log}`;
    return new Error(`the kubelet ${what}${end === null ? "" : ` (ended with ${end})`}; ${said}`, { cause });
  }

  async #runtime<T>(work: (client: GrpcClient, signal: AbortSignal) => Promise<T>): Promise<T> {
    using client = new GrpcClient({ clock: systemClock }, { path: this.#init.containerd.socketPath });
    return await work(client, new AbortController().signal);
  }

  #at(...names: readonly string[]): string {
    return join(this.#folder, ...names);
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

  /** Pods outlive the kubelet, and the next measurement must not find them. */
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
    await using steps = new AsyncDisposableStack();
    // Run in reverse order; the others still run when one fails.
    steps.defer(() => remove(this.#name));
    steps.defer(() => this.#removePods());
    steps.defer(() => this.#end());
  }
}

const foldersIn = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => join(folder, name));

/** Mount points of cgroup v1. */
const controllers = (): string[] => foldersIn(CGROUPS);

/** A klog line begins with the initial of its severity and the date; some builds put a component's name before it. */
const isInformation = (line: string): boolean => /^(\S+ )?I\d{4} /.test(line);

/** Removes what benches left that were killed. */
async function removeLeftovers(): Promise<void> {
  for (const name of readdirSync(tmpdir())) {
    const owner = new RegExp(`^${NAME_PREFIX}(\\d+)$`).exec(name)?.[1];
    if (owner === undefined) continue;
    if (owner === String(process.pid) || !existsSync(`/proc/${owner}`)) await remove(name);
  }
}

/** Removes pods' processes, cgroups, mounts (such as service account tokens in tmpfs) and files. */
async function remove(name: string): Promise<void> {
  const folder = join(tmpdir(), name);
  const cgroups = cgroupFolders(`/${name}`);
  killAll(
    cgroups.flatMap((each) => readFileSync(join(each, "cgroup.procs"), "utf8").split("\n").filter(Boolean).map(Number)),
  );
  await removeCgroups(`/${name}`);
  const mounted = (): readonly string[] =>
    mountPointsWithin(parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8")), folder);
  for (const target of mounted()) execFileSync("umount", ["--lazy", target]);
  assert.deepEqual(mounted(), [], "mounts that cannot be removed");
  rmSync(folder, { recursive: true, force: true });
}
