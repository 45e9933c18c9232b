/** Containers of every kind, hooks, deadlines and ends: the whole agent over one fake runtime, on virtual time. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import type { PodManifest } from "@picolet/protocol/pod/pod.ts";
import { millis, podUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { filePod, IMAGE, SmallAgent, SmallBoard } from "@picolet/test/support/unit/agent/small-agent.ts";
import type { DeviceResources } from "../core/pods/container-devices.ts";
import type { PodEnd } from "../core/pods/pod-admission.ts";

type Spec = NonNullable<PodManifest["spec"]>;
type ContainerSpec = NonNullable<Spec["containers"]>[number];

const container = (name: string, given: Partial<ContainerSpec> = {}): ContainerSpec => ({
  ...{ name, image: IMAGE, command: ["run"] },
  ...given,
});
const sidecar = (name: string, given: Partial<ContainerSpec> = {}): ContainerSpec =>
  container(name, { restartPolicy: "Always", ...given });
const podWith = (spec: Partial<Spec>): DesiredPod => filePod("web", ["run"], spec);
const exec = (command: string) => ({ exec: { command: [command] } });
const nap = (durationS: number) => ({ sleep: { seconds: durationS } });

/** `stopped app at 1000 with 143`, in the order in which it was seen to happen. */
function watchEnds(board: SmallBoard, pod: DesiredPod): () => string[] {
  const started = board.clock.wall().getTime();
  return () =>
    board.runtime
      .inspect(pod.uid)
      .containers.flatMap(({ name, state }) =>
        state.kind === "exited" ? [{ name, at: state.finishedAtMs - started, code: state.exitCode }] : [],
      )
      .sort((one, other) => one.at - other.at)
      .map(({ name, at, code }) => `${name} at ${at} with ${code}`);
}

const eventsOf = (agent: SmallAgent, pattern: RegExp): string[] =>
  agent.events.lines.filter((line) => pattern.test(line));

const evicted: PodEnd = {
  reason: "Evicted",
  message: "The node was low on resource: memory.",
  disruption: { reason: "TerminationByKubelet", message: "The node was low on resource: memory." },
};

const conditionOf = (agent: SmallAgent, pod: DesiredPod, type: string) =>
  agent.status(pod)?.conditions?.find((each) => each.type === type);

