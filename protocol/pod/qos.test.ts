import assert from "node:assert/strict";
import { test } from "node:test";
import { parsedPod } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import { qosClass } from "./qos.ts";

type Fields = Readonly<Record<string, unknown>>;

const BOTH = { cpu: "100m", memory: "64Mi" };
const container = (resources: Fields, name = "a", more: Fields = {}): Fields => ({
  name,
  image: "i",
  resources,
  ...more,
});

for (const [name, spec, expected] of [
  ["nothing asked for", { containers: [container({})] }, "BestEffort"],
  ["requests of zero", { containers: [container({ requests: { cpu: 0, memory: "0" } })] }, "BestEffort"],
  ["other resources alone", { containers: [container({ limits: { "ephemeral-storage": "1Gi" } })] }, "BestEffort"],
  ["limits for both", { containers: [container({ limits: BOTH })] }, "Guaranteed"],
  [
    "limits for both, written differently",
    { containers: [container({ limits: BOTH, requests: { cpu: 0.1 } })] },
    "Guaranteed",
  ],
  ["requests below limits", { containers: [container({ limits: BOTH, requests: { cpu: "50m" } })] }, "Burstable"],
  ["memory alone", { containers: [container({ limits: { memory: "1Gi" } })] }, "Burstable"],
  ["requests alone", { containers: [container({ requests: BOTH })] }, "Burstable"],
  ["one container of two with limits", { containers: [container({ limits: BOTH }), container({}, "b")] }, "Burstable"],
  [
    "an init container counts",
    { containers: [container({ limits: BOTH })], initContainers: [container({}, "b")] },
    "Burstable",
  ],
  [
    "a sidecar counts",
    {
      containers: [container({ limits: BOTH })],
      initContainers: [container({ limits: BOTH }, "b", { restartPolicy: "Always" })],
    },
    "Guaranteed",
  ],
  [
    "an ephemeral container does not count",
    { containers: [container({ limits: BOTH })], ephemeralContainers: [{ name: "b", image: "i" }] },
    "Guaranteed",
  ],
  [
    "sums that are equal while the containers are not",
    {
      containers: [
        container({ limits: { cpu: 1, memory: 2 }, requests: { cpu: 1, memory: 1 } }),
        container({ limits: { cpu: 1, memory: 2 }, requests: { cpu: 1, memory: 2 } }, "b"),
      ],
    },
    "Burstable",
  ],
  ["the pod's own resources decide", { resources: { limits: BOTH }, containers: [container({})] }, "Guaranteed"],
  [
    "the pod's own resources, without a limit of memory",
    { resources: { limits: { cpu: 1 } }, containers: [container({ limits: { cpu: 1, memory: "1Mi" } })] },
    "Burstable",
  ],
] as const) {
  test(`${name}: ${expected}`, () => assert.equal(qosClass(parsedPod(spec)), expected));
}
