import assert from "node:assert/strict";
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { StatusAnswer } from "@picolet/protocol/local-api/status.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import {
  agentPod,
  FakeAgentView,
  imageStore,
  NOW_MS,
  observedContainer,
} from "@picolet/test/support/unit/agent/fake-agent-view.ts";
import { heldMemory } from "@picolet/test/support/unit/machine/held-memory.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import type { NodeShutdownControl } from "../core/node/node-shutdown-control.ts";
import type { PushedPods } from "../core/pods/pushed-pods.ts";
import { LocalApi, MAX_CONNECTIONS, MAX_STREAMS } from "./local-api.ts";
import { MAX_BODY_BYTES, MAX_PUSH_BYTES } from "./request-input.ts";

interface Reply {
  readonly status: number;
  readonly message: IncomingMessage;
}

class FakeShutdown implements NodeShutdownControl {
  isShuttingDown = false;
  failure: Error | undefined;

  async begin(why: string): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    this.isShuttingDown = why === "edgectl";
  }

  async cancel(): Promise<void> {
    this.isShuttingDown = false;
  }
}

class Bench {
  readonly view = new FakeAgentView();
  readonly log = new RecordedLog();
  readonly dir = mkdtempSync(join(tmpdir(), "picolet-api-"));
  readonly socketPath = join(this.dir, "picolet.sock");
  onPush: PushedPods["replace"] = (_text, { dryRun }) => ({ ok: true, answer: { dryRun, items: [] } });
  readonly shutdown = new FakeShutdown();
  readonly removed: string[] = [];
  /** Takes a pod of a session. */
  onAdd: (text: string) => ReturnType<PushedPods["add"]> = () => ({ ok: true, answer: { dryRun: false, items: [] } });
  /** Resolves when a pod is removed. */
  readonly removal = Promise.withResolvers<string>();
  readonly ended: unknown[] = [];
  readonly restarted: unknown[] = [];
  readonly controller = new AbortController();
  readonly api = new LocalApi(
    {
      clock: new VirtualClock(NOW_MS),
      log: this.log,
      view: this.view,
      logs: this.view.logs,
      pushed: {
        replace: (text, options) => this.onPush(text, options),
        add: (text) => this.onAdd(text),
        remove: async (uid) => {
          this.removed.push(uid);
          this.removal.resolve(uid);
        },
      },
      workers: {
        end: async (uid, how) => void this.ended.push([uid, how.reason, how.gracePeriod]),
        leave: async (uid, how) => void this.restarted.push([uid, how.comesBack, how.gracePeriod]),
      },
      shutdown: this.shutdown,
    },
    { socketPath: this.socketPath },
  );
  readonly running: Promise<void> = endOfRun(this.api.run(this.controller.signal));
  readonly #agent = new Agent({ keepAlive: false, maxSockets: Number.POSITIVE_INFINITY });

  static async start(t: TestContext): Promise<Bench> {
    const bench = new Bench();
    t.after(async () => {
      bench.controller.abort();
      await bench.running;
      rmSync(bench.dir, { recursive: true });
    });
    await bench.api.listen();
    return bench;
  }

  open(path: string, options: { method?: string; body?: string | Buffer } = {}): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const { method = "GET", body } = options;
      const sent = httpRequest({ socketPath: this.socketPath, path, method, agent: this.#agent }, (message) =>
        resolve({ status: message.statusCode ?? 0, message }),
      );
      sent.on("error", reject);
      sent.end(body);
    });
  }

  async text(path: string, options: { method?: string; body?: string | Buffer } = {}): Promise<[number, string]> {
    const { status, message } = await this.open(path, options);
    let text = "";
    for await (const chunk of message.setEncoding("utf8")) text += chunk;
    return [status, text];
  }

  async json(
    path: string,
    options: { method?: string; body?: string } = {},
  ): Promise<[number, Record<string, unknown>]> {
    const [status, text] = await this.text(path, options);
    return [status, JSON.parse(text) as Record<string, unknown>];
  }

  async error(path: string, options: { method?: string; body?: string } = {}): Promise<[number, string, string]> {
    const [status, body] = await this.json(path, options);
    const { code, message } = body.error as { code: string; message: string };
    return [status, code, message];
  }

  /** A pod `name` with one container whose log has `lines`. */
  loggingPod(name: string, lines: readonly string[], namespace = "default") {
    const logDirectory = join(this.dir, `${namespace}_${name}`);
    const path = join(logDirectory, "app", "0.log");
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, lines.map((each) => `2026-11-20T11:59:00Z stdout F ${each}\n`).join(""));
    const make = (state?: "exited") =>
      agentPod(podOf({}, { name, namespace }), {
        logDirectory,
        containers: [
          observedContainer(
            "app",
            0,
            path,
            state && { kind: "exited", startedAtMs: 0, finishedAtMs: 1, exitCode: 0, reason: "Completed", message: "" },
          ),
        ],
      });
    return { path, running: make(), ended: make("exited") };
  }
}

