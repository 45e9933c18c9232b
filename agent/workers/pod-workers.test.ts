import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { filePod, IMAGE, SmallAgent, SmallBoard } from "@picolet/test/support/unit/agent/small-agent.ts";
import { planPod } from "../plan/plan-pod.ts";

const web = filePod("web");
const hang = { kind: "hang", heedsSignal: true } as const;
const broken = (what: string) =>
  ({ kind: "refuse", error: new PicoletError("failed", `cannot ${what}`, { retryable: true }) }) as const;

/** Another incarnation of the same name. */
const again = (pod: DesiredPod, uid: string, command: readonly string[] = ["run"]): DesiredPod => ({
  ...filePod(pod.pod.metadata.name, command),
  uid: podUid(uid),
});

describe("starting a pod", () => {
  test("takes no timer, no look at a pod that is known not to be there, and one look at its new sandbox", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.pass(0);
    board.takeCalls();
    await agent.want(web);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
    assert.deepEqual(board.takeCalls(), [
      "imageStatus",
      "createSandbox web",
      "inspect web",
      "startContainer web",
      "inspect web",
    ]);
    assert.equal(board.clock.monotonic(), 0);
    assert.equal(agent.status(web)?.phase, "Running");
  });

  test("is told by the kubelet's events", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.want(web);
    assert.deepEqual(agent.events.lines, [
      `Normal Pulled spec.containers{app}: Container image "${IMAGE}" already present on machine`,
      "Normal Created spec.containers{app}: Created container: app",
      "Normal Started spec.containers{app}: Started container app",
    ]);
  });

  test("asks a pod on the host's network for no address", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.pass(0);
    board.takeCalls();
    await agent.want(filePod("web", ["run"], { hostNetwork: true }));
    assert.deepEqual(board.takeCalls(), ["imageStatus", "createSandbox web", "startContainer web", "inspect web"]);
  });

  test("of 40 pods makes eight sandboxes at a time", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.pass(0);
    board.runtime.faults.latency = ({ kind }) => millis(kind === "createSandbox" ? 100 : 0);
    const pods = Array.from({ length: 40 }, (_, index) => filePod(`pod-${index}`));
    await agent.want(...pods);
    await agent.pass(1000);
    const ready = (): number => pods.filter((pod) => agent.status(pod)?.phase === "Running").length;
    // Two latencies each, five batches of eight.
    assert.equal(ready(), 40);
    assert.equal(board.takeCalls().filter((call) => call.startsWith("createSandbox")).length, 40);
  });

  test("makes way after 5 s when eight sandboxes hang", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    board.onCall = ({ kind, uid }) => (kind === "createSandbox" && uid?.startsWith("bad") ? hang : undefined);
    await agent.want(...Array.from({ length: 8 }, (_, index) => filePod(`bad-${index}`)), web);
    assert.deepEqual(agent.containers(web), []);
    await agent.pass(5000);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
  });

  test("with an unknown runtime class fails with its name and harms no other", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const odd = filePod("odd", ["run"], { runtimeClassName: "gvisor" });
    await agent.want(odd, web);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
    assert.ok(
      agent.events.lines.includes(
        'Warning FailedCreatePodSandBox: Failed to create pod sandbox: RuntimeClass "gvisor" not found',
      ),
    );
    await agent.want(web);
    assert.equal(agent.workers.size, 1);
  });
});

