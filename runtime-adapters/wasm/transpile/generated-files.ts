/** Generates the files of a component with jco: its core modules, and the script around them. */

import { registerHooks } from "node:module";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { asyncNames, isWasi03, parseInterfaceName, readComponentShape } from "../shared/binary/component-shape.ts";
import { SCRIPT_NAME } from "../shared/messages/transpile-request.ts";
import { waitingFunctions } from "./waiting-functions.ts";

/**
 * jco's generator is a component itself and asks for a WASI host, by default preview2-shim, which starts a thread and
 * costs 16 MiB. It reads no file and no clock: these placeholders are enough.
 */
const PLACEHOLDERS: Readonly<Record<string, string>> = {
  cli: `class TerminalInput {} class TerminalOutput {}
    const nothing = () => undefined;
    const output = () => globalThis[Symbol.for("picolet.bindgen.output")];
    export const environment = { getEnvironment: () => [], getArguments: () => [], initialCwd: nothing };
    export const exit = { exit: () => process.exit(1) };
    export const stdin = { getStdin: () => { throw new Error("the generator reads no input"); } };
    export const stdout = { getStdout: output };
    export const stderr = { getStderr: output };
    export const terminalInput = { TerminalInput };
    export const terminalOutput = { TerminalOutput };
    export const terminalStdin = { getTerminalStdin: nothing };
    export const terminalStdout = { getTerminalStdout: nothing };
    export const terminalStderr = { getTerminalStderr: nothing };`,
  filesystem: `class Descriptor {} class DirectoryEntryStream {}
    export const preopens = { getDirectories: () => [] };
    export const types = { Descriptor, DirectoryEntryStream, filesystemErrorCode: () => undefined };`,
  io: `class IoError {} class Pollable {} class InputStream {}
    class OutputStream {
      checkWrite() { return 65536n; }
      write(bytes) { process.stderr.write(bytes); }
      blockingFlush() {}
      blockingWriteAndFlush(bytes) { this.write(bytes); }
    }
    globalThis[Symbol.for("picolet.bindgen.output")] = new OutputStream();
    export const error = { Error: IoError };
    export const poll = { Pollable, poll: () => new Uint32Array() };
    export const streams = { InputStream, OutputStream };`,
  random: `import { randomFillSync } from "node:crypto";
    const bytes = (length) => randomFillSync(new Uint8Array(Number(length)));
    const u64 = () => new DataView(bytes(8n).buffer).getBigUint64(0);
    export const random = { getRandomBytes: bytes, getRandomU64: u64 };
    export const insecure = { getInsecureRandomBytes: bytes, getInsecureRandomU64: u64 };
    export const insecureSeed = { insecureSeed: () => [u64(), u64()] };`,
  clocks: `export const monotonicClock = { now: () => process.hrtime.bigint(), resolution: () => 1n };
    const time = (seconds) => () => ({ seconds, nanoseconds: 0 });
    export const wallClock = { now: time(0n), resolution: time(1n) };`,
};

const SHIM = "@bytecodealliance/preview2-shim/";

/** Replaces the parts of preview2-shim by the placeholders for all later imports. */
export function replaceShim(): void {
  registerHooks({
    resolve(specifier, context, next) {
      const source = specifier.startsWith(SHIM) ? PLACEHOLDERS[specifier.slice(SHIM.length)] : undefined;
      if (source === undefined) return next(specifier, context);
      const url = `data:text/javascript,${encodeURIComponent(source)}`;
      return { url, format: "module", shortCircuit: true };
    },
  });
}

/** @throws `invalid` for what jco refuses */
export async function generatedFiles(
  component: Uint8Array,
): Promise<readonly (readonly [name: string, content: Uint8Array])[]> {
  replaceShim();
  const bindgen = await import("@bytecodealliance/jco-transpile/component");
  await bindgen.$init;
  const read = (offset: number, length: number): Uint8Array => component.subarray(offset, offset + length);
  const shape = readComponentShape(read, component.length);
  const { imports } = shape;
  try {
    const { files } = bindgen.generate(component, {
      name: SCRIPT_NAME.slice(0, -".js".length),
      instantiation: { tag: "sync" },
      map: imports.flatMap(asyncName),
      ...(asyncNames(shape).length > 0 && { asyncMode: waitingIn(imports) }),
      noTypescript: true,
      noNodejsCompat: true,
      noNamespacedExports: false,
      base64Cutoff: 0,
    });
    return files;
  } catch (error) {
    throw new PicoletError("invalid", "jco refuses the component", { cause: error });
  }
}

/** Functions of 0.2 are called again by their host instead: `shared/resources/event-loop.ts`. */
const waitingIn = (imports: readonly string[]) => ({
  tag: "jspi" as const,
  val: { imports: waitingFunctions(imports), exports: [] },
});

/** The glue names interfaces without their version; those of WASI 0.3 are others than those of 0.2. */
function asyncName(name: string): [string, string][] {
  const parsed = parseInterfaceName(name);
  return parsed !== undefined && isWasi03(parsed.version) ? [[name, `${parsed.path}@0.3`]] : [];
}