/** Lines of a stream as they come. */
async function* jsonLines(message: IncomingMessage): AsyncGenerator<Record<string, unknown>> {
  let rest = "";
  for await (const chunk of message.setEncoding("utf8") as AsyncIterable<string>) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line) as Record<string, unknown>;
  }
}

test("status has the stable shape", async (t) => {
  const bench = await Bench.start(t);
  bench.view.setPods(
    agentPod(podOf({}, { name: "web-edge-1" }), {
      status: { phase: "Running", conditions: [{ type: "Ready", status: "True" }] },
    }),
  );
  const [code, status] = await bench.json("/v1/status");
  assert.equal(code, 200);
  assert.deepEqual(Object.keys(status), [
    "node",
    "ready",
    "conditions",
    "runtimes",
    "tunnel",
    "pods",
    "resources",
    "agent",
    "flash",
    "telemetry",
    "secretsAtRest",
    "problems",
    "warnings",
    "health",
  ]);
  assert.equal(status.ready, true);
  assert.deepEqual(status.tunnel, { state: "disabled", since: null, rttMs: null });
});

test("a pod that the node ends is a fault from the decision on, also while it is ready", async (t) => {
  const bench = await Bench.start(t);
  const ready = { phase: "Running", conditions: [{ type: "Ready", status: "True" }] } as const;
  const status = { ...ready, reason: "Preempting", message: "Pod was preempted." };
  const failing = agentPod(podOf({}, { name: "low" }), { status, endsAs: "Failed" });
  bench.view.setPods(agentPod(podOf({}, { name: "web" }), { status: ready }), failing);
  const [, answer] = await bench.json("/v1/status");
  const { pods, health } = answer as unknown as StatusAnswer;
  assert.deepEqual(
    pods.map(({ name, isWell, message }) => [name, isWell, message]),
    [
      ["low", false, "Preempting: Pod was preempted."],
      ["web", true, ""],
    ],
  );
  assert.equal(health.summary, "degraded: 1 of 2 pods not ready");
});

test("lists of pods and events have Kubernetes' shape and honour their filters", async (t) => {
  const bench = await Bench.start(t);
  bench.view.setPods(
    agentPod(podOf({}, { name: "b" })),
    agentPod(podOf({}, { name: "a" }), { terminatingSinceMs: NOW_MS }),
    agentPod(podOf({}, { name: "c", namespace: "other" })),
  );
  const names = async (path: string): Promise<unknown> => {
    const [, list] = await bench.json(path);
    assert.equal(list.kind, "PodList");
    return (list.items as { metadata: { name: string } }[]).map((each) => each.metadata.name);
  };
  assert.deepEqual(await names("/v1/pods"), ["a", "b", "c"]);
  assert.deepEqual(await names("/v1/namespaces/other/pods"), ["c"]);
  assert.deepEqual(await names("/v1/namespaces/none/pods"), []);
  const [, pod] = await bench.json("/v1/namespaces/default/pods/a");
  const metadata = pod.metadata as Record<string, unknown>;
  assert.equal(metadata.deletionTimestamp, "2026-11-20T12:00:00Z");
  assert.deepEqual(metadata.annotations, { "kubernetes.io/config.source": "file" });
  assert.deepEqual(pod.status, { phase: "Pending" });

  const regarding = { kind: "Pod" as const, namespace: "default", name: "b", uid: "b-uid", fieldPath: "" };
  bench.view.events.add({ regarding, type: "Normal", reason: "Pulled", message: "one" }, 60);
  bench.view.events.add({
    regarding: { ...regarding, name: "gone" },
    type: "Warning",
    reason: "Failed",
    message: "two",
  });
  const messages = async (path: string): Promise<unknown> =>
    ((await bench.json(path))[1].items as { message: string }[]).map((each) => each.message);
  assert.deepEqual(await messages("/v1/events"), ["one", "two"]);
  assert.deepEqual(await messages("/v1/events?limit=1"), ["two"]);
  assert.deepEqual(await messages("/v1/events?limit=0"), []);
  assert.deepEqual(await messages("/v1/events?pod=b"), ["one"]);
  assert.deepEqual(await messages("/v1/events?pod=gone&namespace=-"), ["two"], "events outlive their pods");
  assert.deepEqual(await messages("/v1/events?namespace=other"), []);
});

