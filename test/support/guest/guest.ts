/**
 * An emulated board for tests: Debian with systemd, pure cgroup v2, PSI and containerd, 512 MB. It starts within
 * seconds, where a guest that has booted before was saved (the first one on a machine builds the image and boots: a
 * minute).
 *
 * ```ts
 * await using guest = await Guest.start();                       // { memoryMiB: 512, cpus: 2 }
 * await guest.output("cat /sys/fs/cgroup/cgroup.controllers");   // stdout; throws unless it ends with 0
 * const { exitCode, stderr } = await guest.run("mkdir /proc/no", { timeoutMs: 5_000 });
 * await guest.upload("/root/x.json", "{}");
 *
 * // Commands may overlap; what observes is protected from the OOM killer and has memory of its own.
 * const load = await guest.command("systemd-run --wait /usr/lib/guest/load leak 100");
 *
 * // The agent as a systemd unit, of what lies in dist/board now: `node scripts/build/build.ts` first.
 * const agent = await guest.agent({ config: { evictionPressureTransitionPeriod: "5s" } });
 * await agent.writeManifest("web.yaml", podManifest);
 * await agent.waitForPods("web is ready", (pods) => isReady(pods.get("web-guest")));
 * await agent.status();                                          // also waitForStatus, waitForEvent, log()
 * ```
 *
 * - Images in its containerd: `PAUSE_IMAGE`, and `BUSYBOX_IMAGE` with `/bin/load` besides: see `guest/load.c` for what
 *   it does to memory, disk, inodes and processes, and at what rate.
 * - Its shell and tools are busybox's, and util-linux's as a board has them.
 * - Its one disk, 1.5 GiB with 40,000 inodes and some 1 GiB and 30,000 free, is nodefs and imagefs.
 * - Each guest starts from the same clean state; nothing of it stays. What is built is kept in
 *   `node_modules/.cache/picolet/guest`.
 * - `{ kernelArguments: "hugepages=8" }` boots the kernel with these; AppArmor's parser is there.
 * - `{ architecture: "arm64" }` is a board of arm64: the generic kernel, and `dist/linux-arm64` with the hub.
 * - `{ runtime: "containerd-2-crun" }` has containerd and runc or crun of another suite; `{ pages: "16k" }` is an arm64
 *   machine with pages of 16 KiB.
 * - It reaches nothing outside but the ports that `letReach` names.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { FileLock } from "@picolet/scripts/build/file-lock.ts";
import { RUNTIME_RELEASES } from "../containerd/runtime-release.ts";
import {
  type BoardMachine,
  COMMAND_LIMIT_MS,
  type CommandResult,
  quoted,
  type RunOptions,
  uploadLine,
} from "./board-machine.ts";
import { GuestAgent, type GuestAgentOptions } from "./guest-agent.ts";
import {
  type GuestArchitecture,
  type GuestArchitectureName,
  type GuestVariant,
  guestArchitecture,
} from "./guest-architecture.ts";
import type { RemoteCommand } from "./guest-channel.ts";
import { GUEST_CACHE, type GuestImage, guestImage, recipeKey } from "./guest-image.ts";
import { GuestMachine, OUTSIDE_ADDRESS } from "./guest-machine.ts";

export { guestMissing } from "./guest-image.ts";

const BOOT_LIMIT_MS = 600_000;

export interface GuestOptions extends GuestVariant {
  /** Default amd64. */
  readonly architecture?: GuestArchitectureName;
  /** Default 512. Another shape than the default boots and saves a guest of its own first. */
  readonly memoryMiB?: number;
  /** Default 2. */
  readonly cpus?: number;
  /** Added to the kernel's command line, as `memoryMiB` a shape of its own. Default none. */
  readonly kernelArguments?: string;
  /** A swap file of this size on the disk. Default none. */
  readonly swapMiB?: number;
}

export class Guest implements AsyncDisposable, BoardMachine {
  /** The turn of this process. */
  static #turn: Promise<void> | undefined;
  readonly #machine: GuestMachine;
  readonly #servers: { close(): void }[] = [];

  private constructor(machine: GuestMachine) {
    this.#machine = machine;
  }

  static async start(options: GuestOptions = {}): Promise<Guest> {
    Guest.#turn ??= takeTurn();
    await Guest.#turn;
    const architecture = guestArchitecture(options.architecture ?? "amd64", options);
    const { memoryMiB = 512, cpus = 2, kernelArguments = "" } = options;
    const shape = { architecture, memoryMiB, cpus, kernelArguments };
    const { image, folder } = await savedGuest(shape);
    const machine = await GuestMachine.start({
      ...{ image, ...shape, disk: join(folder, "disk"), writesStay: false },
      wakeFrom: join(folder, "memory"),
    });
    const guest = new Guest(machine);
    try {
      await guest.#settle(options);
    } catch (error) {
      await machine[Symbol.asyncDispose]();
      throw error;
    }
    return guest;
  }

