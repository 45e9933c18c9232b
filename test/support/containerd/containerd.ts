/**
 * A real containerd of a test's own: own root, state, socket and CNI network, so that several run side by side and
 * nothing of it is left when it is stopped. It dies with the process that started it; what a killed test run leaves
 * behind, the next start takes away. It shares the mount namespace of the tests, for volumes that an agent mounts must
 * be seen by it.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { networkInterfaces, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { isAbandoned, writeOwner } from "../unit/machine/owner-file.ts";
import { runningProcesses } from "../unit/machine/processes.ts";
import {
  defaultRelease,
  isAtLeast,
  ociRuntimeFor,
  type RuntimePrograms,
  type RuntimeReleaseName,
  runtimePrograms,
} from "./runtime-release.ts";
import { buildBusyboxArchive, buildPauseArchive, PAUSE_IMAGE } from "./test-images.ts";

const START_LIMIT_MS = 60_000;
/** In place of ctr's ten seconds for its first answer, which a machine with much to do has been seen to take. */
const CONNECT_LIMIT = "60s";
/** Where libcni notes what it has done for each sandbox. */
const NETWORK_RECORDS = "/var/lib/cni/results";
/** Killed processes leave their cgroups a moment after the signal. */
const CGROUPS = "/sys/fs/cgroup";
const CGROUP_TRIES = 100;
const CGROUP_RETRY_MS = 20;
const DIRECTORY_PREFIX = "picolet-containerd-";
const NEEDED_PROGRAMS = [
  "/usr/bin/containerd",
  "/usr/bin/ctr",
  "/usr/sbin/runc",
  "/usr/lib/cni/bridge",
  "/usr/sbin/iptables",
  "/bin/busybox",
  "/usr/bin/clang",
];

/** Why no containerd can run here; `undefined` when one can. */
export function containerdMissing(): string | undefined {
  if (process.getuid?.() !== 0) return "containerd needs root";
  const missing = NEEDED_PROGRAMS.filter((path) => !existsSync(path));
  return missing.length === 0 ? undefined : `not installed: ${missing.join(", ")}`;
}

export interface ContainerdOptions {
  /**
   * The lower bound of a container's oom_score_adj on this machine; without CAP_SYS_RESOURCE runc fails to lower it.
   * Default true.
   */
  readonly restrictOomScoreAdj?: boolean;
  /**
   * Mounts something of the test's own over the folder of images and of what containers write; it is unmounted in the
   * end.
   */
  readonly mountRoot?: (folder: string) => void;
  /** Without its CRI plugin, as Docker's package configures it. */
  readonly withoutCri?: boolean;
  /** Default that of PICOLET_RUNTIME, else the one that this machine has. */
  readonly release?: RuntimeReleaseName;
}

/** `disabled_plugins` is the whole of what Docker's package says; the rest keeps this one apart from others. */
const dockersConfigOf = (directory: string): string => `
disabled_plugins = ["cri"]
root = "${directory}/root"
state = "${directory}/state"
[grpc]
  address = "${directory}/run/containerd.sock"
`;

const configOf = (directory: string, programs: RuntimePrograms, options: ContainerdOptions): string => `
version = 2
root = "${directory}/root"
state = "${directory}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs","io.containerd.snapshotter.v1.zfs","io.containerd.snapshotter.v1.devmapper","io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "${directory}/run/containerd.sock"
[debug]
  level = "info"
[plugins."io.containerd.internal.v1.opt"]
  path = "${directory}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${PAUSE_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = ${options.restrictOomScoreAdj ?? true}
  netns_mounts_under_state_dir = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  BinaryName = "${ociRuntimeFor(programs, directory)}"
  Root = "${directory}/runc"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "${directory}/cni/net.d"
  max_conf_num = 1
`;

const networkOf = (directory: string, bridge: string, subnet: string): string =>
  JSON.stringify({
    cniVersion: "0.4.0",
    name: bridge,
    plugins: [
      {
        type: "bridge",
        bridge,
        isGateway: true,
        ipMasq: false,
        hairpinMode: true,
        ipam: {
          type: "host-local",
          dataDir: `${directory}/cni/ipam`,
          ranges: [[{ subnet }]],
          routes: [{ dst: "0.0.0.0/0" }],
        },
      },
      { type: "portmap", capabilities: { portMappings: true }, snat: false },
    ],
  });

/** One of 16,384 in 10.128.0.0/9 … 10.191.255.0/24 that no interface of this machine has. */
function freeSubnet(): string {
  const taken = Object.values(networkInterfaces()).flatMap((each) => (each ?? []).map(({ address }) => address));
  for (;;) {
    const prefix = `10.${128 + randomInt(64)}.${randomInt(256)}.`;
    if (!taken.some((address) => address.startsWith(prefix))) return `${prefix}0/24`;
  }
}

const bridgeOf = (directory: string): string => `pico${directory.slice(-6)}`;
const socketOf = (directory: string): string => join(directory, "run", "containerd.sock");

