import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { MAX_AUTHORITIES_BYTES, readAuthorities } from "./authorities-file.ts";

const authority = new TlsAuthority("one");
const other = new TlsAuthority("two");
const { certificate: server, privateKey } = authority.issueServer();

/** What is wrong with a file of this content. */
function problemOf(content: string | Uint8Array): string {
  using folder = new TempFolder();
  const path = folder.at("ca.pem");
  writeFileSync(path, content);
  return problemAt(path);
}

function problemAt(path: string): string {
  try {
    readAuthorities(path);
  } catch (error) {
    assert.ok(isPicoletError(error, "invalid"), String(error));
    const head = `cannot use the authorities in ${path} (wasm.http.caFile): `;
    assert.ok(error.message.startsWith(head), error.message);
    return error.message.slice(head.length);
  }
  return "";
}

test("certificates are taken out of a file, and nothing else is", () => {
  using folder = new TempFolder();
  const path = folder.at("ca.pem");
  const [crlf] = [other.ca.replaceAll("\n", "\r\n")];
  writeFileSync(path, `# mine\n${authority.ca}\n${privateKey}Certificate:\n    Data:\n${crlf}`);
  assert.equal(readAuthorities(path), authority.ca + crlf.trimEnd().concat("\n"));
});

test("the error names the problem of a file, and what to do", () => {
  using folder = new TempFolder();
  assert.equal(problemAt(folder.at("none.pem")), "there is no such file; put them there, or name none");
  writeFileSync(folder.at("file"), "");
  assert.equal(problemAt(folder.at("file", "ca.pem")), "there is no such file; put them there, or name none");
  mkdirSync(folder.at("folder"));
  assert.equal(problemAt(folder.at("folder")), "it is no file");
  symlinkSync("circle", folder.at("circle"));
  assert.equal(problemAt(folder.at("circle")), "its links lead in a circle");
  assert.equal(problemAt("/dev/zero"), "it is no file");
  execFileSync("mkfifo", [folder.at("fifo")]);
  assert.equal(problemAt(folder.at("fifo")), "it is no file");
  const none = "it holds no certificate: PEM begins with -----BEGIN CERTIFICATE-----";
  for (const text of ["", "nothing", privateKey]) assert.equal(problemOf(text), none);
  const [, base64 = ""] = /-----\n([^-]*)-----/.exec(authority.ca) ?? [];
  const der = Buffer.from(base64, "base64");
  assert.equal(problemOf(der), "it is DER, not PEM: convert it with openssl x509 -inform der");
  assert.match(problemOf(authority.ca.slice(0, -30)), /^certificate 1 has no end: the file was cut off$/);
  const damaged = other.ca.replace(/\n(.{20})/, `\n${"A".repeat(20)}`);
  assert.equal(problemOf(authority.ca + damaged), "certificate 2 cannot be read: the file is damaged");
  // Another one's end is not its own.
  const unended = authority.ca.replace("-----END", "-x---END");
  for (const rest of [other.ca, `\xff${other.ca.replace("BEGIN", "")}`]) {
    assert.equal(problemOf(unended + rest), "certificate 1 cannot be read: the file is damaged");
  }
  const ofServer = "certificate 1 (CN=picolet-hub) is no authority's: name that of who signed it, CN=one";
  assert.equal(problemOf(server), ofServer);
});

test("a file that is too large is not read to its end", () => {
  using folder = new TempFolder();
  const path = folder.at("ca.pem");
  const filled = (length: number): string => authority.ca + "\n".repeat(length - authority.ca.length);
  writeFileSync(path, filled(MAX_AUTHORITIES_BYTES));
  assert.equal(readAuthorities(path), authority.ca);
  writeFileSync(path, filled(MAX_AUTHORITIES_BYTES + 1));
  const more = "more than 262144: name those that are needed alone";
  assert.equal(problemAt(path), `it has 262145 bytes, ${more}`);
  truncateSync(path, 2 ** 40);
  assert.equal(problemAt(path), `it has ${2 ** 40} bytes, ${more}`);
});

test("any file holds certificates or is refused", () => {
  const piece = fc.oneof(
    fc.constantFrom("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----", authority.ca, server, "\n", "=", "\0"),
    fc.string({ unit: "binary" }),
    fc.base64String(),
    fc.nat(authority.ca.length).map((at) => `${authority.ca.slice(0, at)}x${authority.ca.slice(at + 1)}`),
  );
  using folder = new TempFolder();
  const path = folder.at("ca.pem");
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 6 }), (pieces) => {
      writeFileSync(path, pieces.join(""));
      if (problemAt(path) !== "") return;
      // A file that was copied is copied again unchanged.
      const taken = readAuthorities(path);
      writeFileSync(path, taken);
      assert.equal(readAuthorities(path), taken);
    }),
    { numRuns: 300 },
  );
});
