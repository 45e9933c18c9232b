/**
 * A real hub process with the embedded API server, real kubectl of both ages, and nodes that join through the tunnel.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { BootstrapTokens } from "@picolet/hub/identity/bootstrap-tokens.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { HubProcess, type HubReady } from "@picolet/scripts/start/hub-process.ts";
import { type KubectlVersion, kubectlPath } from "@picolet/scripts/test/install-kubectl.ts";
import { fixedPorts } from "../unit/machine/fixed-port.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { FleetAdmin } from "./fleet-admin.ts";

/** Generous: the machine is shared. A kubectl that has not come to its end by then never will. */
const KUBECTL_LIMIT_MS = 120_000;
/** As long as a test takes at the longest. */
const TOKEN_LIFE = seconds(3600);
const NEVER = new AbortController().signal;
/** Bounds the hub's log that is kept for a failing test's message. */
const MAX_LOG_LINES = 400;
/** Ends with this process, however that ends. */
const PROGRAM = ["setpriv", "--pdeathsig", "KILL", "dist/hub/bin/picolet-hub"] as const;

export interface KubectlResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Why tests with `version` cannot run here; false: they can. */
export const kubectlMissing = (version: KubectlVersion): string | false =>
  existsSync(kubectlPath(version)) ? false : `needs kubectl ${version}, which npm test fetches on Debian`;

export class Fleet implements AsyncDisposable {
  readonly folder = new TempFolder();
  readonly dataDir = join(this.folder.path, "hub");
  readonly log: string[] = [];
  #hub: HubProcess | undefined;
  #ready: HubReady | undefined;
  /** The tunnel's; the API's is the next. */
  #firstPort: number | undefined;
  readonly #flags: readonly string[];

  private constructor(flags: readonly string[]) {
    this.#flags = flags;
  }

  static async start(flags: readonly string[] = []): Promise<Fleet> {
    const fleet = new Fleet(flags);
    await fleet.startHub();
    return fleet;
  }

