import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { createServer } from "node:tls";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { TlsAuthority } from "@picolet/test/support/unit/identity/tls-authority.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";

const execute = promisify(execFile);
const CONTEXTS = fileURLToPath(new URL("tls-contexts.ts", import.meta.url));

/** Says of each port whether its server is trusted: by Node's own authorities alone, and with those of a file. */
const CLIENT = `
const { readFileSync } = await import("node:fs");
const { connect } = await import("node:tls");
const { TlsContexts } = await import(process.argv[1]);
const contexts = new TlsContexts();
const shakes = (port, secureContext) => new Promise((resolve) => {
  const socket = connect({ host: "127.0.0.1", port, secureContext });
  socket.on("secureConnect", () => resolve("trusted")).on("error", ({ code }) => resolve(code)).on("close", () => socket.destroy());
});
const added = readFileSync(process.argv[2], "utf8");
for (const port of process.argv.slice(3)) {
  console.log(await shakes(port, contexts.of()), await shakes(port, contexts.of(added)));
}
process.exit(contexts.of(added) === contexts.of(added) ? 0 : 1);
`;

test("authorities are trusted beside Node's own, not in their place", async (context) => {
  using folder = new TempFolder();
  const [builtIn, added, nobody] = [
    new TlsAuthority("built-in"),
    new TlsAuthority("added"),
    new TlsAuthority("nobody"),
  ];
  // Two of them in one file, of which the second counts too.
  writeFileSync(folder.at("added.pem"), new TlsAuthority("another").ca + added.ca);
  // Node takes these for its own.
  writeFileSync(folder.at("built-in.pem"), builtIn.ca);
  const ports = await Promise.all(
    [builtIn, added, nobody].map(async (authority) => {
      const { privateKey: key, certificate: cert } = authority.issueServer();
      const server = createServer({ key, cert }, (socket) => socket.on("error", () => undefined).end());
      server.on("tlsClientError", () => undefined).listen(0, "127.0.0.1");
      await once(server, "listening");
      context.after(() => server.close());
      return String((server.address() as AddressInfo).port);
    }),
  );
  const args = ["--input-type=module", "--eval", CLIENT, CONTEXTS, folder.at("added.pem"), ...ports];
  const env = { PATH: process.env.PATH, NODE_EXTRA_CA_CERTS: folder.at("built-in.pem") };
  const { stdout } = await execute(process.execPath, args, { env });
  const unknown = "UNABLE_TO_VERIFY_LEAF_SIGNATURE";
  assert.deepEqual(stdout.trimEnd().split("\n"), ["trusted trusted", `${unknown} trusted`, `${unknown} ${unknown}`]);
});
