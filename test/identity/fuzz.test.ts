/** Everything that is parsed of what came from a file or a socket: it is understood or refused, and nothing else. */
import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { test } from "node:test";
import { certificateAnswer, makeNodeRequest } from "@picolet/agent/security/certificate-requests.ts";
import { parseObject, refusalOf } from "@picolet/agent/security/hub-connection.ts";
import { pinnedCas } from "@picolet/agent/security/hub-trust.ts";
import { encodeIdentity, parseIdentity } from "@picolet/agent/security/identity-file.ts";
import { encodeTimeFloor, parseTimeFloor } from "@picolet/agent/security/time-floor.ts";
import { checkNodeRequest } from "@picolet/hub/identity/node-request.ts";
import { parsePemFiles } from "@picolet/hub/identity/pem-store.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { parseCertificate } from "@picolet/protocol/pki/certificate.ts";
import { encodeCertificateRequest, parseCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { nodeSubject } from "@picolet/protocol/pki/node-subject.ts";
import { certificatesOf, encodePem } from "@picolet/protocol/pki/pem.ts";
import { millis } from "@picolet/protocol/ports.ts";
import fc from "fast-check";
import { TestHub } from "../support/unit/identity/identity-hub.ts";
import { storedIdentities } from "./stored-identities.ts";

const [IDENTITY] = storedIdentities(1);
assert.ok(IDENTITY !== undefined);
const CSR = makeNodeRequest("board-1", IDENTITY.privateKey);
const [CERTIFICATE = new Uint8Array()] = certificatesOf(IDENTITY.certificateChain);

/** `bytes` with some turned, cut out, doubled or put in: never as they were. */
function damaged(bytes: Uint8Array): fc.Arbitrary<Uint8Array> {
  const change = fc.tuple(fc.constantFrom("turn", "cut", "insert", "end"), fc.nat(bytes.length), fc.nat(255));
  const changed = fc.array(change, { minLength: 1, maxLength: 4 }).map((changes) => {
    let all = [...bytes];
    for (const [kind, at, byte] of changes) {
      if (kind === "turn") all[at % all.length] = byte;
      else if (kind === "cut") all.splice(at, 1 + (byte % 8));
      else if (kind === "insert") all.splice(at, 0, byte);
      else all = all.slice(0, Math.max(1, at));
    }
    return Uint8Array.from(all);
  });
  return changed.filter((each) => Buffer.compare(each, bytes) !== 0);
}

/** @param codes of the errors that it may throw */
function holds<T>(input: fc.Arbitrary<T>, parse: (value: T) => void, codes: readonly string[], numRuns = 1500): void {
  fc.assert(
    fc.property(input, (value) => {
      try {
        parse(value);
      } catch (error) {
        assert.ok(isPicoletError(error) && codes.includes(error.code), String(error));
      }
    }),
    { numRuns },
  );
}

test("certificate requests", () => {
  holds(fc.uint8Array({ maxLength: 200 }), parseCertificateRequest, ["invalid"]);
  holds(damaged(CSR), parseCertificateRequest, ["invalid"]);
});

test("a damaged request is never taken for another's, nor for the same", () => {
  const pem = (bytes: Uint8Array): string => encodePem("CERTIFICATE REQUEST", bytes);
  const whole = checkNodeRequest(pem(CSR));
  holds(
    damaged(CSR),
    (bytes) => assert.deepEqual({ ...checkNodeRequest(pem(bytes)), der: "" }, { ...whole, der: "" }),
    ["invalid", "permission_denied"],
  );
});

test("certificates", () => {
  holds(fc.uint8Array({ maxLength: 200 }), parseCertificate, ["invalid"]);
  holds(damaged(CERTIFICATE), parseCertificate, ["invalid"]);
});

test("the identity file: what is not exactly as it was written is corrupt", () => {
  const text = encodeIdentity(IDENTITY);
  assert.deepEqual(
    Object.values(parseIdentity(text)).map((each) => each.trim()),
    [IDENTITY.trust, IDENTITY.privateKey, IDENTITY.certificateChain, IDENTITY.hubCa].map((each) => each.trim()),
  );
  const bytes = Buffer.from(text);
  fc.assert(
    fc.property(damaged(bytes), (changed) => {
      assert.throws(() => parseIdentity(Buffer.from(changed).toString("utf8")), { code: "corrupt" });
    }),
    { numRuns: 500 },
  );
  holds(fc.string(), parseIdentity, ["corrupt"]);
  // A whole file, of parts that do not belong together.
  const [other] = storedIdentities(1);
  assert.throws(() => parseIdentity(encodeIdentity({ ...IDENTITY, privateKey: other?.privateKey ?? "" })), {
    code: "corrupt",
  });
});

test("the time floor", () => {
  assert.equal(parseTimeFloor(encodeTimeFloor(1_790_000_000_000)), 1_790_000_000_000);
  const bytes = Buffer.from(encodeTimeFloor(1_790_000_000_000));
  fc.assert(
    fc.property(damaged(bytes), (changed) => {
      assert.equal(parseTimeFloor(Buffer.from(changed).toString("latin1")), undefined);
    }),
  );
});

test("a hub's answers, and its refusals", () => {
  const json = fc.oneof(
    fc.json(),
    fc.string(),
    fc.json().map((text) => `{"error":${text}}`),
  );
  holds(json, parseObject, ["invalid"]);
  holds(fc.object(), (body) => certificateAnswer(body), ["invalid"]);
  const field = fc.oneof(fc.string(), fc.double(), fc.constant(IDENTITY.hubCa));
  const answer = fc.record({ certificate: field, hubCa: field, timeMs: field }, { requiredKeys: [] });
  holds(answer, (body) => certificateAnswer(body), ["invalid"]);
  fc.assert(
    fc.property(fc.nat(600), json, (status, text) => {
      const error = refusalOf(status, text);
      assert.ok(isPicoletError(error) && error.message.length < 600);
    }),
  );
});

test("bundles of CAs that anybody may have sent", () => {
  const pins = { caHashes: [`sha256:${"0".repeat(64)}`], ca: "" };
  holds(fc.string(), (text) => pinnedCas(text, pins), ["invalid", "permission_denied"]);
  const bytes = Buffer.from(IDENTITY.hubCa);
  holds(damaged(bytes), (each) => pinnedCas(Buffer.from(each).toString("latin1"), pins), [
    "invalid",
    "permission_denied",
  ]);
});

test("the hub's stored CA", () => {
  holds(fc.oneof(fc.json(), fc.string()), parsePemFiles, ["corrupt"]);
});

test("requests of boards: whatever their body is, the hub answers with an error and goes on", async () => {
  await using hub = await TestHub.open();
  const token = await hub.token();
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const spki = publicKey.export({ type: "spki", format: "der" });
  const ofRsaKey = encodeCertificateRequest(nodeSubject("board-1"), spki, (signed) =>
    sign("sha256", signed, privateKey),
  );
  const csr = fc.oneof(
    fc.string(),
    damaged(CSR).map((bytes) => encodePem("CERTIFICATE REQUEST", bytes)),
    fc.constantFrom(
      encodePem("CERTIFICATE REQUEST", ofRsaKey),
      encodePem("CERTIFICATE", CSR),
      IDENTITY.certificateChain,
    ),
  );
  const body = fc.oneof(
    fc.string(),
    fc.json(),
    fc.record({ token: fc.constant(token), csr }, { requiredKeys: ["token"] }).map((each) => JSON.stringify(each)),
    fc
      .record({ nonce: fc.string(), signature: fc.string(), csr }, { requiredKeys: [] })
      .map((each) => JSON.stringify(each)),
    fc.constant("x".repeat(20_000)),
  );
  const path = fc.constantFrom("/v1/join", "/v1/renew", "/v1/time", "/v1/ca", "/v1/nonce");
  await fc.assert(
    fc.asyncProperty(path, body, async (where, text) => {
      // How often one address may ask is tried elsewhere.
      await hub.clock.advance(millis(1_000_000));
      const { status, answer } = await post(hub.port, where, text);
      assert.ok(status >= 400 && status < 500, `${status} ${answer}`);
      const { error } = JSON.parse(answer) as { error: { code: string; message: string } };
      assert.ok(error.code !== "internal" && error.message !== "");
    }),
    { numRuns: 150 },
  );
  assert.deepEqual(
    hub.secrets.all.filter(({ metadata }) => metadata.name.startsWith("picolet-node-key")),
    [],
  );
});

async function post(port: number, path: string, body: string): Promise<{ status: number; answer: string }> {
  const { request } = await import("node:https");
  return await new Promise((resolve, reject) => {
    const sent = request({ port, host: "127.0.0.1", path, method: "POST", rejectUnauthorized: false, agent: false });
    sent.on("error", reject);
    sent.on("response", (response) => {
      let answer = "";
      response.on("data", (chunk: Buffer) => {
        answer += chunk.toString();
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, answer }));
    });
    sent.end(body);
  });
}
