/** Certificates and CAs through an API server over HTTPS. */

import assert from "node:assert/strict";
import { generateKeyPairSync, sign as signBytes, X509Certificate } from "node:crypto";
import { after, before, test } from "node:test";
import { ClusterClientCa } from "@picolet/hub/bridge/cluster-client-ca.ts";
import { CsrSigner, SIGNING_REQUESTS } from "@picolet/hub/bridge/csr-signer.ts";
import { SecretPemStore } from "@picolet/hub/bridge/secret-pem-store.ts";
import { CONFIG_MAPS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { encodeCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import type { NameAttribute } from "@picolet/protocol/pki/distinguished-name.ts";
import { nodeSubject } from "@picolet/protocol/pki/node-subject.ts";
import { encodePem } from "@picolet/protocol/pki/pem.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { BridgedCluster } from "../support/unit/kubernetes/bridged-cluster.ts";
import { endOfRun } from "../support/unit/ports/end-of-run.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";

let cluster: BridgedCluster;
const { signal } = new AbortController();

before(async () => {
  cluster = await BridgedCluster.start();
});

after(async () => {
  await cluster[Symbol.asyncDispose]();
});

const signer = (timeout?: number): CsrSigner =>
  new CsrSigner(
    {
      client: cluster.hub,
      clientCa: new WatchSource("the CA"),
      clock: systemClock,
      random: seededRandom(Date.now()),
      log: new RecordedLog(),
    },
    timeout === undefined ? {} : { timeout: millis(timeout) },
  );

function requestOf(subject: readonly NameAttribute[]): string {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const spki = publicKey.export({ type: "spki", format: "der" });
  const der = encodeCertificateRequest(subject, spki, (bytes) => signBytes("sha256", bytes, privateKey));
  return encodePem("CERTIFICATE REQUEST", der);
}

test("the cluster signs a node's request, and nothing is left of it", async () => {
  const chain = await signer().sign("board-1", requestOf(nodeSubject("board-1")), signal);
  const { subject } = new X509Certificate(chain);
  assert.match(subject, /CN=system:node:board-1/);
  assert.match(subject, /O=system:nodes/);
  const { items } = await cluster.client.list(SIGNING_REQUESTS, {}, signal);
  assert.deepEqual(items, []);
});

test("what the cluster does not sign is refused", async () => {
  const admin = requestOf([
    { type: "O", value: "system:masters" },
    { type: "CN", value: "admin" },
  ]);
  await assert.rejects(signer().sign("board-1", admin, signal), (error) => isPicoletError(error, "permission_denied"));
  const garbage = signer().sign("board-1", "no request", signal);
  await assert.rejects(garbage, (error) => isPicoletError(error, "invalid"));
  const { items } = await cluster.client.list(SIGNING_REQUESTS, {}, signal);
  assert.deepEqual(items, []);
});

test("the client CA is the one that the API server publishes, also after it has changed", async () => {
  const ref = { namespace: "kube-system", name: "extension-apiserver-authentication" };
  const object = { apiVersion: "v1", kind: "ConfigMap", metadata: ref, data: { "client-ca-file": "first" } };
  await cluster.client.create(CONFIG_MAPS, ref, object, {}, signal).catch((error: unknown) => {
    assert.ok(isPicoletError(error, "already_exists"));
  });
  const components = { client: cluster.hub, clock: systemClock, random: seededRandom(1), log: new RecordedLog() };
  const ca = new ClusterClientCa(components);
  assert.notEqual(await ca.load(signal), "");
  const life = new AbortController();
  const running = endOfRun(ca.run(life.signal));
  await cluster.client.patch(CONFIG_MAPS, ref, "merge", { data: { "client-ca-file": "second" } }, {}, signal);
  for await (const pem of ca.pem.changes(signal)) if (pem === "second") break;
  // A hub that shows kubelets a certificate of another CA names it; else it uses the hub's client CA.
  for await (const pem of ca.kubeletClientPem.changes(signal)) if (pem === "second") break;
  const data = { "picolet-kubelet-client-ca-file": "third" };
  await cluster.client.patch(CONFIG_MAPS, ref, "merge", { data }, {}, signal);
  for await (const pem of ca.kubeletClientPem.changes(signal)) if (pem === "third") break;
  assert.equal(ca.pem.current, "second");
  life.abort();
  await running;
});

test("of two who store the first CA one wins, and the other takes it over", async () => {
  const ref = { namespace: "picolet-system", name: "picolet-hub-ca" };
  const [one, two] = [
    new SecretPemStore({ client: cluster.hub }, ref),
    new SecretPemStore({ client: cluster.hub }, ref),
  ];
  assert.equal(await one.load(signal), undefined);
  await one.save({ "ca.crt": "A", "ca.key": "K" }, undefined, signal);
  await assert.rejects(two.save({ "ca.crt": "B" }, undefined, signal), (error) => isPicoletError(error, "conflict"));
  const stored = await two.load(signal);
  assert.deepEqual(stored?.files, { "ca.crt": "A", "ca.key": "K" });
  await two.save({ "ca.crt": "C" }, stored?.version, signal);
  await assert.rejects(one.save({ "ca.crt": "D" }, stored?.version, signal), (error) =>
    isPicoletError(error, "conflict"),
  );
  assert.deepEqual((await one.load(signal))?.files, { "ca.crt": "C" });
});