  /** It slept for a while, and has the agent of another build, or none. */
  async #settle({ swapMiB, runtime = "installed" }: GuestOptions): Promise<void> {
    await this.output(`date -u -s @${Math.floor(Date.now() / 1000)}; tar -xf /dev/vdb -C /opt/picolet`);
    if (RUNTIME_RELEASES[runtime].ociRuntime === "crun")
      await this.output(`sed -i 's:/runc":/crun":' /etc/containerd/config.toml && systemctl restart containerd`);
    if (swapMiB === undefined) return;
    await this.output(`fallocate -l ${swapMiB}M /swap && chmod 600 /swap && mkswap /swap && swapon /swap`);
  }

  /** Runs a line of shell as root, outside of what picolet and systemd's own slices have. */
  async run(line: string, options: RunOptions = {}): Promise<CommandResult> {
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    const exitCode = await this.#runInto(line, options, stdout, stderr);
    return { exitCode, stdout: textOf(stdout), stderr: textOf(stderr) };
  }

  async #runInto(line: string, options: RunOptions, stdout: Buffer[], stderr: Buffer[]): Promise<number> {
    const command = await this.#machine.channel.start(line, {
      onStdout: (data) => stdout.push(data),
      onStderr: (data) => stderr.push(data),
    });
    const late = Promise.withResolvers<never>();
    const limitMs = options.timeoutMs ?? COMMAND_LIMIT_MS;
    const timer = setTimeout(() => {
      command.kill();
      late.reject(
        new Error(`${line} took longer than ${limitMs} ms\n${textOf(stdout)}${textOf(stderr)}\n${this.#tail()}`),
      );
    }, limitMs);
    try {
      if (options.input !== undefined) {
        const input = Buffer.from(options.input);
        if (input.length > 0) await Promise.race([command.write(input), late.promise]);
        await Promise.race([command.write(Buffer.alloc(0)), late.promise]);
      }
      return await Promise.race([command.ended, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** @returns its standard output. @throws unless it ends with 0 */
  async output(line: string, options: RunOptions = {}): Promise<string> {
    const { stdout, stderr, exitCode } = await this.run(line, options);
    if (exitCode !== 0) throw new Error(`${line} ended with ${exitCode}\n${stdout}${stderr}\n${this.#tail()}`);
    return stdout;
  }

  /** Starts a line of shell and hands its output on as it comes. */
  command(line: string, onOutput: (text: string) => void = () => undefined): Promise<RemoteCommand> {
    const take = (data: Buffer): void => onOutput(data.toString("utf8"));
    return this.#machine.channel.start(line, { onStdout: take, onStderr: take });
  }

  /** Written beside and renamed over, with the folders above it. */
  async upload(path: string, content: string | Uint8Array, mode = 0o644): Promise<void> {
    await this.output(uploadLine(path, mode), { input: content });
  }

  async download(path: string): Promise<Buffer> {
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    const exitCode = await this.#runInto(`cat ${quoted(path)}`, {}, stdout, stderr);
    if (exitCode !== 0) throw new Error(`cannot read ${path} of the guest: ${textOf(stderr)}`);
    return Buffer.concat(stdout);
  }

  /**
   * A unix socket of this machine whose connections arrive at the guest's: what talks to an agent's local API,
   * `edgectl` too, works with it as with an agent here.
   */
  async forward(guestPath: string): Promise<string> {
    const path = join(this.#machine.directory, `forward-${this.#servers.length}.sock`);
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      const bridge = this.#machine.channel.start(`exec /usr/lib/guest/bridge ${quoted(guestPath)}`, {
        onStdout: (data) => socket.write(data),
        onStderr: () => socket.destroy(),
      });
      const end = (): void => void socket.end();
      void bridge
        .then(async (command) => {
          socket.on("close", () => command.kill());
          command.ended.then(end, end);
          for await (const data of socket) await command.write(data as Buffer);
          await command.write(Buffer.alloc(0));
        })
        .catch(end);
      socket.on("error", () => socket.destroy());
    });
    await new Promise<void>((resolve) => server.listen(path, resolve));
    this.#servers.push(server);
    return path;
  }

  /**
   * Lets the guest reach one port of this machine's loopback, a hub's: nothing else is outside. @returns where it is
   * for the guest
   */
  letReach(port: number): { readonly host: string; readonly port: number } {
    return { host: OUTSIDE_ADDRESS, port: this.#machine.letReach(port) };
  }

  /** Lets the guest reach a port of this machine's loopback on its own loopback, under the same number. */
  async letReachOnLoopback(port: number): Promise<void> {
    const outside = this.letReach(port);
    const listen = `[Socket]\nListenStream=127.0.0.1:${port}\nAccept=yes\nMaxConnections=256\n`;
    const pass = `[Service]\nExecStart=-/bin/busybox nc ${outside.host} ${outside.port}\nStandardInput=socket\n`;
    await this.upload(`/run/systemd/system/outside-${port}.socket`, listen);
    await this.upload(`/run/systemd/system/outside-${port}@.service`, pass);
    await this.output(`systemctl daemon-reload && systemctl start outside-${port}.socket`);
  }

  /** Starts the agent as a systemd unit and waits until its socket answers. */
  agent(options: GuestAgentOptions = {}): Promise<GuestAgent> {
    return GuestAgent.start(this, options);
  }

  /** The process that is the machine. */
  get pid(): number {
    return this.#machine.pid;
  }

  /** The output of its serial line: the kernel's messages and systemd's warnings. */
  get console(): string {
    return this.#machine.console;
  }

  #tail(): string {
    return this.console.split("\n").slice(-40).join("\n");
  }

  /** As if the power was cut for a moment; resolves when it takes commands again. What was not synced is gone. */
  async cutPower(): Promise<void> {
    await this.#machine.restart(BOOT_LIMIT_MS);
    await this.#booted();
  }

  /** Waits until systemd has started everything. */
  async #booted(): Promise<void> {
    const { stdout } = await this.run("systemctl is-system-running --wait", { timeoutMs: BOOT_LIMIT_MS });
    if (stdout.trim() === "running") return;
    throw new Error(`the guest is ${stdout}${await this.output("systemctl --failed --no-pager")}\n${this.#tail()}`);
  }

  /** Boots a machine for the first time, and makes it ready to be saved. */
  static async prepare(machine: GuestMachine): Promise<void> {
    const guest = new Guest(machine);
    const timer = setTimeout(() => void machine[Symbol.asyncDispose](), BOOT_LIMIT_MS);
    try {
      await machine.channel.greeted;
      await guest.#booted();
      await guest.output(
        'for each in /usr/lib/guest/images/*; do ctr images import "$each" && rm "$each" || exit 1; done',
        {
          timeoutMs: BOOT_LIMIT_MS,
        },
      );
      // The files that it booted from are in memory still, and count as the observer's.
      await guest.output("sync; echo 3 > /proc/sys/vm/drop_caches");
    } finally {
      clearTimeout(timer);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers.splice(0)) server.close();
    await this.#machine[Symbol.asyncDispose]();
  }
}

