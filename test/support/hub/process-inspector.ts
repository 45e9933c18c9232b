/** V8's inspector of a Node process that was started with `NODE_OPTIONS=--inspect=127.0.0.1:0`. */
import { once } from "node:events";
import { WebSocket } from "ws";

interface Answer {
  readonly id?: number;
  readonly result?: unknown;
}

export class ProcessInspector implements Disposable {
  readonly #socket: WebSocket;
  readonly #answers = new Map<number, (result: unknown) => void>();
  #lastId = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data) => {
      const { id, result } = JSON.parse(String(data)) as Answer;
      if (id !== undefined) this.#answers.get(id)?.(result);
    });
  }

  /** The address in a line that the process wrote to standard error; undefined: it is another line. */
  static addressIn(line: string): string | undefined {
    return /^Debugger listening on (ws:.*)$/.exec(line)?.[1];
  }

  static async connect(address: string): Promise<ProcessInspector> {
    const socket = new WebSocket(address, { perMessageDeflate: false });
    await once(socket, "open");
    return new ProcessInspector(socket);
  }

  /** Bytes of objects that are still reachable after two collections. */
  async retainedBytes(): Promise<number> {
    // The second round collects what finalizers of the first one release.
    for (let round = 0; round < 2; round += 1) await this.#call("HeapProfiler.collectGarbage");
    const { usedSize } = (await this.#call("Runtime.getHeapUsage")) as { readonly usedSize: number };
    return usedSize;
  }

  #call(method: string): Promise<unknown> {
    this.#lastId += 1;
    const id = this.#lastId;
    this.#socket.send(JSON.stringify({ id, method }));
    return new Promise((resolve) => this.#answers.set(id, resolve));
  }

  [Symbol.dispose](): void {
    this.#socket.terminate();
  }
}
