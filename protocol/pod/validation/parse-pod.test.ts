import assert from "node:assert/strict";
import { test } from "node:test";
import { podManifest } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import fc from "fast-check";
import { formatProblem, formatProblems, MAX_PROBLEMS } from "../../kubernetes/field-problems.ts";
import { POD_LIMITS, parsePod } from "./parse-pod.ts";

function problemsOf(input: unknown): string[] {
  const result = parsePod(input);
  return result.ok ? [] : result.problems.map(formatProblem);
}

for (const [name, input, problem] of [
  ["nothing", undefined, "must be a Pod: a mapping with apiVersion, kind, metadata and spec"],
  ["a text", "Pod", "must be a Pod: a mapping with apiVersion, kind, metadata and spec"],
  ["a list", [podManifest()], "must be a Pod: a mapping with apiVersion, kind, metadata and spec"],
  ["no kind", { apiVersion: "v1" }, "kind: Required value: must be Pod"],
  ["no version", { kind: "Pod" }, "apiVersion: Required value: must be v1"],
  ["another version", { kind: "Pod", apiVersion: "v2" }, 'apiVersion: Unsupported value: "v2": supported values: "v1"'],
  [
    "a Deployment",
    { kind: "Deployment", apiVersion: "apps/v1", spec: 5 },
    'kind: Unsupported value: "Deployment": picolet runs Pods; a Deployment is for a Kubernetes API server: apply it there with kubectl, or write its spec.template as a Pod of its own (apiVersion v1, kind Pod, metadata.name)',
  ],
  [
    "a ConfigMap",
    { kind: "ConfigMap", apiVersion: "v1", data: {} },
    'kind: Unsupported value: "ConfigMap": picolet runs Pods; a ConfigMap is for a Kubernetes API server',
  ],
  [
    "a Docker Compose file",
    { version: "3", services: { web: { image: "nginx" } } },
    "this is a Docker Compose file, and picolet runs Kubernetes Pods: write its services as containers of Pods (apiVersion: v1, kind: Pod), and remove this file",
  ],
  [
    "something odd",
    { kind: ["Pod"] },
    'kind: Unsupported value: ["Pod"]: picolet runs Pods; a thing of that kind is for a Kubernetes API server',
  ],
] as const) {
  test(`${name} is distinguished from a Pod`, () => assert.deepEqual(problemsOf(input), [problem]));
}

test("wrong types are named with their place, and the rest is judged as well", () => {
  assert.deepEqual(
    problemsOf(
      podManifest(
        {
          hostNetwork: "yes",
          terminationGracePeriodSeconds: 1.5,
          activeDeadlineSeconds: 1e300,
          volumes: "none",
          restartPolicy: "Sometimes",
          containers: [
            { name: 5, image: "i", command: ["sh", 5], ports: [{ containerPort: "http" }, { containerPort: 1e10 }] },
            "app",
            { name: "ok", image: "i", resources: { limits: { cpu: true } }, env: [{ name: "A", value: 1 }], tty: 0 },
          ],
        },
        { labels: { app: 5 }, annotations: [] },
      ),
    ),
    [
      "metadata.labels.app: Invalid value: 5: must be a string (put it in quotes)",
      "metadata.annotations: Invalid value: a list: must be a mapping",
      'spec.volumes: Invalid value: "none": must be a list',
      "spec.containers[0].name: Invalid value: 5: must be a string (put it in quotes)",
      "spec.containers[0].command[1]: Invalid value: 5: must be a string (put it in quotes)",
      'spec.containers[0].ports[0].containerPort: Invalid value: "http": must be a number',
      "spec.containers[0].ports[1].containerPort: Invalid value: 10000000000: must be less than or equal to 2147483647",
      'spec.containers[1]: Invalid value: "app": must be a mapping',
      "spec.containers[2].env[0].value: Invalid value: 1: must be a string (put it in quotes)",
      "spec.containers[2].resources.limits.cpu: Invalid value: true: must be a string or a number",
      "spec.containers[2].tty: Invalid value: 0: must be true or false",
      "spec.terminationGracePeriodSeconds: Invalid value: 1.5: must be an integer",
      "spec.activeDeadlineSeconds: Invalid value: 1e+300: must be less than or equal to 9007199254740991",
      'spec.hostNetwork: Invalid value: "yes": must be true or false',
      'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
    ],
  );
});

test("an empty field is a missing one, as in Kubernetes", () => {
  const result = parsePod(podManifest({ volumes: null, restartPolicy: null, nodeSelector: null }, { labels: null }));
  assert.ok(result.ok);
  assert.equal(result.pod.spec.restartPolicy, "Always");
  assert.equal("volumes" in result.pod.spec, false);
  assert.deepEqual(problemsOf(podManifest({ containers: null })), ["spec.containers: Required value"]);
  assert.deepEqual(problemsOf(podManifest({ containers: [null] })), [
    "spec.containers[0]: Invalid value: null: must be a mapping",
  ]);
});

test("fields that we do not know are kept at every depth", () => {
  const container = { name: "app", image: "i", future: { deep: [1, { x: "y" }] } };
  const result = parsePod({ ...podManifest({ containers: [container], later: true }, { odd: 1 }), extra: ["z"] });
  assert.ok(result.ok);
  const plain: unknown = JSON.parse(JSON.stringify(result.pod));
  assert.partialDeepStrictEqual(plain, {
    metadata: { odd: 1 },
    spec: { later: true, containers: [{ future: { deep: [1, { x: "y" }] } }] },
    extra: ["z"],
  });
});

