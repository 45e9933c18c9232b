/**
 * A board of QEMU that boots an image by its real way: UEFI firmware, GRUB, slot. Its serial line is the user's; a port
 * of virtio has a root shell, which systemd's credentials bring (systemd.extra-unit of the SMBIOS tables), so that the
 * image under test has nothing for tests. Many boards share one image: each writes to an overlay of its own.
 *
 * Its network is QEMU's user network: the board reaches this machine's loopback at `HOST_ADDRESS`, so a hub that
 * listens on loopback only is reachable, and the outside is not (`restrict` would cut the host off too).
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, createReadStream, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { GUEST_ARCHITECTURES } from "../guest/guest-architecture.ts";
import { GuestMonitor } from "../guest/guest-monitor.ts";
import { SerialLine } from "./serial-line.ts";

/** This machine's loopback as the board sees it. */
export const HOST_ADDRESS = "10.0.2.2";
/** A boot takes 30 to 60 s on a quiet machine; busy ones are four times slower. */
export const BOOT_LIMIT_MS = 6 * 60_000;
const COMMAND_LIMIT_MS = 3 * 60_000;

export interface BoardOptions {
  /** A raw image of `buildImage`. It is never written. */
  readonly image: string;
  readonly architecture?: "amd64" | "arm64";
  readonly memoryMiB?: number;
  /** Size of the card. Default 4096. */
  readonly cardMiB?: number;
  /** Files of the partition `picolet` before the first boot, by path. */
  readonly fatFiles?: Readonly<Record<string, string | Uint8Array>>;
  /** A port of this machine's loopback that leads to the board's port 22. */
  readonly sshPort?: number;
  /** A file of `saveCard`: the board begins with a copy of that card. */
  readonly card?: string;
  /** The control socket of a software TPM (`SoftwareTpm`). Missing: the board has no TPM. */
  readonly tpm?: string;
}

export interface TurnOnOptions {
  /** A new file that gets every write and flush of the card, in the form of dm-log-writes. */
  readonly writeLog?: string;
  /** The network's cable is plugged in. Default true. */
  readonly isPluggedIn?: boolean;
}

export interface ShellResult {
  readonly output: string;
  readonly exitCode: number;
}

/** Programs without which no board can be emulated. */
const NEEDED: Readonly<Record<"amd64" | "arm64", readonly string[]>> = {
  amd64: ["/usr/bin/qemu-system-x86_64", "/usr/bin/qemu-img", "/usr/bin/mcopy", "/usr/share/OVMF/OVMF_CODE_4M.fd"],
  arm64: ["/usr/bin/qemu-system-aarch64", "/usr/bin/qemu-img", "/usr/bin/mcopy", "/usr/share/AAVMF/AAVMF_CODE.fd"],
};

/** Why no board can be emulated here; `undefined` when one can. */
export function boardMissing(architecture: "amd64" | "arm64" = "amd64"): string | undefined {
  if (process.getuid?.() !== 0) return "building an image needs root";
  const missing = ["/usr/bin/mmdebstrap", ...NEEDED[architecture]].filter((path) => !existsSync(path));
  return missing.length === 0 ? undefined : `not installed: ${missing.join(", ")}`;
}

const GREETING = /^the-root-shell-is-ready$/m;
const SHELL_PORT = "root-shell";
const PORT_DEVICE = `dev-virtio\\x2dports-${SHELL_PORT.replaceAll("-", "\\x2d")}.device`;
/**
 * Runs a root shell in the image under test as it is. Not on a console of virtio: QEMU drops what comes there faster
 * than it is read, without a word.
 */
const TEST_SHELL = `[Unit]
DefaultDependencies=no
Wants=${PORT_DEVICE}
After=${PORT_DEVICE}
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'exec <>/dev/virtio-ports/${SHELL_PORT} >&0 2>&1; echo the-root-shell-is-ready; exec /bin/sh'
Environment=PATH=/usr/sbin:/usr/bin HOME=/root TERM=dumb
Restart=always
RestartSec=1
OOMScoreAdjust=-1000
`;
const CREDENTIALS: Readonly<Record<string, string>> = {
  "systemd.extra-unit.test-shell.service": TEST_SHELL,
  "systemd.unit-dropin.basic.target~test": "[Unit]\nWants=test-shell.service\n",
};

/** The board has started again while a command ran. `shellReady` waits for the new system's shell. */
export class BoardRestarted extends Error {}