describe("a pod that crashes", () => {
  test("is restarted the first time at the very moment of the hint", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.want(web);
    await agent.pass(20_000);
    const before = board.clock.monotonic();
    agent.kill(web);
    await board.clock.settle();
    assert.deepEqual(agent.containers(web), ["app/1 running", "app/0 exited"]);
    assert.equal(board.clock.monotonic(), before);
  });

  test("is restarted within 30 ms when its runtime shows the exit 20 ms after the hint", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.want(web);
    await agent.pass(20_000);
    board.runtime.faults.exitLag = () => millis(20);
    agent.kill(web);
    await agent.pass(30);
    assert.deepEqual(agent.containers(web), ["app/1 running", "app/0 exited"]);
  });

  test("waits longer and longer, and says so once for each wait", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const crashing = filePod("web", ["run-for", "1000", "7"]);
    await agent.want(crashing);
    await agent.pass(2000);
    assert.deepEqual(agent.containers(crashing), ["app/1 exited", "app/0 exited"].slice(0, 1));
    const waiting = agent.status(crashing)?.containerStatuses?.[0]?.state.waiting;
    assert.equal(waiting?.message, "back-off 10s restarting failed container=app pod=web_default(web)");
    await agent.pass(10_000);
    assert.deepEqual(agent.containers(crashing), ["app/2 running", "app/1 exited"]);
    await agent.pass(21_000);
    assert.deepEqual(agent.containers(crashing), ["app/3 running", "app/2 exited"]);
    const backOffs = agent.events.lines.filter((line) => line.startsWith("Warning BackOff"));
    assert.deepEqual(backOffs, [
      "Warning BackOff spec.containers{app}: Back-off restarting failed container app in pod web_default(web)",
      "Warning BackOff spec.containers{app}: Back-off restarting failed container app in pod web_default(web)",
    ]);
  });

  test("was killed for want of memory, though its runtime hears of that after it has shown the end", async () => {
    for (const restartPolicy of ["Always", "Never"] as const) {
      using board = new SmallBoard();
      await using agent = new SmallAgent(board);
      const pod = filePod("web", ["run"], { restartPolicy });
      await agent.want(pod);
      await agent.pass(20_000);
      agent.kill(pod);
      await agent.pass(1_000);
      const ended = () => {
        const { state, lastState } = agent.status(pod)?.containerStatuses?.[0] ?? {};
        return (restartPolicy === "Never" ? state : lastState)?.terminated?.reason;
      };
      assert.equal(ended(), "Error");
      const run = board.runtime.inspect(pod.uid).containers.find(({ attempt }) => attempt === 0);
      board.runtime.reportOomKill(run?.id ?? "");
      await board.clock.settle();
      assert.equal(ended(), "OOMKilled", restartPolicy);
    }
  });

  test("tells what it left in its termination message file", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board, { terminationMessage: (_pod, { name }) => `${name} is done for` });
    const failing = filePod("web", ["exit", "7"], { restartPolicy: "Never" });
    await agent.want(failing);
    assert.equal(agent.status(failing)?.phase, "Failed");
    assert.equal(agent.status(failing)?.containerStatuses?.[0]?.state.terminated?.message, "app is done for");
  });

  test("gets a new sandbox when its own has died", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.want(web);
    const [sandbox] = board.runtime.inspect(web.uid).sandboxes;
    board.runtime.stopSandbox(sandbox?.id ?? "");
    await board.clock.settle();
    assert.deepEqual(agent.containers(web), ["app/1 running", "app/0 exited"]);
    assert.ok(
      agent.events.lines.includes("Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created."),
    );
  });
});

describe("a changed definition", () => {
  test("under the same uid restarts that container alone", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const containers = (version: string) => [
      { name: "app", image: IMAGE, command: ["run", version] },
      { name: "side", image: IMAGE, command: ["run"] },
    ];
    await agent.want(filePod("web", [], { containers: containers("v1") }));
    await agent.want(filePod("web", [], { containers: containers("v2") }));
    assert.deepEqual(agent.containers(web), ["app/1 running", "app/0 exited", "side/0 running"]);
    assert.ok(
      agent.events.lines.includes(
        "Normal Killing spec.containers{app}: Container app definition changed, will be restarted",
      ),
    );
  });

  test("restarts a container even of a pod that is never to restart", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.want(filePod("web", ["run", "v1"], { restartPolicy: "Never" }));
    await agent.want(filePod("web", ["run", "v2"], { restartPolicy: "Never" }));
    assert.deepEqual(agent.containers(web), ["app/1 running", "app/0 exited"]);
  });

  test("under a new uid starts when every trace of the old one is gone", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const old = filePod("web", ["slow-end", "4000"]);
    await agent.want(old);
    const next = again(web, "web-2");
    await agent.want(next);
    await agent.pass(3999);
    assert.deepEqual([agent.containers(old), agent.containers(next)], [["app/0 running"], []]);
    assert.equal(agent.status(next)?.phase, "Pending");
    await agent.pass(1);
    assert.deepEqual([agent.containers(old), agent.containers(next)], [[], ["app/0 running"]]);
    assert.deepEqual([...agent.environment.prepared], ["web-2"]);
  });

  test("that is taken back while the pod is being ended starts it afresh after the end", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const slow = filePod("web", ["slow-end", "4000"]);
    await agent.want(slow);
    const startTime = agent.status(slow)?.startTime;
    await agent.want();
    await agent.pass(1000);
    await agent.want(slow);
    await agent.pass(2999);
    assert.deepEqual(agent.containers(slow), ["app/0 running"], "nothing starts before the end");
    await agent.pass(1);
    assert.deepEqual(agent.containers(slow), ["app/0 running"]);
    assert.notEqual(agent.status(slow)?.startTime, startTime);
    assert.equal(agent.status(slow)?.phase, "Running");
  });
});