export class Containerd implements AsyncDisposable {
  readonly directory: string;
  readonly socketPath: string;
  /** The network's name too. */
  readonly bridge: string;
  /** The subnet of all pods: 10.x.y.0/24. */
  readonly subnet = freeSubnet();
  readonly #programs: RuntimePrograms;
  #daemon: ChildProcess | undefined;
  #log = "";
  #disposed = false;

  private constructor(directory: string, programs: RuntimePrograms) {
    this.directory = directory;
    this.#programs = programs;
    this.socketPath = socketOf(directory);
    this.bridge = bridgeOf(directory);
  }

  /** With the pause and busybox images in it. @throws with containerd's own log when it does not come up */
  static async start(options: ContainerdOptions = {}): Promise<Containerd> {
    await takeAwayLeftovers();
    const programs = runtimePrograms(options.release ?? defaultRelease());
    const directory = mkdtempSync(join(tmpdir(), DIRECTORY_PREFIX));
    // As /run/containerd: root of a user namespace passes through it.
    chmodSync(directory, 0o711);
    const containerd = new Containerd(directory, programs);
    for (const folder of ["run", "cni/net.d", "opt", "root"]) mkdirSync(join(directory, folder), { recursive: true });
    writeOwner(directory);
    options.mountRoot?.(join(directory, "root"));
    const config = options.withoutCri === true ? dockersConfigOf(directory) : configOf(directory, programs, options);
    writeFileSync(join(directory, "config.toml"), config);
    const network = networkOf(directory, containerd.bridge, containerd.subnet);
    writeFileSync(join(directory, "cni/net.d/10-test.conflist"), network);
    try {
      await containerd.startDaemon();
      for (const archive of [buildPauseArchive(), buildBusyboxArchive()]) containerd.importArchive(archive);
    } catch (error) {
      await containerd[Symbol.asyncDispose]();
      throw error;
    }
    return containerd;
  }

