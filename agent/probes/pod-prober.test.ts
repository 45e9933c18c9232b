import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Probe } from "@picolet/protocol/pod/pod.ts";
import { type Millis, type MonotonicMs, millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type {
  DesiredPod,
  ExecResult,
  ObservedContainer,
  ObservedPod,
  RuntimeAdapter,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { ProbeResult } from "../core/pods/probe-ports.ts";
import { HttpGetter } from "./handlers/http-getter.ts";
import { PodProber } from "./pod-prober.ts";
import { nextDue } from "./probe-task.ts";

type ProbeDraft = Partial<Omit<Probe, "exec">>;
type ExecAnswer = number | "hang" | PicoletError | ExecResult;

interface Spec {
  readonly startup?: ProbeDraft;
  readonly liveness?: ProbeDraft;
  readonly readiness?: ProbeDraft;
}

const exited = (exitCode: number, stdout = "", stderr = ""): ExecResult => ({
  exitCode,
  stdout: Buffer.from(stdout),
  stderr: Buffer.from(stderr),
});

/** A prober on virtual time, with a runtime in which commands do what the test says. */
class World {
  readonly clock = new VirtualClock();
  readonly events: string[] = [];
  readonly changes: PodUid[] = [];
  /** `12 check app-0` for each command: when, its words, where. */
  readonly ran: string[] = [];
  /** By the command's first word. */
  answer: (word: string) => ExecAnswer = () => 0;
  aborted = 0;
  /** How long the children of a command that hangs keep its output open. */
  drain = seconds(0);
  readonly prober: PodProber;

  constructor() {
    this.prober = new PodProber({
      clock: this.clock,
      random: seededRandom(7),
      events: {
        record: (_, type, reason, message, container) =>
          this.events.push(`${this.#now} ${type} ${reason} ${container}: ${message}`),
      },
      http: new HttpGetter(),
      grpc: { check: () => Promise.resolve({ kind: "unreached" }) },
      expand: (text, lookup) => text.replaceAll(/\$\((\w+)\)/g, (whole, name) => lookup(name) ?? whole),
      hostIps: () => ["192.0.2.7"],
      runtimeRequestTimeout: seconds(120),
    });
    this.prober.observe((uid) => this.changes.push(uid));
  }

  get #now(): number {
    return this.clock.monotonic() / 1000;
  }

  readonly adapter = {
    execSync: (_: PodUid, id: string, command: readonly string[], timeout: Millis, signal: AbortSignal) => {
      this.ran.push(`${this.#now} ${command.join(" ")} ${id}`);
      const answer = this.answer(command[0] ?? "");
      if (typeof answer === "number") return Promise.resolve(exited(answer));
      if (answer instanceof PicoletError) return Promise.reject(answer);
      if (answer !== "hang") return Promise.resolve(answer);
      signal.addEventListener("abort", () => {
        this.aborted += 1;
      });
      return this.clock.sleep(millis(timeout + this.drain), signal).then(() => {
        throw new PicoletError("deadline_exceeded", "the command took too long");
      });
    },
  } as unknown as RuntimeAdapter;

  podWith(spec: Spec): DesiredPod {
    const draft = (name: string, probe?: ProbeDraft) => probe && { exec: { command: [name] }, ...probe };
    const container = {
      name: "app",
      image: "example/app:1",
      env: [{ name: "WORD", value: "value" }],
      startupProbe: draft("startup", spec.startup),
      livenessProbe: draft("liveness", spec.liveness),
      readinessProbe: draft("readiness", spec.readiness),
    };
    return desired(podOf({ containers: [container] }));
  }

  container(id: string, state: ObservedContainer["state"], name = "app"): ObservedContainer {
    const base = { attempt: 0, sandboxId: "s", createdAtMs: 0, hash: "", backoff: millis(0), image: "", imageId: "" };
    return { ...base, id, name, state, logPath: "" };
  }

  follow(
    pod: DesiredPod,
    ids: readonly string[],
    given: { readonly ending?: boolean; readonly before?: ProbeResult; readonly ranForMs?: number } = {},
  ): void {
    const startedAtMs = this.clock.wall().getTime() - (given.ranForMs ?? 0);
    const containers = ids.map((id) => this.container(id, { kind: "running", startedAtMs }));
    this.observe(pod, containers, given);
  }

  observe(
    pod: DesiredPod,
    containers: readonly ObservedContainer[],
    { ending = false, before }: { readonly ending?: boolean; readonly before?: ProbeResult } = {},
  ): void {
    const sandbox = { id: "s", attempt: 0, state: "ready", createdAtMs: 0, ips: ["127.0.0.1"] } as const;
    const observed: ObservedPod = { uid: pod.uid, sandboxes: [sandbox], containers, manifest: undefined };
    this.prober.follow(pod, observed, this.adapter, { ending, wasReady: () => before });
  }

  result(pod: DesiredPod, id = "app-0"): string {
    const result = this.prober.results(pod.uid).get(id);
    if (result === undefined) return "nothing";
    const { started, ready, failed } = result;
    const grace = failed?.gracePeriod === undefined ? "" : ` ${failed.gracePeriod}`;
    return `${started ? "started" : "waits"} ${ready ? "ready" : "unready"}${failed ? ` ${failed.probe} failed${grace}` : ""}`;
  }

  async pass(time: number): Promise<void> {
    await this.clock.advance(seconds(time));
  }
}

test("a container is not ready before its readiness probe has passed as often as it must", async () => {
  const world = new World();
  const pod = world.podWith({ readiness: { periodSeconds: 10, successThreshold: 2, failureThreshold: 2 } });
  world.answer = () => 1;
  world.follow(pod, ["app-0"]);
  assert.equal(world.result(pod), "started unready");
  await world.pass(15);
  assert.equal(world.result(pod), "started unready");
  world.answer = () => 0;
  await world.pass(10);
  assert.equal(world.result(pod), "started unready");
  await world.pass(10);
  assert.equal(world.result(pod), "started ready");
  world.answer = () => 1;
  await world.pass(10);
  assert.equal(world.result(pod), "started ready");
  await world.pass(10);
  assert.equal(world.result(pod), "started unready");
  assert.deepEqual(
    world.ran,
    [0, 10, 20, 30, 40, 50].map((at) => `${at} readiness app-0`),
  );
  assert.deepEqual(world.changes, [pod.uid, pod.uid]);
  assert.deepEqual(
    world.events,
    [0, 10, 40, 50].map((at) => `${at} Warning Unhealthy app: Readiness probe failed: `),
  );
});

test("a liveness probe that fails often enough fails the run, and rests until there is another", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: { failureThreshold: 3, terminationGracePeriodSeconds: 5 }, readiness: {} });
  world.answer = (word) => (word === "liveness" ? exited(1, "out", "err") : 0);
  world.follow(pod, ["app-0"]);
  await world.pass(15);
  assert.equal(world.result(pod), "started ready");
  await world.pass(5);
  assert.equal(world.result(pod), "started ready liveness failed 5000");
  assert.equal(world.events.at(-1), "20 Warning Unhealthy app: Liveness probe failed: outerr");
  await world.pass(60);
  assert.equal(world.ran.filter((each) => each.includes("liveness")).length, 3);
  assert.equal(world.ran.filter((each) => each.includes("readiness")).length, 9, "readiness is probed on");
  world.answer = () => 0;
  world.follow(pod, ["app-1"]);
  assert.equal(world.result(pod, "app-0"), "nothing");
  assert.equal(world.result(pod, "app-1"), "started unready", "nothing of the earlier run");
  await world.pass(0);
  assert.equal(world.result(pod, "app-1"), "started ready");
});

