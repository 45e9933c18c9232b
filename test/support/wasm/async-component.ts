/** Components of WASI 0.3 run within the test's own process, as a runner does it. */
import assert from "node:assert/strict";
import { prepareAsync } from "@picolet/runtime-wasm/runner/wasi-p3/async-run.ts";
import { type AsyncServer, serveAsync } from "@picolet/runtime-wasm/runner/wasi-p3/async-serve.ts";
import type { AsyncLaunch, InstanceComponents } from "@picolet/runtime-wasm/shared/component/component-run.ts";
import type { ServeOptions } from "@picolet/runtime-wasm/shared/grants/http-options.ts";
import { hostContext, hostImports } from "@picolet/runtime-wasm/shared/host/host.ts";
import { openMounts } from "@picolet/runtime-wasm/shared/host/mounts.ts";
import type { MountLaunch } from "@picolet/runtime-wasm/shared/messages/launch.ts";
import { BlockingWaiter } from "@picolet/runtime-wasm/shared/resources/polling.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import type { TestComponent } from "./components.ts";
import { loadedGlue } from "./loaded-component.ts";

export interface AsyncRun {
  readonly args: readonly string[];
  readonly mounts?: readonly MountLaunch[];
  /** Called with the component's output as it comes. */
  readonly onOutput?: (bytes: Uint8Array) => void;
  readonly launch?: AsyncLaunch;
}

export class AsyncComponent implements Disposable {
  readonly #folder = new TempFolder();
  readonly #glue: Awaited<ReturnType<typeof loadedGlue>>;

  private constructor(glue: Awaited<ReturnType<typeof loadedGlue>>) {
    this.#glue = glue;
  }

  static async of(source: TestComponent): Promise<AsyncComponent> {
    return new AsyncComponent(await loadedGlue(source));
  }

  /** To its end. @returns what it has written */
  async run({ args, mounts = [], onOutput, launch }: AsyncRun): Promise<string> {
    const written: Uint8Array[] = [];
    const components = componentsFor(onOutput ?? ((bytes) => void written.push(bytes)));
    const preopens = openMounts(mounts, this.#folder.path);
    const init = { args: ["component", ...args], env: [], workingDir: undefined, preopens };
    const run = await prepareAsync(this.#glue, components, init, launch);
    try {
      assert.equal(await run(), "ok");
    } finally {
      for (const { directory, files } of preopens) {
        directory.release();
        for (const { file } of files.values()) file.release();
      }
    }
    return Buffer.concat(written).toString("utf8");
  }

  /** On loopback. @param onLog is given what it complains of @param launch what it has beside HTTP */
  serve(serve: ServeOptions, onLog: (text: string) => void, launch: AsyncLaunch = {}): Promise<AsyncServer> {
    const components = componentsFor((bytes) => onLog(Buffer.from(bytes).toString("utf8")));
    const init = { args: [], env: [], workingDir: undefined, preopens: [] };
    return serveAsync(this.#glue, components, init, { ...launch, serve });
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

const componentsFor = (onOutput: (bytes: Uint8Array) => void): InstanceComponents => ({
  host: { imports: hostImports, context: hostContext },
  waitsBy02: false,
  after,
  waiter: new BlockingWaiter({ now: () => process.hrtime.bigint(), sleep: () => undefined }),
  wallNow: Date.now,
  log: { write: (_: string, bytes: Uint8Array) => onOutput(bytes), flushUnfinished: () => undefined },
  beforeWait: () => undefined,
  exit: (code: number): never => assert.fail(`exit ${code}`),
});

function after(milliseconds: number, act: () => void): () => void {
  if (milliseconds === 0) {
    const soon = setImmediate(act);
    return () => clearImmediate(soon);
  }
  const timer = setTimeout(act, milliseconds);
  return () => clearTimeout(timer);
}
