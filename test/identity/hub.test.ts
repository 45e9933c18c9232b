/** The hub's side of identity, part by part. */

import assert from "node:assert/strict";
import { createPrivateKey, generateKeyPairSync, sign, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { makeNodeRequest } from "@picolet/agent/security/certificate-requests.ts";
import { HubConnection } from "@picolet/agent/security/hub-connection.ts";
import { BootstrapTokens, REPLACE_NODES_GROUP } from "@picolet/hub/identity/bootstrap-tokens.ts";
import {
  caHash,
  issueClientCertificate,
  loadAuthority,
  makeAuthority,
  makeServerPair,
} from "@picolet/hub/identity/certificate-authority.ts";
import { HubCa } from "@picolet/hub/identity/hub-ca.ts";
import { LiveConnections } from "@picolet/hub/identity/live-connections.ts";
import { NodeKeysInKubernetes, RevokedKeysInKubernetes } from "@picolet/hub/identity/node-keys.ts";
import { checkNodeRequest } from "@picolet/hub/identity/node-request.ts";
import { FilePemStore } from "@picolet/hub/identity/pem-store.ts";
import { AddressLimits } from "@picolet/hub-core/fairness/address-limits.ts";
import { SECRETS } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Revocations } from "@picolet/hub-core/node-credentials.ts";
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { encodeCertificate } from "@picolet/protocol/pki/certificate.ts";
import {
  contextConstructed,
  der,
  derBitString,
  derInteger,
  derOid,
  derSequence,
  derSet,
  derUtf8,
} from "@picolet/protocol/pki/der.ts";
import { encodeName } from "@picolet/protocol/pki/distinguished-name.ts";
import { basicConstraints, encodeExtension, subjectAltName } from "@picolet/protocol/pki/extensions.ts";
import { nodeSubject } from "@picolet/protocol/pki/node-subject.ts";
import { encodePem } from "@picolet/protocol/pki/pem.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { DAY_MS, START_MS, TestHub } from "../support/unit/identity/identity-hub.ts";
import { LocalSigner } from "../support/unit/identity/local-signer.ts";
import { MemorySecrets } from "../support/unit/identity/memory-secrets.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { endOfRun } from "../support/unit/ports/end-of-run.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";

const never = new AbortController().signal;

function components(folder: TempFolder) {
  const store = new FilePemStore({ path: folder.at("hub", "pki.json") });
  return { store, clock: new VirtualClock(START_MS), log: new RecordedLog() };
}

const serverOf = (ca: HubCa): X509Certificate => new X509Certificate(ca.serving.current.certificateChain);

test("the hub's CA is made once and found again, by replicas that start at the same moment too", async () => {
  using folder = new TempFolder();
  const parts = components(folder);
  const first = await HubCa.open(parts, { names: ["hub.example", "10.0.0.1"] }, never);
  const second = await HubCa.open(parts, { names: ["hub.example", "10.0.0.1"] }, never);
  assert.equal(second.hash, first.hash);
  assert.deepEqual(second.serving.current.certificateChain, first.serving.current.certificateChain);
  assert.equal(statSync(folder.at("hub", "pki.json")).mode & 0o777, 0o600);
  assert.equal(serverOf(first).subjectAltName, "DNS:hub.example, IP Address:10.0.0.1");
  // Another replica is faster between load and save.
  const other = makeAuthority("other", { days: 3650, now: parts.clock.wall() });
  const pair = makeServerPair(other, ["hub.example"], { days: 30, now: parts.clock.wall() });
  const key = other.key.export({ type: "pkcs8", format: "pem" }).toString();
  const theirs = {
    "ca.crt": other.certificate,
    "ca.key": key,
    "tls.crt": pair.certificate,
    "tls.key": pair.privateKey,
  };
  let saved = false;
  const contested = {
    load: async () => (saved ? { files: theirs, version: "2" } : undefined),
    save: async () => {
      saved = true;
      throw new PicoletError("conflict", "somebody was faster");
    },
  };
  const third = await HubCa.open({ ...parts, store: contested }, { names: ["hub.example"] }, never);
  assert.equal(third.hash, caHash(other.certificate));
});

