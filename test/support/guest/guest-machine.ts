/** One emulated machine: the QEMU process, its sockets and its disk. It dies with the process that started it. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { isAbandoned, writeOwner } from "../unit/machine/owner-file.ts";
import type { GuestArchitecture } from "./guest-architecture.ts";
import { GuestChannel } from "./guest-channel.ts";
import { type GuestImage, LARGE_PARTS } from "./guest-image.ts";
import { GuestMonitor } from "./guest-monitor.ts";

const DIRECTORY_PREFIX = "picolet-guest-";
/** The fixed size of the disk with the built agent: a machine is woken with disks of the same size. */
const PAYLOAD_BYTES = 32 * 2 ** 20;
/** Where a guest finds what it may reach of this machine: as many ports as the conformance tests need. */
export const OUTSIDE_ADDRESS = "10.0.2.100";
const OUTSIDE_PORTS = [7443, 7444, 7445];

/** The least that systemd and the kernel need, and full reports of faults. */
const KERNEL_COMMAND_LINE =
  "root=/dev/vda net.ifnames=0 systemd.unified_cgroup_hierarchy=1 psi=1 mitigations=off nokaslr no_timer_check tsc=reliable random.trust_cpu=on systemd.show_status=false";

export interface MachineInit {
  readonly architecture: GuestArchitecture;
  readonly image: GuestImage;
  readonly disk: string;
  /** True when the machine's writes to its disk stay there. */
  readonly writesStay: boolean;
  readonly memoryMiB: number;
  readonly cpus: number;
  /** Added to the kernel's command line. */
  readonly kernelArguments: string;
  /** A file that a machine of the same shape was saved to: this one goes on there instead of booting. */
  readonly wakeFrom?: string;
}

export class GuestMachine implements AsyncDisposable {
  readonly directory: string;
  readonly channel: GuestChannel;
  readonly monitor: GuestMonitor;
  readonly #process: ChildProcess;
  readonly #reached: number[] = [];
  #disposed = false;

  private constructor(directory: string, process: ChildProcess, channel: GuestChannel, monitor: GuestMonitor) {
    this.directory = directory;
    this.channel = channel;
    this.monitor = monitor;
    this.#process = process;
  }

