/**
 * The memory of each board in its hub at rest: a guard against growth. `npm run bench:fleet` has the figures of a
 * fleet.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { loadAuthority } from "@picolet/hub/identity/certificate-authority.ts";
import { FilePemStore } from "@picolet/hub/identity/pem-store.ts";
import { HubProcess } from "@picolet/scripts/start/hub-process.ts";
import { WebSocket } from "ws";
import { FleetSimulator } from "../../bench/hub/fleet-simulator.ts";
import { memoryOf } from "../../bench/measure/process-usage.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";

/** Compile what a session runs, and fill what is kept once for all. */
const FIRST = 50;
const BOARDS = 200;
const CONNECTS_PER_SECOND = 200;
/**
 * Reached: 27 to 30, of which a bare connection has 6.6; what is kept once for all is not spread over thousands here.
 */
const MAX_HEAP_KIB = 33;
/** Reached: 91 to 100 (Node 24.21, glibc 2.36), with what V8 and the allocator keep for later. */
const MAX_ANON_KIB = 110;
/** Each collects all garbage of the hub first, which takes some 100 ms. */
const ATTEMPTS = 20;

test("a board at rest takes no more of its hub's memory than before", async () => {
  using folder = new TempFolder();
  const dataDir = join(folder.path, "hub");
  let address = "";
  const hub = await HubProcess.start({
    dataDir,
    env: { NODE_OPTIONS: "--inspect=127.0.0.1:0" },
    onLog: (line) => {
      address ||= ProcessInspector.addressIn(line) ?? "";
    },
  });
  const stored = await new FilePemStore({ path: join(dataDir, "hub-ca.json") }).load();
  const { "ca.crt": ca = "", "ca.key": caKey = "" } = stored?.files ?? {};
  const clientCa = loadAuthority(ca, caKey);
  const fleets: FleetSimulator[] = [];
  const connect = async (count: number, prefix: string): Promise<void> => {
    const fleet = FleetSimulator.create({ hub: hub.ready.tunnel, hubCa: ca, clientCa, count, prefix });
    fleets.push(fleet);
    await fleet.connect(CONNECTS_PER_SECOND);
    await Promise.all(fleet.boards.map((board) => board.reportNode()));
  };
  try {
    using inspector = await ProcessInspector.connect(address);
    await connect(FIRST, "first-");
    const heapBefore = await inspector.retainedBytes();
    const anonBefore = memoryOf(hub.pid).anonMiB;
    await connect(BOARDS, "edge-");
    const figures = { heapKiB: Number.POSITIVE_INFINITY, anonKiB: Number.POSITIVE_INFINITY };
    const isWithin = (): boolean => figures.heapKiB <= MAX_HEAP_KIB && figures.anonKiB <= MAX_ANON_KIB;
    // On a busy machine some of what the boards have just sent is still on its way through the hub.
    for (let attempt = 0; attempt < ATTEMPTS && !isWithin(); attempt += 1) {
      figures.heapKiB = Math.min(figures.heapKiB, ((await inspector.retainedBytes()) - heapBefore) / 1024 / BOARDS);
      figures.anonKiB = Math.min(figures.anonKiB, ((memoryOf(hub.pid).anonMiB - anonBefore) * 1024) / BOARDS);
    }
    assert.ok(isWithin(), JSON.stringify(figures));
  } finally {
    for (const fleet of fleets) fleet.end();
    await hub.end("SIGKILL");
  }
});

interface Answer {
  readonly id?: number;
  readonly result?: unknown;
}

/** V8's inspector of a Node process that was started with `NODE_OPTIONS=--inspect=127.0.0.1:0`. */
class ProcessInspector implements Disposable {
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