interface SavedGuest {
  readonly image: GuestImage;
  /** Where it sleeps: `disk` and `memory`. */
  readonly folder: string;
}

interface Shape {
  readonly architecture: GuestArchitecture;
  readonly memoryMiB: number;
  readonly cpus: number;
  readonly kernelArguments: string;
}

/**
 * One process at a time has guests, from its first one until it ends: two side by side are each slower than one after
 * the other.
 */
async function takeTurn(): Promise<void> {
  mkdirSync(GUEST_CACHE, { recursive: true });
  (await FileLock.take(join(GUEST_CACHE, "turn"))).keep();
}

/** A guest that has booted. One process makes it where it is missing; others that want it too wait for that. */
async function savedGuest(shape: Shape): Promise<SavedGuest> {
  const { architecture, memoryMiB, cpus, kernelArguments } = shape;
  const booted = kernelArguments === "" ? "" : `-${hashOf(kernelArguments)}`;
  const folder = join(GUEST_CACHE, `saved-${recipeKey(architecture)}-${memoryMiB}-${cpus}${booted}`);
  if (!existsSync(folder)) {
    mkdirSync(GUEST_CACHE, { recursive: true });
    await using _ = await FileLock.take(join(GUEST_CACHE, "lock"));
    if (!existsSync(folder)) await bootAndSave(guestImage(architecture), shape, folder);
  }
  return { image: guestImage(architecture), folder };
}

async function bootAndSave(image: GuestImage, shape: Shape, folder: string): Promise<void> {
  const making = mkdtempSync(join(GUEST_CACHE, `making-${process.pid}-`));
  try {
    const disk = join(making, "disk");
    execFileSync("cp", ["--sparse=always", image.disk, disk]);
    await using machine = await GuestMachine.start({ image, ...shape, disk, writesStay: true });
    await Guest.prepare(machine);
    await machine.save(join(making, "memory"));
    writeFileSync(join(making, "console.log"), machine.console);
    renameSync(making, folder);
  } finally {
    rmSync(making, { recursive: true, force: true });
  }
}

const hashOf = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 8);
const textOf = (parts: readonly Buffer[]): string => Buffer.concat(parts).toString("utf8");
