/** Why a component was ended in the middle, in the words of its message. */
import { describeError } from "../../protocol/errors.ts";

/** What V8 says in the glue of how deep it was called, or of an address that the component gave to it. */
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
