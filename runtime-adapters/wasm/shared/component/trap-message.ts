/** Why a component was ended in the middle, in the words of its message. */
import { describeError } from "@picolet/protocol/errors.ts";

/** V8's messages in the glue about the depth of calls, or about an address that the component passed to it. */
const RANGES: readonly (readonly [RegExp, string])[] = [
  [/call stack/, "call stack exhausted"],
  [/bounds|offset|length/i, "memory access out of bounds"],
];

export function trapMessage(error: unknown): string {
  const message = describeError(error);
  const isTrap = error instanceof WebAssembly.RuntimeError || error instanceof RangeError;
  if (!isTrap || message.startsWith("wasm trap")) return message;
  const [, what = message] = (error instanceof RangeError && RANGES.find(([words]) => words.test(message))) || [];
  return `wasm trap: ${what}`;
}

/**
 * V8 reserves 8 GiB of addresses for each linear memory, so that it need not check bounds. Kernels with 39-bit
 * addresses (Raspberry Pi OS) give a process 512 GiB.
 */
export const lacksAddresses = (error: unknown): boolean =>
  error instanceof RangeError && /cannot allocate wasm memory|could not allocate memory/i.test(error.message);

/** Why a component cannot start. */
export const startMessage = (error: unknown): string =>
  lacksAddresses(error)
    ? "its process has no addresses left for a linear memory, of which each takes 8 GiB: see ulimit -v, and " +
      "whether the kernel has 39-bit addresses (512 GiB for a process)"
    : describeError(error);

/**
 * Bounds one report in a container's log, so that a component that traps in a loop does not push everything else out.
 */
const MAX_REPORT_MESSAGE_LENGTH = 1024;
const MAX_FRAMES = 10;
/** Names of functions are the component's own, and as long as it likes. */
const MAX_NAME_LENGTH = 120;
/** `    at name (wasm://wasm/3f2a:wasm-function[12]:0x1f)`; without a name nothing is in brackets. */
const FRAME = /^ +at (?:(.*) \()?wasm:\/\/\S*:(wasm-function\[\d+\]:0x[0-9a-f]+)\)?$/;

/**
 * The report of a trap in the container's log, as other runtimes write it: the message, and the place in the component.
 */
export function trapReport(error: unknown, message: string): string {
  const stack = (error instanceof Error && error.stack) || "";
  const frames = stack.split("\n").flatMap((line) => {
    const [, name, place] = FRAME.exec(line) ?? [];
    return place === undefined
      ? []
      : [`    at ${name === undefined ? "" : `${name.slice(0, MAX_NAME_LENGTH)} `}${place}`];
  });
  const first = `picolet: ${message.slice(0, MAX_REPORT_MESSAGE_LENGTH)}`;
  return `${[first, ...frames.slice(0, MAX_FRAMES)].join("\n")}\n`;
}
