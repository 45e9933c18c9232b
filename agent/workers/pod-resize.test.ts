/** Changes of the resources of running pods, from the request to the published status. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type CgroupValues, podCgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { PodCondition, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { IMAGE, SmallAgent, SmallBoard } from "@picolet/test/support/unit/agent/small-agent.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import type { PodCgroupValues, PodResources } from "../core/pods/pod-cgroup-ports.ts";
import { requestOf } from "../plan/admission/admission-resources.ts";
import { infeasibleResize, resizeVerdict } from "../plan/admission/resize-admission.ts";

const SETTINGS = { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: -1 };
const RESTARTS = [{ resourceName: "memory", restartPolicy: "RestartContainer" as const }];

const both = (cpu: string, memory: string): ResourceRequirements => ({
  requests: { cpu, memory },
  limits: { cpu, memory },
});

interface Wish {
  readonly resources: ResourceRequirements;
  readonly generation?: number;
  readonly priority?: number;
  readonly sidecar?: ResourceRequirements;
  readonly resizePolicy?: typeof RESTARTS;
  readonly restartPolicy?: "Always" | "Never";
}

function apiPod(name: string, { resources, generation = 1, priority = 0, sidecar, ...more }: Wish): DesiredPod {
  const { resizePolicy, restartPolicy = "Always" } = more;
  const policy = resizePolicy === undefined ? {} : { resizePolicy };
  const app = { name: "app", image: IMAGE, command: ["run"], resources, ...policy };
  const init =
    sidecar === undefined
      ? {}
      : {
          initContainers: [
            { name: "side", image: IMAGE, command: ["run"], restartPolicy: "Always" as const, resources: sidecar },
          ],
        };
  const pod = podOf({ containers: [app], ...init, priority, restartPolicy }, { name, generation });
  return { uid: podUid(name), source: "api", origin: "", pod };
}

/** The cgroups of pods as a kernel has them, in memory. What is written and what is in use is for the test to say. */
class FakePodResources implements PodResources {
  readonly written: string[] = [];
  usage = 0;
  refuses = "";
  readonly #values = new Map<string, PodCgroupValues>();

  wanted({ pod }: DesiredPod): CgroupValues {
    return podCgroupValues(pod, SETTINGS);
  }

  onLook: () => Promise<void> = () => Promise.resolve();

  async current(pod: DesiredPod): Promise<PodCgroupValues | undefined> {
    await this.onLook();
    return this.#values.get(pod.uid) ?? this.#first(pod);
  }

  write(pod: DesiredPod, values: CgroupValues): Promise<void> {
    const named = Object.keys(values).filter((name) => name !== "cpuPeriodUs");
    if (named.includes(this.refuses)) return Promise.reject(new PicoletError("failed", `cannot write ${this.refuses}`));
    for (const name of named) this.written.push(`${name} ${values[name as keyof CgroupValues]}`);
    const before = this.#values.get(pod.uid) ?? this.#first(pod);
    this.#values.set(pod.uid, { ...before, ...(values as PodCgroupValues) });
    return Promise.resolve();
  }

  memoryUsage(): Promise<number | undefined> {
    return Promise.resolve(this.usage);
  }

  /** As the pod was made. */
  made(pod: DesiredPod): void {
    this.#values.set(pod.uid, this.#first(pod));
  }

  #first(pod: DesiredPod): PodCgroupValues {
    const { cpuShares = 2, cpuQuotaUs = -1, memoryLimitBytes = -1 } = this.wanted(pod);
    return { cpuShares, cpuQuotaUs, memoryLimitBytes };
  }
}

const conditionOf = (agent: SmallAgent, pod: DesiredPod, type: string): PodCondition | undefined =>
  agent.status(pod)?.conditions?.find((each) => each.type === type);
