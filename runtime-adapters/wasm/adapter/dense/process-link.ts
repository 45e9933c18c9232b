/** The agent's end of the socket of one process of several containers. Neither trusts the other. */
import { connect, type Socket } from "node:net";
import { PicoletError } from "@picolet/protocol/errors.ts";
import {
  type DenseReport,
  type DenseRequest,
  type DenseUsage,
  LineReader,
  line,
  MAX_REPORT_BYTES,
  readReport,
} from "../../shared/messages/dense-messages.ts";

export interface ProcessLinkInit {
  readonly socketPath: string;
  readonly onEnded: (id: string) => void;
  /** The link is closed, or broke the protocol. */
  readonly onClose: () => void;
}

type Outcome = Extract<DenseReport, { kind: "started" | "refused" }>;

export class ProcessLink {
  readonly #init: ProcessLinkInit;
  readonly #socket: Socket;
  readonly #hello = Promise.withResolvers<readonly string[]>();
  /** By container. */
  readonly #starts = new Map<string, (outcome: Outcome | undefined) => void>();
  readonly #pings = new Map<number, () => void>();
  #usages: ((usages: readonly DenseUsage[]) => void)[] = [];
  #lastPing = 0;
  #closed = false;

  constructor(init: ProcessLinkInit) {
    this.#init = init;
    this.#socket = connect(init.socketPath);
    const reader = new LineReader(MAX_REPORT_BYTES);
    this.#socket.unref();
    this.#socket.on("error", () => this.#socket.destroy());
    this.#socket.on("close", () => this.#close());
    this.#socket.on("data", (chunk: Buffer) => {
      try {
        for (const text of reader.push(chunk)) this.#take(readReport(text));
      } catch {
        this.#socket.destroy();
      }
    });
  }

  /** Resolves with the containers that are there; with none when the process is not. */
  get hello(): Promise<readonly string[]> {
    return this.#hello.promise;
  }

  /** @returns undefined when the process went before it answered */
  async start(request: Extract<DenseRequest, { kind: "start" }>): Promise<Outcome | undefined> {
    if (this.#closed) return undefined;
    return new Promise((resolve) => {
      this.#starts.set(request.id, resolve);
      this.#send(request);
    });
  }

  stop(id: string, exitCode: number): void {
    this.#send({ kind: "stop", id, exitCode });
  }

  /** Resolves when its event loop comes round, or it is gone. */
  ping(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    this.#lastPing += 1;
    const number = this.#lastPing;
    return new Promise((resolve) => {
      this.#pings.set(number, resolve);
      this.#send({ kind: "ping", number });
    });
  }

  usage(): Promise<readonly DenseUsage[]> {
    if (this.#closed) return Promise.resolve([]);
    return new Promise((resolve) => {
      this.#usages.push(resolve);
      if (this.#usages.length === 1) this.#send({ kind: "usage" });
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #send(request: DenseRequest): void {
    if (!this.#closed) this.#socket.write(line(request));
  }

  #take(report: DenseReport | undefined): void {
    if (report === undefined) throw new PicoletError("invalid", "a process of components sent an unknown message");
    switch (report.kind) {
      case "hello":
        this.#hello.resolve(report.containers);
        return;
      case "started":
      case "refused":
        this.#settleStart(report.id, report);
        return;
      case "ended":
        this.#init.onEnded(report.id);
        return;
      case "pong":
        this.#pings.get(report.number)?.();
        this.#pings.delete(report.number);
        return;
      case "usage":
        this.#settleUsage(report.containers);
    }
  }

  #settleStart(id: string, outcome: Outcome | undefined): void {
    this.#starts.get(id)?.(outcome);
    this.#starts.delete(id);
  }

  #settleUsage(usages: readonly DenseUsage[]): void {
    for (const resolve of this.#usages.splice(0)) resolve(usages);
  }

  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#hello.resolve([]);
    for (const id of [...this.#starts.keys()]) this.#settleStart(id, undefined);
    for (const resolve of this.#pings.values()) resolve();
    this.#pings.clear();
    this.#settleUsage([]);
    this.#init.onClose();
  }
}
