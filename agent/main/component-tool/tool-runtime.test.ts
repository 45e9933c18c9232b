import assert from "node:assert/strict";
import { test } from "node:test";
import type { CgroupHierarchies } from "../../resources/cgroup-hierarchies.ts";
import { unkeptLimits } from "./tool-runtime.ts";

const V2: CgroupHierarchies = { kind: "v2", mountPoint: "/sys/fs/cgroup", controllers: new Set(["cpu"]) };
const NONE: CgroupHierarchies = { kind: "none", why: "no cgroups are mounted" };

test("what is not kept of which limit, and why, is one line", () => {
  const limits = { cpu: "500m", memory: "48Mi" };
  assert.equal(
    unkeptLimits({ resources: { limits } }, V2, 1000),
    "no cgroup can be made for its limits (it takes root): cpu 500m is not kept; memory 48Mi is kept of the component's own memory alone, not of its process",
  );
  assert.match(
    unkeptLimits({ resources: { limits: { cpu: "1" } } }, V2, 0) ?? "",
    /\(they cannot be changed here\): cpu 1 is not kept$/,
  );
  assert.match(unkeptLimits({ resources: { limits } }, NONE, 0) ?? "", /\(no cgroups are mounted\): cpu/);
});

test("who asks for no limit is told nothing", () => {
  for (const resources of [{}, { limits: {} }, { requests: { cpu: "1" } }])
    assert.equal(unkeptLimits({ resources }, NONE, 1000), undefined);
});