const resourcesOf = (agent: SmallAgent, pod: DesiredPod) => agent.status(pod)?.containerStatuses?.[0]?.resources;
const allocatedOf = (agent: SmallAgent, pod: DesiredPod) =>
  agent.status(pod)?.containerStatuses?.[0]?.allocatedResources;

/** Room for so much CPU and memory, judged by the rules of the node. */
function withRoom(agent: SmallAgent, milliCpu: bigint, memory = BigInt(1024 * MEBIBYTE)): void {
  const allocatable = new Map([
    ["cpu", milliCpu],
    ["memory", memory],
  ]);
  agent.admission.resize = (requested, allocated, others) => {
    const never = infeasibleResize(requested, allocated, { allocatable, limitedSwap: false });
    if (never !== undefined) return never;
    const used = others.reduce((sum, { pod }) => sum + requestOf(pod, "cpu"), 0n);
    const wanted = requestOf(requested.pod, "cpu");
    const message = `cpu, requested: ${wanted}, used: ${used}, capacity: ${milliCpu}`;
    return resizeVerdict(used + wanted > milliCpu ? { reason: "OutOfcpu", message } : undefined);
  };
}

describe("resources that are granted", () => {
  for (const [what, to, calls] of [
    [
      "more",
      both("200m", "64Mi"),
      ["memoryLimitBytes 67108864", "update", "cpuQuotaUs 20000", "cpuShares 204", "update"],
    ],
    ["less", both("50m", "16Mi"), ["update", "memoryLimitBytes 16777216", "update", "cpuShares 51", "cpuQuotaUs 5000"]],
    [
      "more memory and less CPU",
      both("50m", "64Mi"),
      ["memoryLimitBytes 67108864", "update", "update", "cpuShares 51", "cpuQuotaUs 5000"],
    ],
  ] as const) {
    test(`${what}: the pod's cgroup grows before its containers and shrinks after them, and nothing restarts`, async () => {
      using board = new SmallBoard();
      const podResources = new FakePodResources();
      await using agent = new SmallAgent(board, { podResources });
      const before = apiPod("web", { resources: both("100m", "32Mi") });
      await agent.order(before);
      podResources.made(before);
      board.takeCalls();
      board.onCall = ({ kind }) => {
        if (kind === "updateContainer") podResources.written.push("update");
        return undefined;
      };
      await agent.order(apiPod("web", { resources: to, generation: 2 }));
      assert.deepEqual(podResources.written, calls);
      assert.deepEqual(agent.containers(before), ["app/0 running"]);
      assert.deepEqual(resourcesOf(agent, before), to);
      assert.deepEqual(allocatedOf(agent, before), to.requests);
      assert.equal(conditionOf(agent, before, "PodResizeInProgress"), undefined);
      assert.equal(agent.status(before)?.observedGeneration, 2);
      const summary = `{"containers":[{"name":"app","resources":${JSON.stringify({
        limits: to.limits,
        requests: to.requests,
      })}}]}`;
      assert.deepEqual(
        agent.events.lines.filter((line) => line.includes("Resize")),
        [`Normal ResizeCompleted: Pod resize completed: ${summary}`],
      );
    });
  }

  test("the runtime hears of the pod's resources after its containers, and what it says of them fails nothing", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board, { podResources: new FakePodResources() });
    const pod = apiPod("web", { resources: both("100m", "32Mi") });
    await agent.order(pod);
    const changes = (): string[] => board.takeCalls().filter((call) => /^update/.test(call));
    assert.deepEqual(changes(), []);
    await agent.order(apiPod("web", { resources: both("200m", "32Mi"), generation: 2 }));
    assert.deepEqual(changes(), ["updateContainer web", "updateSandbox web"]);
    const error = new PicoletError("failed", "a plugin has failed");
    board.onCall = ({ kind }) => (kind === "updateSandbox" ? { kind: "refuse", error } : undefined);
    await agent.order(apiPod("web", { resources: both("300m", "32Mi"), generation: 3 }));
    assert.deepEqual(changes(), ["updateContainer web", "updateSandbox web"]);
    assert.deepEqual(resourcesOf(agent, pod), both("300m", "32Mi"));
    assert.equal(conditionOf(agent, pod, "PodResizeInProgress"), undefined);
    const warnings = agent.log.entries.filter(({ message }) => message.includes("new resources of a pod"));
    assert.deepEqual(
      warnings.map(({ level, fields }) => [level, fields.error]),
      [["warn", "a plugin has failed"]],
    );
  });

  test("of a sidecar and a container that restarts for memory: one in place, the other anew, the event once", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board, { podResources: new FakePodResources() });
    const wish = { resources: both("100m", "32Mi"), sidecar: both("50m", "16Mi"), resizePolicy: RESTARTS };
    const pod = apiPod("web", wish);
    await agent.order(pod);
    await agent.order(
      apiPod("web", { ...wish, resources: both("100m", "64Mi"), sidecar: both("60m", "24Mi"), generation: 2 }),
    );
    assert.deepEqual(agent.containers(pod).toSorted(), ["app/0 exited", "app/1 running", "side/0 running"]);
    assert.equal(agent.status(pod)?.containerStatuses?.[0]?.restartCount, 1);
    assert.deepEqual(agent.status(pod)?.initContainerStatuses?.[0]?.resources, both("60m", "24Mi"));
    const lines = agent.events.lines.filter((line) => /Killing|Resize/.test(line));
    assert.equal(lines[0], "Normal Killing spec.containers{app}: Container app resize requires restart");
    assert.equal(lines.filter((line) => line.includes("ResizeCompleted")).length, 1);
  });

  test("CPU alone of a container that restarts for memory changes in place", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const wish = { resources: both("100m", "32Mi"), resizePolicy: RESTARTS };
    const pod = apiPod("web", wish);
    await agent.order(pod);
    await agent.order(apiPod("web", { ...wish, resources: both("200m", "32Mi"), generation: 2 }));
    assert.deepEqual(agent.containers(pod), ["app/0 running"]);
    assert.deepEqual(resourcesOf(agent, pod), both("200m", "32Mi"));
  });

  test("that a runtime refuses are tried again, and told as the kubelet tells it; what is granted next comes at once", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const pod = apiPod("web", { resources: both("100m", "32Mi") });
    await agent.order(pod);
    const error = new PicoletError("failed", "cannot update container app-0");
    board.onCall = ({ kind }) => (kind === "updateContainer" ? { kind: "refuse", error } : undefined);
    await agent.order(apiPod("web", { resources: both("200m", "32Mi"), generation: 2 }));
    const { reason, message, observedGeneration } = conditionOf(agent, pod, "PodResizeInProgress") ?? {};
    assert.deepEqual([reason, message, observedGeneration], ["Error", "cannot update container app-0", 2]);
    assert.deepEqual(resourcesOf(agent, pod), both("100m", "32Mi"));
    assert.deepEqual(allocatedOf(agent, pod), { cpu: "200m", memory: "32Mi" });
    await agent.pass(1000);
    board.onCall = () => undefined;
    await agent.order(apiPod("web", { resources: both("300m", "32Mi"), generation: 3 }));
    assert.equal(conditionOf(agent, pod, "PodResizeInProgress"), undefined);
    assert.deepEqual(resourcesOf(agent, pod), both("300m", "32Mi"));
  });

  test("less memory than is in use is not tried", async () => {
    using board = new SmallBoard();
    const podResources = new FakePodResources();
    await using agent = new SmallAgent(board, { podResources });
    const pod = apiPod("web", { resources: both("100m", "32Mi") });
    await agent.order(pod);
    podResources.made(pod);
    podResources.usage = 20 * MEBIBYTE;
    board.takeCalls();
    await agent.order(apiPod("web", { resources: both("100m", "16Mi"), generation: 2 }));
    const condition = conditionOf(agent, pod, "PodResizeInProgress");
    assert.equal(condition?.reason, "Error");
    assert.equal(
      condition?.message,
      "cannot decrease memory limits: [attempting to set pod memory limit (16777216) below current usage (20971520), " +
        'attempting to set container "app" memory limit (16777216) below current usage (20971520)]',
    );
    assert.deepEqual(podResources.written, []);
    assert.equal(
      board.takeCalls().some((call) => call.startsWith("updateContainer")),
      false,
    );
    // The earlier request fits again.
    await agent.order(apiPod("web", { resources: both("100m", "32Mi"), generation: 3 }));
    assert.equal(conditionOf(agent, pod, "PodResizeInProgress"), undefined);
  });
});

