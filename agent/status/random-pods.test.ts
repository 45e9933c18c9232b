/**
 * Pods drawn at random from the schema: with every fate of their containers there is a plan and a status.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { containerHash } from "@picolet/protocol/pod/container-hash.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import type { ContainerState, ObservedContainer, ObservedSandbox } from "@picolet/runtime-contract/runtime-adapter.ts";
import { NOW, NOW_MS, removed, sandbox, viewOf } from "@picolet/test/support/unit/pods/pod-views.ts";
import fc from "fast-check";
import { containersOf } from "../plan/container-roles.ts";
import { planPod } from "../plan/plan-pod.ts";
import type { PlanAction, PodView } from "../plan/pod-view.ts";
import { INITIAL_STATE } from "../plan/worker-state.ts";
import { transition } from "../plan/worker-transition.ts";
import { deriveStatus } from "./derive-status.ts";

/** Rounds of a pod's life, and of its end. More than any pod of so few containers needs to be gone. */
const ROUNDS = 12;
const LAST_ROUNDS = 30;

const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined });
/** Mostly as it should be. */
const seldom = <T>(odd: T, ...even: readonly T[]): fc.Arbitrary<T> =>
  fc.oneof({ weight: 40, arbitrary: fc.constantFrom(...even) }, { weight: 1, arbitrary: fc.constant(odd) });
const policy = fc.constantFrom("Always", "OnFailure", "Never");
const handler = fc.oneof(
  fc.record({ exec: fc.record({ command: fc.array(fc.string(), { minLength: 1, maxLength: 2 }) }) }),
  fc.record({ sleep: fc.record({ seconds: seldom(-1, 0, 5) }) }),
  fc.record({ httpGet: fc.record({ port: seldom<number | string>(70_000, 80, "web") }) }),
);
const probe = fc.record({
  exec: fc.record({ command: fc.constant(["true"]) }),
  periodSeconds: maybe(seldom(-1, 1, 9)),
});
const quantities = maybe(fc.dictionary(fc.constantFrom("cpu", "memory"), seldom("x", "1", "2")));
const rule = fc.record({
  action: seldom("RestartAllContainers", "Restart"),
  exitCodes: fc.record({ operator: fc.constantFrom("In", "NotIn"), values: fc.array(fc.integer({ min: 0, max: 3 })) }),
});
const rules = { restartPolicy: policy, restartPolicyRules: fc.array(rule, { maxLength: 2 }) };
const common = {
  image: seldom("", "example/app:1", "example/other:2"),
  command: maybe(fc.array(fc.string(), { maxLength: 2 })),
  resources: maybe(fc.record({ requests: quantities })),
  volumeMounts: maybe(fc.array(fc.record({ name: seldom("w", "v"), mountPath: fc.constant("/v") }), { maxLength: 1 })),
};
const served = {
  ...common,
  lifecycle: maybe(fc.record({ postStart: maybe(handler), preStop: maybe(handler) })),
  startupProbe: maybe(probe),
  livenessProbe: maybe(probe),
  readinessProbe: maybe(probe),
};
const regular = fc.oneof(fc.record(served), fc.record({ ...served, ...rules }));
const init = fc.oneof(
  fc.record(common),
  fc.record({ ...served, restartPolicy: fc.constant("Always") }),
  fc.record({ ...common, ...rules }),
);
/** By number; now and then one has the name of another. */
const named = <T extends object>(prefix: string, list: fc.Arbitrary<T[]>) =>
  fc
    .tuple(list, seldom(true, false))
    .map(([all, same]) => all.map((each, index) => ({ ...each, name: `${prefix}${same ? 0 : index}` })));
const manifest = fc.record({
  apiVersion: fc.constant("v1"),
  kind: fc.constant("Pod"),
  metadata: fc.record({ name: seldom("Web", "web"), generation: maybe(fc.nat()) }),
  spec: fc.record({
    restartPolicy: maybe(policy),
    activeDeadlineSeconds: maybe(seldom(-1, 1, 60, 1000)),
    terminationGracePeriodSeconds: maybe(seldom(-1, 0, 1, 60)),
    hostNetwork: maybe(fc.boolean()),
    readinessGates: maybe(fc.array(fc.record({ conditionType: fc.constant("example.com/warm") }), { maxLength: 1 })),
    volumes: fc.constant([{ name: "v", emptyDir: {} }]),
    initContainers: maybe(named("i", fc.array(init, { maxLength: 3 }))),
    containers: named("c", fc.array(regular, { minLength: 1, maxLength: 3 })),
    ephemeralContainers: maybe(
      named("e", fc.array(fc.record({ image: fc.constant("example/debug:1") }), { maxLength: 2 })),
    ),
  }),
});

/** The fate of a started container, or of its sandbox. */
const fate = fc.constantFrom(
  "runs",
  "succeeds",
  "fails",
  "is created only",
  "is lost",
  "is unwell",
  "loses its sandbox",
);