test("what earlier runs did counts for nothing", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: { failureThreshold: 2 } });
  world.answer = () => 1;
  world.follow(pod, ["app-0"]);
  await world.pass(5);
  world.follow(pod, ["app-1"]);
  await world.pass(5);
  assert.equal(world.result(pod, "app-1"), "started ready");
  await world.pass(5);
  assert.equal(world.result(pod, "app-1"), "started ready liveness failed");
});

test("the startup probe holds up the others; they begin at once when it has passed", async () => {
  const world = new World();
  const pod = world.podWith({ startup: { failureThreshold: 3 }, liveness: {}, readiness: {} });
  world.answer = (word) => (word === "startup" ? 1 : 0);
  world.follow(pod, ["app-0"]);
  await world.pass(12);
  assert.equal(world.result(pod), "waits unready");
  world.answer = () => 0;
  await world.pass(8);
  assert.equal(world.result(pod), "started ready");
  assert.deepEqual(world.ran, [
    "0 startup app-0",
    "10 startup app-0",
    "20 startup app-0",
    "20 liveness app-0",
    "20 readiness app-0",
  ]);
  await world.pass(10);
  assert.equal(world.ran.filter((each) => each.includes("startup")).length, 3, "it is over for this run");
});

test("a startup probe that fails too often fails the run", async () => {
  const world = new World();
  const pod = world.podWith({ startup: { failureThreshold: 2, terminationGracePeriodSeconds: 1 }, liveness: {} });
  world.answer = () => 1;
  world.follow(pod, ["app-0"]);
  await world.pass(60);
  assert.equal(world.result(pod), "waits unready startup failed 1000");
  assert.deepEqual(world.ran, ["0 startup app-0", "10 startup app-0"]);
});