test("a pod is found by its name, by a static pod's short name, and in any namespace when only one has it", async (t) => {
  const bench = await Bench.start(t);
  bench.view.setPods(
    agentPod(podOf({}, { name: "web-edge-1" })),
    agentPod(podOf({}, { name: "dns", namespace: "kube-system" })),
    agentPod(podOf({}, { name: "twice", namespace: "a" })),
    agentPod(podOf({}, { name: "twice", namespace: "b" })),
    agentPod(podOf({}, { name: "here", namespace: "a" })),
    agentPod(podOf({}, { name: "here" })),
  );
  const found = async (path: string): Promise<string> => {
    const [code, pod] = await bench.json(path);
    if (code !== 200) return `${code} ${(pod.error as { message: string }).message}`;
    const { namespace, name } = pod.metadata as { namespace: string; name: string };
    return `${namespace}/${name}`;
  };
  assert.equal(await found("/v1/namespaces/-/pods/web"), "default/web-edge-1");
  assert.equal(await found("/v1/namespaces/default/pods/web-edge-1"), "default/web-edge-1");
  assert.equal(await found("/v1/namespaces/-/pods/dns"), "kube-system/dns");
  assert.equal(await found("/v1/namespaces/default/pods/dns"), '404 pod "dns" not found in namespace "default"');
  assert.equal(await found("/v1/namespaces/-/pods/twice"), '409 pod name "twice" is ambiguous: a/twice, b/twice');
  assert.equal(await found("/v1/namespaces/b/pods/twice"), "b/twice");
  assert.equal(await found("/v1/namespaces/-/pods/here"), "default/here");
  assert.equal(await found("/v1/namespaces/-/pods/none"), '404 pod "none" not found');
});

test("a watch of pods reports each once, its changes and its end", async (t) => {
  const bench = await Bench.start(t);
  const web = podOf({}, { name: "web" });
  bench.view.setPods(agentPod(web));
  const lines = jsonLines((await bench.open("/v1/pods?watch=true")).message);
  const next = async (): Promise<string> => {
    const { type, object } = (await lines.next()).value as { type: string; object: { status: { phase: string } } };
    return `${type} ${object.status.phase}`;
  };
  assert.equal(await next(), "ADDED Pending");
  bench.view.setPods(agentPod(web), agentPod(podOf({}, { name: "b" }), { status: { phase: "Running" } }));
  assert.equal(await next(), "ADDED Running");
  bench.view.setPods(agentPod(web, { status: { phase: "Failed" } }));
  assert.equal(await next(), "MODIFIED Failed");
  assert.equal(await next(), "DELETED Running");
});

test("a pod of a session is removed with its client's connection, however that ends", async (t) => {
  const bench = await Bench.start(t);
  const web = podOf({}, { name: "web" });
  const item = { namespace: "default", name: "web", uid: "web-uid", change: "created" } as const;
  bench.onAdd = (text) => ({ ok: true, answer: { dryRun: false, items: text === "none" ? [] : [item] } });
  assert.deepEqual(await bench.error("/v1/session-pods", { method: "POST", body: "none" }), [
    400,
    "invalid",
    "there is no pod in the body",
  ]);
  bench.view.setPods(agentPod(podOf({}, { name: "other" })));
  const { message } = await bench.open("/v1/session-pods", { method: "POST", body: "a pod" });
  const lines = jsonLines(message);
  bench.view.setPods(agentPod(web), agentPod(podOf({}, { name: "other" })));
  assert.deepEqual(((await lines.next()).value as { type: string }).type, "ADDED");
  bench.view.setPods(agentPod(web, { status: { phase: "Running" } }));
  assert.deepEqual(((await lines.next()).value as { type: string }).type, "MODIFIED");
  assert.deepEqual(bench.removed, []);
  message.destroy();
  assert.equal(await bench.removal.promise, "web-uid");
});

