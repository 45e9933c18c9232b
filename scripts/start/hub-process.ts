import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { ignore } from "@picolet/protocol/errors.ts";

/** The line of JSON that `picolet-hub serve` prints on standard output once it serves. */
export interface HubReady {
  /** `https://127.0.0.1:10270`, for boards. */
  readonly tunnel: string;
  /** Embedded only, else "". */
  readonly api: string;
  /** Path; embedded only, else "". */
  readonly kubeconfig: string;
  /** `sha256:…`, what a board pins. */
  readonly caHash: string;
  /** `http://127.0.0.1:9184`, for scrapers; "": metrics are not served. */
  readonly metrics: string;
}

export interface HubProcessInit {
  /** The data directory of the embedded API server. */
  readonly dataDir?: string;
  /** The kubeconfig of another API server, used instead of an embedded one. */
  readonly kubeconfig?: string;
  /** 0: any free one. */
  readonly tunnelPort?: number;
  readonly apiPort?: number;
  readonly flags?: readonly string[];
  /** Beside this process's own. */
  readonly env?: Readonly<Record<string, string>>;
  /** The command that the hub's arguments follow. Default: `dist/hub/bin/picolet-hub`. */
  readonly program?: readonly [program: string, ...args: string[]];
  /** Where its log goes. */
  readonly onLog?: (line: string) => void;
}

const PROGRAM = "dist/hub/bin/picolet-hub";

/** A real hub, as a process of its own on loopback. */
export class HubProcess {
  readonly ready: HubReady;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, ready: HubReady) {
    this.#child = child;
    this.ready = ready;
  }

  /** @throws when it ends before it serves, with the last it said */
  static async start(init: HubProcessInit): Promise<HubProcess> {
    const { dataDir, kubeconfig, tunnelPort = 0, apiPort = 0, flags = [], env, onLog } = init;
    const [program, ...first] = init.program ?? [PROGRAM];
    const args = ["serve", ...flags, "--advertise-address", "127.0.0.1", "--tunnel-address", `127.0.0.1:${tunnelPort}`];
    if (dataDir !== undefined) args.push("--embedded", "--data-dir", dataDir, "--api-address", `127.0.0.1:${apiPort}`);
    if (kubeconfig !== undefined) args.push("--kubeconfig", kubeconfig);
    // A process group of its own: a Ctrl-C in the terminal reaches its parent only.
    const child = spawn(program, [...first, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
      env: { ...process.env, ...env },
    });
    let last = "";
    createInterface({ input: child.stderr }).on("line", (line) => {
      last = line;
      onLog?.(line);
    });
    const exited = once(child, "exit").then(([code, signal]) => {
      throw new Error(`the hub ended with ${code ?? signal} before it served: ${last}`);
    });
    exited.catch(ignore("the race below throws it, or is over"));
    const [line] = (await Promise.race([once(createInterface({ input: child.stdout }), "line"), exited])) as [string];
    return new HubProcess(child, JSON.parse(line) as HubReady);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** @returns when it has ended */
  async end(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.kill(signal);
    await exited;
  }
}

/** One of the hub's other commands, on the embedded API server of `dataDir`. @returns its standard output */
export async function runHubCommand(dataDir: string, ...words: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(PROGRAM, [...words, "--embedded", "--data-dir", dataDir]);
  return stdout.trim();
}