describe("init containers and sidecars", () => {
  test("start in order, each sidecar once it has started, the regular ones last", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({
      initContainers: [
        sidecar("proxy", { startupProbe: { exec: { command: ["up"] } } }),
        container("setup", { command: ["run-for", "2000", "0"] }),
      ],
    });
    await agent.want(pod);
    const run = board.runtime.inspect(pod.uid).containers[0]?.id ?? "";
    agent.prober.say(pod.uid, run, { started: false, ready: false });
    await agent.pass(1000);
    assert.deepEqual(agent.containers(pod), ["proxy/0 running"]);
    assert.equal(agent.status(pod)?.phase, "Pending");
    agent.prober.say(pod.uid, run, { started: true, ready: true });
    await agent.pass(500);
    assert.deepEqual(agent.containers(pod).sort(), ["proxy/0 running", "setup/0 running"]);
    assert.equal(agent.status(pod)?.containerStatuses?.[0]?.state.waiting?.reason, "PodInitializing");
    assert.equal(conditionOf(agent, pod, "Initialized")?.status, "False");
    await agent.pass(2000);
    assert.deepEqual(agent.containers(pod).sort(), ["app/0 running", "proxy/0 running", "setup/0 exited"]);
    assert.equal(agent.status(pod)?.phase, "Running");
    assert.deepEqual(
      agent.status(pod)?.initContainerStatuses?.map(({ name, ready, started }) => [name, ready, started]),
      [
        ["proxy", true, true],
        ["setup", true, false],
      ],
    );
  });

  test("a postStart hook holds up the next container", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({
      initContainers: [sidecar("proxy", { lifecycle: { postStart: nap(3) } })],
      containers: [container("one", { lifecycle: { postStart: nap(5) } }), container("two")],
    });
    await agent.want(pod);
    await agent.pass(2900);
    assert.deepEqual(agent.containers(pod), ["proxy/0 running"]);
    await agent.pass(4900);
    assert.deepEqual(agent.containers(pod).sort(), ["one/0 running", "proxy/0 running"]);
    assert.equal(agent.status(pod)?.phase, "Pending");
    await agent.pass(300);
    assert.deepEqual(agent.containers(pod).sort(), ["one/0 running", "proxy/0 running", "two/0 running"]);
    assert.equal(agent.status(pod)?.phase, "Running");
  });

  test("sidecars end one after the other when the others have, the last that started first", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({
      restartPolicy: "Never",
      initContainers: [
        sidecar("first", { command: ["slow-end", "1000"] }),
        sidecar("second", { command: ["slow-end", "2000"] }),
      ],
      containers: [container("app", { command: ["run-for", "4000", "0"] })],
    });
    await agent.want(pod);
    const ends = watchEnds(board, pod);
    await agent.pass(5000);
    assert.equal(agent.status(pod)?.phase, "Running");
    await agent.pass(5000);
    assert.deepEqual(ends(), ["app at 4000 with 0", "second at 6000 with 143", "first at 7000 with 143"]);
    assert.equal(agent.status(pod)?.phase, "Succeeded");
    assert.equal(conditionOf(agent, pod, "Ready")?.reason, "PodCompleted");
  });

  test("a sidecar gets no more than what is left of the grace period, but its two seconds", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({
      terminationGracePeriodSeconds: 5,
      initContainers: [sidecar("first", { command: ["deaf"] }), sidecar("second", { command: ["deaf"] })],
      containers: [container("app", { command: ["slow-end", "4000"] })],
    });
    await agent.want(pod);
    const ends = watchEnds(board, pod);
    void agent.workers.end(pod.uid, evicted, AbortSignal.timeout(60_000)).catch(() => undefined);
    await agent.pass(20_000);
    assert.deepEqual(ends(), ["app at 4000 with 143", "second at 6000 with 137", "first at 7000 with 137"]);
  });

  test("a sidecar is restarted although the pod never restarts, and its end is not the pod's", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({
      restartPolicy: "Never",
      initContainers: [sidecar("proxy", { command: ["run-for", "500", "1"] })],
    });
    await agent.want(pod);
    await agent.pass(700);
    assert.deepEqual(agent.containers(pod).sort(), ["app/0 running", "proxy/0 exited", "proxy/1 running"]);
    assert.equal(agent.status(pod)?.phase, "Running");
  });

  test("a failed init container fails a pod that never restarts, and the others stay as they wait", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const initContainers = [container("setup", { command: ["exit", "7"] }), container("more")];
    const pod = podWith({ restartPolicy: "Never", initContainers });
    await agent.want(pod);
    await agent.pass(100);
    const status = agent.status(pod);
    assert.equal(status?.phase, "Failed");
    assert.equal(status?.initContainerStatuses?.[0]?.state.terminated?.exitCode, 7);
    assert.equal(status?.initContainerStatuses?.[1]?.state.waiting?.reason, "PodInitializing");
    assert.equal(status?.containerStatuses?.[0]?.state.waiting?.reason, "PodInitializing");
    assert.equal(conditionOf(agent, pod, "Initialized")?.reason, "ContainersNotInitialized");
  });

  test("a container's own rules restart it although the pod never does", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const restartPolicyRules = [{ action: "Restart", exitCodes: { operator: "In", values: [42] } }] as const;
    const own = { restartPolicy: "Never", restartPolicyRules: [...restartPolicyRules] } as const;
    const pod = podWith({
      restartPolicy: "Never",
      containers: [
        container("again", { command: ["exit", "42"], ...own }),
        container("over", { command: ["exit", "41"], ...own }),
      ],
    });
    await agent.want(pod);
    await agent.pass(100);
    assert.deepEqual(agent.containers(pod).sort(), ["again/1 exited", "over/0 exited"]);
    assert.equal(agent.status(pod)?.phase, "Running");
  });
});

