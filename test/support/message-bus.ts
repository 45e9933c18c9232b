/** A real message bus of a test's own, with a stand-in for logind and systemd on it when that is asked for. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { TempFolder } from "./temp-folder.ts";

const NEEDED = [
  "/usr/bin/dbus-daemon",
  "/usr/bin/systemd-inhibit",
  "/usr/bin/python3",
  "/usr/lib/python3/dist-packages/dbus/__init__.py",
  "/usr/lib/python3/dist-packages/gi/__init__.py",
];
const STAND_IN = new URL("logind-stand-in.py", import.meta.url).pathname;
const WAIT_LIMIT_MS = 60_000;

/** Why there can be none here; `undefined` when there can. */
export function messageBusMissing(): string | undefined {
  const missing = NEEDED.filter((path) => !existsSync(path));
  return missing.length === 0 ? undefined : `not installed: ${missing.join(", ")}`;
}

const configOf = (path: string): string => `<busconfig>
  <type>system</type>
  <listen>unix:path=${path}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/>
  </policy>
</busconfig>`;

export class MessageBus implements AsyncDisposable {
  readonly #folder = new TempFolder();
  readonly socketPath = this.#folder.at("bus");
  readonly dropIns = this.#folder.at("logind.conf.d");
  readonly #said: string[] = [];
  #heard: (() => void) | undefined;
  #daemon: ChildProcess | undefined;
  #logind: ChildProcess | undefined;

  static async start(): Promise<MessageBus> {
    const bus = new MessageBus();
    mkdirSync(bus.dropIns);
    await bus.startDaemon();
    return bus;
  }

  async startDaemon(): Promise<void> {
    const config = this.#folder.at("bus.conf");
    writeFileSync(config, configOf(this.socketPath));
    const args = [`--config-file=${config}`, "--nofork", "--nopidfile", "--print-address"];
    this.#daemon = spawn("/usr/bin/dbus-daemon", args, { stdio: ["ignore", "pipe", "ignore"] });
    if (this.#daemon.stdout !== null) await once(this.#daemon.stdout, "data");
  }

  async stopDaemon(): Promise<void> {
    await this.stopLogind();
    await ended(this.#daemon);
  }

  /** @param seconds its InhibitDelayMaxSec */
  async startLogind(seconds: number): Promise<void> {
    const env = { ...process.env, DBUS_SYSTEM_BUS_ADDRESS: `unix:path=${this.socketPath}` };
    const child = spawn("/usr/bin/python3", [STAND_IN, this.dropIns, String(seconds)], {
      env,
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.#logind = child;
    createInterface({ input: child.stdout }).on("line", (line) => {
      this.#said.push(line);
      this.#heard?.();
    });
    await this.said("ready");
  }

  async stopLogind(): Promise<void> {
    await ended(this.#logind);
    this.#logind = undefined;
  }

  tell(command: "shutdown" | "cancel"): void {
    this.#logind?.stdin?.write(`${command}\n`);
  }

  /** Waits for that to happen, and takes it and what came before it off the list. */
  async said(line: string): Promise<readonly string[]> {
    const deadline = AbortSignal.timeout(WAIT_LIMIT_MS);
    for (;;) {
      const at = this.#said.indexOf(line);
      if (at >= 0) return this.#said.splice(0, at + 1);
      await new Promise<void>((resolve, reject) => {
        this.#heard = resolve;
        const late = (): void => reject(new Error(`logind did not say "${line}", but: ${this.#said.join("; ")}`));
        deadline.addEventListener("abort", late, { once: true });
      });
    }
  }

  /** What it has said since. */
  get rest(): readonly string[] {
    return [...this.#said];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopDaemon();
    this.#folder[Symbol.dispose]();
  }
}

async function ended(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  await once(child, "exit");
}