describe("resources that are not granted", () => {
  test("more than the node has is infeasible: the pod keeps what it has, and so do the others' chances", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    withRoom(agent, 1000n);
    const pod = apiPod("web", { resources: { requests: { cpu: "100m" } } });
    await agent.order(pod);
    const asked = apiPod("web", { resources: { requests: { cpu: "100000" } }, generation: 2 });
    await agent.order(asked);
    const { reason, message, observedGeneration, status } = conditionOf(agent, pod, "PodResizePending") ?? {};
    assert.deepEqual([status, reason, observedGeneration], ["True", "Infeasible", 2]);
    assert.equal(message, "Node didn't have enough capacity: cpu, requested: 100000000, capacity: 1000");
    assert.deepEqual(allocatedOf(agent, pod), { cpu: "100m" });
    const seen: string[] = [];
    agent.admission.admit = (_new, others) => {
      seen.push(...others.map((each) => `${each.uid} ${requestOf(each.pod, "cpu")}`));
      return undefined;
    };
    await agent.order(asked, apiPod("other", { resources: { requests: { cpu: "100m" } } }));
    assert.deepEqual(seen, ["web 100"]);
    // Taken back, nothing is left of it.
    await agent.order(apiPod("web", { resources: { requests: { cpu: "100m" } }, generation: 3 }));
    assert.equal(conditionOf(agent, pod, "PodResizePending"), undefined);
    assert.deepEqual(agent.containers(pod), ["app/0 running"]);
    assert.equal(
      agent.events.lines.some((line) => line.includes("ResizeCompleted")),
      false,
    );
  });

  test("what does not fit waits for a pod to go or to shrink, the more important one first", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    withRoom(agent, 1000n);
    const cpu = (amount: string) => ({ resources: { requests: { cpu: amount } } });
    const big = apiPod("big", cpu("600m"));
    const low = apiPod("low", cpu("100m"));
    const high = apiPod("high", { ...cpu("100m"), priority: 10 });
    await agent.order(big, low, high);
    const lowMore = apiPod("low", { ...cpu("400m"), generation: 2 });
    await agent.order(big, lowMore, high);
    const highMore = apiPod("high", { ...cpu("400m"), priority: 10, generation: 2 });
    await agent.order(big, lowMore, highMore);
    for (const pod of [low, high]) assert.equal(conditionOf(agent, pod, "PodResizePending")?.reason, "Deferred");
    assert.equal(
      conditionOf(agent, low, "PodResizePending")?.message,
      "cpu, requested: 400, used: 700, capacity: 1000",
    );
    await agent.order(apiPod("big", { ...cpu("400m"), generation: 2 }), lowMore, highMore);
    assert.deepEqual(allocatedOf(agent, high), { cpu: "400m" });
    assert.deepEqual(allocatedOf(agent, low), { cpu: "100m" });
    assert.equal(conditionOf(agent, low, "PodResizePending")?.reason, "Deferred");
    assert.equal(conditionOf(agent, high, "PodResizePending"), undefined);
    await agent.order(lowMore, highMore);
    await agent.pass(60_000);
    assert.deepEqual(allocatedOf(agent, low), { cpu: "400m" });
  });

  test("what shrinks has what it had until it has shrunk", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    withRoom(agent, 1000n);
    const cpu = (amount: string) => ({ resources: { requests: { cpu: amount } } });
    const web = apiPod("web", cpu("100m"));
    await agent.order(apiPod("big", cpu("800m")), web);
    board.onCall = ({ kind, uid }) =>
      kind === "updateContainer" && uid === "big"
        ? { kind: "refuse", error: new PicoletError("failed", "cannot update it") }
        : undefined;
    const smaller = apiPod("big", { ...cpu("200m"), generation: 2 });
    const more = apiPod("web", { ...cpu("500m"), generation: 2 });
    await agent.order(smaller, web);
    await agent.order(smaller, more);
    assert.deepEqual(allocatedOf(agent, smaller), { cpu: "200m" });
    assert.equal(conditionOf(agent, web, "PodResizePending")?.reason, "Deferred");
    board.onCall = () => undefined;
    await agent.pass(60_000);
    assert.deepEqual(allocatedOf(agent, web), { cpu: "500m" });
  });

  test("a pod that has ended makes room, and the room itself is looked at every three minutes", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    withRoom(agent, 1000n);
    const cpu = (amount: string) => ({ resources: { requests: { cpu: amount } } });
    const job = apiPod("job", { ...cpu("600m"), restartPolicy: "Never" });
    const web = apiPod("web", cpu("100m"));
    const more = apiPod("web", { ...cpu("900m"), generation: 2 });
    await agent.order(job, web);
    await agent.order(job, more);
    assert.equal(conditionOf(agent, web, "PodResizePending")?.reason, "Deferred");
    agent.kill(job);
    await agent.pass(1000);
    assert.equal(agent.status(job)?.phase, "Failed");
    assert.deepEqual(allocatedOf(agent, web), { cpu: "900m" });
    await agent.order(job, apiPod("web", { ...cpu("1200m"), generation: 3 }));
    assert.equal(conditionOf(agent, web, "PodResizePending")?.reason, "Infeasible");
    withRoom(agent, 2000n);
    await agent.pass(200_000);
    assert.deepEqual(allocatedOf(agent, web), { cpu: "1200m" });
  });

  test("of a pod that is over nothing is said", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    withRoom(agent, 1000n);
    const pod = apiPod("job", { resources: { requests: { cpu: "1" } }, restartPolicy: "Never" });
    await agent.order(pod);
    await agent.order(apiPod("job", { resources: { requests: { cpu: "2" } }, restartPolicy: "Never", generation: 2 }));
    assert.equal(conditionOf(agent, pod, "PodResizePending")?.reason, "Infeasible");
    agent.kill(pod);
    await agent.pass(1000);
    assert.equal(agent.status(pod)?.phase, "Failed");
    assert.equal(conditionOf(agent, pod, "PodResizePending"), undefined);
  });
});