describe("removing a pod", () => {
  test("ends its containers together within the grace period and leaves nothing", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const deaf = filePod("web", [], {
      terminationGracePeriodSeconds: 5,
      containers: [
        { name: "app", image: IMAGE, command: ["deaf"] },
        { name: "side", image: IMAGE, command: ["deaf"] },
      ],
    });
    await agent.want(deaf);
    await agent.want();
    await agent.pass(4999);
    assert.deepEqual(agent.containers(deaf), ["app/0 running", "side/0 running"]);
    await agent.pass(1);
    assert.deepEqual(board.runtime.list(), []);
    assert.equal(agent.workers.size, 0);
    assert.equal(agent.statuses.pods.size, 0);
    assert.equal(agent.store.desired.desired.current.removed.size, 0);
    assert.equal(agent.store.statuses.get(deaf.uid), undefined);
    assert.deepEqual([...agent.environment.prepared], []);
    assert.ok(agent.events.lines.includes("Normal Killing spec.containers{side}: Stopping container side"));
  });

  test("does not wait for an image that is being pulled", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    board.onCall = ({ kind }) => (kind === "imagePull" ? hang : undefined);
    const pulling = filePod("web", [], { containers: [{ name: "app", image: "registry.example/huge:1" }] });
    await agent.want(pulling);
    await agent.pass(60_000);
    assert.deepEqual(agent.status(pulling)?.containerStatuses?.[0]?.state.waiting, { reason: "ContainerCreating" });
    await agent.want();
    assert.deepEqual(board.runtime.list(), []);
    assert.equal(agent.workers.size, 0);
  });

  test("interrupts a sandbox that hangs", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    board.onCall = ({ kind }) => (kind === "createSandbox" ? hang : undefined);
    await agent.want(web);
    await agent.want();
    assert.equal(agent.workers.size, 0);
  });

  test("goes on where an earlier agent died", async () => {
    using board = new SmallBoard();
    const first = new SmallAgent(board);
    const slow = filePod("web", ["slow-end", "4000"]);
    await first.want(slow);
    await first.want();
    await first.pass(1000);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board, { store: first.store });
    await second.pass(3000);
    assert.deepEqual(board.runtime.list(), []);
    assert.equal(second.workers.size, 0);
  });
});

