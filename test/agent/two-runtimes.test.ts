/**
 * Pods that may be either, on virtual time: chosen before anything of them starts, switched from one runtime to the
 * other.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { RuntimeChoices } from "@picolet/agent/core/pods/pod-ports.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { ChosenRuntime, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import { filePod, IMAGE, SmallAgent, SmallBoard } from "../support/unit/agent/small-agent.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

const NEVER = new AbortController().signal;
const CONTAINER: ChosenRuntime = { kind: "container", reason: "Preferred", message: "it prefers that" };
const COMPONENT: ChosenRuntime = { kind: "component", reason: "Preferred", message: "it prefers that" };
const SWITCHED: ChosenRuntime = { kind: "component", reason: "MemoryPressure", message: "memory was short" };

function annotated(desired: DesiredPod): DesiredPod {
  const annotations = { "wasm.picolet.io/prefer": "component", "wasm.picolet.io/under-pressure": "component" };
  return { ...desired, pod: { ...desired.pod, metadata: { ...desired.pod.metadata, annotations } } };
}

const web = annotated(filePod("web", ["run"], { terminationGracePeriodSeconds: 5 }));

/** Two runtimes and a store, which outlive agents. */
class DualBoard extends SmallBoard {
  readonly components = new FakeRuntime({ clock: this.clock });
  readonly store = new Store({ clock: this.clock, log: new RecordedLog() }, { path: ":memory:" });
  readonly asked: (string | undefined)[] = [];
  /** What is chosen next; an error is thrown. */
  choice: ChosenRuntime | PicoletError = CONTAINER;

  constructor() {
    super();
    this.components.addImage(IMAGE);
  }

  agent(): SmallAgent {
    const choices: RuntimeChoices = {
      choose: async ({ uid }, holder) => {
        this.asked.push(holder?.name);
        if (this.choice instanceof PicoletError) throw this.choice;
        const kind = holder?.name === "wasm" ? COMPONENT : CONTAINER;
        this.store.desired.choose(uid, holder === undefined ? this.choice : { ...kind, reason: "AsFound" });
      },
    };
    return new SmallAgent(this, { store: this.store, components: this.components, choices });
  }

  /** The runtimes in which something of the pod runs now. */
  get running(): readonly string[] {
    const runs = (runtime: FakeRuntime): boolean =>
      runtime.inspect(web.uid).containers.some(({ state }) => state.kind === "running");
    return [...(runs(this.runtime) ? ["cri"] : []), ...(runs(this.components) ? ["wasm"] : [])];
  }

  override [Symbol.dispose](): void {
    this.components[Symbol.dispose]();
    super[Symbol.dispose]();
  }
}

const statusOf = (agent: SmallAgent) => agent.status(web)?.containerStatuses?.[0];

test("a pod is asked for once, and runs as what was chosen, in the next agent too", async () => {
  using board = new DualBoard();
  board.choice = COMPONENT;
  {
    await using agent = board.agent();
    await agent.want(web);
    await agent.pass(5000);
    assert.deepEqual(board.running, ["wasm"]);
    assert.deepEqual(
      board.takeCalls().filter((call) => /Sandbox|Container/.test(call)),
      [],
      "no container was made",
    );
    const condition = agent.status(web)?.conditions?.find(({ type }) => type === "picolet.io/Runtime");
    assert.deepEqual([condition?.reason, condition?.message], ["Component", "it prefers that"]);
  }
  board.choice = CONTAINER;
  await using agent = board.agent();
  await agent.pass(60_000);
  assert.deepEqual(board.running, ["wasm"]);
  assert.deepEqual(board.asked, [undefined]);
});

