/** A TPM 2.0 in software (Debian's swtpm), with a state folder of its own. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { type RunTool, runTool } from "@picolet/agent/keys/key-providers.ts";

const PROGRAMS = ["/usr/bin/swtpm", "/usr/bin/tpm2_unseal", "/usr/bin/tpm2_clear"];
/** Why tests with a TPM cannot run here; false: they can. */
export const withoutSwtpm: string | false = PROGRAMS.every((path) => existsSync(path))
  ? false
  : "needs swtpm and tpm2-tools (scripts/test/install-test-system.ts)";

export class SoftwareTpm implements AsyncDisposable {
  readonly #folder: string;
  readonly #isOfBoard: boolean;
  #child: ChildProcess | undefined;

  private constructor(folder: string, isOfBoard: boolean) {
    this.#folder = folder;
    this.#isOfBoard = isOfBoard;
  }

  /**
   * @param folder of its sockets and its state, which is made when it is missing
   * @param isOfBoard QEMU uses it, by `controlSocket`, for an emulated board: this machine's tools cannot
   */
  static async start(folder: string, { isOfBoard = false } = {}): Promise<SoftwareTpm> {
    mkdirSync(folder, { recursive: true });
    const tpm = new SoftwareTpm(folder, isOfBoard);
    await tpm.#start();
    return tpm;
  }

  /** QEMU's chardev of a TPM connects to it. */
  get controlSocket(): string {
    return `${this.#server}.ctrl`;
  }

  /** Stands in for the device: providers ask whether it is there. */
  get device(): string {
    return this.#server;
  }

  /**
   * Runs tpm2-tools on this TPM. There is no resource manager before it: objects that a tool leaves are flushed, as the
   * kernel's does when a tool closes its device.
   */
  readonly run: RunTool = async (program, args, input) => {
    const own = args.map((each) => (each.startsWith("device:") ? this.#tcti : each));
    const output = await runTool(program, own, input);
    if (program !== "tpm2_flushcontext") await runTool("tpm2_flushcontext", ["-T", this.#tcti, "-t"]);
    return output;
  };

  /** Its owner's seed is another one from then on, as when the firmware's setup clears it. */
  clear(): void {
    const { status, stderr } = spawnSync("tpm2_clear", ["-T", this.#tcti, "-c", "p"], { encoding: "utf8" });
    if (status !== 0) throw new Error(`cannot clear the TPM: ${stderr}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  }

  get #server(): string {
    return join(this.#folder, "tpm.sock");
  }

  get #tcti(): string {
    return `swtpm:path=${this.#server}`;
  }

  async #start(): Promise<void> {
    const control = this.controlSocket;
    for (const path of [this.#server, control]) rmSync(path, { force: true });
    const child = spawn(
      "swtpm",
      [
        ...["socket", "--tpm2", "--tpmstate", `dir=${this.#folder}`, "--ctrl", `type=unixio,path=${control}`],
        // QEMU passes a socket of its own, and starts the TPM with the board.
        ...(this.#isOfBoard
          ? []
          : ["--flags", "not-need-init,startup-clear", "--server", `type=unixio,path=${this.#server}`]),
      ],
      { stdio: "ignore" },
    );
    this.#child = child;
    await listening(control, child, { connects: !this.#isOfBoard });
    if (!this.#isOfBoard) await listening(this.#server, child, { connects: false });
  }
}

/** Until it listens; fails when the program ends first. */
async function listening(path: string, child: ChildProcess, { connects } = { connects: true }): Promise<void> {
  while (!(existsSync(path) && (!connects || (await accepts(path))))) {
    if (child.exitCode !== null) throw new Error(`swtpm ended with ${child.exitCode}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

async function accepts(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