test("the hub's certificate is renewed at two thirds of its life, and for new names at once", async () => {
  using folder = new TempFolder();
  const parts = components(folder);
  const stop = new AbortController();
  const ca = await HubCa.open(parts, { names: ["hub.example"] }, never);
  const running = endOfRun(ca.run(stop.signal));
  const first = ca.serving.current;
  while (ca.serving.current === first) await parts.clock.step();
  const days = (parts.clock.wall().getTime() - START_MS) / DAY_MS;
  assert.ok(days >= 19.9 && days < 20.2, String(days));
  assert.equal(ca.serving.current.caBundle, first.caBundle);
  const more = await HubCa.open(parts, { names: ["hub.example", "*.hubs.example", "fd00::1"] }, never);
  assert.equal(serverOf(more).checkHost("a.hubs.example"), "*.hubs.example");
  assert.equal(serverOf(more).checkIP("fd00::1"), "fd00::1");
  stop.abort();
  await running;
});

test("a CA that comes to its end is followed by another, which the old one vouches for", async () => {
  using folder = new TempFolder();
  const parts = components(folder);
  const first = await HubCa.open(parts, { names: ["hub.example"] }, never);
  parts.clock.setWall(START_MS + 3300 * DAY_MS);
  const second = await HubCa.open(parts, { names: ["hub.example"] }, never);
  assert.notEqual(second.hash, first.hash);
  assert.ok(second.serving.current.caBundle.includes(first.authority.certificate));
  const [, cross = ""] = second.serving.current.certificateChain.split(/(?<=-----END CERTIFICATE-----\n)/);
  const parsed = new X509Certificate(cross);
  assert.ok(parsed.checkIssued(new X509Certificate(first.authority.certificate)));
  assert.ok(parsed.verify(new X509Certificate(first.authority.certificate).publicKey));
});

test("a stored CA that cannot be used is an error, and is left as it is", async () => {
  using folder = new TempFolder();
  const parts = components(folder);
  await HubCa.open(parts, { names: ["hub.example"] }, never);
  const path = folder.at("hub", "pki.json");
  const files = JSON.parse(readFileSync(path, "utf8")) as Record<string, string>;
  const stranger = makeAuthority("x", { days: 1, now: parts.clock.wall() });
  for (const text of [
    "{",
    JSON.stringify({ ...files, "ca.key": stranger.key.export({ type: "pkcs8", format: "pem" }) }),
  ]) {
    writeFileSync(path, text);
    await assert.rejects(HubCa.open(parts, { names: ["hub.example"] }, never), { code: "corrupt" });
    assert.equal(readFileSync(path, "utf8"), text);
  }
  writeFileSync(path, JSON.stringify(files));
  await assert.rejects(parts.store.save(files, "another version"), { code: "conflict" });
});

test("a cluster's RSA CA signs nodes, as kubeadm's does", async () => {
  const clock = new VirtualClock(START_MS);
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const name = encodeName([{ type: "CN", value: "kubernetes" }]);
  const bytes = encodeCertificate(
    {
      serial: Uint8Array.of(1),
      issuer: name,
      subject: name,
      notBeforeMs: START_MS,
      notAfterMs: START_MS + 100 * DAY_MS,
      publicKey: publicKey.export({ type: "spki", format: "der" }),
      extensions: [basicConstraints(0)],
      signatureAlgorithm: derSequence(derOid("1.2.840.113549.1.1.11"), Uint8Array.of(5, 0)),
    },
    (signed) => sign("sha256", signed, privateKey),
  );
  const authority = loadAuthority(
    encodePem("CERTIFICATE", bytes),
    privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  );
  const signer = new LocalSigner({ authority: () => authority, clock });
  const key = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ type: "pkcs8", format: "pem" });
  const csr = encodePem("CERTIFICATE REQUEST", makeNodeRequest("board-1", key.toString()));
  const certificate = new X509Certificate(await signer.sign("board-1", csr));
  assert.ok(certificate.verify(publicKey) && certificate.checkPrivateKey(createPrivateKey(key)));
  // Not longer than the CA itself.
  assert.equal(certificate.validToDate.getTime(), Math.floor((START_MS + 100 * DAY_MS) / 1000) * 1000);
  await assert.rejects(signer.sign("board-2", csr), { code: "internal" });
  const other = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ type: "pkcs8", format: "pem" });
  assert.throws(() => loadAuthority(authority.certificate, other.toString()), { code: "invalid" });
  assert.throws(
    () => loadAuthority(issueClientCertificate(authority, csr, { days: 1, now: new Date() }), key.toString()),
    {
      code: "invalid",
    },
  );
});

