/**
 * Components of `test/components` instantiated within the test's own process, as a runner does it on the event loop.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { Transpiler } from "@picolet/runtime-wasm/adapter/images/transpiler.ts";
import { compiledComponent, type InstantiateComponent } from "@picolet/runtime-wasm/shared/component/load-component.ts";
import type { TranspiledComponent } from "@picolet/runtime-wasm/shared/messages/launch.ts";
import { TempFolder } from "../unit/machine/temp-folder.ts";
import { RecordedLog } from "../unit/ports/recorders.ts";
import { keepingPrograms, type TestComponent, testComponent } from "./components.ts";

const MEMORY_LIMIT_BYTES = 512 * 1_048_576;

export const loadedComponent = async (source: TestComponent): Promise<InstantiateComponent> =>
  (await loadedGlue(source))();

/** Each call is a glue of its own, with these global names. */
export const loadedGlue = (source: TestComponent): Promise<ReturnType<typeof compiledComponent>> =>
  transpiled(source, (component) => compiledComponent(component, undefined));

/**
 * The files in the `cache` of an agent that has run the component before.
 * @param cache absolute, `<root-dir>/wasm/transpiled` of the agent
 */
export const transpiledFiles = (source: TestComponent, cache: string): Promise<Record<string, Uint8Array>> =>
  transpiled(source, ({ directory }) => {
    const entry = `${cache}/${basename(directory)}`;
    return Object.fromEntries(
      readdirSync(directory).map((name) => [`${entry}/${name}`, readFileSync(`${directory}/${name}`)]),
    );
  });

export interface Glue {
  /** The script for a runner. */
  readonly script: string;
  /** True when the transpiler reports that no state of jco's is left in it that grows with its calls. */
  readonly isLean: boolean;
}

export const glueOf = (source: TestComponent): Promise<Glue> =>
  transpiled(source, ({ directory, script }, log) => ({
    script: readFileSync(join(directory, script), "latin1"),
    isLean: !log.entries.some(({ message }) => message.includes("glue of jco's own")),
  }));

async function transpiled<T>(
  source: TestComponent,
  use: (component: TranspiledComponent, log: RecordedLog) => T,
): Promise<T> {
  const path = await testComponent(source);
  const log = new RecordedLog();
  const sha256 = createHash("sha256").update(readFileSync(path)).digest("hex");
  using folder = new TempFolder();
  await using transpiler = new Transpiler(
    { clock: systemClock, log, cgroups: undefined },
    {
      ...(await keepingPrograms()),
      nodePath: process.execPath,
      cacheDirectory: folder.at("cache"),
      timeout: seconds(60),
      memoryLimitBytes: MEMORY_LIMIT_BYTES,
      cgroupPath: undefined,
    },
  );
  return use(await transpiler.get(sha256, path, new AbortController().signal), log);
}
