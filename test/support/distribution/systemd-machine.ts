/**
 * A Debian machine with systemd in namespaces of this machine's kernel: a root file system of its own, processes,
 * network, cgroups and host name apart from this machine's. It boots within two seconds. Real packages can be installed
 * in it: it has dpkg, systemd, D-Bus, containerd and runc.
 *
 * ```ts
 * await using machine = await SystemdMachine.start();
 * await machine.output(`dpkg --install ${await machine.bring("picolet.deb")}`);
 * const agent = await machine.agent({ config: { maxPods: 5 } });
 * ```
 *
 * - The cgroups are of this machine's versions. The kernel, its settings, its devices and its clock are this machine's:
 *   what needs others needs a guest (`support/guest/guest.ts`).
 * - It reaches nothing outside but the one port that `letReach` names.
 * - It ends with the process that started it, also when that is killed, and leaves nothing.
 */
import { type ChildProcess, type ChildProcessWithoutNullStreams, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createConnection, createServer, type Server } from "node:net";
import { constants } from "node:os";
import { basename, dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { ignore } from "@picolet/protocol/errors.ts";
import { buildBusyboxArchive, buildPauseArchive, PAUSE_IMAGE } from "../containerd/test-images.ts";
import { cachedTree, PACKAGES } from "../debian/debian-root.ts";
import { debianTreeMissing } from "../debian/debian-tree.ts";
import {
  type BoardMachine,
  COMMAND_LIMIT_MS,
  type CommandResult,
  type RunningCommand,
  type RunOptions,
  uploadLine,
} from "../guest/board-machine.ts";
import { GuestAgent, type GuestAgentOptions } from "../guest/guest-agent.ts";
import { NETWORK } from "../guest/guest-image.ts";
import { killAll } from "../unit/machine/processes.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";

/** Programs that picolet's package works with. */
const SYSTEM = ["systemd-sysv", "dbus", "containerd", "runc", "containernetworking-plugins", "iptables"];
/** They wait for devices, are of the kernel that all machines share, or do nothing but cost time. */
const MASKED = [
  "console-getty.service",
  "dev-hugepages.mount",
  "dpkg-db-backup.timer",
  "getty.target",
  "sys-fs-fuse-connections.mount",
  "sys-kernel-config.mount",
  "sys-kernel-debug.mount",
  "sys-kernel-tracing.mount",
  "systemd-firstboot.service",
  "systemd-logind.service",
  "systemd-modules-load.service",
  "systemd-remount-fs.service",
  "systemd-tmpfiles-clean.timer",
];
/** A folder of this machine, in the machine. */
const SHARED = "/mnt/shared";
const PATH = "/usr/sbin:/usr/bin:/sbin:/bin";
/** An address of its own that stands for all that is outside. */
const OUTSIDE_ADDRESS = "10.0.2.100";
const OUTSIDE_PORT = 7443;
/** It takes 2 s on a quiet machine; a loaded one has been seen ten times slower. */
const BOOT_LIMIT_MS = 120_000;
/** Bounds the kept output of the machine before systemd runs. */
const MAX_SAID = 20_000;
/** Pods may take a minute of it. */
const OFF_LIMIT_MS = 240_000;
const CGROUPS = "/sys/fs/cgroup";
/** Says that commands can be run. */
const UP_UNIT = "picolet-test-up.service";
const NEEDED = ["/usr/bin/unshare", "/usr/bin/nsenter", "/usr/sbin/ip", "/bin/busybox", "/usr/bin/clang"];

/**
 * Runs the machine until its input ends, which it does with the test process, then kills it and removes what is left.
 * Prints "ended" when the machine has ended by itself. Arguments: the temporary folder, the machine's cgroups, a line
 * each, what runs inside, and its arguments.
 */
const SUPERVISE = `
folder=$1 cgroups=$2 inside=$3
shift 3
(
  for each in $cgroups; do
    mkdir "$each"
    # A new cgroup of this controller takes no process before it has both.
    for file in cpuset.cpus cpuset.mems; do
      if [ -e "\${each%/*}/$file" ]; then cat "\${each%/*}/$file" > "$each/$file"; fi
    done
    echo 0 > "$each/cgroup.procs"
  done
  setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup \\
    sh -c "$inside" "$folder" "$@"
  echo ended
) < /dev/null &
machine=$!
cat > /dev/null
# The test process may be gone, and with it the reader of what this says.
exec > /dev/null 2>&1
kill -KILL $machine
wait $machine
for each in $cgroups; do
  # A process that was killed leaves its cgroup a moment later.
  tries=200
  while [ -d "$each" ] && [ $tries -gt 0 ]; do
    find "$each" -depth -type d -exec rmdir {} + || sleep 0.05
    tries=$((tries - 1))
  done
done
rm -rf "$folder"
`;

/**
 * The first process: makes the root file system, and becomes systemd. $0: the temporary folder. Arguments: the lower
 * tree, then the mounts of cgroups, a word each: TYPE:OPTIONS:FOLDER.
 */
const INSIDE = `
set -eu
read -r pid rest < /proc/self/stat
echo "pid $pid"
root=$0/root
mount -t overlay overlay -o "volatile,lowerdir=$1,upperdir=$0/upper,workdir=$0/work" "$root"
shift
mkdir -p "$root${SHARED}" "$root/old" "$root/var/lib/containerd"
mount --bind "$0/shared" "$root${SHARED}"
# No overlay of a container's lies on another one.
mount --bind "$0/containerd" "$root/var/lib/containerd"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs sysfs "$root/sys"
for each in "$@"; do
  type=\${each%%:*} rest=\${each#*:}
  target=$root\${rest#*:}
  [ -d "$target" ] || mkdir "$target"
  mount -t "$type" -o "\${rest%%:*}" "$type" "$target"
done
mount -o remount,bind,ro "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for each in null zero full random urandom tty; do
  touch "$root/dev/$each"
  mount --bind "/dev/$each" "$root/dev/$each"
done
for each in run tmp; do mount -t tmpfs tmpfs "$root/$each"; done
ip link set lo up
ip address add ${OUTSIDE_ADDRESS}/32 dev lo
cd "$root"
pivot_root . old
cd /
umount -l /old
mount --make-rshared /
exec env -i container=picolet-test PATH=${PATH} /sbin/init --log-target=journal SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1
`;

const CONTAINERD = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${PAUSE_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
`;

const FILES: Readonly<Record<string, string>> = {
  "etc/hostname": "guest\n",
  "etc/hosts": "127.0.0.1 localhost guest\n",
  "etc/fstab": "",
  "etc/resolv.conf": "",
  "etc/containerd/config.toml": CONTAINERD,
  "etc/cni/net.d/10-guest.conflist": JSON.stringify(NETWORK),
  "etc/systemd/journald.conf.d/test.conf": "[Journal]\nStorage=volatile\nRateLimitBurst=0\n",
  [`etc/systemd/system/${UP_UNIT}`]: `[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/sh -c "echo up > ${SHARED}/up"\n`,
};

/** Why none can run here; `undefined` when one can. */
export function systemdMachineMissing(): string | undefined {
  const missing = NEEDED.filter((path) => !existsSync(path));
  return debianTreeMissing() ?? (missing.length === 0 ? undefined : `not installed: ${missing.join(", ")}`);
}

interface CgroupMount {
  readonly type: string;
  readonly options: string;
  readonly folder: string;
}

/** As they are on this machine: pure v2, or v1 in a folder for each controller. */
function cgroupMounts(): readonly CgroupMount[] {
  const mounts = readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .flatMap((line): CgroupMount[] => {
      const [own = "", filesystem = ""] = line.split(" - ");
      const [folder = "", [type = "", , options = ""]] = [own.split(" ")[4], filesystem.split(" ")];
      if (!folder.startsWith(CGROUPS) || !["tmpfs", "cgroup", "cgroup2"].includes(type)) return [];
      const kept = options.split(",").filter((each) => each !== "rw");
      // A hierarchy without a controller.
      if (kept.some((each) => each.startsWith("name="))) kept.unshift("none");
      return [{ type, folder, options: type === "cgroup" ? kept.join() : "rw" }];
    });
  return mounts.filter(({ folder }, index) => mounts.findLastIndex((each) => each.folder === folder) === index);
}

function writeBelow(folder: string, files: Readonly<Record<string, string>>): void {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  }
}

type ExitArguments = [code: number | null, signal: NodeJS.Signals | null];

const exitCodeOf = ([code, signal]: ExitArguments): number =>
  code ?? 128 + (signal === null ? 0 : constants.signals[signal]);

/** Kills a command with what it has started. */
function kill({ pid }: ChildProcess): void {
  if (pid !== undefined) killAll([-pid]);
}

export class SystemdMachine implements AsyncDisposable, BoardMachine {
  /** The folder of this machine that has its files. */
  readonly directory: string;
  readonly #supervisor: ChildProcessWithoutNullStreams;
  readonly #ended: Promise<unknown>;
  readonly #servers: Server[] = [];
  /** Resolves when its systemd has ended. */
  readonly #over = Promise.withResolvers<void>();
  /** The folder of that machine whose files this machine has below `shared` of `directory`. */
  readonly sharedFolder = SHARED;
  /** The process id of its systemd on this machine; 0: it does not run yet. */
  pid = 0;
  #said = "";

  private constructor(folder: string, release: string | undefined) {
    this.directory = folder;
    const cgroups = cgroupMounts();
    const own = cgroups
      .filter(({ type }) => type !== "tmpfs")
      .map(({ folder: controller }) => join(controller, basename(folder)));
    const mounts = cgroups.map(({ type, options, folder: at }) => `${type}:${options}:${at}`);
    const args = [folder, own.join("\n"), INSIDE, cachedTree([...PACKAGES, ...SYSTEM], release), ...mounts];
    // A session of its own: a Ctrl-C reaches the test process alone, whose end it follows.
    this.#supervisor = spawn("sh", ["-c", SUPERVISE, "supervise", ...args], { detached: true });
    this.#ended = once(this.#supervisor, "close");
  }

  /**
   * With systemd and containerd running, and the images of `test-images.ts`.
   * @param options `release`: Debian's code name; undefined: that of this machine
   */
  static async start({ release }: { readonly release?: string | undefined } = {}): Promise<SystemdMachine> {
    const folder = new TempFolder().path;
    for (const name of ["root", "upper", "work", "shared", "containerd"]) mkdirSync(join(folder, name));
    writeBelow(join(folder, "upper"), FILES);
    const units = join(folder, "upper/etc/systemd/system");
    for (const unit of MASKED) symlinkSync("/dev/null", join(units, unit));
    symlinkSync("/lib/systemd/system/multi-user.target", join(units, "default.target"));
    mkdirSync(join(units, "sysinit.target.wants"));
    symlinkSync(`../${UP_UNIT}`, join(units, "sysinit.target.wants", UP_UNIT));
    execFileSync("mkfifo", [join(folder, "shared/up")]);
    const machine = new SystemdMachine(folder, release);
    try {
      await machine.#boot();
      return machine;
    } catch (error) {
      const log = machine.pid === 0 ? "" : await machine.output("journalctl --no-pager --lines 100").catch(String);
      await machine[Symbol.asyncDispose]();
      throw new Error(`the machine did not boot\n${machine.#said}\n${log}`, { cause: error });
    }
  }

  async #boot(): Promise<void> {
    const up = spawn("cat", [join(this.directory, "shared/up")], { stdio: "ignore" });
    const { promise: failed, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => reject(new Error("it takes too long")), BOOT_LIMIT_MS);
    const { stdout, stderr } = this.#supervisor;
    for (const stream of [stdout, stderr])
      stream.setEncoding("utf8").on("data", (said: string) => {
        this.#said = (this.#said + said).slice(-MAX_SAID);
        if (!/^ended$/m.test(this.#said)) return;
        this.#over.resolve();
        reject(new Error("it has ended"));
      });
    try {
      await Promise.race([once(up, "exit"), failed]);
      this.pid = Number(/^pid (\d+)$/m.exec(this.#said)?.[1]);
      const { stdout: state } = await this.run("systemctl is-system-running --wait", { timeoutMs: BOOT_LIMIT_MS });
      if (state.trim() !== "running")
        throw new Error(`it is ${state}${await this.output("systemctl --failed --no-pager")}`);
      for (const archive of [buildPauseArchive(), buildBusyboxArchive()])
        await this.output(`ctr images import ${this.bring(archive)}`);
    } finally {
      clearTimeout(timer);
      up.kill();
    }
  }

  async run(line: string, { timeoutMs = COMMAND_LIMIT_MS, input }: RunOptions = {}): Promise<CommandResult> {
    const child = this.#spawn(line);
    const output = Promise.all([text(child.stdout), text(child.stderr)]);
    child.stdin.on("error", ignore("the command has ended without its input, and its exit code says how"));
    child.stdin.end(input);
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      kill(child);
    }, timeoutMs);
    const exitCode = exitCodeOf((await once(child, "close")) as ExitArguments);
    clearTimeout(timer);
    const [stdout, stderr] = await output;
    if (isLate) throw new Error(`${line} took longer than ${timeoutMs} ms\n${stdout}${stderr}`);
    return { stdout, stderr, exitCode };
  }

  async output(line: string, options: RunOptions = {}): Promise<string> {
    const { stdout, stderr, exitCode } = await this.run(line, options);
    if (exitCode !== 0) throw new Error(`${line} ended with ${exitCode}\n${stdout}${stderr}`);
    return stdout;
  }

  command(line: string, onOutput: (text: string) => void = () => undefined): Promise<RunningCommand> {
    const child = this.#spawn(line);
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", onOutput);
    const ended = once(child, "close").then((exit) => exitCodeOf(exit as ExitArguments));
    return Promise.resolve({ ended, kill: () => kill(child) });
  }

  #spawn(line: string): ChildProcessWithoutNullStreams {
    const namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root"];
    const args = ["--target", String(this.pid), ...namespaces, "sh", "-c", `cd / && ${line}`];
    const env = { PATH, HOME: "/root", LC_ALL: "C.UTF-8", CONTAINERD_NAMESPACE: "k8s.io" };
    return spawn("nsenter", args, { env: { ...env, DEBIAN_FRONTEND: "noninteractive" }, detached: true });
  }

  /** The machine is shut down by that line of shell; resolves when it has ended. It does not start again. */
  async turnedOffBy(line: string): Promise<void> {
    await this.command(line);
    await Promise.race([this.#over.promise, late(OFF_LIMIT_MS)]);
  }

  async upload(path: string, content: string | Uint8Array, mode = 0o644): Promise<void> {
    await this.output(uploadLine(path, mode), { input: content });
  }

  /** Copies a file of this machine there. @returns its path there */
  bring(file: string): string {
    copyFileSync(file, join(this.directory, "shared", basename(file)));
    return `${SHARED}/${basename(file)}`;
  }

  /** Where this machine finds a path of that one, as long as it runs. */
  forward(path: string): Promise<string> {
    return Promise.resolve(`/proc/${this.pid}/root${path}`);
  }

  /** Lets it reach one port of this machine's loopback, a hub's. @returns where it is for the machine */
  async letReach(port: number): Promise<{ readonly host: string; readonly port: number }> {
    const server = createServer({ allowHalfOpen: true }, (near) => {
      const far = createConnection({ host: "127.0.0.1", port, allowHalfOpen: true });
      near.pipe(far).pipe(near);
      near.on("error", () => far.destroy());
      far.on("error", () => near.destroy());
    });
    const listening = once(server, "listening");
    server.listen(join(this.directory, "shared/outside"));
    await listening;
    this.#servers.push(server);
    const socket = `--socket-property=ListenStream=${OUTSIDE_ADDRESS}:${OUTSIDE_PORT}`;
    await this.output(`systemd-run --quiet ${socket} /lib/systemd/systemd-socket-proxyd ${SHARED}/outside`);
    return { host: OUTSIDE_ADDRESS, port: OUTSIDE_PORT };
  }

  /** Starts the agent of the package that is installed, as a systemd unit, and waits until its socket answers. */
  agent(options: GuestAgentOptions = {}): Promise<GuestAgent> {
    return GuestAgent.start(this, options);
  }

  get console(): string {
    return this.#said;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers.splice(0)) server.close();
    this.#supervisor.stdin.end();
    await this.#ended;
  }
}

function late(limitMs: number): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  setTimeout(() => reject(new Error(`the machine did not end within ${limitMs} ms`)), limitMs).unref();
  return promise;
}
