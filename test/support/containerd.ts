/**
 * A real containerd of a test's own: own root, state, socket, CNI network and mount namespace, so that several run side
 * by side and nothing of it is left when it is stopped.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildBusyboxArchive, buildPauseArchive, PAUSE_IMAGE } from "./image-archive.ts";

const START_LIMIT_MS = 60_000;
const NEEDED_PROGRAMS = [
  "/usr/bin/containerd",
  "/usr/bin/ctr",
  "/usr/sbin/runc",
  "/usr/lib/cni/bridge",
  "/bin/busybox",
  "/usr/bin/clang",
];

/** Why no containerd can run here; `undefined` when one can. */
export function containerdMissing(): string | undefined {
  if (process.getuid?.() !== 0) return "containerd needs root";
  const missing = NEEDED_PROGRAMS.filter((path) => !existsSync(path));
  return missing.length === 0 ? undefined : `not installed: ${missing.join(", ")}`;
}

const configOf = (directory: string): string => `
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
  restrict_oom_score_adj = true
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
  BinaryName = "/usr/sbin/runc"
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

export class Containerd implements AsyncDisposable {
  readonly directory: string;
  readonly socketPath: string;
  readonly #bridge: string;
  /** Holds the mount namespace that containerd and its shims live in: what they mount is gone with it. */
  #keeper: ChildProcess | undefined;
  #daemon: ChildProcess | undefined;
  #log = "";

  private constructor(directory: string) {
    this.directory = directory;
    this.socketPath = join(directory, "run", "containerd.sock");
    this.#bridge = `pico${directory.slice(-6)}`;
  }

  /** With the pause and busybox images in it. @throws with containerd's own log when it does not come up */
  static async start(): Promise<Containerd> {
    const directory = mkdtempSync(join(tmpdir(), "picolet-containerd-"));
    const containerd = new Containerd(directory);
    for (const folder of ["run", "cni/net.d", "opt"]) mkdirSync(join(directory, folder), { recursive: true });
    writeFileSync(join(directory, "config.toml"), configOf(directory));
    const subnet = `10.${100 + (process.pid % 100)}.${Number.parseInt(Buffer.from(directory.slice(-6)).toString("hex").slice(-2), 16)}.0/24`;
    writeFileSync(join(directory, "cni/net.d/10-test.conflist"), networkOf(directory, containerd.#bridge, subnet));
    const keeper = spawn(
      "unshare",
      ["--mount", "--propagation", "slave", "sh", "-c", "echo ready; exec sleep infinity"],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    containerd.#keeper = keeper;
    await once(keeper.stdout, "data");
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
    const arguments_ = [
      "-t",
      String(this.#keeper?.pid),
      "-m",
      "containerd",
      "--config",
      join(this.directory, "config.toml"),
    ];
    const daemon = spawn("nsenter", arguments_, { stdio: ["ignore", "ignore", "pipe"] });
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

  importArchive(archive: string): void {
    this.ctr("images", "import", archive);
  }

  /** Runs `ctr` in the namespace that CRI uses. @returns what it printed */
  ctr(...args: string[]): string {
    return execFileSync("ctr", ["--address", this.socketPath, "--namespace", "k8s.io", ...args], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  }

  /** The process of a running container. */
  pidOf(containerId: string): number {
    const line = this.ctr("tasks", "list")
      .split("\n")
      .find((each) => each.startsWith(containerId));
    const pid = Number(line?.trim().split(/\s+/)[1]);
    if (!Number.isInteger(pid) || pid <= 1) throw new Error(`containerd runs no task ${containerId}`);
    return pid;
  }

  get log(): string {
    return this.#log;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.killDaemon();
    const shims = processes().filter(({ command }) => command.includes(this.socketPath));
    const workloads = processes().filter(({ parent }) => shims.some(({ pid }) => pid === parent));
    for (const { pid } of [...workloads, ...shims]) kill(pid);
    if (this.#keeper?.exitCode === null) {
      const exited = once(this.#keeper, "exit");
      this.#keeper.kill("SIGKILL");
      await exited;
    }
    try {
      execFileSync("ip", ["link", "delete", this.#bridge], { stdio: "ignore" });
    } catch {
      // No pod with a network has run: there is no bridge.
    }
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 5 });
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // Gone already.
  }
}

interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly command: string;
}

function processes(): Process[] {
  const found: Process[] = [];
  for (const entry of readdirSync("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const stat = readFileSync(`/proc/${entry}/stat`, "utf8");
      const parent = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
      found.push({ pid: Number(entry), parent, command: readFileSync(`/proc/${entry}/cmdline`, "utf8") });
    } catch {
      // Ended while we looked.
    }
  }
  return found;
}