test("the first probe comes when the initial delay is over, counted from the container's start", async () => {
  const world = new World();
  const pod = world.podWith({ readiness: { initialDelaySeconds: 30, periodSeconds: 100 } });
  world.follow(pod, ["app-0"], { ranForMs: 12_000 });
  await world.pass(120);
  assert.deepEqual(world.ran, ["18 readiness app-0", "118 readiness app-0"]);
});

test("a clock that jumps does not take the initial delay away", async () => {
  const world = new World();
  const pod = world.podWith({ readiness: { initialDelaySeconds: 30, periodSeconds: 100 } });
  world.follow(pod, []);
  await world.pass(5);
  world.follow(pod, ["app-0"], { ranForMs: 3_600_000 });
  await world.pass(24);
  assert.deepEqual(world.ran, []);
  await world.pass(1);
  assert.deepEqual(world.ran, ["30 readiness app-0"]);
});

test("after a restart of the agent what was ready stays so until a probe says otherwise, and all are spread", async () => {
  const world = new World();
  const pods = Array.from({ length: 40 }, (_, index) => {
    return { ...world.podWith({ startup: {}, readiness: { failureThreshold: 2 } }), uid: `pod-${index}` as PodUid };
  });
  world.answer = () => 1;
  for (const pod of pods) {
    const before = { started: true, ready: true };
    world.follow(pod, [`run-of-${pod.uid}`], { before, ranForMs: 60_000 });
    assert.equal(world.result(pod, `run-of-${pod.uid}`), "started ready");
  }
  await world.pass(10);
  const times = world.ran.map((each) => Number(each.split(" ")[0]));
  assert.equal(times.length, 40);
  assert.ok(
    world.ran.every((each) => each.includes(" readiness ")),
    "the startup probe had passed",
  );
  for (const [from, to] of [
    [0, 2.5],
    [2.5, 5],
    [5, 7.5],
    [7.5, 10],
  ] as const) {
    assert.ok(
      times.some((time) => time >= from && time < to),
      `none from ${from} to ${to}`,
    );
  }
  for (const pod of pods) assert.equal(world.result(pod, `run-of-${pod.uid}`), "started ready");
  await world.pass(10);
  for (const pod of pods) assert.equal(world.result(pod, `run-of-${pod.uid}`), "started unready");
});