describe("a new agent", () => {
  test("goes on where the one before it was killed: granted and not carried out", async () => {
    using board = new SmallBoard();
    const pod = apiPod("web", { resources: both("100m", "32Mi") });
    const store = await heldUp(board, pod, apiPod("web", { resources: both("200m", "32Mi"), generation: 2 }));
    const podResources = new FakePodResources();
    await using agent = new SmallAgent(board, { store, podResources });
    podResources.made(pod);
    await agent.pass(1000);
    assert.deepEqual(resourcesOf(agent, pod), both("200m", "32Mi"));
    assert.deepEqual(agent.containers(pod), ["app/0 running"]);
    assert.deepEqual(podResources.written, ["cpuQuotaUs 20000", "cpuShares 204"]);
    assert.equal(agent.events.lines.filter((line) => line.includes("ResizeCompleted")).length, 1);
  });

  test("tells the end of a change whose container had to stop while no agent lived", async () => {
    using board = new SmallBoard();
    const wish = { resources: both("100m", "32Mi"), resizePolicy: RESTARTS };
    const pod = apiPod("web", wish);
    const asked = apiPod("web", { ...wish, resources: both("100m", "64Mi"), generation: 2 });
    const store = await heldUp(board, pod, asked, "stopContainer");
    const [running] = board.runtime.inspect(pod.uid).containers;
    board.runtime.kill(running?.id ?? "", "SIGKILL");
    await using agent = new SmallAgent(board, { store, podResources: new FakePodResources() });
    await agent.pass(20_000);
    assert.deepEqual(resourcesOf(agent, pod), both("100m", "64Mi"));
    assert.equal(agent.events.lines.filter((line) => line.includes("ResizeCompleted")).length, 1);
  });

  test("keeps what has not been granted waiting", async () => {
    using board = new SmallBoard();
    const pod = apiPod("web", { resources: { requests: { cpu: "100m" } } });
    const asked = apiPod("web", { resources: { requests: { cpu: "3" } }, generation: 2 });
    let first: SmallAgent | undefined = new SmallAgent(board);
    withRoom(first, 1000n);
    await first.order(pod);
    await first.order(asked);
    const { store } = first;
    await first[Symbol.asyncDispose]();
    first = undefined;
    await using agent = new SmallAgent(board, { store });
    withRoom(agent, 1000n);
    await agent.pass(1000);
    assert.equal(conditionOf(agent, pod, "PodResizePending")?.reason, "Infeasible");
    assert.deepEqual(allocatedOf(agent, pod), { cpu: "100m" });
    assert.deepEqual(agent.containers(pod), ["app/0 running"]);
  });

  test("that looks whether a pod was resized tells of no failure when another label comes in the middle", async () => {
    using board = new SmallBoard();
    const pod = apiPod("web", { resources: both("100m", "32Mi"), generation: 2 });
    const first = new SmallAgent(board);
    await first.order(pod);
    const { store } = first;
    await first[Symbol.asyncDispose]();
    const podResources = new FakePodResources();
    let looks = 0;
    podResources.onLook = async () => {
      looks += 1;
      if (looks > 1) return;
      const metadata = { ...pod.pod.metadata, labels: { colour: "green" } };
      store.desired.replace("api", store.desired.revision("api") + 1, [{ ...pod, pod: { ...pod.pod, metadata } }]);
      await new Promise((resolve) => setImmediate(resolve));
    };
    await using agent = new SmallAgent(board, { store, podResources });
    for (let turn = 0; turn < 3; turn += 1) await agent.pass(100);
    assert.equal(looks, 1);
    assert.equal(conditionOf(agent, pod, "PodResizeInProgress"), undefined);
  });

  test("updates nothing that was carried out", async () => {
    using board = new SmallBoard();
    const pod = apiPod("web", { resources: both("100m", "32Mi") });
    let first: SmallAgent | undefined = new SmallAgent(board);
    await first.order(pod);
    await first.order(apiPod("web", { resources: both("200m", "32Mi"), generation: 2 }));
    const { store } = first;
    await first[Symbol.asyncDispose]();
    first = undefined;
    board.takeCalls();
    await using agent = new SmallAgent(board, { store, podResources: new FakePodResources() });
    await agent.pass(1000);
    assert.equal(
      board.takeCalls().some((call) => call.startsWith("updateContainer")),
      false,
    );
    assert.equal(
      agent.events.lines.some((line) => line.includes("ResizeCompleted")),
      false,
    );
  });
});

/** The store of an agent that died when it was about to change the container. */
async function heldUp(board: SmallBoard, pod: DesiredPod, asked: DesiredPod, call = "updateContainer") {
  const agent = new SmallAgent(board);
  await agent.order(pod);
  board.onCall = ({ kind }) => (kind === call ? { kind: "hang", heedsSignal: true } : undefined);
  await agent.order(asked);
  assert.equal(conditionOf(agent, pod, "PodResizeInProgress")?.observedGeneration, 2);
  const { store } = agent;
  await agent[Symbol.asyncDispose]();
  board.onCall = () => undefined;
  return store;
}