test("a status in a manifest is dropped", () => {
  const result = parsePod({ ...podManifest(), status: { phase: 5 } });
  assert.ok(result.ok);
  assert.equal("status" in result.pod, false);
});

test("the input is not changed", () => {
  const input = podManifest({ volumes: [{ name: "v" }], restartPolicy: 5, containers: [{ name: 1 }] });
  const before = structuredClone(input);
  parsePod(input);
  assert.deepEqual(input, before);
});

test("a date of the YAML parser's is the text that it was", () => {
  const result = parsePod(podManifest({}, { creationTimestamp: new Date("2026-01-31T12:00:00Z") }));
  assert.ok(result.ok);
  assert.equal(result.pod.metadata.creationTimestamp, "2026-01-31T12:00:00Z");
});

test("__proto__ as a field is refused and pollutes nothing", () => {
  const hostile: unknown = JSON.parse(
    '{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"__proto__":{"bad":"x"}}}}',
  );
  assert.deepEqual(problemsOf(hostile), ['metadata.labels: Forbidden: "__proto__" may not be the name of a field']);
  assert.equal(Reflect.get({}, "bad"), undefined);
});

test("a label may be called constructor", () => {
  const result = parsePod(podManifest({}, { labels: { constructor: "x", toString: "y" } }));
  assert.ok(result.ok);
  assert.deepEqual(Object.entries(result.pod.metadata.labels ?? {}), [
    ["constructor", "x"],
    ["toString", "y"],
  ]);
});

function nested(depth: number): unknown {
  let value: unknown = "end";
  for (let level = 0; level < depth; level += 1) value = level % 2 === 0 ? [value] : { a: value };
  return value;
}

test("depth, number and length are limited, and nothing overflows the stack", () => {
  const tooDeep = `must be at most ${POD_LIMITS.maxDepth} levels deep`;
  assert.match(problemsOf(podManifest({ x: nested(100_000) })).join(), new RegExp(tooDeep));
  const cycle: Record<string, unknown> = {};
  cycle.self = cycle;
  assert.match(problemsOf(podManifest({ cycle })).join(), new RegExp(tooDeep));
  const many = { list: Array.from({ length: POD_LIMITS.maxValues }, () => 1) };
  assert.deepEqual(problemsOf(podManifest(many)), [`Too many: must have at most ${POD_LIMITS.maxValues} values`]);
  const long = { text: "x".repeat(POD_LIMITS.maxCharacters) };
  assert.deepEqual(problemsOf(podManifest(long)), [
    `Too long: may not be more than ${POD_LIMITS.maxCharacters} characters`,
  ]);
  let laughs: unknown = "lol";
  for (let level = 0; level < 30; level += 1) laughs = [laughs, laughs];
  assert.match(problemsOf(podManifest({ laughs })).join(), /Too many/);
});

test("more problems than anybody reads are counted", () => {
  const containers = [{ name: "app", image: "i", env: Array.from({ length: 250 }, () => ({ name: "=" })) }];
  const result = parsePod(podManifest({ containers }));
  assert.ok(!result.ok);
  assert.equal(result.problems.length, MAX_PROBLEMS + 1);
  assert.equal(result.problems.at(-1)?.message, "and 150 more problems");
  assert.equal(formatProblems(result.problems).includes("\n"), false);
});

test("values that no document can hold are refused where they are", () => {
  assert.deepEqual(problemsOf(podManifest({ a: () => 1 })), [
    "spec.a: Invalid value: must be a mapping, a list, a string, a number or a boolean",
  ]);
  assert.deepEqual(problemsOf(podManifest({ a: new Map() })), [
    "spec.a: Invalid value: must be a mapping, a list, a string, a number or a boolean",
  ]);
  assert.deepEqual(problemsOf(podManifest({ priority: Number.NaN })), [
    "spec.priority: Invalid value: NaN: must be a number",
  ]);
});

const NAMES = [
  "apiVersion metadata spec name namespace labels containers initContainers image ports containerPort env value",
  "valueFrom fieldRef fieldPath resources limits requests cpu memory volumes emptyDir hostPath path type volumeMounts",
  "livenessProbe httpGet port exec command securityContext runAsUser restartPolicy projected sources tolerations",
].flatMap((line) => line.split(" "));

test("any input gives a pod or problems", () => {
  const { value: anything } = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { depthSize: "medium" },
      fc.anything(),
      fc.dictionary(fc.constantFrom(...NAMES), tie("value")),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.constantFrom("a", "A_b", "1", 1, -1, 0, "100m", "Always", "", null, true, "../x", "/x"),
    ),
  }));
  const manifest = fc.record({
    apiVersion: fc.constantFrom<unknown>("v1", "v1", "v1", 1),
    kind: fc.constantFrom<unknown>("Pod", "Pod", "Pod", "List"),
    metadata: anything,
    spec: anything,
  });
  fc.assert(
    fc.property(fc.oneof(fc.anything(), manifest, anything), (input) => {
      const result = parsePod(input);
      if (result.ok) assert.deepEqual(parsePod(result.pod), result);
      else assert.notEqual(formatProblems(result.problems), "");
    }),
    { numRuns: 3000 },
  );
});
