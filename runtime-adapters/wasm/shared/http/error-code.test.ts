import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { httpErrorCode } from "./error-code.ts";

const failed = (code: string, message = code): Error => Object.assign(new Error(message), { code });

const OPENSSL = "C0D7F28EF77F0000:error:0A000410:SSL routines:ssl3_read_bytes";
const alert = (words: string, number: number): string =>
  `${OPENSSL}:${words}:../deps/openssl/openssl/ssl/record/rec_layer_s3.c:916:SSL alert number ${number}\n`;
const REFUSED = alert("ssl/tls alert handshake failure", 40);

for (const [code, message, tag] of [
  ["ERR_SSL_SSL/TLS_ALERT_HANDSHAKE_FAILURE", REFUSED, "TLS-alert-received"],
  // While it still writes.
  ["EPROTO", `write EPROTO ${REFUSED}`, "TLS-alert-received"],
  ["ERR_SSL_TLSV1_UNRECOGNIZED_NAME", alert("tlsv1 unrecognized name", 112), "TLS-alert-received"],
  ["ERR_SSL_X", alert("no alert", 256), "TLS-protocol-error"],
  ["EPROTO", `write EPROTO ${OPENSSL}:wrong version number:../ssl.c:354:\n`, "TLS-protocol-error"],
  ["ERR_SSL_WRONG_VERSION_NUMBER", "", "TLS-protocol-error"],
  ["ERR_SSL_TLSV1_UNRECOGNIZED_CERT_NAME", "", "TLS-protocol-error"],
  ["ERR_TLS_HANDSHAKE_TIMEOUT", "", "TLS-protocol-error"],
  ["ERR_TLS_CERT_ALTNAME_INVALID", "", "TLS-certificate-error"],
  ["SELF_SIGNED_CERT_IN_CHAIN", "", "TLS-certificate-error"],
  ["UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "", "TLS-certificate-error"],
  ["INVALID_PURPOSE", "", "TLS-certificate-error"],
  ["UNSPECIFIED", "", "TLS-certificate-error"],
  ["ECONNRESET", "", "connection-terminated"],
  ["ESOMETHING", "", "internal-error"],
] as const) {
  test(`${code} ${message.slice(0, 40)} is ${tag}`, () => {
    const found = httpErrorCode(failed(code, message));
    assert.equal(found.tag, tag);
    if (found.tag === "TLS-alert-received") {
      const [alertMessage, alertId] = code.endsWith("NAME") ? ["unrecognized name", 112] : ["handshake failure", 40];
      assert.deepEqual(found.val, { alertId, alertMessage });
    }
  });
}

test("any OpenSSL error has a code, and an alert is a byte and a few words", () => {
  const part = fc.oneof(fc.constantFrom(":tls alert bad", ":a b", "::", ":SSL alert number ", "999", "7"), fc.string());
  fc.assert(
    fc.property(fc.constantFrom("EPROTO", "ERR_SSL_X", "X"), fc.array(part, { maxLength: 12 }), (code, parts) => {
      const found = httpErrorCode(failed(code, parts.join("")));
      if (found.tag !== "TLS-alert-received") return;
      const { alertId = -1, alertMessage = "" } = found.val;
      assert.ok(alertId >= 0 && alertId <= 255 && alertMessage.length <= 64);
    }),
    { numRuns: 2000 },
  );
});
