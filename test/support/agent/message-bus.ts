/** A message bus of the test's own, with a fake logind or systemd on it on request. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { TempFolder } from "../unit/machine/temp-folder.ts";

const NEEDED = [
  "/usr/bin/dbus-daemon",
  "/usr/bin/systemd-inhibit",
  "/usr/bin/python3",
  "/usr/lib/python3/dist-packages/dbus/__init__.py",
  "/usr/lib/python3/dist-packages/gi/__init__.py",
];
const STAND_INS = {
  logind: new URL("fake-logind.py", import.meta.url).pathname,
  systemd: new URL("fake-systemd.py", import.meta.url).pathname,
};
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
  #standIn: ChildProcess | undefined;

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
    await this.stopStandIn();
    await ended(this.#daemon);
  }

  /** @param seconds its InhibitDelayMaxSec */
  async startLogind(seconds: number): Promise<void> {
    await this.#start(STAND_INS.logind, this.dropIns, String(seconds));
  }

  async startSystemd(): Promise<void> {
    await this.#start(STAND_INS.systemd);
  }

  async #start(...command: readonly string[]): Promise<void> {
    const env = { ...process.env, DBUS_SYSTEM_BUS_ADDRESS: `unix:path=${this.socketPath}` };
    const child = spawn("/usr/bin/python3", command, { env, stdio: ["pipe", "pipe", "inherit"] });
    this.#standIn = child;
    createInterface({ input: child.stdout }).on("line", (line) => {
      this.#said.push(line);
      this.#heard?.();
    });
    await this.said("ready");
  }

  async stopStandIn(): Promise<void> {
    await ended(this.#standIn);
    this.#standIn = undefined;
  }

  tell(command: "shutdown" | "cancel"): void {
    this.#standIn?.stdin?.write(`${command}\n`);
  }

  /** Waits for that to happen, and takes it and what came before it off the list. */
  async said(line: string): Promise<readonly string[]> {
    await this.#until(`say "${line}"`, () => this.#said.includes(line));
    return this.#said.splice(0, this.#said.indexOf(line) + 1);
  }

  /** Its lines since then, once there are `atLeast`: they come by another way than the bus's answers. */
  async rest(atLeast: number): Promise<readonly string[]> {
    await this.#until(`say ${atLeast} lines`, () => this.#said.length >= atLeast);
    return [...this.#said];
  }

  async #until(what: string, isSo: () => boolean): Promise<void> {
    const deadline = AbortSignal.timeout(WAIT_LIMIT_MS);
    while (!isSo()) {
      await new Promise<void>((resolve, reject) => {
        this.#heard = resolve;
        const late = (): void => reject(new Error(`the stand-in did not ${what}, but: ${this.#said.join("; ")}`));
        deadline.addEventListener("abort", late, { once: true });
      });
    }
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
