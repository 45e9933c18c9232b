import assert from "node:assert/strict";
import { test } from "node:test";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { applyGrants, grantsOf, resizableContainers } from "./allocation.ts";

const app = (cpu: string) => ({ name: "app", image: "example/app:1", resources: { requests: { cpu } } });
const init = (name: string, restartPolicy?: "Always") => ({
  name,
  image: "example/app:1",
  resources: { requests: { cpu: "50m" } },
  ...(restartPolicy === undefined ? {} : { restartPolicy }),
});

test("containers and sidecars may change while they run, init containers may not", () => {
  const pod = podOf({ containers: [app("1")], initContainers: [init("once"), init("side", "Always")] });
  assert.deepEqual(
    resizableContainers(pod).map(({ name }) => name),
    ["side", "app"],
  );
});

test("what was granted takes the place of what is wanted, and nothing else changes", () => {
  const before = podOf({ containers: [app("1")], initContainers: [init("side", "Always")] });
  const wanted = podOf({
    containers: [{ ...app("2"), image: "example/app:2" }],
    initContainers: [{ ...init("side", "Always"), resources: { requests: { cpu: "70m" } } }],
  });
  const { spec } = applyGrants(wanted, grantsOf(before));
  assert.deepEqual(spec.containers[0], { ...wanted.spec.containers[0], resources: { requests: { cpu: "1" } } });
  assert.deepEqual(spec.initContainers?.[0]?.resources, { requests: { cpu: "50m" } });
  const { containers: _, initContainers: __, ...others } = wanted.spec;
  const { containers: ___, initContainers: ____, ...kept } = spec;
  assert.deepEqual(kept, others);
});

for (const [name, cpu, isSame] of [
  ["the same amount, written in another way", "1000m", true],
  ["another amount", "1001m", false],
  ["what is no amount", "much", false],
] as const) {
  test(`granted ${name}: ${isSame ? "nothing" : "the container"} changes`, () => {
    const pod = podOf({ containers: [app("1")] });
    assert.equal(applyGrants(pod, { app: { requests: { cpu } } }) === pod, isSame);
  });
}

test("a resource that is added or taken away is another amount", () => {
  const more = podOf({ containers: [{ ...app("1"), resources: { requests: { cpu: "1", memory: "1Mi" } } }] });
  const less = podOf({ containers: [app("1")] });
  for (const [one, other] of [
    [more, less],
    [less, more],
  ] as const) {
    assert.deepEqual(
      applyGrants(one, grantsOf(other)).spec.containers[0]?.resources,
      other.spec.containers[0]?.resources,
    );
  }
});

test("a container that was not there before has what it is wanted with", () => {
  const pod = podOf({ containers: [app("1")] });
  assert.equal(applyGrants(pod, {}), pod);
});