describe("hooks", () => {
  test("a postStart hook that fails ends the container with its grace, and the policy restarts it", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const lifecycle = { postStart: exec("fail"), preStop: nap(1) };
    const pod = podWith({ containers: [container("app", { command: ["slow-end", "500"], lifecycle })] });
    await agent.want(pod);
    await agent.pass(1400);
    assert.deepEqual(agent.containers(pod), ["app/0 running"]);
    await agent.pass(200);
    const waiting = agent.status(pod)?.containerStatuses?.[0]?.state.waiting;
    assert.deepEqual(waiting, { reason: "PostStartHookError", message: "Exec lifecycle hook ([fail]) failed" });
    assert.deepEqual(eventsOf(agent, /Hook|Killing|Failed/), [
      "Warning FailedPostStartHook spec.containers{app}: PostStartHook failed",
      "Normal Killing spec.containers{app}: FailedPostStartHook",
    ]);
    await agent.pass(3000);
    assert.equal(agent.status(pod)?.containerStatuses?.[0]?.restartCount, 1);
  });

  test("preStop hooks run at once in all containers, and their time counts", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({
      terminationGracePeriodSeconds: 10,
      containers: [
        container("long", { command: ["deaf"], lifecycle: { preStop: nap(4) } }),
        container("short", { lifecycle: { preStop: nap(1) } }),
        container("hangs", { command: ["deaf"], lifecycle: { preStop: exec("hang") } }),
        container("fails", { lifecycle: { preStop: exec("fail") } }),
        container("plain"),
      ],
    });
    await agent.want(pod);
    const ends = watchEnds(board, pod);
    void agent.workers.end(pod.uid, evicted, AbortSignal.timeout(60_000)).catch(() => undefined);
    await agent.pass(60_000);
    assert.deepEqual(ends().sort(), [
      "fails at 0 with 143",
      "hangs at 12000 with 137",
      "long at 10000 with 137",
      "plain at 0 with 143",
      "short at 1000 with 143",
    ]);
    assert.deepEqual(eventsOf(agent, /Hook/), ["Warning FailedPreStopHook spec.containers{fails}: PreStopHook failed"]);
    assert.equal(agent.hooks.calls.filter((call) => call.startsWith("begin")).length, 4);
    assert.equal(agent.status(pod)?.phase, "Failed");
  });

  test("one that has ended by itself has no preStop hook", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const lifecycle = { preStop: nap(1) };
    const pod = podWith({
      restartPolicy: "Never",
      containers: [container("app", { command: ["exit", "0"], lifecycle })],
    });
    await agent.want(pod);
    await agent.pass(100);
    await agent.want();
    await agent.pass(5000);
    assert.deepEqual(agent.hooks.calls, []);
  });

  test("less time cuts a hook that runs, and does not run it again; none kills at once", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const lifecycle = { preStop: exec("hang") };
    const pod = podWith({
      terminationGracePeriodSeconds: 100,
      containers: [container("app", { command: ["deaf"], lifecycle })],
    });
    await agent.want(pod);
    const ends = watchEnds(board, pod);
    const { signal } = new AbortController();
    void agent.workers.end(pod.uid, evicted, signal);
    await agent.pass(10_000);
    void agent.workers.end(pod.uid, { ...evicted, gracePeriod: seconds(20) }, signal);
    await agent.pass(9000);
    assert.deepEqual(ends(), []);
    void agent.workers.end(pod.uid, { ...evicted, gracePeriod: millis(0) }, signal);
    await agent.pass(100);
    assert.deepEqual(ends(), ["app at 19000 with 137"]);
    assert.equal(agent.hooks.calls.filter((call) => call.startsWith("begin")).length, 1);
    assert.equal(eventsOf(agent, /Killing/).length, 1);
  });

  test("a pod that is removed does not wait for its postStart hook", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({ containers: [container("app", { lifecycle: { postStart: exec("hang") } })] });
    await agent.want(pod);
    await agent.pass(1000);
    assert.deepEqual(agent.containers(pod), ["app/0 running"]);
    await agent.want();
    await agent.pass(1000);
    assert.deepEqual(agent.containers(pod), []);
    assert.deepEqual(eventsOf(agent, /Hook/), []);
  });
});