  /** Its commands can be given at once where it is woken, else when `channel.greeted`. */
  static async start(init: MachineInit): Promise<GuestMachine> {
    takeAwayLeftovers();
    const directory = mkdtempSync(join(tmpdir(), DIRECTORY_PREFIX));
    writeOwner(directory);
    writePayload(join(directory, "payload"), init.architecture);
    const args = ["--pdeathsig", "KILL", init.architecture.emulator, ...argumentsOf(init, directory)];
    // QEMU keeps dropped writes in a file without a name in TMPDIR, so that nothing is left of it even after a kill.
    const environment = { ...process.env, TMPDIR: directory };
    const child = spawn("setpriv", args, { stdio: ["ignore", "ignore", "pipe"], env: environment });
    let complaints = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      complaints = (complaints + text).slice(-10_000);
    });
    const ended = once(child, "exit").then(() => Promise.reject(new Error(`QEMU ended: ${complaints}`)));
    try {
      const ready = Promise.all([
        GuestMonitor.connect(join(directory, "monitor.sock")),
        GuestChannel.connect(join(directory, "courier.sock")),
      ]);
      const [monitor, channel] = await Promise.race([ready, ended]);
      ended.catch(() => undefined);
      const machine = new GuestMachine(directory, child, channel, monitor);
      if (init.wakeFrom !== undefined) await machine.#wake(init.wakeFrom);
      return machine;
    } catch (error) {
      child.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true });
      throw error;
    }
  }

  async #wake(file: string): Promise<void> {
    await this.#migrate("migrate-incoming", `exec:cat ${resolve(file)}`);
    await this.monitor.command("cont");
  }

  /**
   * Saves what is in memory; the machine stands still from then on. Its disk is of the same moment once it has ended.
   */
  async save(file: string): Promise<void> {
    await this.monitor.command("stop");
    await this.#migrate("migrate", `exec:cat > ${resolve(file)}`);
  }

  async #migrate(command: "migrate" | "migrate-incoming", uri: string): Promise<void> {
    await this.monitor.command("migrate-set-capabilities", { capabilities: [{ capability: "events", state: true }] });
    await this.monitor.command("migrate-set-parameters", { "max-bandwidth": 2 ** 40 });
    const over = this.monitor.event("MIGRATION", ({ status }) => status === "completed" || status === "failed");
    await this.monitor.command(command, { uri });
    const { status } = (await over) as { status: string };
    if (status !== "completed") throw new Error(`cannot ${command} a guest: it ${status}`);
  }

  /** Turns it off and on. Resolves when it takes commands. @throws when that takes longer */
  async restart(limitMs: number): Promise<void> {
    const greeted = this.channel.expectGreeting();
    await this.monitor.command("system_reset");
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => late.reject(new Error(`the guest did not boot\n${this.console}`)), limitMs);
    try {
      await Promise.race([greeted, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * From now on that port of this machine's loopback is what answers at OUTSIDE_ADDRESS. @returns the port of the guest
   */
  letReach(port: number): number {
    if (!this.#reached.includes(port)) this.#reached.push(port);
    const outside = OUTSIDE_PORTS[this.#reached.indexOf(port)];
    if (outside === undefined) throw new Error(`a guest reaches no more than ${OUTSIDE_PORTS.length} ports`);
    writeFileSync(join(this.directory, `outside-${outside}`), `exec busybox nc 127.0.0.1 ${port}\n`);
    return outside;
  }

  /** The output of its serial line. */
  get console(): string {
    const path = join(this.directory, "console.log");
    return existsSync(path) ? readFileSync(path, "utf8") : "";
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    this.channel[Symbol.dispose]();
    this.monitor[Symbol.dispose]();
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      const exited = once(this.#process, "exit");
      this.#process.kill("SIGKILL");
      await exited;
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

function argumentsOf(init: MachineInit, directory: string): string[] {
  const { architecture, image, disk, writesStay, memoryMiB, cpus, kernelArguments, wakeFrom } = init;
  const commandLine = `${KERNEL_COMMAND_LINE} console=${architecture.console} ${kernelArguments}`.trim();
  const at = (name: string): string => join(directory, name);
  const outside = OUTSIDE_PORTS.map(
    (port) => `guestfwd=tcp:${OUTSIDE_ADDRESS}:${port}-cmd:/bin/sh ${at(`outside-${port}`)}`,
  );
  return [
    ...["-nodefaults", "-no-user-config", "-display", "none", "-machine", architecture.machine],
    // Two threads as the machine under the tests has.
    ...["-accel", "tcg,thread=multi", "-cpu", architecture.cpu, "-smp", String(cpus), "-m", String(memoryMiB)],
    ...["-kernel", image.kernel, "-initrd", image.initialRamDisk, "-append", commandLine],
    ...["-drive", `if=none,id=root,file=${disk},format=raw,cache=unsafe,snapshot=${writesStay ? "off" : "on"}`],
    ...["-device", "virtio-blk-pci,drive=root"],
    ...["-drive", `if=none,id=payload,file=${at("payload")},format=raw,cache=unsafe,readonly=on`],
    ...["-device", "virtio-blk-pci,drive=payload"],
    ...["-device", "virtio-serial-pci", "-chardev", `socket,id=courier,path=${at("courier.sock")},server=on,wait=off`],
    ...["-device", "virtserialport,chardev=courier,name=courier"],
    ...["-netdev", ["user,id=net,restrict=on", ...outside].join()],
    ...["-device", "virtio-net-pci,netdev=net,romfile="],
    ...["-serial", `file:${at("console.log")}`],
    ...["-qmp", `unix:${at("monitor.sock")},server=on,wait=off`],
    ...(wakeFrom === undefined ? [] : ["-incoming", "defer"]),
  ];
}

function writePayload(path: string, { platform, programs }: GuestArchitecture): void {
  const folders = programs.map((name) => distributionFolder(name, platform));
  const left = folders.flatMap((folder) => LARGE_PARTS.map((name) => `--exclude=${folder}/${name}`));
  const examples = existsSync("dist/examples") ? ["dist/examples"] : [];
  const names = `--transform=s,^dist/${platform}/,dist/,`;
  execFileSync("tar", ["--owner=0", "--group=0", names, ...left, "-cf", path, ...folders, ...examples]);
  truncateSync(path, PAYLOAD_BYTES);
}

/** Removes the leftovers of test runs that were killed. */
function takeAwayLeftovers(): void {
  for (const name of readdirSync(tmpdir())) {
    if (!name.startsWith(DIRECTORY_PREFIX)) continue;
    const folder = join(tmpdir(), name);
    if (isAbandoned(folder)) rmSync(folder, { recursive: true, force: true });
  }
}
