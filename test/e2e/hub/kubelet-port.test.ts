/** Port 10250 of a real board with a certificate of the cluster, for kubectl with tokens that the API server judges. */
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { mkdirSync, readFileSync, watch } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { nodeWith } from "../../support/agent/node-fixtures.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { Fleet, type KubectlResult, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { fixedPort } from "../../support/unit/machine/fixed-port.ts";

const skip = kubectlMissing("1.32");
const ISSUED = "kubelet-server-issued.pem";

let fleet: Fleet;
let admin: FleetAdmin;
let node: AgentNode;
let port: number;
let pki: string;

before(async () => {
  if (skip !== false) return;
  fleet = await Fleet.start();
  port = await fixedPort();
  const server = { enableServer: true, address: "127.0.0.1", port, serverTLSBootstrap: true };
  node = nodeWith(undefined, { config: { nodeName: "node-a", hub: await fleet.joinConfig(), ...server } });
  pki = join(node.directory, "root", "pki");
  mkdirSync(pki, { recursive: true });
  await node.start();
  admin = await FleetAdmin.of(fleet);
  await admin.untilCondition("node-a", "Ready", "True");
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [fleet, node, admin]) if (each !== undefined) all.use(each);
});

/** Resolves when the board has stored an issued certificate. */
async function untilIssued(): Promise<void> {
  const issued = Promise.withResolvers<void>();
  const watcher = watch(pki, (_event, name) => name === ISSUED && issued.resolve());
  await issued.promise;
  watcher.close();
}

async function tokenOf(account: string): Promise<string> {
  await fleet.kubectl(["create", "serviceaccount", account]);
  return (await fleet.kubectl(["create", "token", account])).trim();
}

/** kubectl at the board's own port; the CA is the hub's. */
const atBoard = (token: string, path: string, serverName = "node-a"): Promise<KubectlResult> =>
  fleet.tryKubectl([
    ...[`--server=https://127.0.0.1:${port}`, `--tls-server-name=${serverName}`, `--token=${token}`],
    ...["get", "--raw", path],
  ]);

test("the certificate of the port is requested as the node, approved, issued and served", { skip }, async () => {
  const [, name = ""] =
    /^(picolet-serving-node-a-\S+)/m.exec(
      await fleet.seen(["get", "csr", "--watch", "--no-headers"], (text) => /^picolet-serving-node-a-/m.test(text)),
    ) ?? [];
  const shown = await fleet.kubectl(["get", "csr", name, "--no-headers"]);
  assert.match(shown, /kubernetes\.io\/kubelet-serving +system:node:node-a +\S+ +Pending/);
  const stored = untilIssued();
  await fleet.kubectl(["certificate", "approve", name]);
  await stored;
  const certificate = new X509Certificate(readFileSync(join(pki, ISSUED)));
  assert.equal(certificate.subject, "O=system:nodes\nCN=system:node:node-a");
  assert.equal(certificate.checkHost("node-a"), "node-a");
  const other = await atBoard("none", "/healthz", "node-b");
  assert.match(other.stderr, /certificate is valid for node-a, not node-b/);
});

test("a token is known and allowed by what the API server says through the tunnel", { skip }, async () => {
  const token = await tokenOf("reader");
  const refused = await atBoard(token, "/configz");
  assert.match(refused.stderr, /Forbidden|forbidden/i);
  const resources = "--resource=nodes/pods,nodes/healthz,nodes/stats";
  await fleet.kubectl(["create", "clusterrole", "pods-of-nodes", "--verb=get", resources]);
  const binding = ["create", "clusterrolebinding", "pods-of-nodes", "--clusterrole=pods-of-nodes"];
  await fleet.kubectl([...binding, "--serviceaccount=default:reader"]);
  const pods = await atBoard(token, "/pods");
  assert.equal(pods.code, 0, pods.stderr);
  assert.equal((JSON.parse(pods.stdout) as { kind: string }).kind, "PodList");
  assert.equal((await atBoard(token, "/healthz")).stdout, "ok");
  // A board that never had an image.
  const summary = await atBoard(token, "/stats/summary");
  assert.equal(summary.code, 0, summary.stderr);
  for (const path of ["/metrics", "/runningpods/../configz", "/containerLogs/default/pod/container", "/configz"]) {
    const { code, stderr } = await atBoard(token, path);
    assert.notEqual(code, 0, path);
    assert.match(stderr, /forbidden/i, path);
  }
  const stranger = await atBoard(await tokenOf("stranger"), "/pods");
  assert.match(stranger.stderr, /forbidden/i);
  const unknown = await atBoard(`${token.slice(0, -4)}AAAA`, "/pods");
  assert.match(unknown.stderr, /Unauthorized|must be logged in/);
});