test("the states of a session's pod end when it is gone", async (t) => {
  const bench = await Bench.start(t);
  const item = { namespace: "default", name: "web", uid: "web-uid", change: "created" } as const;
  bench.onAdd = () => ({ ok: true, answer: { dryRun: false, items: [item] } });
  bench.view.setPods(agentPod(podOf({}, { name: "web" })));
  const lines = jsonLines((await bench.open("/v1/session-pods", { method: "POST", body: "a pod" })).message);
  assert.equal((await lines.next()).done, false);
  bench.view.setPods();
  assert.equal((await lines.next()).done, true);
});

test("a watch of events reports the latest first, then new and repeated ones", async (t) => {
  const bench = await Bench.start(t);
  const regarding = { kind: "Pod" as const, namespace: "default", name: "b", uid: "b-uid", fieldPath: "" };
  const add = (message: string): void =>
    bench.view.events.add({ regarding, type: "Normal", reason: "Pulled", message });
  add("one");
  add("two");
  const lines = jsonLines((await bench.open("/v1/events?watch=true&limit=1")).message);
  const next = async (): Promise<string> => {
    const { type, object } = (await lines.next()).value as { type: string; object: { message: string; count: number } };
    return `${type} ${object.message} ${object.count}`;
  };
  assert.equal(await next(), "ADDED two 1");
  add("three");
  assert.equal(await next(), "ADDED three 1");
  bench.view.events.again("one");
  assert.equal(await next(), "MODIFIED one 2");
});

test("a watch that fails says so in its last line", async (t) => {
  const bench = await Bench.start(t);
  const lines = jsonLines((await bench.open("/v1/events?watch=true")).message);
  bench.view.events.list = () => {
    throw new PicoletError("corrupt", "cannot read the events");
  };
  bench.view.events.latest.set(1);
  assert.deepEqual((await lines.next()).value, {
    type: "ERROR",
    error: { code: "corrupt", message: "cannot read the events" },
  });
  assert.equal((await lines.next()).done, true);
});

test("logs: text, tail, errors in the head, and which container is meant", async (t) => {
  const bench = await Bench.start(t);
  const { running, path } = bench.loggingPod("web", ["a", "b"]);
  const two = podOf(
    {
      containers: [
        { name: "app", image: "x" },
        { name: "side", image: "x" },
      ],
    },
    { name: "two" },
  );
  bench.view.setPods(running, agentPod(two, { containers: [observedContainer("app", 0, path)] }));
  const base = "/v1/namespaces/-/pods";
  assert.deepEqual(await bench.text(`${base}/web/log`), [200, "a\nb\n"]);
  assert.deepEqual(await bench.text(`${base}/web/log?tailLines=1&container=app`), [200, "b\n"]);
  assert.deepEqual(await bench.text(`${base}/web/log?sinceSeconds=59`), [200, ""]);
  assert.deepEqual(await bench.text(`${base}/web/log?sinceSeconds=60&timestamps=true&tailLines=1`), [
    200,
    "2026-11-20T11:59:00Z b\n",
  ]);
  const { message } = await bench.open(`${base}/two/log`);
  message.resume();
  assert.equal(message.headers["picolet-notice"], 'Defaulted container "app" out of: app, side');
  assert.deepEqual(await bench.error(`${base}/two/log?container=side`), [
    503,
    "unavailable",
    'container "side" in pod "two" is waiting to start: ContainerCreating',
  ]);
  assert.deepEqual(await bench.error(`${base}/web/log?container=none`), [
    400,
    "invalid",
    "container none is not valid for pod web",
  ]);
  assert.deepEqual(await bench.error(`${base}/web/log?previous=true`), [
    404,
    "not_found",
    'previous terminated container "app" in pod "web" not found',
  ]);
  rmSync(path);
  assert.deepEqual(await bench.error(`${base}/web/log`), [404, "not_found", "there is no log yet"]);
});