  async startDaemon(): Promise<void> {
    rmSync(this.socketPath, { force: true });
    const config = join(this.directory, "config.toml");
    const { containerd, path } = this.#programs;
    const daemon = spawn("setpriv", ["--pdeathsig", "KILL", containerd, "--config", config], {
      env: { ...process.env, PATH: path },
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#daemon = daemon;
    this.#log = "";
    daemon.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#log = (this.#log + text).slice(-20_000);
    });
    await new Promise<void>((resolve, reject) => {
      const give = (verdict: () => void): void => {
        clearTimeout(timer);
        daemon.stderr.off("data", onData);
        daemon.off("exit", onExit);
        verdict();
      };
      const onData = (): void => {
        if (this.#log.includes("containerd successfully booted")) give(resolve);
      };
      const onExit = (): void => give(() => reject(new Error(`containerd ended:\n${this.#log}`)));
      const timer = setTimeout(onExit, START_LIMIT_MS);
      daemon.stderr.on("data", onData);
      daemon.on("exit", onExit);
    });
  }

  /** SIGKILL; shims and containers run on. */
  async killDaemon(): Promise<void> {
    const daemon = this.#daemon;
    if (daemon === undefined || daemon.exitCode !== null || daemon.signalCode !== null) return;
    const exited = once(daemon, "exit");
    daemon.kill("SIGKILL");
    await exited;
  }

  /** SIGSTOP: it is there, takes connections, and answers nothing until `thaw`. */
  freeze(): void {
    this.#daemon?.kill("SIGSTOP");
  }

  thaw(): void {
    this.#daemon?.kill("SIGCONT");
  }

  /** As a power cut does: everything that runs ends, what is in memory (its state, runc's) is gone, images stay. */
  async cutPower(): Promise<void> {
    await this.killDaemon();
    killWorkloads(this.directory);
    unmountBelow(this.directory);
    for (const folder of ["state", "runc"]) rmSync(join(this.directory, folder), { recursive: true, force: true });
  }

  importArchive(archive: string): void {
    this.ctr("images", "import", archive);
  }

  /** Runs `ctr` in the namespace that CRI uses. @returns what it printed */
  ctr(...args: string[]): string {
    const where = ["--address", this.socketPath, "--connect-timeout", CONNECT_LIMIT, "--namespace", "k8s.io"];
    return execFileSync(this.#programs.ctr, [...where, ...args], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  }

  /** Compares with the version of containerd. */
  isAtLeast(major: number, minor: number): boolean {
    return isAtLeast(this.#programs, major, minor);
  }

  /** The process of a running container. */
  pidOf(containerId: string): number {
    const pid = Number(readFileSync(join(this.#bundleOf(containerId), "init.pid"), "utf8"));
    if (!Number.isInteger(pid) || pid <= 1) throw new Error(`containerd runs no task ${containerId}`);
    return pid;
  }

  /** The container's cgroup on each v1 controller, or on v2 under "": absolute paths. */
  cgroupsOf(containerId: string): ReadonlyMap<string, string> {
    return new Map(Object.entries(cgroupsIn(join(this.directory, "runc/k8s.io", containerId))));
  }

  /** The OCI runtime specification that CRI made of the container's configuration and gave to runc. */
  specOf(containerId: string): unknown {
    return JSON.parse(readFileSync(join(this.#bundleOf(containerId), "config.json"), "utf8"));
  }

  #bundleOf(containerId: string): string {
    return join(this.directory, "state/io.containerd.runtime.v2.task/k8s.io", containerId);
  }

  get log(): string {
    return this.#log;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    await this.killDaemon();
    killWorkloads(this.directory);
    await takeAway(this.directory);
  }
}

/** Removes the leftovers of test runs that were killed. */
async function takeAwayLeftovers(): Promise<void> {
  for (const name of readdirSync(tmpdir())) {
    if (!name.startsWith(DIRECTORY_PREFIX)) continue;
    const directory = join(tmpdir(), name);
    if (!isAbandoned(directory)) continue;
    killWorkloads(directory);
    await takeAway(directory);
  }
}

/** Shims and what runs in them. */
function killWorkloads(directory: string): void {
  const all = runningProcesses();
  const shims = all.filter(({ words }) => words.some((word) => word.includes(socketOf(directory))));
  const workloads = all.filter(({ parent }) => shims.some(({ pid }) => pid === parent));
  for (const { pid } of [...workloads, ...shims]) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // Gone already.
    }
  }
}

/**
 * Removes what no process holds any more: mounts, cgroups, the shims' sockets, the bridge, NAT rules, the network's
 * records, files.
 */
async function takeAway(directory: string): Promise<void> {
  const sandboxes = list(join(directory, "root/io.containerd.grpc.v1.cri/sandboxes"));
  unmountBelow(directory);
  const runc = join(directory, "runc/k8s.io");
  for (const id of list(runc)) {
    for (const path of Object.values(cgroupsIn(join(runc, id)))) await removeCgroup(path);
  }
  const tasks = join(directory, "state/io.containerd.runtime.v2.task/k8s.io");
  for (const id of list(tasks)) {
    const address = readIfThere(join(tasks, id, "address"))?.replace("unix://", "");
    if (address !== undefined) rmSync(address, { force: true });
  }
  const bridge = bridgeOf(directory);
  removeHostPorts(bridge);
  run("ip", ["link", "delete", bridge]);
  for (const name of list(NETWORK_RECORDS)) {
    if (sandboxes.some((id) => name.includes(id))) rmSync(join(NETWORK_RECORDS, name), { force: true });
  }
  rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
}

/** By controller of cgroup v1, from the state that runc or crun keeps of a container; empty without it. */
function cgroupsIn(folder: string): Readonly<Record<string, string>> {
  const ofRunc = readIfThere(join(folder, "state.json"));
  if (ofRunc !== undefined) return (JSON.parse(ofRunc) as { cgroup_paths?: Record<string, string> }).cgroup_paths ?? {};
  const ofCrun = readIfThere(join(folder, "status"));
  if (ofCrun === undefined) return {};
  const path = (JSON.parse(ofCrun) as { "cgroup-path": string })["cgroup-path"];
  return Object.fromEntries(list(CGROUPS).map((controller) => [controller, join(CGROUPS, controller, path)]));
}

/** Root file systems, shared memory and network namespaces of sandboxes and containers. */
function unmountBelow(directory: string): void {
  const points = readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[4] ?? "")
    .filter((point) => point.startsWith(`${directory}/`));
  // The innermost were mounted last.
  if (points.length > 0) run("umount", ["--lazy", ...points.reverse()]);
}

/** With the parents that were made for it, as far as nothing else is in them. */
async function removeCgroup(path: string): Promise<void> {
  for (let tries = CGROUP_TRIES; tries > 0 && existsSync(path); tries -= 1) {
    try {
      rmdirSync(path);
    } catch {
      await pause(CGROUP_RETRY_MS);
    }
  }
  for (let parent = dirname(path); /^\/sys\/fs\/cgroup\/[^/]+\/./.test(parent); parent = dirname(parent)) {
    try {
      rmdirSync(parent);
    } catch {
      return;
    }
  }
}

/** portmap names the network in each rule's comment; each rule leads to a chain of its pod. */
function removeHostPorts(network: string): void {
  const rules = run("iptables-save", ["--table", "nat"])?.split("\n") ?? [];
  for (const rule of rules) {
    if (!rule.startsWith("-A CNI-HOSTPORT-DNAT") || !rule.includes(`name: \\"${network}\\"`)) continue;
    const words = (rule.match(/"(?:\\.|[^"\\])*"|\S+/g) ?? []).map((word) =>
      word.startsWith('"') ? word.slice(1, -1).replaceAll('\\"', '"') : word,
    );
    run("iptables", ["--table", "nat", "-D", ...words.slice(1)]);
    const chain = words.at(-1) ?? "";
    for (const action of ["-F", "-X"]) run("iptables", ["--table", "nat", action, chain]);
  }
}

/** `undefined` when it failed, which means here that there was nothing to take away. */
function run(program: string, args: readonly string[]): string | undefined {
  try {
    return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  } catch {
    return undefined;
  }
}

const list = (folder: string): string[] => (existsSync(folder) ? readdirSync(folder) : []);

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
