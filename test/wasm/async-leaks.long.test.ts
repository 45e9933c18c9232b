/** The heap of a server by WASI 0.3 after requests and a collection. */
import assert from "node:assert/strict";
import { Agent, get } from "node:http";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { DEFAULT_HTTP_OPTIONS } from "@picolet/runtime-wasm/shared/grants/http-options.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { settledMemory } from "../support/unit/machine/held-memory.ts";
import { AsyncComponent } from "../support/wasm/async-component.ts";

const WARMING = 1_000;
const REQUESTS = 3_000;
/** 87 bytes a request; a promise that one left with another that lives on would be 300. */
const MAX_GROWTH_BYTES = 256 * 1024;
/** An instance with its stack is 1 MiB. */
const MAX_LEFT_BYTES = 2 * 1_048_576;
const CUT = 8;

const held = async (): Promise<number> => (await settledMemory()).heap + process.memoryUsage().external;

/** One after the other. */
async function asked(port: number, path: string, requests: number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  for (let request = 0; request < requests; request += 1) {
    await new Promise<void>((resolve, reject) => {
      const own = get({ port, host: "127.0.0.1", path, agent }, (message) => {
        message.on("error", reject);
        message.on("end", resolve);
        message.resume();
      });
      own.on("error", reject);
    });
  }
  agent.destroy();
}

test("thousands of requests leave nothing behind in the one instance", async () => {
  using component = await AsyncComponent.of("async-server.c");
  const port = await fixedPort();
  const server = await component.serve({ ...DEFAULT_HTTP_OPTIONS, port, instances: 1 }, () => undefined);
  try {
    // What is compiled, cached and pooled is there after these.
    await asked(port, "/", WARMING);
    const before = await held();
    await asked(port, "/", REQUESTS);
    const grown = (await held()) - before;
    assert.ok(grown < MAX_GROWTH_BYTES, `${grown} bytes more`);
  } finally {
    server.close();
  }
});

test("an instance that is thrown away while it waits leaves nothing behind", async () => {
  using component = await AsyncComponent.of("async-server.c");
  const port = await fixedPort();
  const stalled = new Map<number, Socket>();
  let cut = 0;
  let onCut: () => void = () => undefined;
  const onLog = (text: string): void => {
    assert.match(text, /the request GET "\/long" failed: no end after/);
    cut += 1;
    onCut();
  };
  const server = await component.serve({ ...DEFAULT_HTTP_OPTIONS, port, instances: 4, timeoutMs: 1 }, onLog);
  /** Clients that read nothing: the component waits for them in the middle of its writes. */
  const stall = async (clients: number): Promise<void> => {
    const wanted = cut + clients;
    const done = new Promise<void>((resolve) => {
      onCut = () => void (cut >= wanted && resolve());
    });
    for (let client = 0; client < clients; client += 1) {
      const socket = connect({ port, host: "127.0.0.1" });
      socket.on("error", () => undefined);
      socket.pause().write("GET /long HTTP/1.1\r\nhost: here\r\nx-times: 9000\r\n\r\n");
      stalled.set(stalled.size, socket);
    }
    await done;
    for (const socket of stalled.values()) socket.destroy();
    stalled.clear();
  };
  try {
    await stall(4);
    const before = await held();
    await stall(CUT);
    const left = (await held()) - before;
    assert.ok(left < MAX_LEFT_BYTES, `${CUT} instances have left ${left} bytes`);
  } finally {
    server.close();
  }
});
