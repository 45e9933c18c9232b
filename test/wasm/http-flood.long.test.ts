/** A served component with little memory, in a real cgroup, under more than it can serve. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { describeError } from "@picolet/protocol/errors.ts";
import { MIN_SERVED_MEMORY_LIMIT_BYTES } from "@picolet/runtime-wasm/adapter/containers/container-launch.ts";
import { fixedPort } from "../support/unit/machine/fixed-port.ts";
import { wasmBench } from "../support/wasm/wasm-bench.ts";
import type { WasmPod } from "../support/wasm/wasm-runtime.ts";

const HOST = "127.0.0.1";
const CLIENTS = 600;
const BODY = Buffer.alloc(65_536, "body");
const BODY_BYTES = 8 * 1_048_576;
/** Rounds of the flood: each of them would fill the memory if anything of it stayed. */
const ROUNDS = Number(process.env.PICOLET_FLOOD_ROUNDS ?? 3);

async function pod(
  context: TestContext,
  limitBytes: number,
): Promise<{ readonly made: WasmPod; readonly port: number }> {
  const bench = await wasmBench(context);
  const port = await fixedPort();
  const container = { ports: [{ containerPort: port }], resources: { limits: { memory: String(limitBytes) } } };
  return { port, made: await bench.pod("http-server.c", { name: "flooded", container }) };
}

/**
 * Resolves with the status that a client got, 0 for none; it sends all it can of a body, or takes nothing of its
 * response.
 */
function flooding(
  port: number,
  kind: "large body" | "takes nothing" | "pipelines",
): { readonly status: Promise<number>; readonly socket: Socket } {
  const socket = connect({ port, host: HOST });
  const status = new Promise<number>((resolve) => {
    const over = (): void => resolve(0);
    socket.once("error", over).once("close", over);
    const told = (chunk: Buffer): void => resolve(Number(/^HTTP\/1\.1 (\d+)/.exec(chunk.toString("latin1"))?.[1] ?? 0));
    socket.once("data", (chunk: Buffer) => {
      told(chunk);
      if (kind === "takes nothing") socket.pause();
    });
  });
  socket.once("connect", () => {
    if (kind === "takes nothing") socket.write("GET /count/5000000 HTTP/1.1\r\nhost: x\r\n\r\n");
    else if (kind === "pipelines") socket.write("GET /count/60000 HTTP/1.1\r\nhost: x\r\n\r\n".repeat(10));
    else {
      socket.write(`POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: ${BODY_BYTES}\r\n\r\n`);
      let left = BODY_BYTES;
      const more = (): void => {
        while (left > 0 && !socket.destroyed) {
          left -= BODY.length;
          if (!socket.write(BODY)) return;
        }
      };
      socket.on("drain", more);
      more();
    }
  });
  return { status, socket };
}

async function status(port: number): Promise<number> {
  const asked = request({ host: HOST, port, path: "/hello", agent: false });
  asked.end();
  const [message] = await once(asked, "response");
  await text(message);
  return message.statusCode;
}

test("a flood at the smallest limit ends in 503, and not in OOMKilled", async (context) => {
  const { made, port } = await pod(context, MIN_SERVED_MEMORY_LIMIT_BYTES);
  const { id } = await made.start();
  const statuses = new Map<number, number>();
  for (let round = 0; round < ROUNDS; round += 1) {
    const kinds = ["large body", "takes nothing", "pipelines"] as const;
    const clients = Array.from({ length: CLIENTS }, (_, each) =>
      flooding(port, kinds[each % kinds.length] ?? "large body"),
    );
    const got = Promise.all(clients.map((each) => each.status));
    const answered = Promise.race([got, once(AbortSignal.timeout(5000), "abort")]);
    await answered;
    for (const { socket } of clients) socket.destroy();
    for (const each of await got) statuses.set(each, (statuses.get(each) ?? 0) + 1);
  }
  const { state } = await made.container((each) => each.id === id);
  assert.equal(state.kind, "running", JSON.stringify(state));
  assert.ok((statuses.get(503) ?? 0) > 0, JSON.stringify([...statuses]));
  // Who is polite is served as before.
  assert.equal(await status(port), 200);
});

test("a limit that is too small to serve with is refused", async (context) => {
  const { made } = await pod(context, MIN_SERVED_MEMORY_LIMIT_BYTES - 1);
  await assert.rejects(made.start(), (error) =>
    /too small to serve HTTP: it takes at least \d+Mi/.test(describeError(error)),
  );
});
