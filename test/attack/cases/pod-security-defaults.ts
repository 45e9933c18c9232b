/** A hub with examples/pod-security.yaml: namespaces without labels are restricted as well. */
import assert from "node:assert/strict";
import type { AttackCase } from "../attack-case.ts";

export const hubFlags: readonly string[] = ["--admission-control-config-file", "examples/pod-security.yaml"];

export const cases: readonly AttackCase[] = [
  {
    name: "a tenant makes a privileged pod where the namespace has no labels, but the hub has defaults",
    attacker: "service account",
    inTest: false,
    run: async (ground) => {
      const namespace = await ground.namespace();
      const spec = { containers: [{ name: "app", image: "i:1", securityContext: { privileged: true } }] };
      const pod = { apiVersion: "v1", kind: "Pod", metadata: { name: "p" }, spec };
      const { status, body } = await ground.admin.create(`/api/v1/namespaces/${namespace}/pods`, pod);
      assert.equal(status, 403);
      assert.match(
        (body as { readonly message: string }).message,
        /violates PodSecurity "baseline:latest": privileged/,
      );
      const plain = { ...pod, spec: { containers: [{ name: "app", image: "i:1" }] } };
      const warned = await ground.admin.create(`/api/v1/namespaces/${namespace}/pods`, plain);
      assert.equal(warned.status, 201);
      assert.match(String(warned.headers.warning), /would violate PodSecurity \\"restricted:latest\\"/);
      // The cluster's own pods still run.
      assert.equal((await ground.admin.create("/api/v1/namespaces/kube-system/pods", pod)).status, 201);
    },
  },
];
