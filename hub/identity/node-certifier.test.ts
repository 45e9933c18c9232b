import assert from "node:assert/strict";
import { test } from "node:test";
import { SECRETS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { CERTIFICATE_KEY_EXTRA, isRevoked } from "@picolet/hub-core/node-credentials.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { MemorySecrets } from "@picolet/test/support/unit/identity/memory-secrets.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { REPLACE_NODES_GROUP } from "./bootstrap-tokens.ts";
import { claimOf, NodeCertifier, type NodeClaim } from "./node-certifier.ts";
import { NodeKeysInKubernetes, RevokedKeysInKubernetes } from "./node-keys.ts";

const never = new AbortController().signal;
const START_MS = Date.parse("2026-11-23T00:00:00Z");
const DAY_MS = 86_400_000;

const [ONE, TWO, THREE, FOUR] = ["1", "2", "3", "4"].map((digit) => digit.repeat(64)) as [
  string,
  string,
  string,
  string,
];
const NODE = "board-1";
const TOKEN: NodeClaim = { kind: "token", mayReplace: false };
const REPLACING: NodeClaim = { kind: "token", mayReplace: true };

interface Issued {
  readonly node: string;
  readonly spkiHash: string;
}

class Bench {
  readonly client = new MemorySecrets();
  readonly clock = new VirtualClock(START_MS);
  readonly log = new RecordedLog();
  readonly #parts = { client: this.client, clock: this.clock, random: seededRandom(1), log: this.log };
  readonly keys = new NodeKeysInKubernetes(this.#parts, { namespace: "picolet" });
  readonly revoked = new RevokedKeysInKubernetes(this.#parts, { namespace: "picolet" });
  readonly certifier = new NodeCertifier({ ...this.#parts, keys: this.keys, revoked: this.revoked });

  /** Claims the name as a signer does. @throws when the name is not the key's */
  async issue(spkiHash: string, claim: NodeClaim): Promise<Issued> {
    await this.certifier.claim({ node: NODE, spkiHash }, claim, never);
    return { node: NODE, spkiHash };
  }

  async isRevoked(certificate: Issued): Promise<boolean> {
    return isRevoked(await this.revoked.read(never), certificate);
  }
}

const renewal = ({ spkiHash }: Issued, hasExpired = false): NodeClaim => ({ kind: "renewal", spkiHash, hasExpired });
const REFUSED = { code: "permission_denied" };

test("a name is the first key's, and goes to another by renewal, replacement or a reset alone", async () => {
  const bench = new Bench();
  const first = await bench.issue(ONE, TOKEN);
  await bench.issue(ONE, TOKEN);
  await assert.rejects(bench.issue(TWO, TOKEN), { ...REFUSED, message: /has joined before with another key/ });
  const second = await bench.issue(TWO, renewal(first));
  await assert.rejects(bench.issue(ONE, TOKEN), REFUSED, "the key before it has no claim by a token");
  await bench.issue(THREE, renewal(second));
  assert.equal(await bench.isRevoked(first), false, "a renewal revokes nothing");
  await bench.clock.advance(millis(DAY_MS));
  const replaced = await bench.issue(FOUR, REPLACING);
  for (const each of [first, second]) assert.equal(await bench.isRevoked(each), true);
  assert.equal(await bench.isRevoked(replaced), false);
  await assert.rejects(bench.issue(TWO, renewal(second)), { ...REFUSED, message: /revoked/ });
  await assert.rejects(bench.issue(THREE, REPLACING), { ...REFUSED, message: /the key was revoked/ });
});

test("a reset ends what is on record and what never was, and new certificates count at once", async () => {
  const bench = new Bench();
  const known = await bench.issue(ONE, TOKEN);
  const unknown: Issued = { node: NODE, spkiHash: TWO };
  assert.equal(await bench.certifier.reset(NODE, never), ONE);
  for (const each of [known, unknown]) {
    assert.equal(await bench.isRevoked(each), true);
    await assert.rejects(bench.issue(THREE, renewal(each)), REFUSED);
    await assert.rejects(bench.issue(THREE, renewal(each, true)), REFUSED);
  }
  const next = await bench.issue(FOUR, TOKEN);
  assert.equal(await bench.isRevoked(next), false);
  await bench.clock.advance(millis(DAY_MS));
  const renewed = await bench.issue(THREE, renewal(next));
  for (const each of [next, renewed]) assert.equal(await bench.isRevoked(each), false);
  await bench.certifier.reset(NODE, never);
  for (const each of [known, unknown, next, renewed]) assert.equal(await bench.isRevoked(each), true);
});

test("a reset ends a name without a holder, and one whose record is damaged", async () => {
  const bench = new Bench();
  const unknown: Issued = { node: NODE, spkiHash: TWO };
  assert.equal(await bench.certifier.reset(NODE, never), undefined);
  assert.equal(await bench.isRevoked(unknown), true);
  await bench.keys.set(NODE, { spkiHash: "nonsense", certifiedAtMs: 0 }, undefined, never);
  await assert.rejects(bench.issue(ONE, TOKEN), { code: "corrupt", message: /node reset board-1/ });
  assert.equal(await bench.certifier.reset(NODE, never), undefined);
  await bench.issue(ONE, TOKEN);
});

test("after a reset no certificate counts that the hub has not certified, from any issuer and time", async () => {
  const bench = new Bench();
  // The hub's clock was years ahead when it certified.
  bench.clock.setWall(START_MS + 2000 * DAY_MS);
  const ahead = await bench.issue(ONE, TOKEN);
  bench.clock.setWall(START_MS);
  await bench.certifier.reset(NODE, never);
  const next = await bench.issue(TWO, TOKEN);
  // A real cluster's own approver and signer know nothing of resets: it was renewed there, with the stolen certificate.
  const elsewhere: Issued = { node: NODE, spkiHash: THREE };
  for (const each of [ahead, elsewhere]) {
    assert.equal(await bench.isRevoked(each), true);
    await assert.rejects(bench.issue(FOUR, renewal(each)), REFUSED);
  }
  assert.equal(await bench.isRevoked(next), false);
  assert.equal(await bench.isRevoked({ node: "board-2", spkiHash: THREE }), false, "other names are not concerned");
  assert.equal(await bench.isRevoked({ node: "board-2", spkiHash: ONE }), true, "but for keys that are known");
});

test("a reset in the middle of a renewal wins, before whichever request it comes", async () => {
  const outcomes: string[] = [];
  for (let at = 1; outcomes.at(-1) !== "untouched"; at += 1) {
    const bench = new Bench();
    const stolen = await bench.issue(ONE, TOKEN);
    const { client } = bench;
    let requests = 0;
    for (const method of ["get", "create", "update", "delete"] as const) {
      const original = client[method].bind(client) as (...parts: unknown[]) => Promise<unknown>;
      const counted = async (...parts: unknown[]): Promise<unknown> => {
        requests += 1;
        if (requests === at) await bench.certifier.reset(NODE, never);
        return await original(...parts);
      };
      Object.assign(client, { [method]: counted });
    }
    const renewed = await bench.issue(TWO, renewal(stolen)).catch(() => undefined);
    if (requests < at) {
      outcomes.push("untouched");
      continue;
    }
    outcomes.push(renewed === undefined ? "refused" : "revoked");
    assert.equal(await bench.isRevoked({ ...stolen, spkiHash: TWO }), true, `before request ${at}`);
    // And the name is free.
    const next = await bench.issue(THREE, TOKEN);
    assert.equal(await bench.isRevoked(next), false, `before request ${at}`);
  }
  assert.ok(outcomes.length > 4, "each request of a renewal had its turn");
  assert.deepEqual(new Set(outcomes.slice(0, -1)), new Set(["refused"]));
});

test("a record that an older backup brings back is void after a reset", async () => {
  const bench = new Bench();
  await bench.issue(ONE, TOKEN);
  const record = { spkiHash: ONE, certifiedAtMs: START_MS };
  await bench.certifier.reset(NODE, never);
  await bench.keys.set(NODE, record, undefined, never);
  const next = await bench.issue(TWO, TOKEN);
  assert.equal(await bench.isRevoked(next), false);
  await assert.rejects(bench.issue(ONE, TOKEN), REFUSED);
});

test("two boards that want one name at once do not both get it", async () => {
  const bench = new Bench();
  const tried = await Promise.allSettled([ONE, TWO, THREE].map((key) => bench.issue(key, TOKEN)));
  assert.equal(tried.filter(({ status }) => status === "fulfilled").length, 1);
  assert.equal(bench.client.all.filter(({ metadata }) => metadata.name.endsWith(NODE)).length, 1);
});

test("a certificate that has ended is renewed with the latest key alone", async () => {
  const bench = new Bench();
  const first = await bench.issue(ONE, TOKEN);
  const second = await bench.issue(TWO, renewal(first, true));
  // Its answer was lost.
  await bench.issue(TWO, renewal(first, true));
  await bench.issue(THREE, renewal(second));
  await assert.rejects(bench.issue(TWO, renewal(first, true)), { ...REFUSED, message: /has another key by now/ });
  await bench.issue(TWO, renewal(first));
  assert.match(JSON.stringify(bench.log.entries), /are there two boards of this name/);
});

test("who asks by a certificate signing request is judged by what the API server has recorded of him", async () => {
  const extra = { [CERTIFICATE_KEY_EXTRA]: [ONE] };
  const node = { name: `system:node:${NODE}`, groups: ["system:nodes"], extra };
  const own = { kind: "renewal", spkiHash: ONE, hasExpired: false };
  assert.deepEqual(claimOf(node, NODE), own);
  const others = [
    { ...node, name: "system:node:board-2" },
    { ...node, groups: ["team"] },
    { ...node, extra: {} },
    { ...node, extra: { [CERTIFICATE_KEY_EXTRA]: [] } },
    { name: "system:bootstrap:abcdef", groups: ["system:bootstrappers"], extra: {} },
    { name: "admin", groups: ["system:masters"], extra },
  ];
  for (const each of others) assert.deepEqual(claimOf(each, NODE), TOKEN, JSON.stringify(each));
  const groups = ["system:bootstrappers", REPLACE_NODES_GROUP];
  assert.deepEqual(claimOf({ name: "system:bootstrap:abcdef", groups, extra: {} }, NODE), REPLACING);
});

test("a record that cannot be written certifies nothing", async () => {
  const bench = new Bench();
  bench.client.update = bench.client.create = async () => {
    throw Object.assign(new Error("the disk is full"), { code: "ENOSPC" });
  };
  await assert.rejects(bench.issue(ONE, TOKEN), /disk is full/);
  await assert.rejects(bench.client.get(SECRETS, { namespace: "picolet", name: `picolet-node-key.${NODE}` }), {
    code: "not_found",
  });
});

test("a requestor whose certificate was revoked after its request gets no serving certificate", async () => {
  const bench = new Bench();
  await bench.issue(ONE, TOKEN);
  const requestor = {
    ...{ name: `system:node:${NODE}`, groups: ["system:nodes"] },
    extra: { [CERTIFICATE_KEY_EXTRA]: [ONE] },
  };
  await bench.certifier.checkRequestor(requestor, NODE, never);
  await bench.certifier.reset(NODE, never);
  await assert.rejects(bench.certifier.checkRequestor(requestor, NODE, never), {
    ...REFUSED,
    message: /the certificate of node board-1 was revoked/,
  });
});