test("after a restart of the agent what was not ready is probed at once, one after the other, then on a beat of its own", async () => {
  const world = new World();
  const reports = [{ started: true, ready: false }, { started: false, ready: false }, undefined];
  const pods = Array.from({ length: 51 }, (_, index) => {
    const pod = { ...world.podWith({ startup: {}, readiness: {} }), uid: `pod-${index}` as PodUid };
    return { pod, before: reports[index % reports.length], id: `run-${index}` };
  });
  for (const { pod, before, id } of pods) {
    world.follow(pod, [id], { ranForMs: 60_000, ...(before === undefined ? {} : { before }) });
  }
  await world.pass(0);
  assert.equal(world.result(pods[0]?.pod as DesiredPod, "run-0"), "started ready");
  // Each has to pass two probes at the most.
  await world.pass(2.1);
  for (const { pod, id } of pods) assert.equal(world.result(pod, id), "started ready");
  const firsts = world.ran.map((each) => each.split(" ")[0]);
  assert.equal(new Set(firsts).size, firsts.length, "no two in one tick");
  world.ran.length = 0;
  await world.pass(9);
  const beats = world.ran.map((each) => Number(each.split(" ")[0])).sort((a, b) => a - b);
  assert.ok((beats.at(-1) ?? 0) - (beats[0] ?? 0) > 5, `the second ones are spread: ${beats.join(" ")}`);
});

test("while the pod is ended readiness alone is probed, and nothing fails any more", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: { failureThreshold: 1 }, readiness: { failureThreshold: 1 } });
  world.follow(pod, ["app-0"]);
  await world.pass(0);
  world.answer = () => 1;
  world.follow(pod, ["app-0"], { ending: true });
  await world.pass(10);
  assert.equal(world.result(pod), "started unready");
  assert.deepEqual(world.ran.slice(2), ["10 readiness app-0"]);
  const failing = world.podWith({ liveness: { failureThreshold: 1 } });
  const other = { ...failing, uid: "other" as PodUid };
  world.follow(other, ["x-0"]);
  await world.pass(0);
  assert.equal(world.result(other, "x-0"), "started ready liveness failed");
  world.follow(other, ["x-0"], { ending: true });
  assert.equal(world.result(other, "x-0"), "started ready");
});

test("a pod that is ended before it has started counts as started", async () => {
  const world = new World();
  const pod = world.podWith({ startup: {}, readiness: {} });
  world.answer = (word) => (word === "startup" ? 1 : 0);
  world.follow(pod, ["app-0"]);
  await world.pass(1);
  world.follow(pod, ["app-0"], { ending: true });
  assert.equal(world.result(pod), "started unready");
  await world.pass(0);
  assert.equal(world.result(pod), "started ready");
  await world.pass(30);
  assert.equal(world.ran.filter((each) => each.includes("startup")).length, 1, "and is asked no more");
});

test("a command that hangs fails when its time is over, and delays no other probe", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: { timeoutSeconds: 90, failureThreshold: 1 }, readiness: { periodSeconds: 1 } });
  world.answer = (word) => (word === "liveness" ? "hang" : 0);
  world.follow(pod, ["app-0"]);
  await world.pass(91);
  assert.equal(world.result(pod), "started ready liveness failed");
  assert.equal(
    world.events[0],
    '90 Warning Unhealthy app: Liveness probe failed: command timed out: "liveness" timed out after 1m30s',
  );
  assert.equal(world.ran.filter((each) => each.includes("readiness")).length, 92);
});

test("a command whose children hold its output open fails when they have ended", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: { timeoutSeconds: 1, failureThreshold: 1 } });
  world.answer = () => "hang";
  world.drain = seconds(100);
  world.follow(pod, ["app-0"]);
  await world.pass(102);
  assert.equal(world.result(pod), "started ready liveness failed");
  assert.deepEqual(world.events, [
    '101 Warning Unhealthy app: Liveness probe failed: command timed out: "liveness" timed out after 1s',
  ]);
});

test("a runtime that does not even answer when it is to give up is left, and nothing is held against the container", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: { timeoutSeconds: 1, periodSeconds: 1, failureThreshold: 1 } });
  const adapter = { execSync: () => new Promise(() => undefined) } as unknown as RuntimeAdapter;
  const containers = [world.container("app-0", { kind: "running", startedAtMs: 0 })];
  const observed = { uid: pod.uid, sandboxes: [], containers, manifest: undefined };
  world.prober.follow(pod, observed, adapter, { ending: false, wasReady: () => undefined });
  await world.pass(600);
  const event =
    /^122 Warning Unhealthy app: Liveness probe errored and resulted in unknown state: the container runtime did not/;
  assert.match(world.events[0] ?? "", event);
  assert.ok(world.events.length > 3 && world.events.every((each) => !each.includes("failed")));
  assert.equal(world.result(pod), "started ready", "however often in a row");
});

