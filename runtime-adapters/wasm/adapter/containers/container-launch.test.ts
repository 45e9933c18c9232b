import assert from "node:assert/strict";
import { test } from "node:test";
import { podUid } from "@picolet/protocol/ports.ts";
import { parsedPod } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import { identityOf } from "./container-launch.ts";

test("a component has the groups of its pod and of the pod's volumes", () => {
  const pod = parsedPod({ securityContext: { fsGroup: 7, supplementalGroups: [8] } });
  const [spec] = pod.spec.containers;
  assert.ok(spec);
  const desired = { uid: podUid("uid-1"), source: "api", origin: "", pod } as const;
  assert.deepEqual(identityOf(desired, spec, { ownUid: 0, extraGroups: [9] })?.groups, [8, 7, 9]);
});