test("a board may ask for a name and nothing more", () => {
  const SHA256_EC = "1.2.840.10045.4.3.2";
  const request = (init: {
    readonly type?: "rsa" | "P-256" | "P-384" | "P-521";
    readonly subject?: Uint8Array;
    readonly attributes?: Uint8Array;
  }): string => {
    const { type = "P-256" } = init;
    const { privateKey, publicKey } =
      type === "rsa"
        ? generateKeyPairSync("rsa", { modulusLength: 2048 })
        : generateKeyPairSync("ec", { namedCurve: type });
    const info = derSequence(
      derInteger(Uint8Array.of(0)),
      init.subject ?? encodeName(nodeSubject("board-1")),
      publicKey.export({ type: "spki", format: "der" }),
      der(contextConstructed(0), init.attributes ?? new Uint8Array()),
    );
    const algorithm = derSequence(derOid(type === "rsa" ? "1.2.840.113549.1.1.11" : SHA256_EC));
    return encodePem(
      "CERTIFICATE REQUEST",
      derSequence(info, algorithm, derBitString(sign("sha256", info, privateKey))),
    );
  };
  assert.equal(checkNodeRequest(request({})).node, "board-1");
  assert.equal(checkNodeRequest(request({ type: "P-384" })).node, "board-1");
  const names = encodeExtension(subjectAltName({ dns: ["hub.example"], addresses: [] }));
  const extensions = derSequence(derOid("1.2.840.113549.1.9.14"), derSet(derSequence(names)));
  const password = derSequence(derOid("1.2.840.113549.1.9.7"), derSet(derUtf8("x")));
  const refused: readonly (readonly [what: string, csr: string, code: string])[] = [
    ["an RSA key", request({ type: "rsa" }), "invalid"],
    ["P-521", request({ type: "P-521" }), "invalid"],
    ["names", request({ attributes: extensions }), "invalid"],
    ["an attribute", request({ attributes: password }), "invalid"],
    ["another group", request({ subject: encodeName([{ type: "O", value: "system:masters" }]) }), "permission_denied"],
    ["no subject", request({ subject: encodeName([]) }), "permission_denied"],
    ["two requests", request({}) + request({}), "invalid"],
    ["a certificate", makeAuthority("x", { days: 1, now: new Date() }).certificate, "invalid"],
  ];
  for (const [what, csr, code] of refused) assert.throws(() => checkNodeRequest(csr), { code }, what);
});