test("the previous log is that of lastState, also while the container waits for its restart", async (t) => {
  const bench = await Bench.start(t);
  const { path, running } = bench.loggingPod("web", ["run 0"]);
  writeFileSync(join(dirname(path), "1.log"), "2026-11-20T11:59:00Z stdout F run 1\n");
  const exited = {
    kind: "exited",
    startedAtMs: 0,
    finishedAtMs: 1,
    exitCode: 1,
    reason: "Error",
    message: "",
  } as const;
  const containers = [observedContainer("app", 1, join(dirname(path), "1.log"), exited)];
  const container = { name: "app", ready: false, restartCount: 1, image: "x", imageID: "" };
  const lastState = { terminated: { exitCode: 1 } };
  const waits = { ...container, state: { waiting: { reason: "CrashLoopBackOff" } }, lastState };
  const runs = { ...container, state: { running: {} }, lastState };
  const log = "/v1/namespaces/-/pods/web/log";
  bench.view.setPods({ ...running, containers, status: { phase: "Running", containerStatuses: [waits] } });
  assert.deepEqual(await bench.text(`${log}?previous=true`), [200, "run 1\n"]);
  assert.deepEqual(await bench.text(log), [200, "run 1\n"]);
  bench.view.setPods({ ...running, containers, status: { phase: "Running", containerStatuses: [runs] } });
  assert.deepEqual(await bench.text(`${log}?previous=true`), [200, "run 0\n"]);
});

test("logs are there while the runtime cannot be asked", async (t) => {
  const bench = await Bench.start(t);
  const { path, running } = bench.loggingPod("web", ["run 0"]);
  writeFileSync(join(dirname(path), "1.log"), "2026-11-20T11:59:00Z stdout F run 1\n");
  bench.view.setPods({ ...running, containers: [] });
  assert.deepEqual(await bench.text("/v1/namespaces/-/pods/web/log"), [200, "run 1\n"]);
});

test("a followed log goes on with what is written and ends with its container", async (t) => {
  const bench = await Bench.start(t);
  const { path, running, ended } = bench.loggingPod("web", ["a"]);
  bench.view.setPods(running);
  const { message } = await bench.open("/v1/namespaces/-/pods/web/log?follow=true");
  const chunks = message.setEncoding("utf8")[Symbol.asyncIterator]();
  assert.equal((await chunks.next()).value, "a\n");
  appendFileSync(path, "2026-11-20T11:59:00Z stdout F b\n");
  assert.equal((await chunks.next()).value, "b\n");
  bench.view.setPods(ended);
  assert.equal((await chunks.next()).done, true);
});

