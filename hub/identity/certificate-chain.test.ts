/** Chains that are good, and all the ways in which one is not. Certificates are real ones, made for each case. */
import assert from "node:assert/strict";
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { encodeCertificate, parseCertificate } from "@picolet/protocol/pki/certificate.ts";
import { type ChainRequest, verifyChain } from "@picolet/protocol/pki/chain.ts";
import { DerReader, derOid, derSequence } from "@picolet/protocol/pki/der.ts";
import { encodeName, type NameAttribute, readName } from "@picolet/protocol/pki/distinguished-name.ts";
import {
  basicConstraints,
  CLIENT_AUTH,
  type Extension,
  extendedKeyUsage,
  KEY_USAGE,
  keyUsage,
  readExtensions,
  SERVER_AUTH,
} from "@picolet/protocol/pki/extensions.ts";
import { nodeOfSubject } from "@picolet/protocol/pki/node-subject.ts";
import fc from "fast-check";
import { isSignedBy } from "./authenticate-node.ts";

const NOW = Date.UTC(2026, 5, 1);
const DAY = 86_400_000;
const SHA256 = "1.2.840.10045.4.3.2";

interface Made {
  readonly der: Uint8Array;
  readonly key: KeyObject;
  readonly name: Uint8Array;
}

interface MakeInit {
  readonly name: string;
  readonly issuer?: Made;
  readonly extensions: readonly Extension[];
  readonly from?: number;
  readonly to?: number;
  readonly algorithm?: string;
  readonly digest?: string;
}

const KEYS = Array.from({ length: 4 }, () => generateKeyPairSync("ec", { namedCurve: "P-256" }));
let count = 0;

function make(init: MakeInit): Made {
  count += 1;
  const { privateKey, publicKey } = KEYS[count % KEYS.length] ?? generateKeyPairSync("ec", { namedCurve: "P-256" });
  const name = encodeName([{ type: "CN", value: init.name }]);
  const content = {
    serial: Uint8Array.of(1, count),
    issuer: init.issuer?.name ?? name,
    subject: name,
    notBeforeMs: init.from ?? NOW - DAY,
    notAfterMs: init.to ?? NOW + DAY,
    publicKey: publicKey.export({ type: "spki", format: "der" }),
    extensions: init.extensions,
    signatureAlgorithm: derSequence(derOid(init.algorithm ?? SHA256)),
  };
  const issuerKey = init.issuer?.key ?? privateKey;
  const bytes = encodeCertificate(content, (signed) => sign(init.digest ?? "sha256", signed, issuerKey));
  return { der: bytes, key: privateKey, name };
}

const CA = [basicConstraints(1), keyUsage(KEY_USAGE.keyCertSign)];
const CA_WITHOUT_SUB = [basicConstraints(0), keyUsage(KEY_USAGE.keyCertSign)];
const SERVER = [basicConstraints(undefined), keyUsage(KEY_USAGE.digitalSignature), extendedKeyUsage(SERVER_AUTH)];

function verify(chain: readonly Made[], anchors: readonly Made[], change: Partial<ChainRequest> = {}): string {
  try {
    const path = verifyChain({
      chain: chain.map((each) => each.der),
      anchors: anchors.map((each) => each.der),
      purpose: SERVER_AUTH,
      time: { atMs: NOW, isLowerBound: false, graceMs: 0 },
      isSignedBy,
      ...change,
    });
    return `path of ${path.length}`;
  } catch (error) {
    assert.ok(isPicoletError(error));
    return error.reason ?? error.code;
  }
}

test("a chain up to an anchor is good, through a CA in between and with others beside it, in any order", () => {
  const root = make({ name: "root", extensions: CA });
  const between = make({ name: "between", issuer: root, extensions: CA_WITHOUT_SUB });
  const leaf = make({ name: "leaf", issuer: between, extensions: SERVER });
  const stranger = make({ name: "stranger", extensions: CA });
  assert.equal(verify([leaf, between], [root]), "path of 3");
  assert.equal(verify([leaf, root, stranger, between], [stranger, root]), "path of 3");
  assert.equal(verify([leaf], [between]), "path of 2");
  assert.equal(verify([leaf], [root]), "CertificateUntrusted");
  assert.equal(verify([leaf, between], [stranger]), "CertificateUntrusted");
  assert.equal(verify([], [root]), "CertificateUntrusted");
  assert.equal(verify([leaf, between], []), "CertificateUntrusted");
});

