import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { describe, it } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { parseImageReference, type RegistryReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { ImageSignatures, matches, type SignatureRule } from "./image-signatures.ts";
import type { RecordFiles } from "./pull-records.ts";

/**
 * Made by skopeo 1.18 (containers/image 5.34) with `--sign-by-sigstore-private-key`, as a registry had it afterwards.
 */
const SKOPEO = {
  key: `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAELmgVzzncaa77suOok3fkgH4uja0y
IEeuGqJv8zJFLoP7nwFpkIYuJdQcAWTfEfmhbkvqTZ2jfhJKlv6ENlmCYQ==
-----END PUBLIC KEY-----
`,
  digest: "sha256:96407203f55aa10d00efa03e6e1025bc5db31fd34e70adf3cb4c2317f07b9ad8",
  payload:
    '{"critical":{"identity":{"docker-reference":"registry.example/team/app:1"},"image":{"docker-manifest-digest":"sha256:96407203f55aa10d00efa03e6e1025bc5db31fd34e70adf3cb4c2317f07b9ad8"},"type":"cosign container image signature"},"optional":{"creator":"containers/image 5.34.2","timestamp":1795404600}}',
  signature: "MEQCIDJLef6gbzjVz7QW9xZUtX2eV/w/Lb2ZhwstqeIiTOPBAiBa9NPNnMQHc/oAX5pgxpjwOnknrSEbnUd3dvs+afFUkg==",
} as const;
const base64 = (text: string): string => Buffer.from(text).toString("base64");

/** The folder of records, in memory. */
class MemoryRecords implements RecordFiles {
  readonly files = new Map<string, string>();
  read = (name: string): string | undefined => this.files.get(name);
  write = (name: string, text: string): void => void this.files.set(name, text);
  rename = (from: string, to: string): void => {
    this.files.set(to, this.files.get(from) ?? "");
    this.files.delete(from);
  };
  remove = (name: string): void => void this.files.delete(name);
  sync = (): void => undefined;
}

const parsed = (image: string): RegistryReference => {
  const result = parseImageReference(image);
  assert.ok(result.ok && result.reference.kind === "registry");
  return result.reference;
};

const APP = parsed("registry.example/team/app:1");
const RULE: SignatureRule = {
  repository: "registry.example/team/*",
  require: "signature",
  keys: [SKOPEO.key],
  anyRepository: false,
};
const SIGNED = {
  digest: SKOPEO.digest,
  signatures: [{ payload: base64(SKOPEO.payload), signature: SKOPEO.signature }],
};

const policy = (rules: readonly SignatureRule[], files = new MemoryRecords()): ImageSignatures =>
  new ImageSignatures({ files, log: new RecordedLog() }, rules);

const refusal = (why: RegExp) => (error: unknown) => {
  assert.ok(isPicoletError(error, "permission_denied"));
  assert.equal(error.reason, "SignatureValidationFailed");
  assert.match(error.message, why);
  return true;
};

/** A signature by any kind of key, as cosign makes one. */
function signedBy(privateKey: KeyObject, digest: string, name: string) {
  const payload = JSON.stringify({
    critical: {
      ...{ identity: { "docker-reference": name }, image: { "docker-manifest-digest": digest } },
      type: "cosign container image signature",
    },
    optional: null,
  });
  const isEd25519 = privateKey.asymmetricKeyType === "ed25519";
  const signature = sign(isEd25519 ? null : "sha256", Buffer.from(payload), privateKey).toString("base64");
  return { digest, signatures: [{ payload: base64(payload), signature }] };
}

const pemOf = (key: KeyObject): string => key.export({ type: "spki", format: "pem" }).toString();

describe("signatures of images", () => {
  it("takes what skopeo has signed, and says so again offline", () => {
    const files = new MemoryRecords();
    const signatures = policy([RULE], files);
    assert.ok(signatures.requires(APP));
    assert.equal(signatures.known(APP), undefined);
    assert.equal(signatures.verify(APP, SIGNED), SKOPEO.digest);
    assert.equal(policy([RULE], files).known(APP), SKOPEO.digest, "after a restart");
    assert.equal(signatures.known(parsed("registry.example/team/app:2")), undefined, "another tag is another question");
    const { publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const rotated = policy([{ ...RULE, keys: [pemOf(publicKey)] }], files);
    assert.equal(rotated.known(APP), undefined, "what was signed by a key that is gone does not count any more");
  });

  for (const [kind, pair] of [
    ["P-384", generateKeyPairSync("ec", { namedCurve: "P-384" })],
    ["RSA", generateKeyPairSync("rsa", { modulusLength: 2048 })],
    ["Ed25519", generateKeyPairSync("ed25519")],
  ] as const) {
    it(`takes signatures by ${kind} keys`, () => {
      const signatures = policy([{ ...RULE, keys: [SKOPEO.key, pemOf(pair.publicKey)] }]);
      const signed = signedBy(pair.privateKey, SKOPEO.digest, "registry.example/team/app");
      assert.equal(signatures.verify(APP, signed), SKOPEO.digest);
    });
  }

  it("refuses each thing that is wrong, and says which", () => {
    const signatures = policy([RULE]);
    const other = `sha256:${createHash("sha256").update("other").digest("hex")}`;
    const [good] = SIGNED.signatures;
    assert.ok(good);
    const forged = SKOPEO.payload.replaceAll(SKOPEO.digest, other);
    for (const [why, signed] of [
      [/the registry has no signature of sha256:9640/, { ...SIGNED, signatures: [] }],
      [/a signature is of sha256:9640.*, not of sha256:/, { ...SIGNED, digest: other }],
      [/by no key of the policy/, { digest: other, signatures: [{ ...good, payload: base64(forged) }] }],
      [/by no key of the policy/, { ...SIGNED, signatures: [{ ...good, signature: "" }] }],
      [/by no key of the policy/, { ...SIGNED, signatures: [{ ...good, signature: "!!!" }] }],
      [
        /payload has more than 65536 bytes/,
        { ...SIGNED, signatures: [{ ...good, payload: base64("x".repeat(70_000)) }] },
      ],
    ] as const) {
      assert.throws(() => signatures.verify(APP, signed), refusal(why));
    }
    assert.throws(
      () => signatures.verify(parsed("registry.example/team/other:1"), SIGNED),
      refusal(/for registry.example\/team\/app:1, not for/),
    );
    assert.equal(
      signatures.verify(APP, { ...SIGNED, signatures: [{ payload: "", signature: "" }, good] }),
      SKOPEO.digest,
    );
  });

  it("refuses what is signed and is no signature of an image", () => {
    const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const signatures = policy([{ ...RULE, keys: [pemOf(publicKey)] }]);
    for (const text of [
      "",
      "null",
      "[]",
      "{}",
      '{"critical":{"type":"cosign container image signature"}}',
      SKOPEO.payload.replace("cosign container image signature", "else"),
    ]) {
      const signature = sign("sha256", Buffer.from(text), privateKey).toString("base64");
      const signed = { digest: SKOPEO.digest, signatures: [{ payload: base64(text), signature }] };
      assert.throws(() => signatures.verify(APP, signed), refusal(/no signature of an image/), text);
    }
  });

  it("lets a rule say that a signature may be for another repository", () => {
    const mirror = parsed("mirror.example/app:1");
    assert.throws(
      () => policy([{ ...RULE, repository: "*" }]).verify(mirror, SIGNED),
      refusal(/not for mirror.example\/app/),
    );
    assert.equal(policy([{ ...RULE, repository: "*", anyRepository: true }]).verify(mirror, SIGNED), SKOPEO.digest);
  });

  it("goes by the most exact rule, and asks nothing where there is none", () => {
    const rules: SignatureRule[] = [
      { ...RULE, repository: "*", require: "reject", keys: [] },
      { ...RULE, repository: "registry.example/*", require: "nothing", keys: [] },
      RULE,
    ];
    const signatures = policy(rules);
    assert.equal(signatures.requires(APP), true);
    assert.equal(signatures.requires(parsed("registry.example/else:1")), false);
    assert.throws(() => signatures.requires(parsed("busybox")), refusal(/imageSignatures rejects \*/));
    assert.equal(policy([RULE]).requires(parsed("busybox")), false);
    const file = parseImageReference("file:///srv/app.wasm");
    assert.ok(file.ok);
    assert.throws(() => policy([{ ...RULE, repository: "*" }]).requires(file.reference), refusal(/a file on the node/));
  });

  it("matches whole path elements alone", () => {
    assert.equal(matches("registry.example/team/*", "registry.example/teams/app"), false);
    assert.equal(matches("registry.example/team/*", "registry.example/team/a/b"), true);
    assert.equal(matches("registry.example/team", "registry.example/team/a"), false);
  });

  it("takes a damaged record for none", () => {
    const files = new MemoryRecords();
    const signatures = policy([RULE], files);
    signatures.verify(APP, SIGNED);
    const [[name = "", text = ""] = []] = files.files;
    for (const damaged of [
      "",
      "null",
      "{",
      text.replace(/"signature":"..../, '"signature":"AAAA'),
      text.replace('"digest":"sha256:9', '"digest":"sha256:8'),
    ]) {
      files.write(name, damaged);
      assert.equal(signatures.known(APP), undefined, damaged);
    }
  });

  it("refuses a key that is none", () => {
    assert.throws(() => policy([{ ...RULE, keys: ["no key"] }]), /no public key in PEM/);
    const { publicKey } = generateKeyPairSync("x25519");
    assert.throws(() => policy([{ ...RULE, keys: [pemOf(publicKey)] }]), /of the type x25519/);
  });
});