test("while nobody can tell, nothing starts, the status says why, and it is tried again", async () => {
  using board = new DualBoard();
  board.choice = new PicoletError("unavailable", "cannot reach registry", { retryable: true, reason: "ErrImagePull" });
  await using agent = board.agent();
  await agent.want(web);
  await agent.pass(2000);
  assert.deepEqual(statusOf(agent)?.state.waiting, { reason: "ErrImagePull", message: "cannot reach registry" });
  assert.ok(
    agent.events.lines.includes("Warning ErrImagePull: Error: cannot reach registry"),
    agent.events.lines.join(),
  );
  assert.deepEqual(board.running, []);
  const before = board.asked.length;
  await agent.pass(30_000);
  assert.ok(board.asked.length > before && board.asked.length < before + 4, "with a back-off");
  board.choice = COMPONENT;
  await agent.pass(60_000);
  assert.deepEqual(board.running, ["wasm"]);
});

test("a pod that runs when the store has lost what was chosen stays where it is", async () => {
  using board = new DualBoard();
  {
    await using agent = board.agent();
    await agent.want(web);
    await agent.pass(5000);
  }
  const store = new Store({ clock: board.clock, log: new RecordedLog() }, { path: ":memory:" });
  Object.assign(board, { store, choice: COMPONENT });
  await using agent = board.agent();
  await agent.want(web);
  await agent.pass(30_000);
  assert.deepEqual(board.running, ["cri"]);
  assert.equal(statusOf(agent)?.restartCount, 0);
  assert.equal(store.desired.desired.current.pods.get(web.uid)?.runtime?.kind, "container");
});

test("a pod that is switched ends in one runtime before it begins in the other, and its restarts count on", async () => {
  using board = new DualBoard();
  await using agent = board.agent();
  await agent.want(web);
  await agent.pass(20_000);
  assert.deepEqual(board.running, ["cri"]);
  board.store.desired.choose(web.uid, SWITCHED);
  const left = agent.workers.leave(web.uid, { gracePeriod: millis(1000) }, NEVER);
  await agent.pass(1500);
  await left;
  assert.ok(!board.running.includes("cri"));
  await agent.pass(10_000);
  assert.deepEqual(board.running, ["wasm"]);
  assert.deepEqual(board.runtime.inspect(web.uid), {
    ...board.runtime.inspect(web.uid),
    sandboxes: [],
    containers: [],
  });
  const { restartCount, lastState, state } = statusOf(agent) ?? {};
  assert.deepEqual([restartCount, state?.running !== undefined], [1, true]);
  assert.ok(lastState?.terminated !== undefined, "how its container ended is still told");
  await agent.want();
  await agent.pass(30_000);
  assert.deepEqual(board.running, []);
  assert.equal(agent.workers.size, 0);
});

test("wherever an agent dies in a switch, the next one ends it: never in both, once restarted", async () => {
  for (let at = 0; at <= 8000; at += 250) {
    using board = new DualBoard();
    let isBoth = false;
    const pass = async (agent: SmallAgent, durationMs: number): Promise<void> => {
      for (let passed = 0; passed < durationMs; passed += 50) {
        await agent.pass(Math.min(50, durationMs - passed));
        isBoth ||= board.running.length > 1;
      }
    };
    {
      await using agent = board.agent();
      await agent.want(web);
      await agent.pass(20_000);
      board.store.desired.choose(web.uid, SWITCHED);
      await pass(agent, at);
    }
    await using agent = board.agent();
    await pass(agent, 60_000);
    assert.deepEqual(
      [isBoth, board.running, statusOf(agent)?.restartCount],
      [false, ["wasm"], 1],
      `killed after ${at} ms`,
    );
  }
});

test("a runtime that does not answer holds the switched pod up: what it has nobody knows", async () => {
  using board = new DualBoard();
  {
    await using agent = board.agent();
    await agent.want(web);
    await agent.pass(20_000);
  }
  board.store.desired.choose(web.uid, SWITCHED);
  board.runtime.goAway();
  await using agent = board.agent();
  await agent.pass(60_000);
  assert.ok(!board.running.includes("wasm"));
  board.runtime.comeBack();
  await agent.pass(60_000);
  assert.deepEqual(board.running, ["wasm"]);
});