describe("probes", () => {
  const failing = (gracePeriod?: number) =>
    ({
      ...{ started: true, ready: false },
      failed: { probe: "liveness", gracePeriod: gracePeriod === undefined ? undefined : seconds(gracePeriod) },
    }) as const;

  test("one that fails has the container restarted, with its own grace period and the kubelet's message", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({ containers: [container("app", { command: ["deaf"] })] });
    await agent.want(pod);
    const run = board.runtime.inspect(pod.uid).containers[0]?.id ?? "";
    agent.prober.say(pod.uid, run, failing(3));
    await agent.pass(2900);
    assert.deepEqual(agent.containers(pod), ["app/0 running"]);
    await agent.pass(300);
    assert.deepEqual(agent.containers(pod), ["app/1 running", "app/0 exited"]);
    assert.deepEqual(eventsOf(agent, /Killing/), [
      "Normal Killing spec.containers{app}: Container app failed liveness probe, will be restarted",
    ]);
  });

  test("and ends for good when the pod never restarts", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({ restartPolicy: "Never" });
    await agent.want(pod);
    agent.prober.say(pod.uid, board.runtime.inspect(pod.uid).containers[0]?.id ?? "", failing());
    await agent.pass(1000);
    assert.deepEqual(agent.containers(pod), ["app/0 exited"]);
    assert.equal(agent.status(pod)?.phase, "Failed");
    assert.deepEqual(eventsOf(agent, /Killing/), [
      "Normal Killing spec.containers{app}: Container app failed liveness probe",
    ]);
  });

  test("a restart for a probe waits from the end of the run before, as a kubelet's does", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({});
    await agent.want(pod);
    agent.kill(pod);
    await agent.pass(30_000);
    const [newest] = board.runtime.inspect(pod.uid).containers;
    agent.prober.say(pod.uid, newest?.id ?? "", failing());
    await agent.pass(100);
    assert.equal(agent.containers(pod)[0], "app/2 running");
  });

  test("what was ready is told to the prober of the next agent", async () => {
    using board = new SmallBoard();
    const pod = podWith({ containers: [container("app", { readinessProbe: { exec: { command: ["true"] } } })] });
    const first = new SmallAgent(board);
    await first.want(pod);
    const run = board.runtime.inspect(pod.uid).containers[0]?.id ?? "";
    first.prober.say(pod.uid, run, { started: true, ready: true });
    await first.pass(100);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board, { store: first.store });
    const told: unknown[] = [];
    second.prober.onFollow = (id, result) => told.push([id, result]);
    await second.pass(2000);
    assert.deepEqual(told[0], [run, { started: true, ready: true }]);
  });

  test("readiness goes on being told while a pod takes its time to end", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({ terminationGracePeriodSeconds: 30, containers: [container("app", { command: ["deaf"] })] });
    await agent.want(pod);
    const run = board.runtime.inspect(pod.uid).containers[0]?.id ?? "";
    await agent.want();
    await agent.pass(1000);
    assert.equal(conditionOf(agent, pod, "Ready")?.status, "True");
    agent.prober.say(pod.uid, run, { started: true, ready: false });
    await agent.pass(1000);
    assert.equal(conditionOf(agent, pod, "Ready")?.status, "False");
    assert.deepEqual(agent.prober.followed, ["web ending=false", "web ending=true"]);
  });
});

describe("ephemeral containers", () => {
  const debug = { name: "debug", image: IMAGE, command: ["run-for", "2000", "3"], targetContainerName: "app" };

  test("start once in a running pod, touch nothing else, and are never restarted", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({});
    await agent.want(pod);
    await agent.want({ ...podWith({ ephemeralContainers: [debug] }), uid: pod.uid });
    assert.deepEqual(agent.containers(pod).sort(), ["app/0 running", "debug/0 running"]);
    assert.deepEqual(eventsOf(agent, /ephemeral/), [
      `Normal Pulled spec.ephemeralContainers{debug}: Container image "${IMAGE}" already present on machine`,
      "Normal Created spec.ephemeralContainers{debug}: Created container: debug",
      "Normal Started spec.ephemeralContainers{debug}: Started container debug",
    ]);
    await agent.pass(60_000);
    assert.deepEqual(agent.containers(pod).sort(), ["app/0 running", "debug/0 exited"]);
    const [told] = agent.status(pod)?.ephemeralContainerStatuses ?? [];
    assert.equal(told?.state.terminated?.exitCode, 3);
    assert.equal(told?.ready, false);
    assert.equal(agent.status(pod)?.phase, "Running");
    assert.equal(conditionOf(agent, pod, "Ready")?.status, "True");
    agent.board.runtime.stopSandbox(board.runtime.inspect(pod.uid).sandboxes[0]?.id ?? "");
    await agent.pass(60_000);
    assert.equal(agent.containers(pod).filter((each) => each.startsWith("debug")).length, 1);
  });

  test("do not start in a pod that is over", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const over = { restartPolicy: "Never", containers: [container("app", { command: ["exit", "0"] })] } as const;
    const pod = podWith({ ...over, containers: [...over.containers] });
    await agent.want(pod);
    await agent.pass(100);
    await agent.want({
      ...podWith({ ...over, containers: [...over.containers], ephemeralContainers: [debug] }),
      uid: pod.uid,
    });
    await agent.pass(5000);
    assert.deepEqual(agent.containers(pod), ["app/0 exited"]);
  });
});