test("a reader that takes nothing holds no more than one chunk and its socket", async (t) => {
  const bench = await Bench.start(t);
  const { running } = bench.loggingPod(
    "web",
    Array.from({ length: 64 }, () => "x".repeat(1 << 20)),
  );
  bench.view.setPods(running);
  const { message } = await bench.open("/v1/namespaces/-/pods/web/log");
  await new Promise((resolve) => message.once("readable", resolve));
  const held = heldMemory().buffers;
  for (let turn = 0; turn < 3000; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(heldMemory().buffers - held < 4 << 20);
  let size = 0;
  for await (const chunk of message) size += (chunk as Buffer).length;
  assert.equal(size, 64 * ((1 << 20) + 1));
});

test("images of all runtimes are listed; one that fails is named", async (t) => {
  const bench = await Bench.start(t);
  const image = { id: "sha256:1", tags: ["a:1"], digests: [], sizeBytes: 5, pinned: false };
  const broken = imageStore("cri", [], ".tar");
  broken.images.list = async () => {
    throw new PicoletError("unavailable", "cannot list images", { cause: new Error("ECONNREFUSED") });
  };
  bench.view.stores = [broken, imageStore("wasm", [image], ".wasm")];
  assert.deepEqual(await bench.json("/v1/images"), [
    200,
    {
      items: [{ runtime: "wasm", ...image }],
      problems: [{ runtime: "cri", message: "cannot list images: ECONNREFUSED" }],
      pulls: [],
      prefetches: [],
      pinned: [],
    },
  ]);
});

test("an import goes to the first runtime that takes the file", async (t) => {
  const bench = await Bench.start(t);
  bench.view.stores = [imageStore("cri", [], ".tar"), imageStore("wasm", [], ".wasm")];
  const post = (body: unknown) => ({ method: "POST", body: JSON.stringify(body) });
  const [code, answer] = await bench.json("/v1/images/import", post({ path: "/x.wasm", name: "hello:1" }));
  assert.equal(code, 200);
  assert.deepEqual(
    (answer.items as { runtime: string; tags: string[] }[]).map((e) => [e.runtime, ...e.tags]),
    [["wasm", "hello:1"]],
  );
  assert.deepEqual(await bench.error("/v1/images/import", post({ path: "/x.zip" })), [
    501,
    "unimplemented",
    "cannot import /x.zip: cri: not a .tar file; wasm: not a .wasm file",
  ]);
  bench.view.stores = [];
  assert.deepEqual(await bench.error("/v1/images/import", post({ path: "/x" })), [
    501,
    "unimplemented",
    "cannot import /x: this node has no runtime",
  ]);
});

for (const [path, options, status, code] of [
  ["/", {}, 404, "not_found"],
  ["/v2/status", {}, 404, "not_found"],
  ["/v1", {}, 404, "not_found"],
  ["/v1/status/", {}, 404, "not_found"],
  ["/v1/status", { method: "POST" }, 501, "unimplemented"],
  ["/v1/status?x=1", {}, 400, "invalid"],
  ["/v1/pods?watch=maybe", {}, 400, "invalid"],
  ["/v1/pods?watch=1&watch=1", {}, 400, "invalid"],
  ["/v1/namespaces/%zz/pods", {}, 400, "invalid"],
  ["/v1/events?limit=-1", {}, 400, "invalid"],
  ["/v1/events?limit=1e3", {}, 400, "invalid"],
  ["/v1/namespaces/-/pods/x/log?sinceTime=yesterday", {}, 400, "invalid"],
  ["/v1/namespaces/-/pods/x/log?stream=stdin", {}, 400, "invalid"],
  ["/v1/namespaces/-/pods/x/log?stream=Stderr&tailLines=1", {}, 400, "invalid"],
  ["/v1/namespaces/-/pods/x/log?sinceTime=2026-11-20T12:00:00Z&sinceSeconds=1", {}, 400, "invalid"],
  ["/v1/session-pods?x=1", { method: "POST", body: "{}" }, 400, "invalid"],
  ["/v1/session-pods", { method: "POST", body: "x".repeat(MAX_PUSH_BYTES + 1) }, 429, "resource_exhausted"],
  ["/v1/images/import", { method: "POST", body: "{" }, 400, "invalid"],
  ["/v1/images/import", { method: "POST", body: "[]" }, 400, "invalid"],
  ["/v1/images/import", { method: "POST", body: '{"path":"relative"}' }, 400, "invalid"],
  ["/v1/images/import", { method: "POST", body: '{"path":"/a\\u0000"}' }, 400, "invalid"],
  ["/v1/images/import", { method: "POST", body: '{"path":"/a","name":""}' }, 400, "invalid"],
  ["/v1/images/import", { method: "POST", body: '{"path":"/a","nmae":"x"}' }, 400, "invalid"],
  ["/v1/images/import", { method: "POST", body: "x".repeat(MAX_BODY_BYTES + 1) }, 429, "resource_exhausted"],
  [`/v1/${"x".repeat(9000)}`, {}, 431, "invalid"],
] as const) {
  test(`refused: ${JSON.stringify(options).slice(0, 60)} ${path.slice(0, 60)}`, async (t) => {
    const bench = await Bench.start(t);
    assert.deepEqual((await bench.error(path, options)).slice(0, 2), [status, code]);
  });
}

test("pods that are sent are handed on as they came; what is wrong with them comes back", async (t) => {
  const bench = await Bench.start(t);
  const sent: unknown[] = [];
  const taken = bench.onPush;
  bench.onPush = (text, options) => {
    sent.push([text, options]);
    return taken(text, options);
  };
  const put = (body: string, query = "") => bench.json(`/v1/pushed-pods${query}`, { method: "PUT", body });
  assert.deepEqual(await put("kind: Pöd\n"), [200, { dryRun: false, items: [] }]);
  assert.deepEqual(await put("", "?dryRun=true"), [200, { dryRun: true, items: [] }]);
  assert.deepEqual(sent, [
    ["kind: Pöd\n", { dryRun: false }],
    ["", { dryRun: true }],
  ]);
  bench.onPush = () => ({ ok: false, problems: [{ line: 3, message: "spec: Required value" }] });
  assert.deepEqual(await put("x"), [
    400,
    {
      error: { code: "invalid", message: "1 problem; nothing has been changed" },
      problems: [{ line: 3, message: "spec: Required value" }],
    },
  ]);
  bench.onPush = () => {
    throw new PicoletError("resource_exhausted", "cannot store the pods", { retryable: true });
  };
  assert.deepEqual((await bench.error("/v1/pushed-pods", { method: "PUT", body: "x" })).slice(0, 2), [
    429,
    "resource_exhausted",
  ]);
  const [status, code] = await bench.error("/v1/pushed-pods", { method: "PUT", body: "x".repeat(MAX_PUSH_BYTES + 1) });
  assert.deepEqual([status, code], [429, "resource_exhausted"]);
  assert.equal((await bench.error("/v1/pushed-pods?force=1", { method: "PUT", body: "" }))[0], 400);
  assert.equal((await bench.error("/v1/pushed-pods"))[0], 501);
});

test("the node is shut down, and comes back", async (t) => {
  const bench = await Bench.start(t);
  const path = "/v1/node/shutdown";
  const post = (body: string) => bench.json(path, { method: "POST", body });
  const node = bench.view.node().name;
  assert.deepEqual(await post("{}"), [200, { node, shutDown: true }]);
  assert.deepEqual(await post('{"cancel": true}'), [200, { node, shutDown: false }]);
  assert.deepEqual(await post('{"gracePeriodSeconds": 60}'), [200, { node, shutDown: true }]);
  const times = [0, -1, 1.5, 86_401, "60", null].map((each) => JSON.stringify({ gracePeriodSeconds: each }));
  for (const body of ["[]", '{"cancel": 1}', '{"force": true}', ...times]) {
    assert.deepEqual((await bench.error(path, { method: "POST", body })).slice(0, 2), [400, "invalid"], body);
  }
  bench.shutdown.failure = new PicoletError("conflict", "shutdownGracePeriod is 0");
  assert.deepEqual((await bench.error(path, { method: "POST", body: "{}" })).slice(0, 2), [409, "conflict"]);
});

test("a factory reset is for agents that can, and takes no parameters", async (t) => {
  const bench = await Bench.start(t);
  const path = "/v1/node/factory-reset";
  assert.deepEqual((await bench.error(path, { method: "POST" })).slice(0, 2), [501, "unimplemented"]);
  assert.equal((await bench.error(`${path}?force=1`, { method: "POST" }))[0], 400);
  assert.equal((await bench.error(path))[0], 501);
});

test("the configuration in use is reported with its origins", async (t) => {
  const bench = await Bench.start(t);
  assert.deepEqual(await bench.json("/v1/config"), [200, bench.view.configAnswer]);
  assert.deepEqual((await bench.error("/v1/config?all=1")).slice(0, 2), [400, "invalid"]);
});

test("a fault of our own is answered, logged, and harms no later request", async (t) => {
  const bench = await Bench.start(t);
  bench.view.tunnel = () => {
    throw new TypeError("x is undefined");
  };
  assert.deepEqual(await bench.error("/v1/status"), [500, "internal", "x is undefined"]);
  assert.deepEqual(bench.log.problems, ["cannot answer a request"]);
  assert.equal((await bench.json("/v1/version"))[0], 200);
});

test("when too many clients follow something, a further one is refused, and status still answers", async (t) => {
  const bench = await Bench.start(t);
  for (let n = 0; n < MAX_STREAMS; n += 1) await bench.open("/v1/pods?watch=true");
  assert.deepEqual((await bench.error("/v1/events?watch=true")).slice(0, 2), [429, "resource_exhausted"]);
  assert.equal((await bench.json("/v1/status"))[0], 200);
});

test("streams whose clients left make room again", async (t) => {
  const bench = await Bench.start(t);
  for (let n = 0; n < MAX_STREAMS + 3; n += 1) {
    const { message, status } = await bench.open("/v1/pods?watch=true");
    assert.equal(status, 200);
    message.destroy();
    await new Promise((resolve) => message.once("close", resolve));
    assert.equal((await bench.json("/v1/version"))[0], 200);
  }
});

test("a connection too many is closed at once, the others live on", async (t) => {
  const bench = await Bench.start(t);
  const sockets = await Promise.all(
    Array.from({ length: MAX_CONNECTIONS }, async () => {
      const socket = connect(bench.socketPath);
      await new Promise((resolve) => socket.once("connect", resolve));
      return socket;
    }),
  );
  const extra = connect(bench.socketPath);
  await new Promise((resolve) => extra.once("close", resolve));
  for (const socket of sockets) socket.destroy();
  for (;;) {
    const answer = await bench.json("/v1/version").catch(() => undefined);
    if (answer !== undefined) break;
  }
});

test("an ending agent ends its streams and takes its socket away", async (t) => {
  const bench = await Bench.start(t);
  const { running } = bench.loggingPod("web", ["a"]);
  bench.view.setPods(running);
  const { message } = await bench.open("/v1/namespaces/-/pods/web/log?follow=true");
  const closed = new Promise((resolve) => message.once("close", resolve));
  message.on("error", () => {});
  message.resume();
  bench.controller.abort();
  await bench.running;
  await closed;
  assert.ok(!existsSync(bench.socketPath));
  await bench.api[Symbol.asyncDispose]();
});

test("a second agent on the same socket is refused", async (t) => {
  const bench = await Bench.start(t);
  const second = new LocalApi(
    { clock: new VirtualClock(), log: bench.log, view: bench.view, logs: bench.view.logs },
    { socketPath: bench.socketPath },
  );
  await assert.rejects(second.run(bench.controller.signal), (error) => isPicoletError(error, "conflict"));
  await second[Symbol.asyncDispose]();
  assert.equal((await bench.json("/v1/version"))[0], 200);
});

test("to any bytes the agent answers or closes, and goes on", async (t) => {
  const bench = await Bench.start(t);
  bench.view.setPods(bench.loggingPod("web", ["a"]).ended);
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes).toString("latin1")),
    fc.constantFrom(
      "GET /v1/status HTTP/1.1\r\n",
      "GET /v1/namespaces/-/pods/web/log?follow=true HTTP/1.1\r\n",
      "POST /v1/images/import HTTP/1.1\r\n",
      "Host: picolet\r\n",
      "Content-Length: 5\r\n",
      "Content-Length: -1\r\n",
      "Transfer-Encoding: chunked\r\n",
      "Upgrade: websocket\r\nConnection: Upgrade\r\n",
      "Expect: 100-continue\r\n",
      "\r\n",
      "5\r\nhello\r\n0\r\n\r\n",
      '{"path":"/a"}',
    ),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(piece, { maxLength: 8 }), async (pieces) => {
      await new Promise<void>((resolve) => {
        const socket = connect(bench.socketPath);
        socket.on("error", () => {});
        socket.once("close", () => resolve());
        socket.resume();
        socket.end(Buffer.from(pieces.join(""), "latin1"));
      });
      assert.equal((await bench.json("/v1/version"))[0], 200);
    }),
    { numRuns: 150 },
  );
  assert.deepEqual(bench.log.problems, []);
});

