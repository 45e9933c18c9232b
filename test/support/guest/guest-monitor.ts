/** QEMU's own control socket (QMP): one JSON object a line. */
import type { Socket } from "node:net";
import { connectTo } from "./guest-channel.ts";

interface Waiting {
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: Error) => void;
}

interface Line {
  readonly return?: unknown;
  readonly error?: { readonly desc: string };
  readonly event?: string;
  readonly data?: Readonly<Record<string, unknown>>;
}

export class GuestMonitor implements Disposable {
  readonly #socket: Socket;
  /** Answers come in the order of the commands. */
  readonly #waiting: Waiting[] = [];
  readonly #listeners: { readonly holds: (line: Line) => boolean; readonly waiting: Waiting }[] = [];
  #rest = "";

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding("utf8").on("data", (text: string) => {
      const lines = (this.#rest + text).split("\n");
      this.#rest = lines.pop() ?? "";
      for (const line of lines) if (line.trim() !== "") this.#take(JSON.parse(line) as Line);
    });
    socket.on("error", () => undefined).on("close", () => this.#lose());
  }

  static async connect(path: string): Promise<GuestMonitor> {
    const monitor = new GuestMonitor(await connectTo(path));
    await monitor.command("qmp_capabilities");
    return monitor;
  }

  command(execute: string, parameters: Readonly<Record<string, unknown>> = {}): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      this.#socket.write(`${JSON.stringify({ execute, arguments: parameters })}\n`);
    });
  }

  /** The next event of that name of whose data `holds` is true. */
  event(name: string, holds: (data: Readonly<Record<string, unknown>>) => boolean = () => true): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const waiting = { resolve, reject };
      this.#listeners.push({ holds: (line) => line.event === name && holds(line.data ?? {}), waiting });
    });
  }

  #take(line: Line): void {
    if (line.error !== undefined) this.#waiting.shift()?.reject(new Error(`QEMU: ${line.error.desc}`));
    else if ("return" in line) this.#waiting.shift()?.resolve(line.return);
    for (const listener of this.#listeners.filter(({ holds }) => holds(line))) {
      this.#listeners.splice(this.#listeners.indexOf(listener), 1);
      listener.waiting.resolve(line.data);
    }
  }

  #lose(): void {
    const all = [...this.#waiting.splice(0), ...this.#listeners.splice(0).map(({ waiting }) => waiting)];
    for (const { reject } of all) reject(new Error("QEMU has ended"));
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}