describe("a deadline", () => {
  test("fails the pod with the kubelet's reason, message and event", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({ activeDeadlineSeconds: 30 });
    await agent.want(pod);
    await agent.pass(29_900);
    assert.equal(agent.status(pod)?.phase, "Running");
    await agent.pass(200);
    const { phase, reason, message } = agent.status(pod) ?? {};
    const said = "Pod was active on the node longer than the specified deadline";
    assert.deepEqual([phase, reason, message], ["Failed", "DeadlineExceeded", said]);
    assert.deepEqual(eventsOf(agent, /Deadline/), [`Normal DeadlineExceeded: ${said}`]);
    await agent.pass(60_000);
    assert.deepEqual(agent.containers(pod), ["app/0 exited"]);
  });

  test("that is set later counts from the start, and cuts a postStart hook", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const containers = [container("app", { lifecycle: { postStart: exec("hang") } })];
    const pod = podWith({ containers, activeDeadlineSeconds: 50 });
    await agent.want(pod);
    await agent.pass(49_000);
    assert.equal(agent.status(pod)?.reason, undefined);
    await agent.pass(1100);
    assert.equal(agent.status(pod)?.phase, "Failed");
    const other = filePod("db");
    await agent.want(pod, other);
    await agent.pass(20_000);
    await agent.want(pod, { ...filePod("db", ["run"], { activeDeadlineSeconds: 10 }), uid: other.uid });
    await agent.pass(100);
    assert.equal(agent.status(other)?.reason, "DeadlineExceeded");
  });

  test("goes on under the next agent, by the wall clock", async () => {
    using board = new SmallBoard();
    const pod = podWith({ activeDeadlineSeconds: 30 });
    const first = new SmallAgent(board);
    await first.want(pod);
    await first.pass(20_000);
    await first[Symbol.asyncDispose]();
    await board.clock.advance(millis(5000));
    await using second = new SmallAgent(board, { store: first.store });
    await second.pass(4000);
    assert.equal(second.status(pod)?.phase, "Running");
    await second.pass(1500);
    assert.equal(second.status(pod)?.reason, "DeadlineExceeded");
  });
});