  /** The addresses of the present or the last hub; the ports stay over restarts. */
  get ready(): HubReady {
    if (this.#ready === undefined) throw new Error("the hub has never served");
    return this.#ready;
  }

  get hub(): HubProcess {
    if (this.#hub === undefined) throw new Error("no hub runs");
    return this.#hub;
  }

  get tunnelPort(): number {
    return Number(new URL(this.ready.tunnel).port);
  }

  /** @param flags besides those that it always has */
  async startHub(flags: readonly string[] = []): Promise<void> {
    this.#firstPort ??= await fixedPorts(2);
    const [tunnelPort, apiPort] = [this.#firstPort, this.#firstPort + 1];
    this.#hub = await HubProcess.start({
      dataDir: this.dataDir,
      tunnelPort,
      apiPort,
      program: PROGRAM,
      flags: [...this.#flags, ...flags],
      onLog: (line) => {
        this.log.push(line);
        if (this.log.length > MAX_LOG_LINES) this.log.shift();
      },
    });
    this.#ready = this.#hub.ready;
  }

  async endHub(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    const hub = this.#hub;
    this.#hub = undefined;
    await hub?.end(signal);
  }

  /**
   * The configuration with which a board joins; a fresh token each time. @param port another one than the hub's: a
   * proxy's
   */
  async joinConfig(port = this.tunnelPort): Promise<Readonly<Record<string, unknown>>> {
    await using admin = await FleetAdmin.of(this);
    const tokens = new BootstrapTokens({ client: admin.client, clock: systemClock });
    const token = await tokens.create({ ttlMs: TOKEN_LIFE, description: "", replaceNodes: false }, NEVER);
    return { server: `https://127.0.0.1:${port}`, token, caHash: [this.ready.caHash] };
  }

  /** As the administrator. @throws with what kubectl and the hub said unless it ends with 0 */
  async kubectl(args: readonly string[], options: KubectlOptions = {}): Promise<string> {
    const result = await this.tryKubectl(args, options);
    if (result.code === 0) return result.stdout;
    const tail = this.log.slice(-40).join("\n");
    throw new Error(
      `kubectl ${args.join(" ")} ended with ${result.code}: ${result.stderr}${result.stdout.slice(-2000)}\n${tail}`,
    );
  }

  async tryKubectl(args: readonly string[], options: KubectlOptions = {}): Promise<KubectlResult> {
    const child = this.spawnKubectl(args, options.version);
    const timer = setTimeout(() => child.kill("SIGKILL"), KUBECTL_LIMIT_MS);
    const [stdout, stderr] = [collect(child, "stdout"), collect(child, "stderr")];
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(options.input ?? "");
    const [code] = (await once(child, "close")) as [number | null];
    clearTimeout(timer);
    return { code, stdout: stdout(), stderr: stderr() };
  }

  /** One that goes on: `-f`, `--watch`, `exec -i`, `port-forward`. The caller ends it. */
  spawnKubectl(args: readonly string[], version: KubectlVersion = "1.32"): ChildProcess {
    const environment = { ...process.env, HOME: this.folder.path, KUBECONFIG: this.ready.kubeconfig };
    return spawn(kubectlPath(version), args, { env: environment, stdio: ["pipe", "pipe", "pipe"] });
  }

  /** Until one that goes on has printed it. @returns all that it has printed */
  async seen(args: readonly string[], fits: (text: string) => boolean): Promise<string> {
    const watch = this.spawnKubectl(args);
    try {
      return await untilPrinted(watch, fits);
    } finally {
      await endProcess(watch);
    }
  }

  /** Until the node has joined, and is Ready. */
  async untilNodeReady(name: string): Promise<void> {
    await using admin = await FleetAdmin.of(this);
    await admin.untilCondition(name, "Ready", "True");
  }

  /** With a pseudo terminal, through script(1). */
  spawnInTerminal(args: readonly string[], version: KubectlVersion): ChildProcess {
    const environment = { ...process.env, HOME: this.folder.path, KUBECONFIG: this.ready.kubeconfig };
    const command = [kubectlPath(version), ...args].join(" ");
    return spawn("script", ["-qefc", command, "/dev/null"], { env: environment, stdio: ["pipe", "pipe", "pipe"] });
  }

  async apply(object: unknown, options: KubectlOptions = {}): Promise<string> {
    return await this.kubectl(["apply", "-f", "-"], { ...options, input: JSON.stringify(object) });
  }

  async get<T>(...args: readonly string[]): Promise<T> {
    return JSON.parse(await this.kubectl(["get", ...args, "-o", "json"])) as T;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.endHub("SIGKILL");
    this.folder[Symbol.dispose]();
  }
}

export interface KubectlOptions {
  readonly version?: KubectlVersion;
  readonly input?: string;
}

function collect(child: ChildProcess, name: "stdout" | "stderr"): () => string {
  const chunks: Buffer[] = [];
  child[name]?.on("data", (chunk: Buffer) => chunks.push(chunk));
  return () => Buffer.concat(chunks).toString("utf8");
}

/**
 * Reads the output of `child` until `fits`; later output is kept for the next reader (`resume` before its "close" is
 * awaited).
 * @throws with the whole output when the child ends before that
 */
export async function untilPrinted(child: ChildProcess, fits: (text: string) => boolean): Promise<string> {
  let text = "";
  return await new Promise((resolve, reject) => {
    const look = (chunk: Buffer): void => {
      text += chunk.toString("utf8");
      if (!fits(text)) return;
      settle();
      resolve(text);
    };
    const onEnd = (): void => {
      settle();
      reject(new Error(`it ended with ${child.exitCode ?? child.signalCode} after: ${text}`));
    };
    const timer = setTimeout(onEnd, KUBECTL_LIMIT_MS);
    const settle = (): void => {
      clearTimeout(timer);
      for (const stream of [child.stdout, child.stderr]) {
        stream?.off("data", look);
        // Otherwise it would go on flowing without a reader.
        stream?.pause();
      }
      child.off("close", onEnd);
    };
    for (const stream of [child.stdout, child.stderr]) stream?.on("data", look).resume();
    child.on("close", onEnd);
  });
}

/** Ends what `spawnKubectl` started. */
export async function endProcess(child: ChildProcess, signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const closed = once(child, "close");
  child.kill(signal);
  for (const stream of [child.stdout, child.stderr]) stream?.resume();
  await closed;
}