describe("one pod's trouble is no other's", () => {
  test("a pod that cannot be inspected suffers alone, and is taken up again when it can", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const other = filePod("other");
    await agent.want(web, other);
    board.onCall = ({ kind, uid }) =>
      kind === "inspect" && uid === web.uid ? { ...hang, heedsSignal: false } : undefined;
    agent.kill(web);
    agent.kill(other);
    await agent.pass(1000);
    assert.deepEqual(agent.containers(other), ["app/1 running", "app/0 exited"]);
    assert.deepEqual(agent.containers(web), ["app/0 exited"]);
    await agent.pass(25_000);
    assert.ok(agent.log.problems.includes("cannot inspect a pod"));
    assert.equal(agent.pleg.health.current[0]?.healthy, true, "the node is well");
    board.onCall = () => undefined;
    await agent.pass(30_000);
    assert.deepEqual(agent.containers(web), ["app/1 running", "app/0 exited"]);
  });

  test("a sandbox that cannot be made is tried again, ever more slowly", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    board.onCall = ({ kind }) => (kind === "createSandbox" ? broken("set up the network") : undefined);
    await agent.want(web);
    await agent.pass(60_000);
    const calls = board.takeCalls();
    const tries = calls.filter((call) => call === "createSandbox web").length;
    assert.ok(!calls.includes("startContainer web"), "nothing is tried without a sandbox");
    assert.ok(tries >= 5 && tries <= 8, `${tries} tries in a minute`);
    assert.ok(
      agent.events.lines.includes(
        "Warning FailedCreatePodSandBox: Failed to create pod sandbox: cannot set up the network",
      ),
    );
    board.onCall = () => undefined;
    await agent.pass(90_000);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
  });

  test("volumes that cannot be made are told of before any image, which is told of once", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    let isThere = false;
    agent.environment.before = async () => {
      if (!isThere) throw new PicoletError("unavailable", "no such volume", { reason: "FailedMount", retryable: true });
    };
    await agent.want(web);
    await agent.pass(300_000);
    assert.deepEqual([...new Set(agent.events.lines)], ["Warning FailedMount: no such volume"]);
    isThere = true;
    await agent.pass(100_000);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
    assert.equal(agent.events.lines.filter((line) => line.startsWith("Normal Pulled")).length, 1);
  });

  test("several volumes that cannot be made are told of in an event each", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    agent.environment.before = async () => {
      const cause = new AggregateError(["a", "b"].map((name) => new PicoletError("unavailable", `${name} failed`)));
      throw new PicoletError("unavailable", "a failed; b failed", { reason: "FailedMount", retryable: true, cause });
    };
    await agent.want(web);
    assert.deepEqual(agent.events.lines, ["Warning FailedMount: a failed", "Warning FailedMount: b failed"]);
  });

  test("a sandbox that is made at the third try has its image told of once", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    let tries = 0;
    board.onCall = ({ kind }) => {
      if (kind === "createSandbox") tries += 1;
      return kind === "createSandbox" && tries < 3 ? broken("set up the network") : undefined;
    };
    await agent.want(web);
    await agent.pass(10_000);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
    assert.equal(agent.events.lines.filter((line) => line.startsWith("Normal Pulled")).length, 1);
  });

  test("what the API server has not given the node is looked for again when it gives something, once for a burst", async () => {
    using board = new SmallBoard();
    const objectsChanged = new WatchSource(0);
    await using agent = new SmallAgent(board, { objectsChanged });
    let tries = 0;
    let isThere = false;
    agent.environment.before = async (what) => {
      if (what !== "prepare" || isThere) return;
      tries += 1;
      throw new PicoletError("not_found", 'configmap "site" not found', { reason: "FailedMount", retryable: true });
    };
    await agent.want(web);
    await agent.pass(600_000);
    const before = tries;
    for (let change = 1; change <= 5; change += 1) {
      objectsChanged.set(change);
      await agent.pass(50);
    }
    await agent.pass(500);
    assert.equal(tries, before + 1, "what is still not there is missed once more");
    isThere = true;
    objectsChanged.set(6);
    await agent.pass(500);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
  });

  test("a container whose configuration is not there is tried again within 15 s, and at once when objects change", async () => {
    using board = new SmallBoard();
    const objectsChanged = new WatchSource(0);
    await using agent = new SmallAgent(board, { objectsChanged });
    const make = agent.environment.container.bind(agent.environment);
    const tries: number[] = [];
    let isThere = false;
    agent.environment.container = (...given) => {
      if (isThere) return make(...given);
      tries.push(board.clock.monotonic());
      throw new PicoletError("invalid", 'secret "key" not found', { reason: "CreateContainerConfigError" });
    };
    await agent.want(web);
    await agent.pass(600_000);
    const { waiting } = agent.status(web)?.containerStatuses?.[0]?.state ?? {};
    assert.equal(waiting?.reason, "CreateContainerConfigError");
    const waits = tries.slice(1).map((at, index) => at - (tries[index] ?? 0));
    assert.ok(Math.max(...waits) <= 15_000, `${waits}`);
    assert.ok(Math.min(...waits.slice(5)) >= 9000, `${waits}`);
    isThere = true;
    objectsChanged.set(1);
    await agent.pass(500);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
  });

  test("a container of which nobody knows whether it runs is not taken away unless it could be stopped", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.want(web);
    const inspect = board.runtime.inspect.bind(board.runtime);
    board.runtime.inspect = (uid) => {
      const seen = inspect(uid);
      return { ...seen, containers: seen.containers.map((each) => ({ ...each, state: { kind: "unknown" } as const })) };
    };
    board.onCall = ({ kind }) => (kind === "stopContainer" ? broken("stop it") : undefined);
    board.takeCalls();
    await agent.pass(60_000);
    agent.kill(web);
    await agent.pass(1000);
    const calls = board.takeCalls();
    assert.ok(calls.includes("stopContainer web"));
    assert.ok(!calls.includes("removeContainer web") && !calls.includes("startContainer web"));
    assert.ok(
      agent.events.lines.includes("Warning FailedKillPod spec.containers{app}: error killing pod: cannot stop it"),
    );
  });

  test("an image that is not there waits with its reason, and the pod starts soon after it was imported", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const image = "registry.example/local:1";
    const local = filePod("web", [], { containers: [{ name: "app", image, imagePullPolicy: "Never" }] });
    await agent.want(local);
    const { waiting } = agent.status(local)?.containerStatuses?.[0]?.state ?? {};
    assert.equal(waiting?.reason, "ErrImageNeverPull");
    await agent.pass(60_000);
    board.runtime.addImage(image);
    await agent.pass(13_000);
    assert.deepEqual(agent.containers(local), ["app/0 running"]);
  });

  test("a pull that failed is shown as back-off from then on", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const missing = filePod("web", [], { containers: [{ name: "app", image: "registry.example/missing:1" }] });
    const reason = () => agent.status(missing)?.containerStatuses?.[0]?.state.waiting?.reason;
    await agent.want(missing);
    assert.equal(reason(), "ErrImagePull");
    const failures = agent.events.lines.filter((line) => line.startsWith("Warning Failed"));
    assert.deepEqual(failures, [
      'Warning Failed spec.containers{app}: Failed to pull image "registry.example/missing:1": cannot find registry.example/missing:1 in the registry',
      "Warning Failed spec.containers{app}: Error: ErrImagePull",
    ]);
    await agent.pass(8000);
    assert.equal(reason(), "ImagePullBackOff");
  });

  test("a pull that takes its time to fail is one failure, not a new one each time", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const late = { ...broken("reach the registry"), after: millis(2000) };
    board.onCall = ({ kind }) => (kind === "imagePull" ? late : undefined);
    const missing = filePod("web", [], { containers: [{ name: "app", image: "registry.example/missing:1" }] });
    const reasons = new Set<string | undefined>();
    await agent.want(missing);
    await agent.pass(4000);
    for (let second = 0; second < 120; second += 1) {
      reasons.add(agent.status(missing)?.containerStatuses?.[0]?.state.waiting?.reason);
      await agent.pass(1000);
    }
    assert.deepEqual([...reasons].sort(), ["ErrImagePull", "ImagePullBackOff"]);
    assert.equal(agent.log.problems.filter((each) => each === "a step of a pod failed").length, 1);
  });

  test("a start that took all its time is tried again ever more slowly, up to a minute", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    const late = { kind: "refuse", error: new PicoletError("deadline_exceeded", "it has not started") } as const;
    board.onCall = ({ kind }) => (kind === "startContainer" ? late : undefined);
    await agent.want(web);
    await agent.pass(300_000);
    board.takeCalls();
    await agent.pass(600_000);
    const starts = board.takeCalls().filter((call) => call === "startContainer web").length;
    assert.ok(starts >= 7 && starts <= 14, `${starts} starts in ten minutes`);
  });

  test("an action that shows no effect is not repeated without end", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.want(web);
    board.runtime.kill = () => undefined;
    board.runtime.exitOf = async () => undefined;
    board.takeCalls();
    await agent.want();
    await agent.pass(60_000);
    const stops = board.takeCalls().filter((call) => call === "stopContainer web").length;
    assert.ok(stops >= 1 && stops <= 8, `${stops} stops in a minute`);
  });
});

