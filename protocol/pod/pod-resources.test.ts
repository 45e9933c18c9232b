import assert from "node:assert/strict";
import { test } from "node:test";
import { parsedPod } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import { formatQuantity } from "../kubernetes/quantity.ts";
import { podLimits, podRequests, type Quantities } from "./pod-resources.ts";

const text = (quantities: Quantities): Record<string, string> =>
  Object.fromEntries([...quantities].map(([name, quantity]) => [name, formatQuantity(quantity)]));

const asking = (name: string, cpu: string, memory: string, more: Readonly<Record<string, unknown>> = {}) => ({
  name,
  image: "i",
  resources: { requests: { cpu, memory }, limits: { memory } },
  ...more,
});

test("containers add up", () => {
  const pod = parsedPod({ containers: [asking("a", "100m", "64Mi"), asking("b", "250m", "64Mi")] });
  assert.deepEqual(text(podRequests(pod)), { cpu: "350m", memory: "128Mi" });
  assert.deepEqual(text(podLimits(pod)), { memory: "128Mi" });
});

test("an init container counts where it asks for more than all that runs later", () => {
  const pod = parsedPod({
    initContainers: [asking("x", "1", "32Mi"), asking("y", "10m", "512Mi")],
    containers: [asking("a", "100m", "64Mi"), asking("b", "250m", "64Mi")],
  });
  assert.deepEqual(text(podRequests(pod)), { cpu: "1", memory: "512Mi" });
});

test("a sidecar runs beside the init containers after it and beside the containers", () => {
  const pod = parsedPod({
    initContainers: [
      asking("before", "400m", "1Mi"),
      asking("side", "200m", "100Mi", { restartPolicy: "Always" }),
      asking("after", "300m", "1Mi"),
    ],
    containers: [asking("a", "100m", "64Mi")],
  });
  assert.deepEqual(text(podRequests(pod)), { cpu: "500m", memory: "164Mi" });
});

test("the pod's own requests override its containers', and overhead is added", () => {
  const pod = parsedPod({
    resources: { requests: { cpu: "2" }, limits: { cpu: "3" } },
    overhead: { cpu: "100m", memory: "16Mi" },
    containers: [asking("a", "100m", "64Mi")],
  });
  assert.deepEqual(text(podRequests(pod)), { cpu: "2100m", memory: "80Mi" });
  assert.deepEqual(text(podLimits(pod)), { cpu: "3100m", memory: "80Mi" });
});

test("overhead makes no limit where there is none, or where it is zero", () => {
  const unlimited = parsedPod({ overhead: { memory: "1Mi" }, containers: [asking("a", "100m", "0")] });
  assert.deepEqual(text(podLimits(unlimited)), { memory: "0" });
  const pod = parsedPod({ overhead: { cpu: "100m" }, containers: [asking("a", "100m", "64Mi")] });
  assert.deepEqual(text(podLimits(pod)), { memory: "64Mi" });
});
