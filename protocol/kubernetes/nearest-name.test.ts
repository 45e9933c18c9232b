import assert from "node:assert/strict";
import { test } from "node:test";
import { nearestName } from "./nearest-name.ts";

const NAMES = ["staticPodPath", "staticPodURL", "maxPods", "port", "hub"];

for (const [name, nearest] of [
  ["statcPodPath", "staticPodPath"],
  ["StaticPodPath", "staticPodPath"],
  ["staticPodUrl", "staticPodURL"],
  ["maxPod", "maxPods"],
  ["prot", "port"],
  ["tropp", undefined],
  ["por", "port"],
  ["hbu", "hub"],
  ["bhu", undefined],
  ["somethingElse", undefined],
  ["", undefined],
  ["x".repeat(10_000), undefined],
] as const) {
  test(`${JSON.stringify(name.slice(0, 20))} was meant to be ${nearest}`, () => {
    assert.equal(nearestName(name, NAMES), nearest);
  });
}