test("a CA of the same name with another key is no issuer", () => {
  const root = make({ name: "root", extensions: CA });
  const twin = make({ name: "root", extensions: CA });
  const leaf = make({ name: "leaf", issuer: twin, extensions: SERVER });
  assert.equal(verify([leaf, twin], [root]), "CertificateUntrusted");
  assert.equal(verify([leaf], [root, twin]), "path of 2");
});

test("the peer's certificate has to be for the purpose, and only CAs issue", () => {
  const root = make({ name: "root", extensions: CA });
  const leafWith = (...extensions: Extension[]): string =>
    verify([make({ name: "leaf", issuer: root, extensions })], [root]);
  assert.equal(leafWith(extendedKeyUsage(SERVER_AUTH)), "path of 2");
  assert.equal(leafWith(extendedKeyUsage(CLIENT_AUTH)), "CertificateUnfit");
  assert.equal(leafWith(), "CertificateUnfit");
  assert.equal(leafWith(extendedKeyUsage("2.5.29.37.0")), "CertificateUnfit");
  assert.equal(leafWith(extendedKeyUsage(SERVER_AUTH), keyUsage(KEY_USAGE.keyEncipherment)), "CertificateUnfit");
  assert.equal(leafWith(extendedKeyUsage(SERVER_AUTH), basicConstraints(0)), "CertificateUnfit");
  const unknown = { oid: "1.2.3.4", critical: true, value: Uint8Array.of(5, 0) };
  assert.equal(leafWith(extendedKeyUsage(SERVER_AUTH), unknown), "CertificateUnfit");
  assert.equal(leafWith(extendedKeyUsage(SERVER_AUTH), { ...unknown, critical: false }), "path of 2");
  // A server's certificate that signs another.
  const server = make({ name: "server", issuer: root, extensions: SERVER });
  const forged = make({ name: "forged", issuer: server, extensions: SERVER });
  assert.match(verify([forged, server], [root]), /CertificateUn/);
});

test("a CA that may have none below it has none below it; nor may one that is for something else", () => {
  const root = make({ name: "root", extensions: CA_WITHOUT_SUB });
  const between = make({ name: "between", issuer: root, extensions: CA_WITHOUT_SUB });
  const leaf = make({ name: "leaf", issuer: between, extensions: SERVER });
  assert.equal(verify([leaf, between], [root]), "CertificateUnfit");
  const top = make({ name: "top", extensions: CA });
  const clients = make({ name: "c", issuer: top, extensions: [...CA_WITHOUT_SUB, extendedKeyUsage(CLIENT_AUTH)] });
  assert.equal(verify([make({ name: "l", issuer: clients, extensions: SERVER }), clients], [top]), "CertificateUnfit");
});

test("nothing longer than four, no loop, and no work without end for look-alikes", () => {
  const a = make({ name: "a", extensions: CA });
  const b = make({ name: "b", issuer: a, extensions: CA });
  const c = make({ name: "c", issuer: b, extensions: CA });
  const d = make({ name: "d", issuer: c, extensions: CA });
  const leaf = make({ name: "leaf", issuer: d, extensions: SERVER });
  assert.equal(verify([leaf, d, c, b], [a]), "CertificateUntrusted");
  let asked = 0;
  const twins = Array.from({ length: 8 }, () => make({ name: "twin", issuer: { ...a, name: a.name }, extensions: CA }));
  const selfNamed = twins.map((each) => ({ ...each, name: each.name }));
  const counted = (): boolean => {
    asked += 1;
    return true;
  };
  verify([make({ name: "leaf", issuer: selfNamed[0] ?? a, extensions: SERVER }), ...twins], [], {
    isSignedBy: counted,
  });
  assert.ok(asked <= 24, String(asked));
});