describe("admission", () => {
  test("is asked once, before anything of the pod is there; a rejected pod fails and has nothing", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    agent.admission.rejects = ({ uid }) =>
      uid === "web" ? { reason: "OutOfcpu", message: "Node didn't have enough resource: cpu" } : undefined;
    const pod = podWith({});
    await agent.want(filePod("db"), pod);
    await agent.pass(60_000);
    assert.deepEqual(agent.admission.asked, ["db beside []", "web beside [db]"]);
    assert.deepEqual(agent.status(pod), {
      phase: "Failed",
      message: "Pod was rejected: Node didn't have enough resource: cpu",
      reason: "OutOfcpu",
      startTime: agent.status(pod)?.startTime,
      qosClass: "BestEffort",
    });
    assert.deepEqual(eventsOf(agent, /OutOf/), ["Warning OutOfcpu: Node didn't have enough resource: cpu"]);
    assert.equal(agent.environment.prepared.has(pod.uid), false);
    assert.deepEqual(agent.containers(pod), []);
  });

  test("is not asked again by the next agent for a pod of the API server, whatever it said", async () => {
    using board = new SmallBoard();
    const pod: DesiredPod = { ...podWith({}), source: "api" };
    const first = new SmallAgent(board);
    first.admission.rejects = () => ({ reason: "OutOfpods", message: "too many" });
    await first.order(pod);
    first.workers.revive();
    await first.pass(1000);
    assert.equal(first.admission.asked.length, 1);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board, { store: first.store });
    await second.pass(5000);
    assert.deepEqual(second.admission.asked, []);
    assert.equal(second.status(pod)?.reason, "OutOfpods");
    assert.equal(second.status(pod)?.containerStatuses, undefined);
    assert.deepEqual(second.containers(pod), []);
  });

  test("is asked again by the next agent for a pod of the node's own that was rejected, which counts for nothing till then", async () => {
    using board = new SmallBoard();
    const pod = podWith({ activeDeadlineSeconds: 60 });
    const refused: DesiredPod = { ...filePod("refused"), source: "api" };
    const first = new SmallAgent(board);
    first.admission.rejects = () => ({ reason: "OutOfcpu", message: "too little" });
    await first.want(pod);
    await first.order(refused);
    const rejectedAt = first.status(pod)?.startTime;
    await first.pass(100_000);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board, { store: first.store });
    await second.order(refused, { ...filePod("new"), source: "api" });
    await second.pass(5000);
    assert.deepEqual(second.admission.asked.toSorted(), ["new beside [web]", "web beside []"]);
    assert.deepEqual(second.containers(pod), ["app/0 running"]);
    const { phase, reason, startTime } = second.status(pod) ?? {};
    assert.deepEqual([phase, reason], ["Running", undefined]);
    assert.notEqual(startTime, rejectedAt, "its time counts from now on");
    await second.pass(50_000);
    assert.equal(second.status(pod)?.phase, "Running");
  });

  test("is asked again when a shutdown was cancelled, and may say no again", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({});
    agent.admission.rejects = () => ({
      reason: "NodeShutdown",
      message: "Pod was rejected as the node is shutting down.",
    });
    await agent.want(pod);
    agent.workers.revive();
    await agent.pass(1000);
    assert.equal(agent.admission.asked.length, 2);
    assert.deepEqual([agent.status(pod)?.phase, agent.status(pod)?.reason], ["Failed", "NodeShutdown"]);
    agent.admission.rejects = () => undefined;
    agent.workers.revive();
    await agent.pass(1000);
    assert.deepEqual(agent.containers(pod), ["app/0 running"]);
    assert.equal(agent.status(pod)?.phase, "Running");
  });
});

describe("ending a pod that is wanted", () => {
  test("is done when nothing runs; it is Failed then and not before, and stays", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({ containers: [container("app", { command: ["slow-end", "3000"] })] });
    await agent.want(pod);
    let isDone = false;
    void agent.workers.end(pod.uid, evicted, new AbortController().signal).then(() => {
      isDone = true;
    });
    await agent.pass(2000);
    assert.deepEqual([agent.status(pod)?.phase, agent.status(pod)?.reason, isDone], ["Running", "Evicted", false]);
    await agent.pass(1500);
    assert.deepEqual([agent.status(pod)?.phase, agent.status(pod)?.reason, isDone], ["Failed", "Evicted", true]);
    assert.equal(conditionOf(agent, pod, "DisruptionTarget")?.reason, "TerminationByKubelet");
    await agent.pass(60_000);
    assert.deepEqual(agent.containers(pod), ["app/0 exited"]);
    await agent.workers.end(pod.uid, evicted, new AbortController().signal);
    await agent.workers.end(podUid("unknown"), evicted, new AbortController().signal);
  });

  test("goes on under the next agent when this one dies in the middle", async () => {
    using board = new SmallBoard();
    const pod: DesiredPod = {
      ...podWith({ containers: [container("app", { command: ["slow-end", "9000"] })] }),
      source: "api",
    };
    const first = new SmallAgent(board);
    first.store.desired.replace("api", 1, [pod]);
    await first.pass(100);
    void first.workers.end(pod.uid, evicted, new AbortController().signal).catch(() => undefined);
    await first.pass(1000);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board, { store: first.store });
    await second.pass(60_000);
    const { phase, reason, message } = second.status(pod) ?? {};
    assert.deepEqual([phase, reason, message], ["Failed", "Evicted", evicted.message]);
    assert.equal(conditionOf(second, pod, "DisruptionTarget")?.reason, "TerminationByKubelet");
    assert.deepEqual(second.containers(pod), ["app/0 exited"]);
  });

  test("a pod of the node's own runs again when it is revived, or under the next agent", async () => {
    using board = new SmallBoard();
    const pod = podWith({});
    const first = new SmallAgent(board);
    await first.want(pod);
    await first.workers.end(pod.uid, evicted, new AbortController().signal);
    await first.pass(1000);
    assert.deepEqual(first.containers(pod), ["app/0 exited"]);
    first.workers.revive();
    await first.pass(15_000);
    assert.equal(first.containers(pod)[0], "app/1 running");
    await first.workers.end(pod.uid, evicted, new AbortController().signal);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board, { store: first.store });
    await second.pass(30_000);
    assert.equal(second.containers(pod)[0], "app/2 running");
    assert.equal(second.status(pod)?.phase, "Running");
  });
});