test("one that takes longer than its period is made up for once, then comes on its beat again", async () => {
  const world = new World();
  const pod = world.podWith({ readiness: { timeoutSeconds: 25, periodSeconds: 10, failureThreshold: 100 } });
  world.answer = () => (world.ran.length === 1 ? "hang" : 0);
  world.follow(pod, ["app-0"]);
  await world.pass(55);
  assert.deepEqual(
    world.ran.map((each) => Number(each.split(" ")[0])),
    [0, 25, 30, 40, 50],
  );
});

test("a probe that cannot be carried out is tried three times, reported, and counts for nothing", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: { failureThreshold: 1 } });
  world.answer = () => new PicoletError("unavailable", "the runtime is gone");
  world.follow(pod, ["app-0"]);
  await world.pass(5);
  assert.equal(world.ran.length, 3);
  assert.deepEqual(world.events, [
    "0 Warning Unhealthy app: Liveness probe errored and resulted in unknown state: the runtime is gone",
  ]);
  assert.equal(world.result(pod), "started ready");
  world.answer = () => new PicoletError("unimplemented", "cannot exec into a WebAssembly component");
  await world.pass(5);
  assert.equal(world.ran.length, 4, "nothing else can come of it");
  assert.equal(
    world.events.at(-1),
    "10 Warning Unhealthy app: Liveness probe errored and resulted in unknown state: cannot exec into a WebAssembly component",
  );
});

test("what cannot be carried out makes nothing ready, and breaks no streak", async () => {
  const world = new World();
  const pod = world.podWith({ readiness: { successThreshold: 2, failureThreshold: 1 } });
  const gone = new PicoletError("not_found", "there is no such container");
  const answers: ExecAnswer[] = [gone, gone, 0, gone, 0, 1];
  world.answer = () => answers.shift() ?? 0;
  world.follow(pod, ["app-0"]);
  const results: string[] = [];
  for (let run = 0; run < 6; run += 1) {
    await world.pass(run === 0 ? 5 : 10);
    results.push(world.result(pod).split(" ")[1] ?? "");
  }
  assert.deepEqual(results, ["unready", "unready", "unready", "unready", "ready", "unready"]);
});

test("references in a command stand for the plain values of the container's env", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: { exec: { command: ["$(WORD)", "$(OTHER)", "$$"] } } as ProbeDraft });
  world.follow(pod, ["app-0"]);
  await world.pass(0);
  assert.deepEqual(world.ran, ["0 value $(OTHER) $$ app-0"]);
});

test("as much of a command's output is reported as by the kubelet", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: {} });
  world.answer = () => exited(1, "x".repeat(20_000), "y");
  world.follow(pod, ["app-0"]);
  await world.pass(0);
  assert.equal(world.events[0], `0 Warning Unhealthy app: Liveness probe failed: ${"x".repeat(10 * 1024)}`);
});

test("a container that runs no more has no probes and no result; neither has a pod that is forgotten", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: {}, readiness: {} });
  world.answer = () => "hang";
  world.follow(pod, ["app-0"]);
  await world.pass(0);
  assert.equal(world.ran.length, 2);
  const ended = { kind: "exited", startedAtMs: 0, finishedAtMs: 1, exitCode: 0, reason: "", message: "" } as const;
  world.observe(pod, [world.container("app-0", ended)]);
  assert.equal(world.aborted, 2);
  assert.equal(world.result(pod), "nothing");
  await world.pass(100);
  assert.equal(world.ran.length, 2);
  assert.deepEqual(world.events, []);
  world.follow(pod, ["app-1"]);
  await world.pass(0);
  world.prober.forget(pod.uid);
  await world.pass(100);
  assert.equal(world.ran.length, 4);
  assert.equal(world.result(pod, "app-1"), "nothing");
  assert.equal(world.clock.sleeping, 0);
});

