/**
 * jco's generator is a component itself and asks for a WASI host, by default preview2-shim, which starts a thread and
 * costs 16 MiB. It reads no file and no clock: these stand-ins are enough.
 */
import { registerHooks } from "node:module";

const STANDINS: Readonly<Record<string, string>> = {
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
    export const wallClock = { now: () => ({ seconds: 0n, nanoseconds: 0 }), resolution: () => ({ seconds: 1n, nanoseconds: 0 }) };`,
};

const SHIM = "@bytecodealliance/preview2-shim/";

/** From here on, whoever imports a part of preview2-shim gets the stand-in. */
export function replaceShim(): void {
  registerHooks({
    resolve(specifier, context, next) {
      const source = specifier.startsWith(SHIM) ? STANDINS[specifier.slice(SHIM.length)] : undefined;
      if (source === undefined) return next(specifier, context);
      const url = `data:text/javascript,${encodeURIComponent(source)}`;
      return { url, format: "module", shortCircuit: true };
    },
  });
}
