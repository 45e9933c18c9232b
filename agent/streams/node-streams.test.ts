import assert from "node:assert/strict";
import {
  appendFileSync,
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { StreamPair } from "@picolet/kubelet-api/pipes/stream-pair.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { PodStatus } from "@picolet/protocol/pod/pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import { ChannelFrameReader } from "@picolet/protocol/tunnel/channel-frames.ts";
import type { StreamKind } from "@picolet/protocol/tunnel/stream.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { ContainerState, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podLogs } from "@picolet/test/support/unit/agent/pod-log-reader.ts";
import { heldMemory } from "@picolet/test/support/unit/machine/held-memory.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { cut, readText, rejectedWith } from "@picolet/test/support/unit/streaming/stream-answers.ts";
import fc from "fast-check";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import { KubeletAnswers } from "./kubelet-answers.ts";
import { MAX_SESSIONS, NodeStreams } from "./node-streams.ts";

const NEVER = new AbortController().signal;
const RUNNING: ContainerState = { kind: "running", startedAtMs: 1 };
const EXITED: ContainerState = {
  kind: "exited",
  startedAtMs: 1,
  finishedAtMs: 2,
  exitCode: 0,
  reason: "",
  message: "",
};
const OF_WEB = { namespace: "default", pod: "web", uid: "" };

const line = (text: string, stream = "stdout", second = 0): string =>
  `2026-01-01T00:00:0${second}.5Z ${stream} F ${text}\n`;

/** A node of one pod, whose runtime says what the test has it say. */
class Node implements Disposable {
  readonly folder = new TempFolder();
  readonly log = new RecordedLog();
  readonly changes = new WatchSource(0);
  pods: AgentPod[] = [];
  stream: RuntimeAdapter["stream"] = () => Promise.reject(new PicoletError("unimplemented", "cannot do that"));
  readonly streams: NodeStreams;

  constructor() {
    const pods = (): readonly AgentPod[] => this.pods;
    const adapter = {
      stream: (...args: Parameters<RuntimeAdapter["stream"]>) => this.stream(...args),
      inspect: async () => ({ sandboxes: [] }),
    } as unknown as RuntimeAdapter;
    const kubelet = new KubeletAnswers({
      probeMetrics: () => ["c 3\n"],
      metrics: async (table, format) => [`${table} ${format}\n`],
      clock: new VirtualClock(),
      pods,
      stats: { summary: async () => ({ node: {} }), resourceMetrics: async () => ["a 1\n", "b 2\n"] },
      node: async () => ({
        ...{ configuration: { maxPods: 7 }, cpus: 4, memoryBytes: 8 },
        ...{ machineID: "m", systemUUID: "s", bootID: "b" },
      }),
      unhealthy: () => "",
      page: {
        answer: async (url) => ({ status: 200, contentType: "text/plain", body: [url] }),
        change: async (action, user) => ({
          status: 200,
          contentType: "text/plain",
          body: [JSON.stringify([user, action])],
        }),
      },
    });
    this.streams = new NodeStreams({
      pods,
      router: { adapters: [adapter], adapterFor: () => adapter },
      logs: podLogs(pods, this.changes),
      kubelet,
      clock: new VirtualClock(Date.parse("2026-01-01T00:00:10Z")),
      log: this.log,
    });
  }

  get logPath(): string {
    return this.folder.at("logs/main/0.log");
  }

  addPod(state: ContainerState | undefined, status?: PodStatus): void {
    const pod = podOf({ containers: [{ name: "main", image: "i" }] }, { name: "web", uid: "api-uid" });
    mkdirSync(dirname(this.logPath), { recursive: true });
    const run = {
      ...{ id: "c1", name: "main", attempt: 0, sandboxId: "s", createdAtMs: 1, hash: "", backoff: millis(0) },
      ...{ image: "i", imageId: "i", logPath: this.logPath },
    };
    this.pods = [
      {
        desired: { uid: podUid("node-uid"), source: "api", origin: "", pod },
        ...{ status, terminatingSinceMs: undefined, runtime: "fake", logDirectory: this.folder.at("logs") },
        containers: state === undefined ? [] : [{ ...run, state }],
      },
    ];
    this.changes.set(this.changes.current + 1);
  }

  open(kind: StreamKind, params: unknown, pair = new StreamPair()) {
    const handler = this.streams.handlers[kind];
    assert.ok(handler);
    return pair.open(handler, kind, params);
  }

  async logText(query: Readonly<Record<string, string>>, container = "main"): Promise<string> {
    return await readText(await this.open("logs", { ...OF_WEB, container, query }));
  }

  /** All sessions have come to their end. */
  async idle(): Promise<void> {
    while (this.streams.sessions > 0) await new Promise((resolve) => setImmediate(resolve));
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

test("logs: every option of PodLogOptions", async () => {
  using node = new Node();
  node.addPod(EXITED);
  writeFileSync(node.logPath, line("one", "stdout", 1) + line("two", "stderr", 3) + line("three", "stdout", 5));
  assert.equal(await node.logText({}), "one\ntwo\nthree\n");
  assert.equal(await node.logText({ tailLines: "2" }), "two\nthree\n");
  assert.equal(await node.logText({ tailLines: "0" }), "");
  assert.equal(await node.logText({ limitBytes: "5" }), "one\nt");
  assert.equal(await node.logText({ sinceSeconds: "7" }), "two\nthree\n");
  assert.equal(await node.logText({ sinceTime: "2026-01-01T00:00:05Z" }), "three\n");
  assert.equal(await node.logText({ timestamps: "true", tailLines: "1" }), "2026-01-01T00:00:05.5Z three\n");
  assert.equal(await node.logText({ stream: "Stderr" }), "two\n");
  assert.equal(await node.logText({ stream: "Stdout", follow: "1" }), "one\nthree\n");
  assert.equal(
    await node.logText({ pretty: "true", insecureSkipTLSVerifyBackend: "true", stream: "All" }, ""),
    "one\ntwo\nthree\n",
  );
});

test("logs: what is wrong is said in Kubernetes' words", async () => {
  using node = new Node();
  await assert.rejects(node.logText({}), rejectedWith("not_found", 'pods "web" not found'));
  node.addPod(undefined);
  const waiting = 'container "main" in pod "web" is waiting to start: ContainerCreating';
  await assert.rejects(node.logText({}), rejectedWith("unavailable", waiting));
  await assert.rejects(node.logText({}, "other"), rejectedWith("invalid", "container other is not valid for pod web"));
  const previous = 'previous terminated container "main" in pod "web" not found';
  await assert.rejects(node.logText({ previous: "true" }), rejectedWith("not_found", previous));
  node.addPod(RUNNING);
  for (const query of [
    { tailLines: "-1" },
    { limitBytes: "0" },
    { sinceSeconds: "x" },
    { stream: "No" },
    { follow: "maybe" },
  ]) {
    await assert.rejects(
      node.logText(query as unknown as Record<string, string>),
      rejectedWith("invalid", /: (Invalid|Unsupported) value/),
    );
  }
  const both = { sinceSeconds: "1", sinceTime: "2026-01-01T00:00:05Z" };
  await assert.rejects(node.logText(both), rejectedWith("invalid", /at most one of/));
  assert.equal(node.streams.sessions, 0);
});

test("a pod is found by the API's UID, by the node's own, and by its name alone", async () => {
  using node = new Node();
  node.addPod(EXITED);
  writeFileSync(node.logPath, line("one"));
  for (const uid of ["", "api-uid", "node-uid"]) {
    assert.equal(await readText(await node.open("logs", { ...OF_WEB, uid, container: "main", query: {} })), "one\n");
  }
  const other = node.open("logs", { ...OF_WEB, uid: "of-before", container: "main", query: {} });
  await assert.rejects(other, rejectedWith("not_found", 'pods "web" not found'));
});

test("a followed log goes on until its container ends", async () => {
  using node = new Node();
  node.addPod(RUNNING);
  writeFileSync(node.logPath, line("one"));
  const stream = await node.open("logs", { ...OF_WEB, container: "main", query: { follow: "true" } });
  assert.equal(Buffer.from((await stream.read(NEVER)) ?? []).toString(), "one\n");
  appendFileSync(node.logPath, line("two"));
  assert.equal(Buffer.from((await stream.read(NEVER)) ?? []).toString(), "two\n");
  node.addPod(EXITED);
  assert.equal(await stream.read(NEVER), undefined);
  await node.idle();
});

test("200 MB of log and a reader that stops: little is held, nothing is left when it goes", async () => {
  using node = new Node();
  node.addPod(EXITED);
  const fd = openSync(node.logPath, "w");
  const block = line("x".repeat(1000)).repeat(1000);
  for (let written = 0; written < 200 * MEBIBYTE; written += block.length) writeSync(fd, block);
  closeSync(fd);
  const pair = new StreamPair();
  const stream = await node.open("logs", { ...OF_WEB, container: "main", query: {} }, pair);
  await stream.read(NEVER);
  const before = heldMemory();
  for (let turn = 0; turn < 1000; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  const grown = heldMemory().buffers - before.buffers;
  assert.ok(pair.buffered <= 256 * 1024, `${pair.buffered} bytes under way`);
  assert.ok(grown < MEBIBYTE, `grown by ${grown}`);
  assert.ok(openFiles(node.folder.path).length > 0);
  cut(pair);
  await node.idle();
  assert.deepEqual(openFiles(node.folder.path), []);
});

test("attach to a runtime that has only logs: both outputs as channels, from now on, and a status at the end", async () => {
  using node = new Node();
  node.addPod(RUNNING);
  writeFileSync(node.logPath, line("before"));
  node.stream = async () => ({ kind: "log", logPath: node.logPath });
  const params = { ...OF_WEB, container: "main", command: [], stdin: false, stdout: true, stderr: true, tty: false };
  const stream = await node.open("attach", params);
  assert.deepEqual(stream.reply, { mode: "channels" });
  const reader = new ChannelFrameReader();
  const channels = ["", "", "", "", ""];
  const more = async (): Promise<boolean> => {
    const bytes = await stream.read(NEVER);
    if (bytes === undefined) return false;
    for (const piece of reader.push(bytes)) channels[piece.channel] += Buffer.from(piece.bytes).toString();
    return true;
  };
  // Followed from the moment on when it is being watched, which nothing tells: so lines until one is seen.
  const first = more();
  for (let seen = false; !seen; ) {
    appendFileSync(node.logPath, line("out"));
    const turn = new Promise<boolean>((resolve) => setImmediate(() => resolve(false)));
    seen = await Promise.race([first, turn]);
  }
  appendFileSync(node.logPath, line("err", "stderr"));
  while (channels[2] === "") await more();
  node.addPod(EXITED);
  while (await more());
  assert.match(channels[1] ?? "", /^(out\n)+$/);
  assert.equal(channels[2], "err\n");
  assert.equal(JSON.parse(channels[3] ?? "").status, "Success");
  await node.idle();
});

test("exec: refusals say why", async () => {
  using node = new Node();
  const exec = { ...OF_WEB, container: "main", command: ["sh"], stdin: false, stdout: true, stderr: false, tty: false };
  await assert.rejects(node.open("exec", exec), rejectedWith("not_found", 'pods "web" not found'));
  node.addPod(undefined, { phase: "Pending", containerStatuses: [] });
  await assert.rejects(node.open("exec", exec), rejectedWith("unavailable", /is waiting to start: ContainerCreating$/));
  node.addPod(EXITED);
  await assert.rejects(
    node.open("exec", exec),
    rejectedWith("conflict", 'container "main" in pod "web" is not running'),
  );
  await assert.rejects(
    node.open("exec", { ...exec, container: "x" }),
    rejectedWith("not_found", 'container not found ("x")'),
  );
  node.addPod(RUNNING);
  await assert.rejects(node.open("exec", exec), rejectedWith("unimplemented", "cannot do that"));
  const nothing = { ...exec, stdout: false };
  await assert.rejects(node.open("exec", nothing), rejectedWith("invalid", /at least 1 of stdin, stdout, stderr/));
  await assert.rejects(node.open("exec", { ...exec, command: [] }), rejectedWith("invalid", /at least one command/));
  const forward = { ...OF_WEB, ports: [80], upgrade: {} };
  await assert.rejects(node.open("portForward", forward), rejectedWith("unavailable", 'pod "web" is not running'));
  node.stream = async () => ({ kind: "upgrade", host: "127.0.0.1", port: 1, path: "/exec/x" });
  await assert.rejects(node.open("exec", exec), rejectedWith("invalid", /can be upgraded/));
  for (const header of ["SPDY/3.1\r\nx-more: 1", "ünï", "x".repeat(600)]) {
    const smuggled = node.open("exec", { ...exec, upgrade: { Upgrade: header } });
    await assert.rejects(smuggled, rejectedWith("invalid", /upgrade header "Upgrade" is not proper/));
  }
  const upgrade = { upgrade: "SPDY/3.1" };
  await assert.rejects(
    node.open("exec", { ...exec, upgrade }),
    rejectedWith("unavailable", /ECONNREFUSED|cannot connect/),
  );
});

test("the kubelet's pages", async () => {
  using node = new Node();
  node.addPod(RUNNING);
  const get = async (path: string) => {
    const stream = await node.open("kubelet", { method: "GET", path });
    return { ...(stream.reply as { status: number; contentType: string }), body: await readText(stream) };
  };
  const pods = await get("/pods");
  assert.equal(pods.contentType, "application/json");
  const { kind, items } = JSON.parse(pods.body);
  assert.deepEqual([kind, items.length, items[0].metadata.name], ["PodList", 1, "web"]);
  assert.equal(JSON.parse((await get("/runningpods/")).body).items.length, 1);
  node.addPod(EXITED);
  assert.equal(JSON.parse((await get("/runningpods/")).body).items.length, 0);
  assert.equal((await get("/healthz")).body, "ok");
  assert.deepEqual(JSON.parse((await get("/configz")).body), { kubeletconfig: { maxPods: 7 } });
  assert.equal(JSON.parse((await get("/spec")).body).num_cores, 4);
  assert.deepEqual(JSON.parse((await get("/stats/summary?only_cpu_and_memory=true")).body), { node: {} });
  assert.equal((await get("/metrics/resource")).body, "a 1\nb 2\n");
  assert.equal((await get("/metrics")).body, "kubelet prometheus\n");
  assert.equal((await get("/metrics/cadvisor")).body, "cadvisor prometheus\n");
  assert.equal((await get("/metrics/probes")).body, "c 3\n");
  assert.equal((await get("/logs/syslog")).status, 405);
  assert.equal((await get("/nothing")).status, 404);
});

test("a hub has a pod changed for a user, and nothing else", async () => {
  using node = new Node();
  const change = async (method: string, path: string, user: unknown = "admin") => {
    const stream = await node.open("kubelet", { method, path, user });
    return JSON.parse(await readText(stream));
  };
  const pod = { namespace: "default", name: "web" };
  assert.deepEqual(await change("POST", "/page/data/pods/default/web/restart"), ["admin", { verb: "restart", ...pod }]);
  assert.deepEqual(await change("DELETE", "/page/data/pods/default/web"), ["admin", { verb: "delete", ...pod }]);
  for (const [method, path] of [
    ["POST", "/page/data/pods/default/web"],
    ["DELETE", "/pods/default/web"],
    ["DELETE", "/page/data/pods/default/web?x"],
    ["DELETE", "/page/data/pods/default/../web"],
    ["PUT", "/page/data/pods/default/web"],
    ["POST", "/pods"],
  ] as const)
    await assert.rejects(change(method, path), rejectedWith("invalid", /only GET/), path);
  await assert.rejects(change("DELETE", "/page/data/pods/default/web", ""), rejectedWith("invalid", /user is missing/));
});

test("no more sessions than the limit; a place is free again afterwards", async () => {
  using node = new Node();
  node.addPod(RUNNING);
  writeFileSync(node.logPath, "");
  const pairs = Array.from({ length: MAX_SESSIONS }, () => new StreamPair());
  const follow = { ...OF_WEB, container: "main", query: { follow: "true" } };
  for (const pair of pairs) await node.open("logs", follow, pair);
  await assert.rejects(node.open("logs", follow), rejectedWith("resource_exhausted", /open already/));
  for (const pair of pairs) cut(pair);
  await node.idle();
  const pair = new StreamPair();
  await node.open("logs", follow, pair);
  cut(pair);
  await node.idle();
});

test("any request is answered or refused with a reason", async () => {
  using node = new Node();
  node.addPod(RUNNING);
  const kinds = fc.constantFrom<StreamKind>("logs", "exec", "attach", "portForward", "kubelet");
  const known = fc.record(
    {
      namespace: fc.constantFrom("default", "", 3),
      pod: fc.constantFrom("web", "x".repeat(600)),
      uid: fc.constantFrom("", "api-uid", null),
      container: fc.constantFrom("main", "", []),
      command: fc.oneof(fc.array(fc.string()), fc.anything()),
      ports: fc.oneof(fc.array(fc.integer()), fc.anything()),
      query: fc.oneof(fc.dictionary(fc.constantFrom("tailLines", "sinceTime", "stream"), fc.string()), fc.anything()),
      upgrade: fc.oneof(fc.dictionary(fc.constantFrom("upgrade", "sec-websocket-key"), fc.string()), fc.anything()),
      stdout: fc.constantFrom(true, false, "yes"),
      method: fc.constantFrom("GET", "POST", "DELETE"),
      path: fc.oneof(fc.webPath(), fc.string(), fc.constantFrom("/page/data/pods/default/web", "/page/data/pods/a/..")),
      user: fc.constantFrom("admin", "", 7),
    },
    { requiredKeys: [] },
  );
  await fc.assert(
    fc.asyncProperty(kinds, fc.oneof(known, fc.anything()), async (kind, params) => {
      const pair = new StreamPair();
      try {
        await node.open(kind, params, pair);
      } catch (error) {
        assert.ok(error instanceof PicoletError && error.code !== "internal", String(error));
      }
      cut(pair);
    }),
    { numRuns: 500 },
  );
  await node.idle();
  assert.deepEqual(node.log.entries, []);
});

function openFiles(prefix: string): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const target = readlinkSync(join("/proc/self/fd", fd));
      return target.startsWith(prefix) ? [target] : [];
    } catch {
      return []; // the one that listed the folder
    }
  });
}