test("bootstrap tokens are Kubernetes' own", async () => {
  const client = new MemorySecrets();
  const clock = new VirtualClock(START_MS);
  const tokens = new BootstrapTokens({ client, clock });
  const token = await tokens.create({ ttlMs: 3_600_000, description: "shed", replaceNodes: true }, never);
  assert.match(token, /^[a-z0-9]{6}\.[a-z0-9]{16}$/);
  const [id = ""] = token.split(".");
  assert.deepEqual(await tokens.verify(token, never), { id, groups: ["system:bootstrappers", REPLACE_NODES_GROUP] });
  assert.deepEqual(await tokens.list(never), [
    {
      id,
      expiresAtMs: Math.floor((START_MS + 3_600_000) / 1000) * 1000,
      description: "shed",
      groups: [REPLACE_NODES_GROUP],
      usages: ["authentication"],
    },
  ]);
  clock.setWall(START_MS + 3_600_001);
  await assert.rejects(tokens.verify(token, never), { code: "permission_denied", message: /expired/ });
  await tokens.delete(token, never);
  assert.deepEqual(await tokens.list(never), []);
  await assert.rejects(tokens.delete(token, never), { code: "not_found" });
  await assert.rejects(tokens.delete("x", never), { code: "invalid" });
  client.failure = new PicoletError("unavailable", "no API server", { retryable: true });
  await assert.rejects(tokens.verify(token, never), { code: "unavailable" });
});

test("a token for a number of nodes counts each node once, also when many join at a time", async () => {
  const client = new MemorySecrets();
  const tokens = new BootstrapTokens({ client, clock: new VirtualClock(START_MS) });
  const create = (uses?: number) => tokens.create({ ttlMs: 0, description: "", replaceNodes: false, uses }, never);
  const token = await tokens.verify(await create(3), never);
  assert.equal(token.uses, 3);
  const nodes = Array.from({ length: 8 }, (_, index) => `board-${index}`);
  const answers = await Promise.allSettled(nodes.map((node) => tokens.use(token, node, never)));
  const joined = nodes.filter((_, index) => answers[index]?.status === "fulfilled");
  assert.equal(joined.length, 3);
  const refusal = { code: "permission_denied", message: /3 boards have joined with it, and it is for no more; make/ };
  for (const node of nodes)
    if (joined.includes(node)) await tokens.use(token, node, never);
    else await assert.rejects(tokens.use(token, node, never), refusal);
  const [report] = await tokens.list(never);
  assert.deepEqual(report?.uses, { used: 3, most: 3 });
  const unlimited = await tokens.verify(await create(), never);
  for (const node of nodes) await tokens.use(unlimited, node, never);
  const records = () => client.all.filter(({ metadata }) => metadata.name.startsWith("picolet-token-uses."));
  assert.deepEqual(
    records().map(({ metadata }) => metadata.namespace),
    ["picolet-system"],
  );
  await tokens.delete(token.id, never);
  assert.deepEqual(records(), []);
});

test("the record of a token that the cluster has removed goes with the next one that is made", async () => {
  const client = new MemorySecrets();
  const tokens = new BootstrapTokens({ client, clock: new VirtualClock(START_MS) });
  const create = () => tokens.create({ ttlMs: 0, description: "", replaceNodes: false, uses: 1 }, never);
  const token = await tokens.verify(await create(), never);
  await tokens.use(token, "board-1", never);
  await client.delete(SECRETS, { namespace: "kube-system", name: `bootstrap-token-${token.id}` });
  await create();
  assert.deepEqual(
    client.all.map(({ metadata }) => metadata.namespace),
    ["kube-system"],
  );
});

test("a token whose number cannot be read lets nobody in", async () => {
  const client = new MemorySecrets();
  const tokens = new BootstrapTokens({ client, clock: new VirtualClock(START_MS) });
  const text = await tokens.create({ ttlMs: 0, description: "", replaceNodes: false, uses: 5 }, never);
  const ref = { namespace: "kube-system", name: `bootstrap-token-${text.split(".")[0]}` };
  const object = await client.get(SECRETS, ref);
  const annotations = { "picolet.io/uses": "many" };
  await client.update(SECRETS, ref, { ...object, metadata: { ...object.metadata, annotations } });
  const token = await tokens.verify(text, never);
  await assert.rejects(tokens.use(token, "board-1", never), { code: "permission_denied" });
});