export class EmulatedBoard implements AsyncDisposable {
  /** Holds the disk and the firmware's variables. */
  readonly folder = mkdtempSync(join(tmpdir(), "picolet-board-"));
  readonly #options: BoardOptions;
  #process: ChildProcess | undefined;
  #serial: SerialLine | undefined;
  #shell: SerialLine | undefined;
  #commands = 0;
  /** Where the greeting of the present system's shell is awaited. */
  #shellFrom = 0;

  private constructor(options: BoardOptions) {
    this.#options = options;
  }

  /** A board with a new card; it is off. */
  static create(options: BoardOptions): EmulatedBoard {
    const board = new EmulatedBoard(options);
    const base = resolve(options.image);
    const size = `${options.cardMiB ?? 4096}M`;
    if (options.card !== undefined) copyFileSync(options.card, board.disk);
    else execFileSync("qemu-img", ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, board.disk, size]);
    copyFileSync(board.#isArm ? "/usr/share/AAVMF/AAVMF_VARS.fd" : "/usr/share/OVMF/OVMF_VARS_4M.fd", board.#variables);
    if (options.fatFiles !== undefined) board.writeFat(options.fatFiles);
    return board;
  }

  /** Creates a board and turns it on. */
  static async start(options: BoardOptions): Promise<EmulatedBoard> {
    const board = EmulatedBoard.create(options);
    try {
      await board.turnOn();
      return board;
    } catch (error) {
      await board[Symbol.asyncDispose]();
      throw error;
    }
  }

