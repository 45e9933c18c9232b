import assert from "node:assert/strict";
import type { ServerHttp2Stream } from "node:http2";
import { type TestContext, test } from "node:test";
import { millis } from "@picolet/protocol/ports.ts";
import { answer, GRPC_HEADERS, refuse, ScriptedCri } from "@picolet/test/support/unit/cri/scripted-cri.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { CONTAINERD_CALLS, CONTAINERD_EVENTS, TASK_DELETE_TOPIC, TASK_OOM_TOPIC } from "../wire/containerd-services.ts";
import { CriClient } from "../wire/cri-client.ts";
import { ContainerState, RuntimeService } from "../wire/cri-messages.ts";
import { withPrefix } from "../wire/grpc-messages.ts";
import { message, nested, string, stringMap } from "../wire/protobuf.ts";
import { LABEL } from "./labels.ts";
import { OwnedIds } from "./owned-ids.ts";
import { PodInspector } from "./pod-inspector.ts";
import { RuntimeHints } from "./runtime-hints.ts";

const Event = message("ContainerEventResponse", {
  containerId: string(1),
  podSandboxStatus: nested(4, message("PodSandboxStatus", { labels: stringMap(7) })),
});
/** A runtime that streams what the test asks for; calls are named by the last part of their path. */
async function runtime(context: TestContext, onCall: (method: string, stream: ServerHttp2Stream) => void) {
  const server = await ScriptedCri.start(onCall);
  const clock = new VirtualClock();
  const log = new RecordedLog();
  const client = new CriClient({ clock }, { endpoint: server.endpoint, requestTimeoutMs: 1_000 });
  const owned = new OwnedIds(client, "me");
  const inspector = new PodInspector({ client, owned }, { owner: "me" });
  const abort = new AbortController();
  context.after(() => {
    abort.abort();
    client[Symbol.dispose]();
    server[Symbol.dispose]();
  });
  const runtimeHints = new RuntimeHints({ client, owned, inspector, clock, log }, { owner: "me" });
  return { clock, log, hints: runtimeHints.hints(abort.signal), abort, echo: () => runtimeHints.echo(abort.signal) };
}

const unimplemented = (stream: ServerHttp2Stream): void => refuse(stream, 12);

test("where CRI streams events they become hints, those of other clients do not", async (context) => {
  const { hints } = await runtime(context, (method, stream) => {
    if (method !== "GetContainerEvents") return unimplemented(stream);
    stream.respond(GRPC_HEADERS);
    for (const [owner, uid] of [
      ["other", "theirs"],
      ["me", "mine"],
      ["me", "also-mine"],
    ] as const) {
      const labels = new Map([
        [LABEL.owner, owner],
        [LABEL.podUid, uid],
      ]);
      stream.write(withPrefix(Event.encode({ containerId: uid, podSandboxStatus: { labels } })));
    }
    return undefined;
  });
  const seen = [(await hints.next()).value, (await hints.next()).value];
  assert.deepEqual(seen, ["mine", "also-mine"]);
});

test("a runtime with no events of either kind is asked again after ten minutes, and said once to have none", async (context) => {
  const calls: string[] = [];
  const bothAsked = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const { clock, log, hints, abort } = await runtime(context, (method, stream) => {
    calls.push(method);
    unimplemented(stream);
    if (method === "GetContainerEvents") bothAsked[calls.length / 2 - 1]?.resolve();
  });
  const end = hints.next();
  await bothAsked[0]?.promise;
  while (log.entries.length === 0) await clock.settle();
  await clock.advance(millis(599_000));
  assert.deepEqual(calls, ["Subscribe", "GetContainerEvents"]);
  await clock.advance(millis(1_000));
  await bothAsked[1]?.promise;
  await clock.settle();
  assert.deepEqual(calls, ["Subscribe", "GetContainerEvents", "Subscribe", "GetContainerEvents"]);
  assert.equal(log.entries.length, 1);
  abort.abort();
  assert.equal((await end).done, true);
});

test("a stream that ends again and again is asked for at growing intervals", async (context) => {
  let calls = 0;
  const { clock, hints } = await runtime(context, (_method, stream) => {
    calls += 1;
    refuse(stream, 14);
  });
  hints.next().catch(() => undefined);
  for (let step = 0; step < 60; step += 1) {
    for (let turn = 0; turn < 20; turn += 1) await clock.settle();
    await clock.advance(millis(1_000));
  }
  assert.ok(calls > 5 && calls < 30, `${calls} calls in a minute`);
});

test("an OOM kill is hinted once it is recorded, even if its event comes after the container's end", async (context) => {
  const labels = new Map([
    [LABEL.owner, "me"],
    [LABEL.podUid, "mine"],
  ]);
  let reason = "";
  let looks = 0;
  let tell = (_topic: string): void => undefined;
  const { clock, hints } = await runtime(context, (method, stream) => {
    if (method === "Subscribe") {
      stream.respond(GRPC_HEADERS);
      tell = (topic) => {
        const value = CONTAINERD_EVENTS.TaskOOM.encode({ containerId: "c" });
        stream.write(withPrefix(CONTAINERD_CALLS.events.subscribe.response.encode({ topic, event: { value } })));
      };
      tell(TASK_DELETE_TOPIC);
      return;
    }
    if (method !== "ContainerStatus") return unimplemented(stream);
    looks += 1;
    const status = { id: "c", state: ContainerState.exited, reason, labels };
    answer(stream, RuntimeService.containerStatus.response.encode({ status }));
  });
  assert.equal((await hints.next()).value, "mine", "the end");
  tell(TASK_OOM_TOPIC);
  let hasCome = false;
  const next = hints.next().then(({ value }) => {
    hasCome = true;
    return value;
  });
  const before = looks;
  while (looks < before + 4) await clock.advance(millis(1));
  assert.equal(hasCome, false, "it would be seen as an end of its own");
  reason = "OOMKilled";
  while (!hasCome) await clock.advance(millis(1));
  assert.equal(await next, "mine");
});

test("a hint that is asked for comes back through containerd's events, and those of others are not taken for it", async (context) => {
  const subscribed = Promise.withResolvers<void>();
  let tell = (_event: { typeUrl: string; value: Uint8Array }): void => undefined;
  let sent: { topic: string; event: { typeUrl: string; value: Uint8Array } | undefined } | undefined;
  const { hints, echo, abort } = await runtime(context, (method, stream) => {
    if (method === "Publish") {
      stream.on("data", (data: Buffer) => {
        sent = CONTAINERD_CALLS.events.publish.request.decode(data.subarray(5));
        answer(stream, Buffer.alloc(0));
        tell({ typeUrl: "picolet.io/echo", value: Buffer.from("another agent's") });
      });
      return;
    }
    if (method !== "Subscribe") return unimplemented(stream);
    stream.respond(GRPC_HEADERS);
    tell = (event) =>
      stream.write(withPrefix(CONTAINERD_CALLS.events.subscribe.response.encode({ topic: "/picolet/echo", event })));
    subscribed.resolve();
  });
  assert.equal(await echo(), false, "no reader listens yet");
  const end = hints.next();
  await subscribed.promise;
  let isBack = false;
  const back = echo().then((value) => {
    isBack = true;
    return value;
  });
  while (sent === undefined) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isBack, false);
  assert.equal(sent.topic, "/picolet/echo");
  assert.ok(sent.event);
  tell(sent.event);
  assert.equal(await back, true);
  abort.abort();
  assert.equal((await end).done, true);
});