test("a Secret that is no proper token lets nobody in", async () => {
  const client = new MemorySecrets();
  const tokens = new BootstrapTokens({ client, clock: new VirtualClock(START_MS) });
  const good = { "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true" };
  const cases: readonly (readonly [what: string, data: Record<string, string>, type: string])[] = [
    ["expiration that is no time", { ...good, expiration: "soon" }, "bootstrap.kubernetes.io/token"],
    ["signing only", { ...good, "usage-bootstrap-authentication": "false" }, "bootstrap.kubernetes.io/token"],
    ["another id", { ...good, "token-id": "fedcba" }, "bootstrap.kubernetes.io/token"],
    ["another type", good, "Opaque"],
    ["no secret", { ...good, "token-secret": "" }, "bootstrap.kubernetes.io/token"],
  ];
  const ref = { namespace: "kube-system", name: "bootstrap-token-abcdef" };
  for (const [what, data, type] of cases) {
    const entries = Object.entries(data).map(([key, value]) => [key, Buffer.from(value).toString("base64")] as const);
    const encoded = Object.fromEntries(entries.filter(([, value]) => value !== ""));
    const object = { apiVersion: "v1", kind: "Secret", metadata: ref, type, data: encoded };
    await client.create(SECRETS, ref, object);
    await assert.rejects(tokens.verify("abcdef.0123456789abcdef", never), { code: "permission_denied" }, what);
    await assert.rejects(tokens.verify("abcdef.0000000000000000", never), { code: "permission_denied" }, what);
    await client.delete(SECRETS, ref);
  }
});

const keysOf = async (keys: NodeKeysInKubernetes, node: string) => {
  const { version, ...record } = (await keys.get(node, never)) ?? { version: undefined };
  return { version, record: version === undefined ? undefined : record };
};

test("keys of nodes are kept in the hub's own Secrets, whatever the length of the name", async () => {
  const client = new MemorySecrets();
  const keys = new NodeKeysInKubernetes({ client }, { namespace: "picolet" });
  const record = { spkiHash: "a".repeat(64), certifiedAtMs: 5 };
  const other = { ...record, spkiHash: "b".repeat(64) };
  for (const node of ["board-1", `${"a".repeat(60)}.${"b".repeat(60)}.${"c".repeat(60)}.${"d".repeat(60)}`]) {
    assert.equal(await keys.get(node, never), undefined);
    await keys.set(node, other, undefined, never);
    const { version } = await keysOf(keys, node);
    await keys.set(node, record, version, never);
    assert.deepEqual((await keysOf(keys, node)).record, record);
    // A decision from what is no longer so.
    await assert.rejects(keys.set(node, other, version, never), { code: "conflict" });
    await assert.rejects(keys.set(node, other, undefined, never), { code: "conflict" });
  }
  assert.ok(client.all.every(({ metadata }) => metadata.namespace === "picolet" && metadata.name.length <= 253));
  const { version } = await keysOf(keys, "board-1");
  await keys.delete("board-1", never);
  await keys.delete("board-1", never);
  assert.equal(await keys.get("board-1", never), undefined);
  await assert.rejects(keys.set("board-1", record, version, never), { code: "conflict" });
  await keys.set("board-1", { ...record, spkiHash: "nonsense" }, undefined, never);
  await assert.rejects(keys.get("board-1", never), { code: "corrupt" });
  for (const name of ["", "Board-1", "a b", "a..b", ".a", "a.", "../a", "a\n", "a".repeat(254)]) {
    await assert.rejects(keys.get(name, never), { code: "invalid" }, name);
    await assert.rejects(keys.set(name, record, undefined, never), { code: "invalid" }, name);
  }
});