function assertComesToAnEnd(pod: Pod, fates: readonly string[]): void {
  let view: PodView = { ...viewOf({ pod }), observed: undefined };
  const world = new World(pod, fates);
  for (let round = 0; round < ROUNDS + LAST_ROUNDS; round += 1) {
    const wanted = round < ROUNDS;
    const monotonic = (NOW + round * 20_000) as MonotonicMs;
    const state = wanted ? view.worker : removed(view.worker);
    const now = { ...view, worker: state, monotonic, wallMs: NOW_MS + round * 20_000, ...world.look(view) };
    const { next: worker, actions, wakeAt } = planPod(now);
    assert.ok(wakeAt === undefined || Number.isFinite(wakeAt));
    const status = deriveStatus({ ...now, worker });
    assert.deepEqual(JSON.parse(JSON.stringify(status)), status, "a status holds nothing that JSON has not");
    assert.ok(["Pending", "Running", "Succeeded", "Failed"].includes(status.phase));
    assert.deepEqual(deriveStatus({ ...now, worker, previous: status }), status, "a status stays as it is");
    view = {
      ...now,
      worker: actions.some(({ kind }) => kind === "forget") ? { kind: "gone" } : worker,
      previous: status,
    };
    for (const action of actions) view = { ...view, worker: world.carryOut(action, view) };
    if (view.worker.kind === "gone") return;
  }
  assert.fail(`it is ${view.worker.kind} in the end`);
}

/** The least that a runtime is. */
class World {
  readonly #pod: Pod;
  readonly #fates: readonly string[];
  #sandboxes: ObservedSandbox[] = [];
  #containers: ObservedContainer[] = [];
  readonly #unwell = new Set<string>();
  #count = 0;

  constructor(pod: Pod, fates: readonly string[]) {
    this.#pod = pod;
    this.#fates = fates;
  }

  look({ desired: { uid } }: PodView): Pick<PodView, "observed" | "probes"> {
    const failed = { probe: "liveness", gracePeriod: undefined } as const;
    const probes = new Map([...this.#unwell].map((id) => [id, { started: true, ready: false, failed }]));
    return { observed: { uid, sandboxes: this.#sandboxes, containers: this.#containers, manifest: undefined }, probes };
  }

  carryOut(action: PlanAction, { worker, monotonic }: PodView) {
    switch (action.kind) {
      case "createSandbox":
        this.#sandboxes = [sandbox(action.attempt), ...this.#sandboxes];
        return transition(worker, { kind: "sandboxCreated", attempt: action.attempt, monotonic });
      case "startContainer":
        this.#start(action.name, action.attempt);
        return transition(worker, { kind: "started", name: action.name, attempt: action.attempt, monotonic });
      case "stopContainer":
        this.#set(action.containerId, exited(143));
        break;
      case "removeContainer":
        this.#containers = this.#containers.filter(({ id }) => id !== action.containerId);
        break;
      case "stopSandbox":
        this.#stopSandbox(action.sandboxId);
        break;
      case "removeSandbox":
        this.#sandboxes = this.#sandboxes.filter(({ id }) => id !== action.sandboxId);
        this.#containers = this.#containers.filter(({ sandboxId }) => sandboxId !== action.sandboxId);
        break;
      case "prepare":
      case "unprepare":
      case "cleanup":
      case "forget":
        break;
    }
    return worker;
  }

  #start(name: string, attempt: number): void {
    const [newest] = this.#sandboxes;
    const spec = containersOf(this.#pod).find((each) => each.name === name);
    if (newest?.state !== "ready" || spec === undefined) return;
    this.#count += 1;
    const what = this.#fates[this.#count % this.#fates.length];
    if (what === "is lost") return;
    const id = `container-${this.#count}`;
    const run: ObservedContainer = {
      ...{ id, name, attempt, sandboxId: newest.id, createdAtMs: NOW_MS, state: stateAfter(what) },
      ...{ hash: containerHash(spec), backoff: millis(0), image: spec.image, imageId: "sha256:0", logPath: "/log" },
    };
    this.#containers = [run, ...this.#containers.filter((each) => each.name !== name || each.attempt !== attempt)];
    if (what === "is unwell") this.#unwell.add(id);
    if (what === "loses its sandbox") this.#stopSandbox(newest.id);
  }

  #stopSandbox(id: string): void {
    this.#sandboxes = this.#sandboxes.map((each) => (each.id === id ? { ...each, state: "notReady", ips: [] } : each));
    for (const each of this.#containers) if (each.sandboxId === id) this.#set(each.id, exited(137));
  }

  #set(id: string, state: ContainerState): void {
    this.#containers = this.#containers.map((each) =>
      each.id === id && each.state.kind !== "exited" ? { ...each, state } : each,
    );
  }
}

const exited = (exitCode: number): ContainerState => ({
  ...{ kind: "exited", startedAtMs: NOW_MS, finishedAtMs: NOW_MS + 1000, exitCode },
  ...{ reason: exitCode === 0 ? "Completed" : "Error", message: "" },
});

function stateAfter(what: string | undefined): ContainerState {
  if (what === "is created only") return { kind: "created" };
  if (what === "succeeds" || what === "fails") return exited(what === "fails" ? 1 : 0);
  return { kind: "running", startedAtMs: NOW_MS };
}

test("a pod drawn at random is refused at a path, or lives and ends with a status all the way", () => {
  let run = 0;
  const property = fc.property(manifest, fc.array(fate, { minLength: 1, maxLength: 6 }), (written, fates) => {
    const result = parsePod(JSON.parse(JSON.stringify(written)));
    if (!result.ok) {
      assert.ok(result.problems.length > 0);
      return;
    }
    run += 1;
    assertComesToAnEnd(result.pod, fates);
  });
  fc.assert(property, { numRuns: 1000 });
  assert.ok(run > 100, `only ${run} of them could be run`);
});

test("so does a worker that knows nothing yet", () => {
  const { next } = planPod({ ...viewOf(), observed: undefined });
  assert.equal(next, INITIAL_STATE);
});