describe("a runtime that is away", () => {
  test("is no reason to start, stop or restart anything, and what failed for it goes on when it is back", async () => {
    using board = new SmallBoard();
    await using agent = new SmallAgent(board);
    await agent.want(web);
    board.runtime.goAway();
    const late = filePod("late");
    await agent.want(web, late);
    await agent.pass(120_000);
    assert.equal(agent.pleg.health.current[0]?.reason, "RuntimeNotReady");
    assert.equal(agent.status(web)?.phase, "Running");
    board.runtime.comeBack();
    await agent.pass(7000);
    assert.deepEqual([agent.containers(web), agent.containers(late)], [["app/0 running"], ["app/0 running"]]);
  });
});

describe("a new agent", () => {
  test("takes up 20 running pods at once, with one look at each and no action", async () => {
    using board = new SmallBoard();
    const pods = Array.from({ length: 20 }, (_, index) => filePod(`pod-${index}`));
    const first = new SmallAgent(board);
    await first.want(...pods);
    await first.pass(10_000);
    await first[Symbol.asyncDispose]();
    board.takeCalls();
    await using second = new SmallAgent(board, { store: first.store });
    await second.pass(0);
    assert.deepEqual(
      board
        .takeCalls()
        .filter((call) => call !== "hints")
        .toSorted(),
      pods.map((pod) => `inspect ${pod.uid}`).toSorted(),
    );
    assert.ok(pods.every((pod) => second.status(pod)?.phase === "Running"));
  });

  test("whose store was lost adopts what runs until its source has spoken", async () => {
    using board = new SmallBoard();
    const first = new SmallAgent(board);
    const unwanted = filePod("unwanted");
    await first.want(web, unwanted);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board);
    await second.pass(60_000);
    assert.deepEqual([second.containers(web), second.containers(unwanted)], [["app/0 running"], ["app/0 running"]]);
    assert.equal(second.status(web)?.phase, "Running");
    await second.want(web);
    assert.deepEqual([second.containers(web), second.containers(unwanted)], [["app/0 running"], []]);
  });

  test("whose store was lost does not start what an adopted pod has the name of", async () => {
    using board = new SmallBoard();
    const first = new SmallAgent(board);
    await first.want(web);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board);
    const next = again(web, "web-2");
    let overlap = false;
    board.onCall = ({ kind, uid }) => {
      if (kind === "startContainer" && uid === next.uid)
        overlap ||= board.runtime.inspect(web.uid).sandboxes.length > 0;
      return undefined;
    };
    await second.want(next);
    await second.pass(1000);
    assert.deepEqual([second.containers(web), second.containers(next)], [[], ["app/0 running"]]);
    assert.equal(overlap, false);
  });

  test("starts no new pod before it knows whose name a running one has, and takes up the others meanwhile", async () => {
    using board = new SmallBoard();
    const first = new SmallAgent(board);
    const other = filePod("other");
    await first.want(web, other);
    await first[Symbol.asyncDispose]();
    board.onCall = ({ kind, uid }) => (kind === "inspect" && uid === web.uid ? broken("inspect") : undefined);
    await using second = new SmallAgent(board);
    const next = again(web, "web-2");
    await second.want(next, other);
    await second.pass(15_000);
    second.kill(other);
    await second.pass(1000);
    assert.deepEqual(second.containers(other), ["app/1 running", "app/0 exited"]);
    assert.deepEqual(second.containers(next), []);
    board.onCall = () => undefined;
    await second.pass(90_000);
    assert.deepEqual([second.containers(web), second.containers(next)], [[], ["app/0 running"]]);
  });

  test("gives up on a pod that cannot be made out after two minutes, for the sake of the new ones", async () => {
    using board = new SmallBoard();
    const first = new SmallAgent(board);
    await first.want(web);
    await first[Symbol.asyncDispose]();
    board.onCall = ({ kind, uid }) => (kind === "inspect" && uid === web.uid ? broken("inspect") : undefined);
    await using second = new SmallAgent(board);
    const other = filePod("other");
    await second.want(other);
    await second.pass(110_000);
    assert.deepEqual(second.containers(other), []);
    await second.pass(80_000);
    assert.deepEqual(second.containers(other), ["app/0 running"]);
    assert.ok(second.log.problems.includes("leaving an unknown pod alone"));
  });

  test("leaves the name to the pod that runs when two sources want one", async () => {
    using board = new SmallBoard();
    const first = new SmallAgent(board);
    const api: DesiredPod = { ...again(web, "web-api"), source: "api" };
    first.store.desired.replace("api", 1, [api]);
    await first.pass(0);
    await first[Symbol.asyncDispose]();
    first.store.desired.replace("file", 1, [web]);
    await using second = new SmallAgent(board, { store: first.store });
    await second.pass(60_000);
    assert.deepEqual([second.containers(api), second.containers(web)], [["app/0 running"], []]);
    assert.equal(second.status(web)?.phase, "Pending");
  });

  test("whose store was lost leaves the name to an adopted pod whose source has not spoken", async () => {
    using board = new SmallBoard();
    const first = new SmallAgent(board);
    const api: DesiredPod = { ...again(web, "web-api"), source: "api" };
    first.store.desired.replace("api", 1, [api]);
    await first.pass(0);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board);
    await second.want(web);
    await second.pass(60_000);
    assert.deepEqual([second.containers(api), second.containers(web)], [["app/0 running"], []]);
    second.store.desired.replace("api", 2, []);
    await second.pass(1000);
    assert.deepEqual([second.containers(api), second.containers(web)], [[], ["app/0 running"]]);
  });

  test("leaves alone what does not say what it is, with one warning", async () => {
    using board = new SmallBoard();
    const first = new SmallAgent(board);
    await first.want(web);
    await first[Symbol.asyncDispose]();
    const inspect = board.runtime.inspect.bind(board.runtime);
    board.runtime.inspect = (uid) => ({ ...inspect(uid), manifest: undefined });
    await using second = new SmallAgent(board);
    await second.want(filePod("other"));
    second.kill(web);
    await second.pass(60_000);
    assert.deepEqual(second.containers(web), ["app/0 exited"]);
    assert.equal(second.log.problems.filter((each) => each === "leaving an unknown pod alone").length, 1);
  });

  test("does not run again what has ended", async () => {
    using board = new SmallBoard();
    const first = new SmallAgent(board);
    const once = filePod("web", ["exit", "0"], { restartPolicy: "OnFailure" });
    await first.want(once);
    assert.equal(first.status(once)?.phase, "Succeeded");
    const before = first.status(once);
    await first[Symbol.asyncDispose]();
    await using second = new SmallAgent(board, { store: first.store });
    await second.pass(60_000);
    assert.deepEqual(second.containers(once), ["app/0 exited"]);
    assert.deepEqual(second.status(once), before);
  });
});

