/** Debian's Prometheus on loopback, and promtool. */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { stringify } from "yaml";
import { fixedPorts } from "../unit/machine/fixed-port.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";

/** Why tests with Prometheus cannot run here; false: they can. */
export const prometheusMissing = (): string | false =>
  existsSync("/usr/bin/prometheus") && existsSync("/usr/bin/promtool") ? false : "needs the Debian package prometheus";

const OUTPUT = 4 * 1024 * 1024;

/** @returns its output. @throws with it unless it ends with 0 */
export async function promtool(...args: readonly string[]): Promise<string> {
  const { stdout, stderr } = await promisify(execFile)("/usr/bin/promtool", args, { maxBuffer: OUTPUT });
  return stdout + stderr;
}

/** @returns what `promtool check metrics` finds; "" for nothing */
export async function metricFaults(text: string): Promise<string> {
  const child = spawn("/usr/bin/promtool", ["check", "metrics"], { stdio: ["pipe", "pipe", "pipe"] });
  const output: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece: Buffer) => output.push(piece));
  child.stdin.end(text);
  const [code] = (await once(child, "close")) as [number | null];
  return code === 0 ? "" : Buffer.concat(output).toString("utf8") || `it ended with ${code}`;
}

/** Passes scrapes on, and tells when one begins: by then Prometheus has stored the one of the same path before it. */
export class ScrapeGate implements AsyncDisposable {
  readonly #server: Server;
  readonly #begun = new Map<string, number>();
  #changed: (() => void) | undefined;

  private constructor(target: URL) {
    this.#server = createServer((incoming, response) => {
      const [path = ""] = (incoming.url ?? "").split("?");
      this.#begun.set(path, (this.#begun.get(path) ?? 0) + 1);
      this.#changed?.();
      const { hostname, port } = target;
      const headers = { ...incoming.headers, host: target.host };
      request({ hostname, port, path: incoming.url, headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      })
        .on("error", () => response.destroy())
        .end();
    });
  }

  static async start(target: string): Promise<ScrapeGate> {
    const gate = new ScrapeGate(new URL(target));
    await new Promise<void>((resolve) => gate.#server.listen(0, "127.0.0.1", resolve));
    return gate;
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Resolves when a scrape of each path that begins from now on is stored. */
  async stored(...paths: readonly string[]): Promise<void> {
    const wanted = new Map(paths.map((path) => [path, (this.#begun.get(path) ?? 0) + 2]));
    while ([...wanted].some(([path, count]) => (this.#begun.get(path) ?? 0) < count)) {
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
      });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

export interface SeriesValue {
  readonly metric: Readonly<Record<string, string>>;
  /** Time in seconds, and the value as text. */
  readonly value: readonly [number, string];
}

export class Prometheus implements AsyncDisposable {
  readonly #folder = new TempFolder();
  readonly #child: ChildProcess;
  readonly #url: string;

  private constructor(folder: TempFolder, child: ChildProcess, url: string) {
    this.#folder = folder;
    this.#child = child;
    this.#url = url;
  }

  /** @returns when it answers. @throws when it ends before that, with the last it said */
  static async start(config: object): Promise<Prometheus> {
    const folder = new TempFolder();
    const path = `${folder.path}/prometheus.yaml`;
    writeFileSync(path, stringify(config));
    const address = `127.0.0.1:${await fixedPorts(1)}`;
    const args = [
      ...[`--config.file=${path}`, `--storage.tsdb.path=${folder.path}/data`, `--web.listen-address=${address}`],
      "--log.format=json",
    ];
    const child = spawn("/usr/bin/prometheus", args, { stdio: ["ignore", "ignore", "pipe"] });
    let last = "";
    for await (const line of createInterface({ input: child.stderr })) {
      last = line;
      if (!line.includes("Server is ready to receive web requests")) continue;
      child.stderr.resume();
      return new Prometheus(folder, child, `http://${address}`);
    }
    folder[Symbol.dispose]();
    throw new Error(`Prometheus ended before it was ready: ${last}`);
  }

  async query(query: string): Promise<readonly SeriesValue[]> {
    const response = await fetch(`${this.#url}/api/v1/query?${new URLSearchParams({ query }).toString()}`);
    const answer = (await response.json()) as { status: string; error?: string; data: { result: SeriesValue[] } };
    if (answer.status !== "success") throw new Error(`${query}: ${answer.error}`);
    return answer.data.result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const ended = once(this.#child, "exit");
      this.#child.kill("SIGKILL");
      await ended;
    }
    this.#folder[Symbol.dispose]();
  }
}