test("a rejected pod of the node's own is judged again when a device that it asks for is plugged in", async () => {
  using board = new SmallBoard();
  const camera = "example.com/camera";
  const resourcesOf = (cameras: number, others: number): DeviceResources => {
    const counts = { [camera]: String(cameras), "example.com/other": String(others) };
    return { capacity: counts, allocatable: counts };
  };
  const changes = new WatchSource(resourcesOf(0, 0));
  const devices = { changes, prepare: async () => undefined, launch: async () => undefined, health: () => [] };
  await using agent = new SmallAgent(board, { devices });
  const pod = podWith({ containers: [container("app", { resources: { limits: { [camera]: "2" } } })] });
  const isThere = (): boolean => changes.current.allocatable[camera] === "2";
  agent.admission.rejects = () => (isThere() ? undefined : { reason: `OutOf${camera}`, message: "no camera" });
  await agent.want(pod);
  await agent.pass(1000);
  assert.equal(agent.status(pod)?.reason, `OutOf${camera}`);
  assert.equal(agent.admission.asked.length, 1);
  for (const less of [resourcesOf(0, 1), resourcesOf(1, 1)]) {
    changes.set(less);
    await agent.pass(1000);
  }
  assert.equal(agent.admission.asked.length, 1);
  changes.set(resourcesOf(2, 1));
  await agent.pass(5000);
  assert.deepEqual([agent.status(pod)?.phase, agent.admission.asked.length], ["Running", 2]);
});

describe("a restart that a user asks for", () => {
  test("ends all containers, and begins anew in a new sandbox, with init containers and without back-off", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = podWith({ initContainers: [container("setup", { command: ["run-for", "1000", "0"] })] });
    await agent.want(pod);
    await agent.pass(3000);
    assert.deepEqual(agent.containers(pod).sort(), ["app/0 running", "setup/0 exited"]);
    const [before] = board.runtime.inspect(pod.uid).sandboxes;
    const left = agent.workers.leave(pod.uid, { comesBack: true }, new AbortController().signal);
    await agent.pass(60_000);
    await left;
    const [after, ...older] = board.runtime.inspect(pod.uid).sandboxes;
    assert.notEqual(after?.id, before?.id);
    assert.equal(older.length, 0);
    assert.deepEqual(agent.containers(pod).sort(), ["app/1 running", "setup/1 exited"]);
    assert.deepEqual(
      agent.status(pod)?.containerStatuses?.map(({ restartCount, ready }) => [restartCount, ready]),
      [[1, true]],
    );
    assert.equal(eventsOf(agent, /Restarting all containers/).length, 1);
    assert.equal(eventsOf(agent, /Back-off/).length, 0);
    // It was asked for once.
    await agent.pass(60_000);
    assert.equal(board.runtime.inspect(pod.uid).sandboxes[0]?.id, after?.id);
  });

  test("of a pod that starts does no harm, and of one that is over nothing", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const [web, job] = [podWith({}), filePod("job", ["exit", "0"], { restartPolicy: "Never" })];
    await agent.want(web, job);
    const { signal } = new AbortController();
    await agent.workers.leave(web.uid, { comesBack: true }, signal);
    await agent.pass(60_000);
    assert.match(agent.containers(web).join(), /^app\/\d running$/);
    assert.equal(agent.status(job)?.phase, "Succeeded");
    await agent.workers.leave(job.uid, { comesBack: true }, signal);
    await agent.pass(60_000);
    assert.deepEqual(agent.containers(job), ["app/0 exited"]);
  });
});
