/** edgectl against the agent's local API, both in this process; the agent behind it is made of plain values. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { TestContext } from "node:test";
import { LocalApi, type LocalApiComponents } from "@picolet/agent/api/local-api.ts";
import type { Context, Terminal } from "@picolet/agent/cli/context/context.ts";
import { runEdgectl } from "@picolet/agent/cli/run-edgectl.ts";
import { CONFIGURATION_FIELDS } from "@picolet/agent/config/configuration-fields.ts";
import { describeFields } from "@picolet/agent/config/field-descriptions.ts";
import { FIELD_DOCUMENTATION } from "@picolet/agent/config/field-documentation.ts";
import type { PodEnd, PodLeave } from "@picolet/agent/core/pods/pod-admission.ts";
import { PushSource } from "@picolet/agent/sources/push-source.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { VirtualClock } from "../ports/virtual-clock.ts";
import { MemoryDesiredStore } from "../store/memory-desired-store.ts";
import { FakeAgentView, NOW_MS } from "./fake-agent-view.ts";

/** Standard input is no terminal. */
export const NO_KEYBOARD: Context["keyboard"] = {
  isTerminal: false,
  size: undefined,
  raw: () => ({ [Symbol.dispose]: () => {} }),
  onResize: () => ({ [Symbol.dispose]: () => {} }),
};

export class CapturedTerminal implements Terminal {
  columns: number | undefined;
  rows: number | undefined;
  movesCursor = false;
  colour = false;
  interactive = false;
  out = "";
  /** How often something was written to `out`. */
  writes = 0;
  error = "";
  /** `out` as it came. */
  bytes = Buffer.alloc(0);
  #wake: (() => void) | undefined;

  /** @param columns 80 unless named; `undefined` is no terminal */
  constructor(init: { readonly columns: number | undefined } = { columns: 80 }) {
    this.columns = init.columns;
  }

  async write(text: string | Buffer): Promise<void> {
    this.out += text.toString();
    this.writes += 1;
    this.bytes = Buffer.concat([this.bytes, Buffer.from(text)]);
    this.#wake?.();
  }

  writeError(text: string | Buffer): void {
    this.error += text.toString();
    this.#wake?.();
  }

  /** Resolves once something has been written that makes `met` true. */
  async until(met: (terminal: this) => boolean): Promise<void> {
    while (!met(this)) await new Promise<void>((resolve) => (this.#wake = resolve));
  }
}

export interface Outcome {
  readonly code: number;
  readonly out: string;
  readonly error: string;
}

export class EdgectlBench {
  readonly view = new FakeAgentView();
  readonly log = new RecordedLog();
  /** The store of applied pods. */
  readonly store = new MemoryDesiredStore();
  readonly directory = mkdtempSync(join(tmpdir(), "picolet-cli-"));
  /** The clock of edgectl itself. */
  readonly clock = new VirtualClock(NOW_MS);
  /** edgectl's standard input. */
  input: AsyncIterable<Buffer> = Readable.from([]);
  keyboard: Context["keyboard"] = NO_KEYBOARD;
  readonly environment: Record<string, string> = {};
  /** The file beside edgectl that describes the configuration's fields. */
  readonly fields = JSON.stringify(describeFields(CONFIGURATION_FIELDS, FIELD_DOCUMENTATION));
  readonly socketPath = join(this.directory, "picolet.sock");
  /** Requests to the pods' workers: `leave web-uid`. */
  readonly asked: string[] = [];
  readonly #controller = new AbortController();
  #running: Promise<void> | undefined;

  static async start(
    t: TestContext,
    others: Pick<LocalApiComponents, "devices" | "factoryReset" | "keyvalue" | "updates" | "why"> = {},
  ): Promise<EdgectlBench> {
    const bench = new EdgectlBench();
    t.after(async () => {
      await bench.stopAgent();
      rmSync(bench.directory, { recursive: true });
    });
    const clock = new VirtualClock(NOW_MS);
    const { log, view, store } = bench;
    const pushed = new PushSource({ clock, log, store }, { nodeName: view.nodeName });
    const api = new LocalApi(
      { clock, log, view, logs: view.logs, pushed, workers: bench.#workers(), ...others },
      { socketPath: bench.socketPath },
    );
    await api.listen();
    bench.#running = api.run(bench.#controller.signal);
    return bench;
  }

  #workers(): NonNullable<LocalApiComponents["workers"]> {
    const ask = async (what: string, uid: string, how: PodEnd | PodLeave): Promise<void> => {
      this.asked.push(`${what} ${uid}${how.gracePeriod === undefined ? "" : ` within ${how.gracePeriod} ms`}`);
    };
    return { end: (uid, how) => ask("end", uid, how), leave: (uid, how) => ask("leave", uid, how) };
  }

  async stopAgent(): Promise<void> {
    this.#controller.abort();
    await this.#running;
  }

  start(words: readonly string[], terminal: Terminal): Promise<number> {
    return runEdgectl(words, {
      terminal,
      clock: this.clock,
      environment: { PICOLET_SOCKET: this.socketPath, ...this.environment },
      workingDirectory: "/home/user",
      readBeside: () => this.fields,
      input: () => this.input,
      keyboard: this.keyboard,
    });
  }

  /** Runs it to its end. */
  async run(words: readonly string[], terminal: CapturedTerminal = new CapturedTerminal()): Promise<Outcome> {
    const code = await this.start(words, terminal);
    return { code, out: terminal.out, error: terminal.error };
  }
}
