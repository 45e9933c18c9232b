/** edgectl against the agent's real API: what scripts rely on, what goes wrong, what follows. */
import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { DeviceReport } from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { fillDegraded, fillHealthy } from "@picolet/test/support/unit/agent/cli-scenario.ts";
import { CapturedTerminal, EdgectlBench } from "@picolet/test/support/unit/agent/edgectl-bench.ts";
import { agentPod, imageStore, NOW_MS, observedContainer } from "@picolet/test/support/unit/agent/fake-agent-view.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { resetToFactory } from "../main/node/factory-reset.ts";
import { COMMANDS } from "./commands.ts";
import { Screen } from "./context/screen.ts";

const READY = { phase: "Running", conditions: [{ type: "Ready", status: "True" }] } as const;
const EXITED = {
  kind: "exited",
  startedAtMs: 0,
  finishedAtMs: 1,
  exitCode: 0,
  reason: "Completed",
  message: "",
} as const;

const words = (line: string): string[] => line.split(" ").filter((word) => word !== "");

async function healthy(t: TestContext): Promise<EdgectlBench & { logPath?: string }> {
  const bench = await EdgectlBench.start(t);
  return Object.assign(bench, fillHealthy(bench.view, bench.directory));
}

test("status shows a kernel's panic, which degrades nothing", async (t) => {
  const bench = await healthy(t);
  bench.view.kernelPanic = {
    message: "Kernel panic - not syncing: Fatal exception",
    path: "/var/lib/systemd/pstore/1",
  };
  const { code, out } = await bench.run(["status"]);
  assert.equal(code, 0);
  const text = out.replaceAll(/\s+/g, " ");
  assert.match(
    text,
    /note: the kernel panicked before this start: Kernel panic - not syncing: Fatal exception; its last words are in \/var\/lib\/systemd\/pstore\/1/,
  );
});

test("status ends with 0 when all is well and with 1 for each thing that is not", async (t) => {
  const bench = await EdgectlBench.start(t);
  const { view } = bench;
  const code = async (): Promise<number> => {
    const human = await bench.run(["status"]);
    const machine = await bench.run(["status", "-o", "json"]);
    assert.equal(human.code, machine.code);
    assert.match(human.out, human.code === 0 ? /^edge-1 is healthy: / : /^edge-1 is degraded: /);
    return human.code;
  };
  assert.equal(await code(), 0, "no pods");
  view.setPods(agentPod(podOf(), { status: READY }));
  assert.equal(await code(), 0, "a ready pod");
  view.setPods(agentPod(podOf(), { status: { phase: "Succeeded" } }));
  assert.equal(await code(), 0, "a completed pod");
  view.setPods(agentPod(podOf(), { status: { phase: "Running" }, terminatingSinceMs: 1 }));
  assert.equal(await code(), 0, "a pod that is meant to go");
  for (const phase of ["Pending", "Running", "Failed", "Unknown"] as const) {
    view.setPods(agentPod(podOf(), { status: { phase } }));
    assert.equal(await code(), 1, phase);
  }
  view.setPods();
  view.sourceProblems = [{ source: "file", origin: "/x.yaml", line: null, message: "no YAML" }];
  assert.equal(await code(), 1, "a broken manifest");
  view.sourceProblems = [];
  view.nodeReady = { ...view.nodeReady, status: "False" };
  assert.equal(await code(), 1, "a node that is not ready");
});