test("time: grace for the peer's own certificate alone, and what begins later counts where now is only a lower bound", () => {
  const root = make({ name: "root", extensions: CA, from: NOW - 100 * DAY, to: NOW + 100 * DAY });
  const old = make({ name: "old", issuer: root, extensions: SERVER, from: NOW - 50 * DAY, to: NOW - 10 * DAY });
  const later = make({ name: "later", issuer: root, extensions: SERVER, from: NOW + 10 * DAY, to: NOW + 20 * DAY });
  const at = (atMs: number, graceMs = 0, isLowerBound = false) => ({ time: { atMs, graceMs, isLowerBound } });
  assert.equal(verify([old], [root]), "CertificateExpired");
  assert.equal(verify([old], [root], at(NOW, 10 * DAY)), "path of 2");
  assert.equal(verify([old], [root], at(NOW + 1, 10 * DAY)), "CertificateExpired");
  assert.equal(verify([old], [root], at(NOW, 0, true)), "CertificateExpired");
  assert.equal(verify([later], [root]), "CertificateNotYetValid");
  assert.equal(verify([later], [root], at(NOW, 0, true)), "path of 2");
  assert.equal(verify([later], [root], at(0, 0, true)), "path of 2");
  const ended = make({ name: "ended", extensions: CA, to: NOW - 1 });
  assert.equal(
    verify([make({ name: "l", issuer: ended, extensions: SERVER })], [ended], at(NOW, 9 * DAY)),
    "CertificateExpired",
  );
});

test("what was signed with SHA-1 counts for nothing", () => {
  const root = make({ name: "root", extensions: CA });
  const leaf = make({ name: "leaf", issuer: root, extensions: SERVER, algorithm: "1.2.840.10045.4.1", digest: "sha1" });
  assert.equal(verify([leaf], [root]), "CertificateUntrusted");
});

test("a certificate with any one bit turned is never good", () => {
  const root = make({ name: "root", extensions: CA });
  const leaf = make({ name: "leaf", issuer: root, extensions: SERVER });
  fc.assert(
    fc.property(fc.nat(leaf.der.length - 1), fc.nat(7), (index, bit) => {
      const turned = Uint8Array.from(leaf.der);
      turned[index] = (turned[index] ?? 0) ^ (1 << bit);
      let result: string;
      try {
        parseCertificate(turned);
        result = verify([{ ...leaf, der: turned }], [root]);
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"), String(error));
        return;
      }
      assert.doesNotMatch(result, /path/);
    }),
    { numRuns: 1000 },
  );
});

test("a node's name comes from a subject that is exactly a node's", () => {
  const node = (...attributes: NameAttribute[]): string =>
    nodeOfSubject(readName(new DerReader(encodeName(attributes))));
  const group: NameAttribute = { type: "O", value: "system:nodes" };
  const user: NameAttribute = { type: "CN", value: "system:node:board-1" };
  assert.equal(node(group, user), "board-1");
  assert.equal(node(user, group), "board-1");
  const refused: readonly NameAttribute[][] = [
    [user],
    [group],
    [group, group, user],
    [group, { type: "O", value: "system:masters" }, user],
    [group, user, user],
    [group, { type: "CN", value: "board-1" }],
    [group, { type: "CN", value: "system:node:" }],
    [group, { type: "CN", value: "system:node:Board_1" }],
    [group, { type: "CN", value: "system:node:a\nCN=system:node:b" }],
    [group, { type: "CN", value: "system:node:board-1\0.evil" }],
    [{ type: "O", value: "system:nodes2" }, user],
  ];
  for (const subject of refused) {
    assert.throws(() => node(...subject), { code: "permission_denied" }, JSON.stringify(subject));
  }
});

test("an extension that is there twice is refused", () => {
  const one = keyUsage(0x80);
  const root = make({ name: "root", extensions: CA });
  const leaf = make({ name: "leaf", issuer: root, extensions: [...SERVER, one] });
  assert.equal(verify([leaf], [root]), "invalid");
  assert.throws(() => readExtensions(Uint8Array.of(0x30, 0x02, 0x30, 0x00)), { code: "invalid" });
});
