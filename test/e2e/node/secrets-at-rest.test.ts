/** Secrets on the disk of a real board, and its pods after the loss of the key. A real hub, no container runtime. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { PODS, SECRETS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerIdOf, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { filesWith } from "../../support/unit/machine/raw-bytes.ts";
import { testComponent } from "../../support/wasm/components.ts";

const SCRIPT = "picolet.example/script:1";
const WORDS = [
  "first-word-of-this-test-0123456789",
  "second-word-of-this-test-9876543210",
  "third-word-of-this-test-555",
];

const POD = {
  metadata: { name: "keeper" },
  spec: {
    ...{ nodeName: "node-a", runtimeClassName: "wasm", terminationGracePeriodSeconds: 1 },
    securityContext: { fsGroup: 4242 },
    containers: [
      {
        ...{ name: "app", image: SCRIPT, imagePullPolicy: "IfNotPresent", args: ["watch", "/keys/word"] },
        env: [{ name: "WORD", valueFrom: { secretKeyRef: { name: "keys", key: "word" } } }],
        volumeMounts: [{ name: "keys", mountPath: "/keys" }],
      },
      {
        ...{ name: "token", image: SCRIPT, imagePullPolicy: "IfNotPresent" },
        args: ["cat", "/all/token", "say", "", "hold"],
        volumeMounts: [{ name: "all", mountPath: "/all" }],
      },
    ],
    volumes: [
      { name: "keys", secret: { secretName: "keys" } },
      { name: "all", projected: { sources: [{ serviceAccountToken: { path: "token", expirationSeconds: 3600 } }] } },
    ],
  },
};

/** No word and no token in any file of the agent's folder. */
function assertSealed(node: AgentNode, secrets: readonly string[], step: string): void {
  const root = join(node.directory, "root");
  for (const secret of secrets) assert.deepEqual(filesWith(root, secret), [], `${secret} ${step}`);
}

test("no Secret and no token is on a board's disk, and a lost key costs no running pod", {
  skip: kubectlMissing("1.32"),
}, async () => {
  await using fleet = await Fleet.start();
  await using node = nodeWith(undefined, { config: { nodeName: "node-a", hub: await fleet.joinConfig() } });
  await node.start();
  edgectl(node, "image", "import", await testComponent("script.c"), "--name", SCRIPT);
  await using admin = await FleetAdmin.of(fleet);
  const [one = "", two = "", three = ""] = WORDS;
  await admin.untilCondition("node-a", "Ready", "True");
  await admin.create(SECRETS, { metadata: { name: "keys" }, stringData: { word: one } });
  await admin.create(PODS, POD);
  await admin.untilPod("keeper", "ready", isReady);
  const [token = ""] =
    /^[\w-]+\.[\w-]+\.[\w-]+$/m.exec(
      await fleet.seen(["logs", "-f", "keeper", "-c", "token"], (text) => /^[\w-]+\.[\w-]+\.[\w-]+\n/m.test(text)),
    ) ?? [];
  assert.ok(token.length > 100);
  const secrets = [...WORDS, token];
  // The last part alone is what cannot be guessed.
  const signature = token.split(".").at(-1) ?? "";
  assertSealed(node, [...secrets, signature], "after it came");
  await admin.patch(SECRETS, "keys", { stringData: { word: two } });
  await fleet.seen(["logs", "-f", "keeper", "-c", "app"], (text) => text.includes(two));
  assertSealed(node, secrets, "after it changed");
  assert.equal((await node.status()).secretsAtRest?.provider, "file");
  assert.match(edgectl(node, "status"), /^Secrets +encrypted on disk, key in a file: protects against copies of the/m);
  const container = containerIdOf(await admin.pod("keeper"));

  await node.kill();
  assertSealed(node, secrets, "after the agent was killed");
  rmSync(join(node.directory, "root", "store.key"));
  await node.start();
  await node.waitForEvent("an event of the lost key", ({ reason }) => reason === "SecretKeyLost");
  const { secretsAtRest } = await node.waitForStatus(
    "the Secrets again",
    ({ secretsAtRest }) => secretsAtRest?.unreadable === 0,
  );
  assert.match(secretsAtRest?.problem ?? "", /there is no .*store\.key/);
  await admin.patch(SECRETS, "keys", { stringData: { word: three } });
  await fleet.seen(["logs", "-f", "keeper", "-c", "app"], (text) => text.includes(three));
  assert.equal(containerIdOf(await admin.pod("keeper")), container, "it ran on");
  assertSealed(node, secrets, "after the key was lost");
  await node.stop();
  assertSealed(node, secrets, "after the agent has ended");
  assert.ok(existsSync(join(node.directory, "root", "store-keys.json")));
  assert.ok(!readFileSync(node.configPath, "utf8").includes(one));
  await node.start();
  assert.equal((await node.status()).secretsAtRest?.problem, "", "said once");
  await admin.delete(PODS, "keeper", 0);
});
