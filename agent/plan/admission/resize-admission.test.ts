import assert from "node:assert/strict";
import { test } from "node:test";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { compareResizeRequests, infeasibleResize, type ResizeRequest, resizeVerdict } from "./resize-admission.ts";

type Quantities = Readonly<Record<string, string>>;
interface Wish {
  readonly requests?: Quantities;
  readonly limits?: Quantities;
  readonly priority?: number;
  readonly restarts?: boolean;
}

function api(uid: string, { requests, limits, priority = 0, restarts = false }: Wish) {
  const resources = { ...(requests === undefined ? {} : { requests }), ...(limits === undefined ? {} : { limits }) };
  const policy = { resourceName: "memory", restartPolicy: "RestartContainer" as const };
  const app = { name: "app", image: "example/app:1", resources, ...(restarts ? { resizePolicy: [policy] } : {}) };
  return { ...desired(podOf({ containers: [app], priority }, { name: uid }), uid), source: "api" as const };
}

const GIB = 1024n ** 3n;
const VIEW = {
  allocatable: new Map([
    ["cpu", 4000n],
    ["memory", GIB],
  ]),
  limitedSwap: false,
};
const BEFORE = api("web", { requests: { cpu: "100m", memory: "64Mi" } });
const SWAP = "In-place resize of containers with swap is not supported.";

for (const [name, wanted, view, message] of [
  ["all of the node", { cpu: "4", memory: "1Gi" }, VIEW, undefined],
  [
    "more CPU than the node has",
    { cpu: "4001m", memory: "64Mi" },
    VIEW,
    "Node didn't have enough capacity: cpu, requested: 4001, capacity: 4000",
  ],
  [
    "more of both: memory is told of",
    { cpu: "5", memory: "2Gi" },
    VIEW,
    `Node didn't have enough capacity: memory, requested: ${2n * GIB}, capacity: ${GIB}`,
  ],
  ["memory where pods swap", { cpu: "100m", memory: "65Mi" }, { ...VIEW, limitedSwap: true }, SWAP],
  ["CPU where pods swap", { cpu: "200m", memory: "64Mi" }, { ...VIEW, limitedSwap: true }, undefined],
] as const) {
  test(`${name}: ${message ?? "feasible"}`, () => {
    const verdict = infeasibleResize(api("web", { requests: wanted }), BEFORE, view);
    const expected = message === undefined ? undefined : { kind: "pending", reason: "Infeasible", message };
    assert.deepEqual(verdict, expected);
  });
}

test("memory that takes a restart changes also where pods swap; so does that of pods that swap nothing", () => {
  const swapping = { ...VIEW, limitedSwap: true };
  const more = { requests: { cpu: "100m", memory: "65Mi" } };
  assert.equal(infeasibleResize(api("web", { ...more, restarts: true }), BEFORE, swapping), undefined);
  const guaranteed = (memory: string) => api("web", { limits: { cpu: "1", memory } });
  assert.equal(infeasibleResize(guaranteed("65Mi"), guaranteed("64Mi"), swapping), undefined);
});

test("a static pod is never resized", () => {
  const { reason, message } = { reason: "Infeasible", message: "In-place resize of static-pods is not supported" };
  assert.deepEqual(infeasibleResize({ ...BEFORE, source: "file" }, BEFORE, VIEW), { kind: "pending", reason, message });
});

test("what a new pod would be refused for now is deferred, in the same words", () => {
  const message = "Node didn't have enough resource: cpu, requested: 1, used: 2, capacity: 2";
  assert.deepEqual(resizeVerdict({ reason: "OutOfcpu", message }), { kind: "pending", reason: "Deferred", message });
  assert.deepEqual(resizeVerdict(undefined), { kind: "granted" });
});

function request(uid: string, before: Wish, wish: Wish, since?: string): ResizeRequest {
  return { requested: api(uid, { ...before, ...wish }), allocated: api(uid, before), since };
}

test("first what asks for no more, then by priority, QoS class and age of the request", () => {
  const small = { requests: { cpu: "100m", memory: "1Mi" } };
  const more = { requests: { cpu: "200m", memory: "1Mi" } };
  const whole = { limits: { cpu: "100m", memory: "1Mi" } };
  const wholeMore = { limits: { cpu: "200m", memory: "1Mi" } };
  const requests = [
    request("new", small, more),
    request("late", small, more, "2026-01-02T00:00:00Z"),
    request("early", small, more, "2026-01-01T00:00:00Z"),
    request("guaranteed", whole, wholeMore, "2026-01-03T00:00:00Z"),
    request("important", { ...small, priority: 7 }, more),
    request("smaller", more, small),
  ];
  const order = requests.toSorted(compareResizeRequests).map(({ requested }) => requested.uid);
  assert.deepEqual(order, ["smaller", "important", "guaranteed", "early", "late", "new"]);
});
