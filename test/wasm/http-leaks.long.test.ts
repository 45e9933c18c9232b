/**
 * The short form of `npm run soak -- --what http`: what requests leave on the server's heap after a collection.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { serveComponent } from "@picolet/runtime-wasm/shared/component/serve-component.ts";
import { DEFAULT_HTTP_OPTIONS } from "@picolet/runtime-wasm/shared/grants/http-options.ts";
import { LoopWaiter } from "@picolet/runtime-wasm/shared/resources/event-loop.ts";
import { httpLoad } from "../bench/wasm/http-load.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { settledMemory } from "../support/unit/machine/held-memory.ts";
import { loadedComponent } from "../support/wasm/loaded-component.ts";

const REQUESTS = 20_000;
/** A request that left a byte of a word each time would leave 160 KB. */
const MAX_GROWTH_BYTES = 128 * 1024;

const held = async (): Promise<number> => (await settledMemory()).heap + process.memoryUsage().external;

test("twenty thousand requests leave nothing behind", async () => {
  const instantiate = await loadedComponent("http-server.c");
  const port = await fixedPort();
  const after = (milliseconds: number, act: () => void): (() => void) => {
    const timer = setTimeout(act, milliseconds);
    return () => clearTimeout(timer);
  };
  const loop = new LoopWaiter({ now: () => process.hrtime.bigint(), after });
  const host = {
    waiter: loop,
    wallNow: Date.now,
    log: { write: () => undefined, flushUnfinished: () => undefined },
    beforeWait: () => undefined,
    exit: (code: number): never => {
      throw new Error(`exit ${code}`);
    },
  };
  const onBroken = (error: unknown): never => {
    throw error;
  };
  const end = await serveComponent(
    { instantiate, loop, host, outgoing: undefined, onBroken },
    { args: [], env: [], workingDir: undefined, preopens: [] },
    // How many instances there are, and what each has met, would be by chance.
    { ...DEFAULT_HTTP_OPTIONS, port, instances: 1 },
  );
  try {
    const asked = (path: string, requests: number): Promise<number> =>
      httpLoad({ port, path, connections: 8, requests });
    // What is compiled, cached and pooled is there after these.
    await asked("/hello", REQUESTS);
    await asked("/count/100000", 400);
    const before = await held();
    await asked("/hello", REQUESTS);
    await asked("/count/100000", 400);
    const grown = (await held()) - before;
    assert.ok(grown < MAX_GROWTH_BYTES, `${grown} bytes more`);
  } finally {
    end();
  }
});