describe("at rest", () => {
  test("50 pods cost two lists a minute and one look each in ten", async () => {
    using board = new SmallBoard();
    let lists = 0;
    board.onCall = ({ kind }) => {
      if (kind === "list") lists += 1;
      return undefined;
    };
    await using agent = new SmallAgent(board);
    await agent.want(...Array.from({ length: 50 }, (_, index) => filePod(`pod-${index}`)));
    agent.kill(filePod("pod-0"));
    await agent.pass(120_000);
    board.takeCalls();
    lists = 0;
    await agent.pass(600_000);
    assert.ok(lists <= 21, `${lists} lists in ten minutes`);
    const calls = board.takeCalls();
    assert.ok(calls.every((call) => call.startsWith("inspect")));
    assert.ok(calls.length >= 49 && calls.length <= 51, `${calls.length} calls`);
  });

  test("an orderly end leaves the pods running and nothing behind in the agent", async () => {
    using board = new SmallBoard();
    const agent = new SmallAgent(board);
    await agent.want(web, filePod("crash", ["exit", "1"]));
    await agent.pass(1000);
    await agent[Symbol.asyncDispose]();
    await board.clock.settle();
    assert.equal(board.clock.sleeping, 0);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
  });

  test("a fault of the agent itself that a pod brings to light leaves the others alone, and is tried again", async () => {
    using board = new SmallBoard();
    let isFaulty = true;
    await using agent = new SmallAgent(board, {
      planPod: (view) => {
        if (isFaulty && view.desired.uid === web.uid) throw new TypeError("a mistake");
        return planPod(view);
      },
    });
    const other = filePod("other");
    await agent.want(web, other);
    await agent.pass(5000);
    assert.deepEqual([agent.containers(web), agent.containers(other)], [[], ["app/0 running"]]);
    assert.ok(
      agent.events.lines.includes("Warning FailedSync: error syncing pod: a mistake"),
      agent.events.lines.join(),
    );
    isFaulty = false;
    await agent.pass(10_000);
    assert.deepEqual(agent.containers(web), ["app/0 running"]);
  });
});