test("what one replica revokes is revoked at the others, and bad entries hurt only their own name", async () => {
  const client = new MemorySecrets();
  const clock = new VirtualClock(START_MS);
  const log = new RecordedLog();
  const make = () =>
    new RevokedKeysInKubernetes({ client, clock, random: seededRandom(1), log }, { namespace: "picolet" });
  const [one, two] = [make(), make()];
  const stop = new AbortController();
  assert.equal(two.isRead, false);
  const running = Promise.all([one, two].map((each) => endOfRun(each.run(stop.signal))));
  await two.ready(stop.signal);
  const revoke = (by: RevokedKeysInKubernetes, key: string, node: string): Promise<void> =>
    by.revoke(node, { spkiHash: key.repeat(64), newKey: undefined }, never);
  await Promise.all([revoke(one, "a", "board-1"), revoke(two, "b", "board-2")]);
  for await (const { keys } of two.revoked.changes(stop.signal)) if (keys.size === 2) break;
  for await (const { keys } of one.revoked.changes(stop.signal)) if (keys.size === 2) break;
  assert.deepEqual(two.revoked.current.nodes.get("board-1"), { resets: 1, keys: [] });
  const [secret] = client.all;
  assert.ok(secret !== undefined);
  const data = { ...(secret.data as Record<string, string>), nonsense: "AA==", "node.board-3": "AA==" };
  await client.update(SECRETS, { namespace: "picolet", name: secret.metadata.name }, { ...secret, data });
  for await (const { nodes } of two.revoked.changes(stop.signal)) if (nodes.size === 3) break;
  const { keys, nodes } = two.revoked.current;
  assert.equal(keys.size, 2);
  assert.deepEqual(nodes.get("board-3")?.keys, [], "damaged: nobody has that name");
  client.failure = new PicoletError("unavailable", "gone", { retryable: true });
  stop.abort();
  await running;
});

test("a name keeps the latest keys that were certified since its reset, and the list has an end", async () => {
  const client = new MemorySecrets();
  const parts = { client, clock: new VirtualClock(START_MS), random: seededRandom(1), log: new RecordedLog() };
  const list = new RevokedKeysInKubernetes(parts, { namespace: "picolet" });
  const revoke = (node: string): Promise<void> => list.revoke(node, { spkiHash: undefined, newKey: undefined }, never);
  await revoke("board-1");
  const judged = (await list.read(never)).nodes.get("board-1");
  assert.deepEqual(judged, { resets: 1, keys: [] });
  const keys = [..."0123456789"].map((digit) => digit.repeat(64));
  for (const key of [...keys, keys[3] ?? ""]) await list.admit("board-1", key, judged, never);
  const kept = (await list.read(never)).nodes.get("board-1")?.keys;
  assert.deepEqual(kept, [...keys.slice(2, 3), ...keys.slice(4), keys[3]]);
  // Reset between the decision and the writing, for a name that was reset before and for one that never was.
  await revoke("board-1");
  await assert.rejects(list.admit("board-1", "a".repeat(64), judged, never), { code: "conflict" });
  await assert.rejects(list.admit("board-1", "a".repeat(64), undefined, never), { code: "conflict" });
  const long = (index: number): string => `b${index}.${"x".repeat(60)}.${"y".repeat(60)}.${"z".repeat(60)}`;
  const entry = (index: number): string =>
    Buffer.from(JSON.stringify({ node: long(index), resets: 1, keys: [], revokedAtMs: index })).toString("base64");
  const [secret] = client.all;
  assert.ok(secret !== undefined);
  const data = Object.fromEntries(Array.from({ length: 4000 }, (_, index) => [`node.${long(index)}`, entry(index)]));
  await client.update(SECRETS, { namespace: "picolet", name: secret.metadata.name }, { ...secret, data });
  await revoke("board-2");
  const { nodes } = await list.read(never);
  assert.ok(
    nodes.size < 2000 && nodes.has("board-2") && nodes.has(long(3999)) && !nodes.has(long(0)),
    String(nodes.size),
  );
});

