import assert from "node:assert/strict";
import { test } from "node:test";
import type { IncomingStream, StreamError } from "@picolet/protocol/tunnel/stream.ts";
import type { StreamHandlers } from "../core/hub/tunnel-ports.ts";
import { handlersOnDemand } from "./handlers-on-demand.ts";

/** One that a hub opens; only what a handler needs to be found. */
function incoming(kind: IncomingStream["kind"], closed = new AbortController()) {
  const rejected = Promise.withResolvers<StreamError>();
  const stream: IncomingStream = {
    kind,
    params: {},
    closed: closed.signal,
    accept: () => assert.fail("nobody accepts it here"),
    reject: (error) => rejected.resolve(error),
  };
  return { stream, closed, rejected: rejected.promise };
}

test("each kind of stream reaches its own handler, once that is loaded", async () => {
  const seen: string[] = [];
  const all = Promise.withResolvers<void>();
  const kinds = ["logs", "exec", "attach", "portForward", "kubelet"] as const;
  const loaded: StreamHandlers = Object.fromEntries(
    kinds.map((kind) => [
      kind,
      ({ kind: of }: IncomingStream) => {
        seen.push(`${kind} ${of}`);
        if (seen.length === kinds.length) all.resolve();
      },
    ]),
  );
  const handlers = handlersOnDemand(async () => loaded);
  for (const kind of kinds) handlers[kind]?.(incoming(kind).stream);
  assert.deepEqual(seen, [], "not before");
  await all.promise;
  assert.deepEqual(
    seen,
    kinds.map((kind) => `${kind} ${kind}`),
  );
});

test("a stream whose handler cannot be loaded is rejected with the reason, and the next one is tried again", async () => {
  let loads = 0;
  const handlers = handlersOnDemand(async () => {
    loads += 1;
    throw new Error("the file is gone");
  });
  for (let count = 1; count <= 2; count += 1) {
    const { stream, rejected } = incoming("logs");
    handlers.logs?.(stream);
    assert.deepEqual(await rejected, { code: "internal", message: "the file is gone" });
    assert.equal(loads, count);
  }
});