test("a pod is restarted; deleted it is by what its source means", async (t) => {
  const bench = await Bench.start(t);
  const of = (name: string, source: "file" | "push" | "api", status?: PodStatus) =>
    agentPod(podOf({}, { name }), { source, ...(status && { status }) });
  const over = of("done", "api", { phase: "Failed", reason: "Evicted" });
  bench.view.setPods(of("static", "file"), of("sent", "push"), of("ordered", "api"), over);
  const path = (name: string, rest = ""): string => `/v1/namespaces/default/pods/${name}${rest}`;
  const restart = (name: string) => bench.json(path(name, "/restart?gracePeriodSeconds=3"), { method: "POST" });
  const restarted = { namespace: "default", name: "static", source: "file", change: "restarted" };
  assert.deepEqual(await restart("static"), [200, restarted]);
  assert.deepEqual(bench.restarted, [["static-uid", true, 3000]]);
  const remove = (name: string, query = "") => bench.json(path(name, query), { method: "DELETE" });
  assert.equal((await remove("sent"))[1].change, "removed");
  assert.deepEqual([bench.removed, bench.ended], [["sent-uid"], [["sent-uid", "DeletedOnBoard", undefined]]]);
  assert.equal((await remove("ordered", "?gracePeriodSeconds=0&wait=false"))[1].change, "ended");
  assert.deepEqual(bench.ended.slice(1), [["ordered-uid", "DeletedOnBoard", 0]]);
  const [status, code, message] = await bench.error(path("static"), { method: "DELETE" });
  assert.deepEqual([status, code], [409, "conflict"]);
  assert.match(
    message,
    /would come back at once: remove it from \/etc\/picolet\/manifests\/static.yaml, or run `edgectl restart static`/,
  );
  assert.match((await bench.error(path("done", "/restart"), { method: "POST" }))[2], /is over \(Failed: Evicted\)/);
  assert.equal((await bench.error(path("none"), { method: "DELETE" }))[0], 404);
  assert.equal((await bench.error(path("sent", "?gracePeriodSeconds=90000"), { method: "DELETE" }))[1], "invalid");
});