test("an address has its burst and its pace; IPv6 counts by network, and the table has an end", async () => {
  const clock = new VirtualClock(START_MS);
  const limits = new AddressLimits({ clock });
  const burst = (address: string): number => {
    let taken = 0;
    while (limits.take(address) && taken < 1000) taken += 1;
    return taken;
  };
  assert.equal(burst("10.0.0.1"), 200);
  assert.equal(burst("::ffff:10.0.0.1"), 0);
  assert.equal(burst("2001:db8::1"), 200);
  assert.equal(burst("2001:db8::ffff:2"), 0);
  assert.equal(burst("2001:db8:0:1::1"), 200);
  await clock.advance(millis(20_000));
  assert.equal(burst("10.0.0.1"), 10);
  for (let n = 0; n < 20_000; n += 1) limits.take(`10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`);
  assert.ok(limits.size <= 16_384);
  assert.deepEqual([...addressBytes("fe80::1%eth0")], [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
});

test("an address that tries too often, and a hub that is too busy, say so", async () => {
  await using hub = await TestHub.open();
  const ask = async (path: string, method: "get" | "post" = "get"): Promise<string> => {
    using connection = await HubConnection.open({ host: "127.0.0.1", port: hub.port }, undefined, never);
    try {
      if (method === "get") await connection.get(path, never);
      else await connection.post(path, {}, never);
      return "ok";
    } catch (error) {
      return (error as Error).message;
    }
  };
  assert.match(await ask("/v1/join"), /only POST is offered here/);
  assert.match(await ask("/v1/ca", "post"), /only GET is offered here/);
  assert.match(await ask("/v1/joint"), /status 401/);
  let answer = "";
  for (let n = 0; n < 60 && !/too many attempts/.test(answer); n += 1) {
    using connection = await HubConnection.open({ host: "127.0.0.1", port: hub.port }, undefined, never);
    answer = await connection.post("/v1/join", { token: "aaaaaa.aaaaaaaaaaaaaaaa", csr: "" }, never).then(
      () => "",
      (error: Error) => error.message,
    );
  }
  assert.match(answer, /too many attempts from your address/);
  await hub.clock.advance(millis(1_000_000));
  // Bodies that do not come hold their places.
  const slow = await Promise.all(
    Array.from({ length: 64 }, async () => {
      const { request } = await import("node:https");
      const sent = request({
        port: hub.port,
        host: "127.0.0.1",
        path: "/v1/join",
        method: "POST",
        rejectUnauthorized: false,
        agent: false,
      });
      sent.on("error", () => undefined);
      sent.write("{");
      await once(sent, "socket");
      await once(sent.socket ?? sent, "secureConnect");
      return sent;
    }),
  );
  for (let busy = ""; !/too many boards/.test(busy); busy = await ask("/v1/nonce")) await hub.clock.settle();
  for (const each of slow) each.destroy();
  for (let free = ""; free !== "ok"; free = await ask("/v1/nonce")) await hub.clock.settle();
});

test("a connection is cut when its key is revoked, and when its certificate has ended", async () => {
  const clock = new VirtualClock(START_MS);
  const revoked = new WatchSource<Revocations>({ keys: new Set(), nodes: new Map() });
  const connections = new LiveConnections({ revoked, clock, log: new RecordedLog() });
  const stop = new AbortController();
  const running = endOfRun(connections.run(stop.signal));
  const certificate = new Uint8Array();
  const connect = (name: string, days: number): PassThrough => {
    const socket = new PassThrough();
    connections.add(socket, {
      name,
      spkiHash: name,
      certificate,
      notAfterMs: START_MS + days * DAY_MS,
    });
    return socket;
  };
  const [one, two, three] = [connect("one", 1), connect("two", 2), connect("three", 3)];
  const reset = connect("four", 9);
  revoked.set({ keys: new Set(["two", "other"]), nodes: new Map([["four", { resets: 1, keys: [] }]]) });
  await clock.settle();
  assert.deepEqual([one.destroyed, two.destroyed, three.destroyed, reset.destroyed], [false, true, false, true]);
  await clock.advance(millis(DAY_MS + 700_000));
  assert.deepEqual([one.destroyed, three.destroyed], [true, false]);
  three.destroy();
  await clock.settle();
  assert.equal(connections.size, 0);
  stop.abort();
  await running;
});