test("status says how this node isolates components, beside what is wrong with their runtime", async (t) => {
  const bench = await healthy(t);
  const wasm = { name: "wasm", runtime: "picolet-wasm", version: "0.1.0", ready: true, isolation: "jail, seccomp" };
  bench.view.runtimeReports = [{ ...wasm, message: "" }];
  assert.match((await bench.run(["status"])).out, /picolet-wasm 0\.1\.0 ready \(isolation: jail, seccomp\)/);
  bench.view.runtimeReports = [{ ...wasm, message: "no seccomp filter" }];
  assert.match((await bench.run(["status"])).out.replaceAll(/\s+/g, " "), /\(no seccomp filter; isolation: jail/);
});

test("status -o json has exactly the promised fields", async (t) => {
  const bench = await healthy(t);
  const status = JSON.parse((await bench.run(words("status -o json"))).out) as Record<string, Record<string, unknown>>;
  const keys = (value: unknown): string[] => Object.keys(value as object);
  assert.deepEqual(keys(status), [
    ...[
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
    ],
  ]);
  assert.deepEqual(keys(status.tunnel), ["state", "since", "rttMs"]);
  assert.deepEqual(keys((status.pods as unknown as unknown[])[0]), [
    ...["namespace", "name", "uid", "source", "phase", "ready", "restarts", "runtime", "message"],
  ]);
  assert.deepEqual(keys(status.agent), ["rssBytes", "budgetBytes", "anonBytes", "version"]);
});

test("several pods are a List as kubectl prints it, one alone is itself", async (t) => {
  const bench = await healthy(t);
  const list = JSON.parse((await bench.run(words("get pods -A -o json"))).out) as { kind: string; items: unknown[] };
  assert.equal(list.kind, "List");
  assert.equal(list.items.length, 1);
  const two = JSON.parse((await bench.run(words("get pods web web-edge-1 -o json"))).out) as typeof list;
  assert.equal(two.items.length, 2);
  for (const line of ["get pod web -o json", "get pod/web -ojson", "get pods default/web --output=json"]) {
    assert.equal((JSON.parse((await bench.run(words(line))).out) as { kind: string }).kind, "Pod", line);
  }
  const empty = JSON.parse((await bench.run(words("get pods -n none -o json"))).out) as typeof list;
  assert.deepEqual(empty.items, []);
});

test("status says how the tunnel stands, why it does not, and when it is tried again", async (t) => {
  const bench = await healthy(t);
  const at = (seconds: number): string => new Date(NOW_MS + seconds * 1000).toISOString();
  const shown = async (): Promise<string> => {
    const { out, code } = await bench.run(["status"], new CapturedTerminal({ columns: 200 }));
    assert.equal(code, 0, "a node that is offline is well");
    return /^Tunnel +(.*)$/m.exec(out)?.[1] ?? out;
  };
  bench.view.tunnelReport = {
    state: "connected",
    since: at(-180),
    rttMs: 12.4,
    hub: "https://hub",
    pendingStatuses: 1,
  };
  assert.equal(await shown(), "connected for 3m, 12 ms away");
  const down = { state: "disconnected", since: at(-300), rttMs: null, hub: "https://hub" } as const;
  const problem = "cannot connect to hub https://hub: ECONNREFUSED";
  bench.view.tunnelReport = { ...down, problem, nextTry: at(20), pendingStatuses: 3 };
  assert.equal(await shown(), `disconnected for 5m: ${problem}, next try in 20s, 3 pods to report`);
  bench.view.tunnelReport = { ...down, problem, nextTry: null, pendingStatuses: 0 };
  assert.equal(await shown(), `disconnected for 5m: ${problem}`);
  bench.view.tunnelReport = { state: "connecting", since: null, rttMs: null, hub: "https://hub" };
  assert.equal(await shown(), "connecting");
});

test("a hub that refuses the board is a fault, with its reason, and one that is away is none", async (t) => {
  const bench = await healthy(t);
  const down = { state: "disconnected", since: new Date(NOW_MS - 300_000).toISOString(), rttMs: null } as const;
  const problem = "the hub refused: the token is not accepted";
  bench.view.tunnelReport = { ...down, hub: "https://hub", problem, refused: true, nextTry: null };
  const { code, out } = await bench.run(["status"]);
  assert.equal(code, 1);
  assert.match(
    out,
    /^edge-1 is degraded: it cannot join its hub\nhttps:\/\/hub: the hub refused: the token is not accepted\n/,
  );
  assert.match(out, /^Tunnel {4}refused for 5m$/m);
  const machine = await bench.run(words("status -o json"));
  assert.equal(machine.code, 1);
  assert.equal((JSON.parse(machine.out) as { tunnel: { refused: boolean } }).tunnel.refused, true);
  bench.view.tunnelReport = { ...down, hub: "https://hub", problem: "ECONNREFUSED", refused: false, nextTry: null };
  assert.equal((await bench.run(["status"])).code, 0);
});

test("in a pipe a row is a line, however long its names", async (t) => {
  const bench = await EdgectlBench.start(t);
  fillDegraded(bench.view, bench.directory);
  const { out } = await bench.run(words("get pods -A --no-headers"), new CapturedTerminal({ columns: undefined }));
  assert.equal(out.trimEnd().split("\n").length, 6);
});

test("colours are for terminals that show them", async (t) => {
  const bench = await EdgectlBench.start(t);
  fillDegraded(bench.view, bench.directory);
  const [plain, terminal] = [new CapturedTerminal(), new CapturedTerminal()];
  for (const each of [plain, terminal]) each.rows = 50;
  const plainText = (await bench.run(["status"], plain)).out;
  terminal.colour = true;
  const { out } = await bench.run(["status"], terminal);
  assert.ok(out.includes("\x1b[31mCrashLoopBackOff\x1b[0m  "));
  assert.ok(out.includes("\x1b[33mTerminating\x1b[0m"));
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the colours are taken out again
  assert.equal(out.replace(/\x1b\[\d+m/g, ""), plainText);
});

const ROOM = 23;

/** `count` pods, of which every third is not well; with `message`. */
const manyPods = (count: number, message: string) =>
  Array.from({ length: count }, (_, index) => {
    const pod = podOf({}, { name: `pod-${String(index).padStart(4, "0")}` });
    const waits = { phase: "Pending", reason: "Waits", message } as const;
    return agentPod(pod, { status: index % 3 === 0 ? waits : READY });
  });

test("status of a terminal fits its page: what is not well comes first, the rest is counted", async (t) => {
  const bench = await EdgectlBench.start(t);
  bench.view.setPods(...manyPods(12, "no room"));
  const { out } = await bench.run(["status"]);
  const lines = out.trimEnd().split("\n");
  assert.ok(lines.length <= ROOM, out);
  assert.equal(lines.filter((line) => /^pod-\d+ .* Waits /.test(line)).length, 4);
  assert.ok(lines.includes("pod-0009: Waits: no room"), out);
  const listed = lines.filter((line) => /^pod-\d+ /.test(line)).length;
  assert.equal(lines.at(-1), `... ${12 - listed} more pods; edgectl get pods -A lists all`);
  const tall = new CapturedTerminal();
  tall.rows = 60;
  for (const [words, terminal] of [
    [["status"], tall],
    [["status"], new CapturedTerminal({ columns: undefined })],
    [["status", "-o", "wide"], new CapturedTerminal()],
  ] as const) {
    const whole = (await bench.run(words, terminal)).out;
    assert.equal(whole.match(/^pod-\d+ /gm)?.length, 12, whole);
  }
});

test("status of any number of pods fits the page, within the time of a serial line", async (t) => {
  const bench = await EdgectlBench.start(t);
  for (const [count, message] of [
    [1, ""],
    [8, "x"],
    [110, "a long message ".repeat(20)],
    [1000, ""],
    [1000, "no room"],
  ] as const) {
    bench.view.setPods(...manyPods(count, message));
    const { out } = await bench.run(["status"]);
    const lines = out.trimEnd().split("\n");
    assert.ok(lines.length <= ROOM, `${count}: ${lines.length} lines`);
    assert.ok(lines.every((line) => line.length <= 80));
    const listed = lines.filter((line) => /^pod-\d+ /.test(line)).length;
    assert.ok(listed > 0 && (listed === count || lines.at(-1)?.startsWith(`... ${count - listed} more pod`)), out);
  }
  assert.match((await bench.run(["status"])).out, /^\.\.\. \d+ more pods, \d+ of them not well; /m);
});

test("what does not work ends with 1 and one clear line", async (t) => {
  const bench = await healthy(t);
  bench.view.stores = [];
  for (const [line, message] of [
    ["get pod none", 'pod "none" not found'],
    ["get pod none -n default", 'pod "none" not found in namespace "default"'],
    ["get pods none -w", 'pod "none" not found'],
    ["describe none", 'pod "none" not found'],
    ["logs none", 'pod "none" not found'],
    ["logs web -c none", "container none is not valid for pod web-edge-1"],
    ["logs web --previous", 'previous terminated container "app" in pod "web-edge-1" not found'],
    ["image import x.tar", "cannot import /home/user/x.tar: this node has no runtime"],
  ] as const) {
    assert.deepEqual(await bench.run(words(line)), { code: 1, out: "", error: `edgectl: ${message}\n` }, line);
  }
});

test("a runtime that does not answer is named, and the other's images are shown", async (t) => {
  const bench = await healthy(t);
  const broken = imageStore("cri", [], ".tar");
  broken.images.list = async () => {
    throw new PicoletError("unavailable", "cannot list images");
  };
  bench.view.stores = [broken, ...bench.view.stores.slice(1)];
  const { code, out, error } = await bench.run(["image", "list"]);
  assert.equal(code, 1);
  assert.match(out, /^IMAGE .*\nexample\/hello:1 /);
  assert.equal(error, "edgectl: cri: cannot list images\n");
  assert.equal((await bench.run(words("get images"))).out, out);
});

test("an import that takes long says that it goes on, and not where its result is read", async (t) => {
  const bench = await healthy(t);
  const quick = imageStore("wasm", [], ".wasm");
  const [begun, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slowly: typeof quick.images.import = async (...all) => {
    begun.resolve();
    await released.promise;
    return await quick.images.import(...all);
  };
  bench.view.stores = [{ ...quick, images: { ...quick.images, import: slowly } }];
  const terminal = new CapturedTerminal({ columns: undefined });
  const running = bench.run(words("image import hello.wasm --name example/hello:2"), terminal);
  await begun.promise;
  assert.equal(terminal.error, "");
  await bench.clock.advance(seconds(10));
  assert.equal(terminal.error, "importing hello.wasm for 5s\nimporting hello.wasm for 10s\n");
  released.resolve();
  assert.match((await running).out, /^imported example\/hello:2 /);
  assert.equal(bench.clock.sleeping, 0, "nothing is left that says so");
});

test("an import prints the requested name, also where the content has others", async (t) => {
  const bench = await healthy(t);
  const store = imageStore("wasm", [], ".wasm");
  const named: typeof store.images.import = async (...all) =>
    (await store.images.import(...all)).map((each) => ({ ...each, tags: ["a.example/older:1", ...each.tags] }));
  bench.view.stores = [{ ...store, images: { ...store.images, import: named } }];
  assert.match(
    (await bench.run(words("image import hello.wasm --name example/hello:2"))).out,
    /^imported example\/hello:2 /,
  );
});

for (const [line, message] of [
  ["status x", 'status takes no "x"'],
  ["version -w", '--watch does not go with "version"'],
  ["get", "get needs pods|events|images [POD...]"],
  ["get nodes", 'cannot get "nodes", only pods, events, images'],
  ["get pods a/b/c", '"a/b/c" is no name of a pod'],
  ["get pods pod/", '"pod/" is no name of a pod'],
  ["get pods a/b -n c", '"a/b" is not in namespace c'],
  ["get pods -A -n x", "only one of -A and -n may be given"],
  ["get pods web -A", "a pod's name does not go with -A; use NAMESPACE/NAME"],
  ["get pods a b -w", "only one pod can be watched by name; leave the name out to watch all"],
  ["get events x", "get events takes no names"],
  ["get images -o name", "get images has no -o name"],
  ["describe", "describe needs [pod] POD"],
  ["describe pod", "describe pod needs the pod's name"],
  ["describe node x", 'cannot describe "node", only pods'],
  ["logs", "logs needs POD [CONTAINER]"],
  ["logs a b c", 'logs takes no "c"'],
  ["logs a --tail x", '--tail must be a whole number, not "x"'],
  ["logs a --since 5", '--since must be a duration such as 30s, 5m or 2h, not "5"'],
  ["logs a --since -5m", '--since must be a duration such as 30s, 5m or 2h, not "-5m"'],
  ["logs a --since-time noon", '--since-time must be a time such as 2026-01-31T12:00:00Z, not "noon"'],
  ["logs a --since 5m --since-time 2026-01-31T12:00:00Z", "only one of --since and --since-time may be given"],
  ["logs a b -c c", "the container is named twice"],
  ["logs a b --all-containers", "a container does not go with --all-containers"],
  ["events x", 'events takes no "x"'],
  ["events --limit many", '--limit must be a whole number, not "many"'],
  ["image", "image needs one of: list, pull, import, rm, pin, unpin"],
  ["image ls", 'unknown command "image ls"'],
  ["image list x", 'image list takes no "x"'],
  ["image import", "image import needs FILE"],
  ["version x", 'version takes no "x"'],
  ["help statsu", 'there is no command "statsu"; did you mean "status"?'],
  ["completion", "completion needs bash|zsh|fish"],
  ["completion ksh", 'no completion for "ksh", only bash, zsh, fish'],
  ["status --timeout soon", '--timeout must be a duration such as 10s, not "soon"'],
  ["status --timeout 0", '--timeout must be a duration such as 10s, not "0"'],
  ["status --outptu json", 'unknown flag --outptu; did you mean "--output"?'],
] as const) {
  test(`wrong usage ends with 64: edgectl ${line}`, async (t) => {
    const bench = await healthy(t);
    const { code, out, error } = await bench.run(words(line));
    assert.deepEqual([code, out], [64, ""]);
    assert.equal(error.split("\n")[0], `edgectl: ${message}`);
  });
}

test("every command has a help that fits, names its flags, and shows examples", async (t) => {
  const bench = await EdgectlBench.start(t);
  for (const command of COMMANDS) {
    const { code, out } = await bench.run([...command.words, "--help"]);
    assert.equal(code, 0);
    assert.deepEqual(await bench.run(["help", ...command.words]), { code: 0, out, error: "" });
    for (const flag of command.flags) assert.ok(out.includes(`--${flag.name}`), `${command.words} --${flag.name}`);
    assert.match(out, /Examples:\n {2}\S/);
    for (const line of out.split("\n")) assert.match(line, /^[\x20-\x7e]{0,80}$/, line);
  }
  assert.deepEqual(await bench.run([]), await bench.run(["help"]));
  assert.equal((await bench.run(["help", "image"])).out.match(/Examples:/g)?.length, 6);
  for (const group of ["image", "wasm", "kv"])
    assert.deepEqual(await bench.run([group, "--help"]), await bench.run(["help", group]), group);
});

test("logs: parts, several containers, times", async (t) => {
  const bench = await healthy(t);
  const out = async (line: string): Promise<string> => (await bench.run(words(line))).out;
  const whole = "listening on :80\nGET / 200\nGET /caf\u00e9 404\n";
  assert.equal(await out("logs web"), whole);
  assert.equal(await out("logs pod/web-edge-1 app --tail -1"), whole);
  assert.equal(await out("logs default/web --tail 1"), "GET /caf\u00e9 404\n");
  assert.equal(await out("logs web --since 150s"), "GET /caf\u00e9 404\n");
  assert.equal(await out("logs web --since-time 2026-11-20T11:58:00Z"), "GET /caf\u00e9 404\n");
  assert.equal(await out("logs web --timestamps --tail 1 --limit-bytes 25"), "2026-11-20T11:58:20.5Z GE");
  assert.equal(await out("logs web --prefix --tail 1"), "[web] GET /caf\u00e9 404\n");

  const log = (container: string, text: string): string => {
    const path = join(bench.directory, "two", container, "0.log");
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, `2026-11-20T11:59:00Z stdout F ${text} 1\n2026-11-20T11:59:00Z stdout P ${text} 2\n`);
    return path;
  };
  const two = podOf(
    {
      containers: [
        { name: "a", image: "x" },
        { name: "b", image: "x" },
      ],
    },
    { name: "two" },
  );
  const containers = ["a", "b"].map((name) => observedContainer(name, 0, log(name, name), EXITED));
  bench.view.setPods(agentPod(two, { containers }));
  const defaulted = await bench.run(words("logs two"));
  assert.equal(defaulted.error, 'Defaulted container "a" out of: a, b\n');
  assert.equal(defaulted.out, "a 1\na 2");
  const all = "[two/a] a 1\n[two/a] a 2\n[two/b] b 1\n[two/b] b 2\n";
  assert.equal(await out("logs two --all-containers"), all);
  assert.deepEqual((await out("logs two --all-containers -f")).split("\n").sort(), all.split("\n").sort());
});

test("logs -f goes on with what is written and ends with the container", async (t) => {
  const bench = await healthy(t);
  const terminal = new CapturedTerminal();
  const ended = bench.start(words("logs web -f --tail 1"), terminal);
  await terminal.until(({ out }) => out.endsWith("404\n"));
  appendFileSync(bench.logPath ?? "", "2026-11-20T12:00:00Z stdout F more\n");
  await terminal.until(({ out }) => out.endsWith("more\n"));
  bench.view.setPods();
  assert.equal(await ended, 0);
  assert.equal(terminal.out, "GET /caf\u00e9 404\nmore\n");
});

test("an agent that goes away in the middle of a log is an error, not an end", async (t) => {
  const bench = await healthy(t);
  const terminal = new CapturedTerminal();
  const ended = bench.start(words("logs web -f"), terminal);
  await terminal.until(({ out }) => out.endsWith("404\n"));
  await bench.stopAgent();
  assert.equal(await ended, 1);
  assert.match(terminal.error, /the agent's answer ended early/);
});

test("get pods -w shows each change once", async (t) => {
  const bench = await EdgectlBench.start(t);
  const web = podOf({}, { name: "web" });
  const terminal = new CapturedTerminal();
  bench.view.setPods(agentPod(web));
  void bench.start(words("get pods -w"), terminal);
  const objects = new CapturedTerminal();
  void bench.start(words("get pods -w -o json"), objects);
  const rows = (): string[] => terminal.out.trimEnd().split("\n");
  await terminal.until(() => rows().length === 2);
  bench.view.setPods(agentPod(web), agentPod(podOf({}, { name: "a", namespace: "other" })));
  bench.view.setPods(agentPod(web, { status: { phase: "Pending", message: "not shown in the row" } }));
  await objects.until(({ out }) => out.includes("not shown in the row"));
  bench.view.setPods(agentPod(web, { status: { phase: "Running" } }));
  await terminal.until(() => rows().at(-1)?.includes("Running") === true);
  bench.view.setPods();
  await objects.until(({ out }) => (out.match(/"Running"/g) ?? []).length === 2);
  await terminal.until(() => rows().length >= 4);
  assert.deepEqual(
    rows().map((row) => row.split(/ +/).slice(0, 3).join(" ")),
    ["NAME READY STATUS", "web 0/1 Pending", "web 0/1 Running", "web 0/1 Running"],
  );
  const [header = "", first = ""] = rows();
  assert.equal(first.indexOf("Pending"), header.indexOf("STATUS"), "rows that come later stay in their columns");
});

test("get pods -w as objects, and of one pod only", async (t) => {
  const bench = await EdgectlBench.start(t);
  bench.view.setPods(agentPod(podOf({}, { name: "web-edge-1" })), agentPod(podOf({}, { name: "other" })));
  const json = new CapturedTerminal();
  void bench.start(words("get pod web -w -o json"), json);
  await json.until(({ out }) => out.endsWith("}\n"));
  assert.equal((JSON.parse(json.out) as { metadata: { name: string } }).metadata.name, "web-edge-1");
  const yaml = new CapturedTerminal();
  void bench.start(words("get pods -w -o yaml"), yaml);
  await yaml.until(({ out }) => (out.match(/^---$/gm) ?? []).length === 2);
});

test("events -w shows what happens from now on", async (t) => {
  const bench = await healthy(t);
  const terminal = new CapturedTerminal();
  void bench.start(words("events -w --limit 1 --pod web"), terminal);
  await terminal.until(({ out }) => out.includes("exceeded\n"));
  const regarding = { kind: "Pod" as const, namespace: "default", name: "web-edge-1", uid: "x", fieldPath: "" };
  bench.view.events.add({
    regarding: { ...regarding, name: "other" },
    type: "Normal",
    reason: "Pulled",
    message: "no",
  });
  bench.view.events.add({ regarding, type: "Normal", reason: "Killing", message: "Stopping container app" });
  await terminal.until(({ out }) => out.includes("Stopping"));
  assert.match(terminal.out, /\n0s {6}Normal {3}Killing {5}web-edge-1 {8}Stopping container app\n$/);
  assert.ok(!terminal.out.includes("no\n"));
});

test("a long list of events says that there is more", async (t) => {
  const bench = await healthy(t);
  const regarding = { kind: "Pod" as const, namespace: "default", name: "many", uid: "x", fieldPath: "" };
  for (let n = 0; n < 60; n += 1)
    bench.view.events.add({ regarding, type: "Normal", reason: "Pulled", message: `${n}` });
  const some = await bench.run(["events"]);
  assert.equal(some.out.trimEnd().split("\n").length, 51);
  assert.equal(some.error, "Only the newest 50 are shown; --limit N shows more.\n");
  const all = await bench.run(words("events --pod many --limit 1000"));
  assert.equal(all.out.trimEnd().split("\n").length, 61);
  assert.equal(all.error, "");
});

test("completion knows commands, flags, their values, and asks the agent for names", async (t) => {
  const bench = await EdgectlBench.start(t);
  fillDegraded(bench.view, bench.directory);
  const complete = async (...line: string[]): Promise<string[]> =>
    words((await bench.run(["__complete", ...line])).out.replaceAll("\n", " "));
  assert.deepEqual(await complete("st"), ["status"]);
  assert.ok((await complete("")).includes("logs"));
  assert.deepEqual(await complete("image", ""), ["list", "pull", "import", "rm", "pin", "unpin"]);
  assert.deepEqual(await complete("logs", "--tai"), ["--tail"]);
  assert.deepEqual(await complete("logs", "--so"), ["--socket"]);
  assert.deepEqual(await complete("get", "pods", "-o", ""), ["json", "yaml", "wide", "name"]);
  assert.deepEqual(await complete("get", "pods", "--output", "=", "j"), ["json"]);
  assert.deepEqual(await complete("status", "--output", "="), ["json", "yaml", "wide"]);
  assert.deepEqual(await complete("get", "pods", "--output=j"), ["--output=json"]);
  assert.deepEqual(await complete("--namespace=plant", "logs", "o"), ["old-edge-1"]);
  assert.deepEqual(await complete("wasm", "run", "--pod", "w"), [":files"]);
  assert.deepEqual(await complete("get", "p"), ["pods"]);
  assert.deepEqual(await complete("logs", "w"), ["web-edge-1"]);
  assert.deepEqual(await complete("logs", "plant/o"), ["plant/old-edge-1"]);
  assert.deepEqual(await complete("-n", "plant", "logs", "o"), ["old-edge-1"]);
  assert.deepEqual(await complete("describe", "pod", "pod/w"), ["pod/web-edge-1"]);
  assert.deepEqual(await complete("logs", "-n", ""), ["default", "plant"]);
  assert.deepEqual(await complete("debug", ""), ["node"]);
  assert.deepEqual(await complete("debug", "node", "--image", "exa"), ["example/hello:1"]);
  assert.deepEqual(await complete("logs", "plant/pump-controller-of-the-north-western-water-tower", "-c", ""), [
    ...["app", "side", "prepare"],
  ]);
  assert.deepEqual(await complete("events", "--pod", "we"), ["web-edge-1"]);
  assert.deepEqual(await complete("image", "import", "x"), [":files"]);
  assert.deepEqual(await complete("help", "ima"), ["images", "image"]);
  assert.deepEqual(await complete("completion", ""), ["bash", "zsh", "fish"]);
  assert.deepEqual(await complete("nonsense", ""), []);
  assert.deepEqual(await complete(), await complete(""));
  await bench.stopAgent();
  assert.deepEqual(await complete("logs", "w"), []);
  assert.deepEqual(await complete("st"), ["status"]);
});

const appliedPod = (name: string, image: string): string =>
  JSON.stringify({ apiVersion: "v1", kind: "Pod", metadata: { name }, spec: { containers: [{ name: "app", image }] } });

test("apply says what became of each pod, from a file and from standard input", async (t) => {
  const bench = await EdgectlBench.start(t);
  const file = join(bench.directory, "pods.json");
  writeFileSync(file, appliedPod("web", "example/web:1"));
  const first = await bench.run(["apply", "-f", file]);
  assert.deepEqual(first, { code: 0, out: "pod/web-edge-1 created\n", error: "" });
  assert.equal((await bench.run(["apply", `--filename=${file}`])).out, "pod/web-edge-1 unchanged\n");
  bench.input = Readable.from([Buffer.from(appliedPod("web", "example/web:2"))]);
  const dry = await bench.run(words("apply --dry-run -f -"));
  assert.deepEqual([dry.code, dry.out], [0, "pod/web-edge-1 configured (dry run)\n"]);
  assert.equal((await bench.run(["apply", "-f", file])).out, "pod/web-edge-1 unchanged\n", "nothing has changed");
  bench.input = Readable.from([Buffer.from('{"apiVersion":"v1",'), Buffer.from('"kind":"List","items":[]}')]);
  const gone = await bench.run(words("apply -f - -o json"));
  const { items } = JSON.parse(gone.out) as { items: { name: string; change: string }[] };
  assert.deepEqual(
    items.map(({ name, change }) => [name, change]),
    [["web-edge-1", "removed"]],
  );
  assert.equal(bench.store.desired.current.pods.size, 0);
});

test("apply says which pods go, and asks a person before", async (t) => {
  const bench = await EdgectlBench.start(t);
  const file = join(bench.directory, "pods.json");
  const apply = async (name: string, typed?: string, ...flags: string[]) => {
    writeFileSync(file, appliedPod(name, "example/web:1"));
    bench.input = Readable.from(typed === undefined ? [] : [Buffer.from(typed)]);
    const terminal = new CapturedTerminal();
    terminal.interactive = typed !== undefined;
    const { code, out, error } = await bench.run(["apply", "-f", file, ...flags], terminal);
    const names = [...bench.store.desired.current.pods.values()].map(({ pod }) => pod.metadata.name);
    return { code, out, error, names };
  };
  const deleted = (name: string, others: string): string => `${others}pod "${name}" deleted (no longer in ${file})\n`;
  await apply("a");
  assert.deepEqual((await apply("b")).out, deleted("a-edge-1", "pod/b-edge-1 created\n"), "in a pipe nobody is asked");
  const question = `No longer in ${file}, and deleted with it:\n  b-edge-1\nGo on? [y/N] `;
  const no = await apply("c", "\n");
  assert.deepEqual(no, {
    code: 1,
    out: "",
    error: `${question}edgectl: nothing has been changed\n`,
    names: ["b-edge-1"],
  });
  assert.deepEqual((await apply("c", "n\n")).names, ["b-edge-1"]);
  const yes = await apply("c", "y\n");
  assert.deepEqual(yes, {
    ...{ code: 0, out: deleted("b-edge-1", "pod/c-edge-1 created\n"), error: question, names: ["c-edge-1"] },
  });
  assert.equal((await apply("d", "", "--yes")).error, "");
  assert.equal((await apply("d", "")).error, "", "nothing goes, nothing is asked");
  const dry = await apply("e", "", "--dry-run");
  assert.equal(dry.out, `pod/e-edge-1 created (dry run)\npod "d-edge-1" deleted (no longer in ${file}) (dry run)\n`);
});

test("devices are listed with who has them, and an unhealthy one in use is degraded", async (t) => {
  const camera = {
    resource: "example.com/camera",
    device: "/dev/video0",
    source: "configuration",
    numaNodes: [],
  } as const;
  const usedBy = { namespace: "default", pod: "film", container: "app" };
  let items: readonly DeviceReport[] = [];
  const bench = await EdgectlBench.start(t, { devices: async () => items });
  assert.deepEqual(await bench.run(["devices"]), { code: 0, out: "", error: "No devices found\n" });
  items = [
    { ...camera, healthy: true, usedBy },
    { ...camera, device: "/dev/video1", healthy: false, usedBy: null },
  ];
  const listed = await bench.run(["devices"]);
  assert.deepEqual(listed.out.split("\n").map(words), [
    ["RESOURCE", "DEVICE", "SOURCE", "HEALTH", "USED", "BY"],
    ["example.com/camera", "/dev/video0", "configuration", "Healthy", "default/film/app"],
    ["example.com/camera", "/dev/video1", "configuration", "Unhealthy"],
    [],
  ]);
  assert.equal(listed.code, 0);
  items = [{ ...camera, healthy: false, usedBy }];
  const degraded = await bench.run(["devices", "-o", "json"]);
  assert.deepEqual([degraded.code, JSON.parse(degraded.out)], [1, { items }]);
});

test("factory-reset asks a person, and needs --yes in a pipe", async (t) => {
  let resets = 0;
  const factoryReset = async (): Promise<void> => {
    resets += 1;
  };
  const bench = await EdgectlBench.start(t, { factoryReset });
  const reset = async (typed: string | undefined, ...flags: string[]) => {
    bench.input = Readable.from(typed === undefined ? [] : [Buffer.from(typed)]);
    const terminal = new CapturedTerminal();
    terminal.interactive = typed !== undefined;
    return await bench.run(["factory-reset", ...flags], terminal);
  };
  assert.equal((await reset(undefined)).code, 64);
  for (const typed of ["\n", "n\n", "yesterday\n", ""]) {
    const { code, error } = await reset(typed);
    assert.deepEqual([code, resets], [1, 0], typed);
    assert.match(error, /Go on\? \[y\/N\] edgectl: nothing has been changed\n$/);
  }
  const yes = await reset("y\n");
  assert.deepEqual([yes.code, yes.out, resets], [0, "node/edge-1 restarts, and is as new\n", 1]);
  const piped = await reset(undefined, "--yes");
  assert.deepEqual([piped.code, piped.error, resets], [0, "", 2]);
});

test("factory-reset shows why a board refuses it", async (t) => {
  const systemctl = () => assert.fail("nothing is asked of systemd");
  const bench = await EdgectlBench.start(t, {
    factoryReset: () => resetToFactory({ systemctl, exists: () => false }),
  });
  const { code, error } = await bench.run(words("factory-reset --yes"));
  assert.equal(code, 1);
  assert.match(error, /this board does not run picolet's image, and nothing has been changed/);
});

test("apply warns of fields that no pod has, and applies it", async (t) => {
  const bench = await EdgectlBench.start(t);
  const file = join(bench.directory, "pods.yaml");
  writeFileSync(
    file,
    "kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: a, image: b, comand: [c]}\n",
  );
  const warning = `Warning: ${file}:6: unknown field "spec.containers[0].comand", did you mean "command"?\n`;
  for (const flags of [["--dry-run"], []]) {
    const { code, error } = await bench.run(["apply", "-f", file, ...flags]);
    assert.deepEqual([code, error], [0, warning]);
  }
  assert.equal(bench.store.desired.current.pods.size, 1);
});

test("status shows warnings, and is healthy all the same", async (t) => {
  const bench = await healthy(t);
  bench.view.sourceWarnings = [{ source: "file", origin: "/x.yaml", line: 3, message: 'unknown field "spce"' }];
  const { code, out } = await bench.run(["status"]);
  assert.equal(code, 0);
  assert.match(out, /^warning: \/x\.yaml:3: unknown field "spce"$/m);
});

test("apply names each problem with its place, and changes nothing then", async (t) => {
  const bench = await EdgectlBench.start(t);
  const file = join(bench.directory, "pods.yaml");
  writeFileSync(file, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: Web\nspec:\n  containers: []\n");
  const { code, out, error } = await bench.run(["apply", "-f", file]);
  assert.deepEqual([code, out], [1, ""]);
  const lines = error.trimEnd().split("\n");
  assert.equal(lines.length, 2);
  assert.ok(lines[0]?.startsWith(`edgectl: ${file}:4: metadata.name: Invalid value: "Web"`), lines[0]);
  assert.equal(lines[1], `edgectl: ${file}:6: spec.containers: Required value`);
  const machine = await bench.run(["apply", "-f", file, "-o", "json"]);
  assert.equal(machine.code, 1);
  assert.equal((JSON.parse(machine.out) as { problems: unknown[] }).problems.length, 2);
  assert.equal(bench.store.desired.current.pods.size, 0);
});

test("apply ends with 64 when nothing is named, 1 when it cannot be read or is too long, 2 without an agent", async (t) => {
  const bench = await EdgectlBench.start(t);
  const outcome = async (line: string): Promise<string> => {
    const { code, error } = await bench.run(words(line));
    return `${code} ${error.split("\n")[0]}`;
  };
  assert.equal(await outcome("apply"), "64 edgectl: apply needs -f FILE, or -f - for standard input");
  assert.match(await outcome("apply -f /nowhere/pods.yaml"), /^1 edgectl: cannot read \/nowhere\/pods.yaml: ENOENT/);
  bench.input = Readable.from([Buffer.alloc(1024 * 1024), Buffer.alloc(1)]);
  assert.match(await outcome("apply -f -"), /^1 edgectl: pods of more than 1048576 bytes/);
  bench.input = Readable.from([Buffer.from("x")]);
  await bench.stopAgent();
  assert.match(await outcome("apply -f -"), /^2 edgectl: there is no socket/);
});

test("restart and delete change each pod that they name, and say what it means for its source", async (t) => {
  const bench = await EdgectlBench.start(t);
  const pod = (name: string, source: "file" | "api") => agentPod(podOf({}, { name }), { source, status: READY });
  bench.view.setPods(pod("web-edge-1", "file"), pod("ordered", "api"));
  const restarted = await bench.run(words("restart web ordered --now"));
  assert.deepEqual(restarted, { code: 0, out: "pod/web-edge-1 restarted\npod/ordered restarted\n", error: "" });
  assert.deepEqual(bench.asked.splice(0), ["leave web-edge-1-uid within 1000 ms", "leave ordered-uid within 1000 ms"]);
  const deleted = await bench.run(words("delete pod none web ordered --no-wait"));
  assert.equal(deleted.code, 1);
  assert.equal(deleted.out, 'pod "ordered" is ending on this board; its hub decides what follows\n');
  assert.match(deleted.error, /pod "none" not found\n/);
  assert.match(
    deleted.error,
    /pod "web-edge-1" would come back at once: remove it from .*web-edge-1\.yaml, or run `edge/,
  );
  assert.deepEqual(bench.asked.splice(0), ["end ordered-uid"]);
  const json = await bench.run(words("restart ordered -o json --grace-period 2s"));
  const changed = { namespace: "default", name: "ordered", source: "api", change: "restarted" };
  assert.deepEqual(JSON.parse(json.out), changed);
  assert.equal((await bench.run(words("restart ordered --now --grace-period 2s"))).code, 64);
  assert.equal((await bench.run(words("delete pod"))).code, 64);
});

test("an applied pod that is deleted is wanted no more, and the others are", async (t) => {
  const bench = await EdgectlBench.start(t);
  const pod = (name: string) => ({
    ...{ apiVersion: "v1", kind: "Pod", metadata: { name } },
    spec: { containers: [{ name: "app", image: "example/app:1" }] },
  });
  bench.input = Readable.from([
    Buffer.from(JSON.stringify({ apiVersion: "v1", kind: "List", items: [pod("one"), pod("two")] })),
  ]);
  assert.equal((await bench.run(words("apply -f -"))).code, 0);
  const applied = (): string[] =>
    [...bench.store.desired.current.pods.values()].map(({ pod: { metadata } }) => metadata.name);
  bench.view.setPods(
    ...[...bench.store.desired.current.pods.values()].map(({ pod: each, uid }) =>
      agentPod(each, { uid, source: "push", status: READY }),
    ),
  );
  assert.deepEqual(await bench.run(words("delete one")), { code: 0, out: 'pod "one-edge-1" deleted\n', error: "" });
  assert.deepEqual(applied(), ["two-edge-1"]);
});

test("status --watch writes anew only what has changed, where the cursor can move; elsewhere whole texts", async (t) => {
  const bench = await healthy(t);
  const [vt, paper] = [new CapturedTerminal(), new CapturedTerminal()];
  Object.assign(vt, { movesCursor: true, rows: 24 });
  const watches = [vt, paper].map((terminal) => bench.start(words("status --watch"), terminal));
  const shown = (count: number) => Promise.all([vt, paper].map((each) => each.until(({ writes }) => writes >= count)));
  await shown(1);
  assert.ok(!vt.out.includes("\x1b"), "the first look has no escape codes");
  const first = vt.out;
  await bench.clock.settle();
  assert.equal(bench.clock.sleeping, 2);
  // Nothing has changed but what counts the time.
  bench.view.setPods();
  await bench.clock.advance(seconds(2));
  await shown(2);
  const second = vt.out.slice(first.length).replaceAll("\x1b", "ESC");
  assert.match(second, /^ESC\[\d+Fedge-1 is healthy: 0 podsESC\[K\n/);
  assert.ok(second.length < first.length / 2, second);
  assert.match(paper.out.slice(first.length), /^\nedge-1 is healthy: 0 pods\nAgent/);
  assert.ok(!paper.out.includes("\x1b"));
  await bench.stopAgent();
  await bench.clock.advance(seconds(2));
  assert.deepEqual(await Promise.all(watches), [2, 2]);
  assert.equal((await bench.run(words("status --watch -o json"))).code, 64);
});

test("a screen leaves out what the terminal has no room for, and erases what is gone", async () => {
  const terminal = new CapturedTerminal();
  Object.assign(terminal, { movesCursor: true, rows: 4 });
  const screen = new Screen(terminal);
  await screen.show("a\nb\nc\nd\n");
  assert.equal(terminal.out, "a\nb\n... 2 more lines\n");
  await screen.show("a\nB\n");
  assert.equal(terminal.out.slice("a\nb\n... 2 more lines\n".length), "\x1b[3F\nB\x1b[K\n\x1b[J");
  const length = terminal.out.length;
  await screen.show("a\nB\n");
  assert.equal(terminal.out.length, length);
});

test("--version is version --client", async (t) => {
  const bench = await EdgectlBench.start(t);
  assert.deepEqual(await bench.run(["--version"]), await bench.run(words("version --client")));
});
