import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
// Source and bytecode of what has not run for a while would go at some collection: megabytes less, by chance.
setFlagsFromString("--no-flush-bytecode");
const collect: () => void = runInNewContext("gc");

/**
 * Bytes this process still holds once everything that nothing refers to is gone. Buffers are freed by a thread of V8's
 * own after a collection, and the next collection waits for it: hence two.
 */
export function heldMemory(): { readonly heap: number; readonly buffers: number } {
  collect();
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return { heap: heapUsed, buffers: arrayBuffers };
}

/**
 * The same after some turns of the event loop: the test runner follows every promise, and releases those collected
 * later.
 */
export async function settledMemory(): Promise<{ readonly heap: number; readonly buffers: number }> {
  for (let turn = 0; turn < 5; turn += 1) {
    heldMemory();
    await new Promise((resolve) => void setImmediate(resolve));
  }
  return heldMemory();
}