  get #isArm(): boolean {
    return this.#options.architecture === "arm64";
  }
  get #variables(): string {
    return join(this.folder, "variables.fd");
  }
  /** The card: a qcow2 overlay. */
  get disk(): string {
    return join(this.folder, "disk.qcow2");
  }

  /** The serial line that the user sees, with `waitFor` and `send`. */
  get serial(): SerialLine {
    if (this.#serial === undefined) throw new Error("the board is off");
    return this.#serial;
  }

  async turnOn({ writeLog, isPluggedIn = true }: TurnOnOptions = {}): Promise<void> {
    // QEMU opens it and makes none.
    if (writeLog !== undefined) writeFileSync(writeLog, "");
    const child = spawn("setpriv", ["--pdeathsig", "KILL", ...this.#command(writeLog)], {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, TMPDIR: this.folder },
    });
    let complaints = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      complaints = (complaints + text).slice(-10_000);
    });
    const ended = once(child, "exit").then(() => Promise.reject(new Error(`QEMU ended: ${complaints}`)));
    this.#process = child;
    this.#shellFrom = 0;
    const lines = Promise.all([
      SerialLine.connect(join(this.folder, "serial.sock")),
      SerialLine.connect(join(this.folder, "shell.sock")),
    ]);
    [this.#serial, this.#shell] = await Promise.race([lines, ended]);
    ended.catch(() => undefined);
    // Firmware and boot loader take seconds, and use no network.
    if (!isPluggedIn) await this.#setLink(false);
  }

  /** As if the power was cut: SIGKILL. What QEMU had not written is lost with the board's own caches. */
  async cutPower(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child !== undefined && child.exitCode === null && child.signalCode === null) {
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    }
    this.#serial?.close();
    this.#shell?.close();
  }

  /** Shuts the board down, and waits until it is off. */
  async powerOff(limitMs = BOOT_LIMIT_MS): Promise<void> {
    const child = this.#process;
    if (child === undefined) return;
    const exited = once(child, "exit", { signal: AbortSignal.timeout(limitMs) });
    await this.run("systemctl poweroff --no-block");
    await exited;
    await this.cutPower();
  }

  /** Plugs the cable of the network in. */
  async plugIn(): Promise<void> {
    await this.#setLink(true);
  }

  async #setLink(up: boolean): Promise<void> {
    using monitor = await GuestMonitor.connect(join(this.folder, "monitor.sock"));
    await monitor.command("set_link", { name: "nic", up });
  }

  /** Keeps a copy of the card while the board is off: for `BoardOptions.card` of a board with the same image. */
  saveCard(path: string): void {
    copyFileSync(this.disk, path);
  }

  /** Writes the whole card while the board is off: a raw file with holes. */
  exportCard(path: string): void {
    execFileSync("qemu-img", ["convert", "-q", "-f", "qcow2", "-O", "raw", this.disk, path]);
  }

  /** Waits for the root shell of the system that was started last. @throws after `limitMs`, with the serial line's end */
  async shellReady(limitMs = BOOT_LIMIT_MS): Promise<void> {
    const shell = this.#shell;
    if (shell === undefined) throw new Error("the board is off");
    try {
      await shell.waitFor(GREETING, limitMs, this.#shellFrom);
    } catch (cause) {
      throw new Error(`no shell within ${limitMs} ms\n${this.serial.tail}`, { cause });
    }
    await this.output("true");
  }

  /** From now on `shellReady` means the shell of the next system. */
  expectRestart(): void {
    this.#shellFrom = this.#shell?.length ?? 0;
  }

  /** Runs a line of shell as root. One at a time. @throws {BoardRestarted} */
  async run(line: string, limitMs = COMMAND_LIMIT_MS): Promise<ShellResult> {
    const shell = this.#shell;
    if (shell === undefined) throw new Error("the board is off");
    this.#commands += 1;
    const mark = `mark-${this.#commands}`;
    // The marks are put together by the shell, so that its complaints about the command have none.
    const [begin, end] = [`"<${mark}"'>'`, `"</${mark}" $?'>'`];
    const from = shell.length;
    shell.send(`echo ${begin}; (${line}\n) </dev/null 2>&1; echo ${end}\n`);
    const pattern = new RegExp(`<${mark}>\\n([^]*?)</${mark} (\\d+)>|${GREETING.source}`, "m");
    const [text, code] = await shell.waitFor(pattern, limitMs, from);
    if (code === undefined) {
      this.#shellFrom = from;
      throw new BoardRestarted(`the board started again during ${line}\n${this.serial.tail}`);
    }
    return { output: text, exitCode: Number(code) };
  }

  /** @returns the output @throws unless it ends with 0 */
  async output(line: string, limitMs = COMMAND_LIMIT_MS): Promise<string> {
    const { output, exitCode } = await this.run(line, limitMs);
    if (exitCode !== 0) throw new Error(`${line} ended with ${exitCode}\n${output}\n${this.serial.tail}`);
    return output;
  }

  /**
   * Copies a file of this machine to the board, over the network: the board fetches it from a server on loopback that
   * serves nothing else.
   */
  async upload(source: string, target: string): Promise<void> {
    const server = createServer(
      (_, response) => void pipeline(createReadStream(source), response).catch(() => undefined),
    );
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
    try {
      const { port } = server.address() as AddressInfo;
      await this.until("ip route get 10.0.2.2");
      await this.output(`wget -q -O ${target} http://${HOST_ADDRESS}:${port}/ && sync ${target}`, BOOT_LIMIT_MS);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }

  /** Waits until `line` ends with 0. The board pauses between its tries, as they slow down what is waited for. */
  async until(line: string, limitMs = BOOT_LIMIT_MS): Promise<string> {
    const end = performance.now() + limitMs;
    for (;;) {
      const { output, exitCode } = await this.run(`(${line}) || { code=$?; sleep 2; exit $code; }`);
      if (exitCode === 0) return output;
      if (performance.now() > end) throw new Error(`${line} did not end with 0\n${output}\n${this.serial.tail}`);
    }
  }

  /** Asks for a restart, and waits for the next system's shell. */
  async reboot(): Promise<void> {
    this.expectRestart();
    await this.run("systemctl reboot --no-block");
    await this.shellReady();
  }

  /** Writes a file of the whole disk's bytes while the board is off: faults of the card. */
  writeDisk(offset: number, content: Uint8Array): void {
    const [raw, path] = [join(this.folder, "patch"), this.disk];
    writeFileSync(raw, content);
    const length = content.length;
    execFileSync("qemu-io", ["-f", "qcow2", "-c", `write -s ${raw} ${offset} ${length}`, path], { stdio: "pipe" });
  }

  /** Where a partition of this name begins, in bytes of the disk. */
  partitionStart(name: string): number {
    const dump = execFileSync("sfdisk", ["--json", resolve(this.#options.image)], { encoding: "utf8" });
    const table = JSON.parse(dump) as { partitiontable: { partitions: { name: string; start: number }[] } };
    const found = table.partitiontable.partitions.find((each) => each.name === name);
    if (found === undefined) throw new Error(`the image has no partition ${name}`);
    return found.start * 512;
  }

  /** Puts files onto the partition `picolet` while the board is off. */
  writeFat(files: Readonly<Record<string, string | Uint8Array>>): void {
    this.#withFat((fat) => {
      for (const [path, content] of Object.entries(files)) {
        const source = join(this.folder, "file");
        writeFileSync(source, content);
        execFileSync("mcopy", ["-o", "-i", fat, source, `::${path}`], { stdio: "pipe" });
      }
    });
  }

  /** Reads a file of the partition `picolet` while the board is off. */
  readFat(path: string): string {
    let content = "";
    this.#withFat((fat) => {
      content = execFileSync("mcopy", ["-i", fat, `::${path}`, "-"], { encoding: "utf8", stdio: "pipe" });
    });
    return content;
  }

  /** The partition as a file, written back afterwards. */
  #withFat(action: (fat: string) => void): void {
    const fat = join(this.folder, "fat");
    const start = this.partitionStart("picolet");
    const bytes = this.partitionStart("boot-state") - start;
    const copy = ["-O", "raw", "-f", "qcow2", `bs=1M`, `skip=${start / 2 ** 20}`, `count=${(start + bytes) / 2 ** 20}`];
    execFileSync("qemu-img", ["dd", ...copy, `if=${this.disk}`, `of=${fat}`], { stdio: "pipe" });
    action(fat);
    this.writeDisk(start, readFileSync(fat).subarray(0, bytes));
    rmSync(fat);
  }

  #command(writeLog: string | undefined): readonly string[] {
    const { memoryMiB = 512, sshPort, tpm } = this.#options;
    const at = (name: string): string => join(this.folder, name);
    const isArm = this.#isArm;
    const code = isArm ? "/usr/share/AAVMF/AAVMF_CODE.fd" : "/usr/share/OVMF/OVMF_CODE_4M.fd";
    const credentials = Object.entries(CREDENTIALS).map(
      ([name, text]) => `io.systemd.credential.binary:${name}=${Buffer.from(text).toString("base64")}`,
    );
    const socket = (name: string): string => `socket,id=${name},path=${at(`${name}.sock`)},server=on,wait=off`;
    return [
      isArm ? "qemu-system-aarch64" : "qemu-system-x86_64",
      ...["-nodefaults", "-no-user-config", "-display", "none", "-smp", "2", "-m", String(memoryMiB)],
      ...[
        "-accel",
        "tcg,thread=multi",
        "-machine",
        // The chip set's SATA, which small boards do not have, takes 2.7 MiB of drivers without a disk.
        isArm ? "virt" : "q35,sata=off",
        "-cpu",
        GUEST_ARCHITECTURES[isArm ? "arm64" : "amd64"].cpu,
      ],
      ...["-drive", `if=pflash,format=raw,unit=0,readonly=on,file=${code}`],
      ...["-drive", `if=pflash,format=raw,unit=1,file=${this.#variables}`],
      // The card's own cache is the host's: what the board has flushed is there after a kill.
      ...["-blockdev", `driver=qcow2,node-name=disk,file.driver=file,file.filename=${this.disk}`],
      ...(writeLog === undefined
        ? []
        : ["-blockdev", `driver=blklogwrites,node-name=logged,file=disk,log.driver=file,log.filename=${writeLog}`]),
      ...["-device", `virtio-blk-pci,drive=${writeLog === undefined ? "disk" : "logged"},bootindex=0`],
      ...["-netdev", `user,id=net${sshPort === undefined ? "" : `,hostfwd=tcp:127.0.0.1:${sshPort}-:22`}`],
      ...["-device", "virtio-net-pci,netdev=net,id=nic,romfile="],
      ...["-device", "virtio-rng-pci"],
      ...["-chardev", socket("serial"), "-serial", "chardev:serial"],
      ...["-chardev", socket("shell"), "-device", "virtio-serial-pci"],
      ...["-device", `virtserialport,chardev=shell,name=${SHELL_PORT}`],
      ...["-qmp", `unix:${at("monitor.sock")},server=on,wait=off`],
      ...(tpm === undefined ? [] : ["-chardev", `socket,id=tpm,path=${tpm}`]),
      ...(tpm === undefined ? [] : ["-tpmdev", "emulator,id=tpm0,chardev=tpm"]),
      ...(tpm === undefined ? [] : ["-device", `${isArm ? "tpm-tis-device" : "tpm-tis"},tpmdev=tpm0`]),
      // The chipset's watchdog, which is strapped off otherwise.
      ...(isArm ? [] : ["-global", "ICH9-LPC.noreboot=false", "-action", "watchdog=reset"]),
      ...credentials.flatMap((text) => ["-smbios", `type=11,value=${text.replaceAll(",", ",,")}`]),
    ];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cutPower();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