test("sidecars are probed; init containers and pods without probes are not", async () => {
  const world = new World();
  const probe = { exec: { command: ["check"] } };
  const pod = desired(
    podOf({
      initContainers: [{ name: "side", image: "example/side:1", restartPolicy: "Always", readinessProbe: probe }],
      containers: [{ name: "app", image: "example/app:1" }],
    }),
  );
  const state = { kind: "running", startedAtMs: 0 } as const;
  world.observe(pod, [world.container("app-0", state), world.container("side-0", state, "side")]);
  assert.equal(world.result(pod), "nothing");
  await world.pass(0);
  assert.equal(world.result(pod, "side-0"), "started ready");
  const plain = { ...desired(podOf()), uid: "plain" as PodUid };
  world.follow(plain, ["app-0"]);
  assert.equal(world.prober.results(plain.uid).size, 0);
  assert.equal(world.clock.sleeping, 1, "of the sidecar's");
});

test("following again and again, with the pod's object another each time, changes nothing", async () => {
  const world = new World();
  const pod = world.podWith({ readiness: {} });
  world.follow(pod, ["app-0"]);
  await world.pass(3);
  const results = world.prober.results(pod.uid);
  for (let round = 0; round < 5; round += 1) world.follow({ ...pod }, ["app-0"]);
  assert.equal(world.prober.results(pod.uid), results);
  await world.pass(8);
  assert.deepEqual(world.ran, ["0 readiness app-0", "10 readiness app-0"]);
});

test("metrics are the kubelet's, and go with their pod", async () => {
  const world = new World();
  const pod = world.podWith({ liveness: {}, readiness: { timeoutSeconds: 8 } });
  world.answer = (word) => (word === "liveness" ? 1 : world.ran.length > 4 ? "hang" : 0);
  world.follow(pod, ["app-0"]);
  await world.pass(30);
  const text = [...(await world.prober.metrics())].join("");
  const labels = 'container="app",namespace="default",pod="web"';
  const own = `${labels},pod_uid="${pod.uid}"`;
  for (const line of [
    "# TYPE prober_probe_total counter",
    `prober_probe_total{${own},probe_type="Liveness",result="failed"} 3`,
    `prober_probe_total{${own},probe_type="Readiness",result="successful"} 2`,
    "# TYPE prober_probe_duration_seconds histogram",
    `prober_probe_duration_seconds_bucket{${labels},probe_type="Readiness",le="0.005"} 2`,
    `prober_probe_duration_seconds_bucket{${labels},probe_type="Readiness",le="+Inf"} 2`,
    `prober_probe_duration_seconds_sum{${labels},probe_type="Readiness"} 0`,
    `prober_probe_duration_seconds_count{${labels},probe_type="Readiness"} 2`,
  ]) {
    assert.ok(text.split("\n").includes(line), line);
  }
  assert.ok(
    !text.includes('duration_seconds_count{container="app",namespace="default",pod="web",probe_type="Liveness"'),
  );
  world.prober.forget(pod.uid);
  assert.deepEqual([...(await world.prober.metrics())], []);
});

test("when the agent ends, nothing is probed any more", async () => {
  const world = new World();
  const end = new AbortController();
  const running = endOfRun(world.prober.run(end.signal));
  const pod = world.podWith({ liveness: {} });
  world.answer = () => "hang";
  world.follow(pod, ["app-0"]);
  await world.pass(0);
  end.abort();
  await running;
  assert.equal(world.aborted, 1);
  await world.pass(100);
  assert.equal(world.clock.sleeping, 0);
});

test("a beat begins where it began, and stays on the marks that it has come to", () => {
  const at = (due: number, now: number): number => nextDue(due as MonotonicMs, seconds(10), now as MonotonicMs);
  assert.equal(at(1000, 1020), 11_000);
  assert.equal(at(1001, 1020), 11_250, "on to the next mark");
  assert.equal(at(11_250, 11_251), 21_250);
  assert.equal(at(1000, 11_000), 11_000, "just missed");
  assert.equal(at(1000, 36_000), 31_000, "of several the last");
});
