import assert from "node:assert/strict";
import { test } from "node:test";
import { podOf } from "../../test/support/pods.ts";
import { notActedUpon } from "./not-acted-upon.ts";

test("a pod that asks for nothing special asks for nothing in vain", () => {
  assert.deepEqual(notActedUpon(podOf()), []);
});

test("each field that would be without effect is named with its path", () => {
  const probe = { tcpSocket: { port: 80 } };
  const pod = podOf({
    activeDeadlineSeconds: 60,
    readinessGates: [{ conditionType: "example.com/ready" }],
    initContainers: [{ name: "first", image: "example/first:1", restartPolicy: "Always", startupProbe: probe }],
    containers: [
      { name: "app", image: "example/app:1" },
      { name: "web", image: "example/web:1", livenessProbe: probe, lifecycle: { preStop: { sleep: { seconds: 1 } } } },
    ],
  });
  assert.deepEqual(notActedUpon(pod), [
    "spec.activeDeadlineSeconds",
    "spec.readinessGates",
    "spec.initContainers[0].startupProbe",
    "spec.containers[1].livenessProbe",
    "spec.containers[1].lifecycle",
  ]);
});
