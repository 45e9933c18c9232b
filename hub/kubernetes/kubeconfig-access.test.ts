import assert from "node:assert/strict";
import { chmodSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { loadKubeconfigAccess } from "./kubeconfig-access.ts";

const base64 = (text: string): string => Buffer.from(text).toString("base64");

function kubeconfig(folder: TempFolder, user: object, cluster: object = {}): string {
  const path = folder.at("kubeconfig");
  const config = {
    apiVersion: "v1",
    kind: "Config",
    "current-context": "c",
    clusters: [
      {
        name: "k",
        cluster: { server: "https://10.0.0.1:6443/", "certificate-authority-data": base64("CA"), ...cluster },
      },
    ],
    users: [{ name: "u", user }],
    contexts: [{ name: "c", context: { cluster: "k", user: "u" } }],
  };
  writeFileSync(path, JSON.stringify(config));
  return path;
}

test("certificates come from data or from files beside the kubeconfig", async () => {
  using folder = new TempFolder();
  writeFileSync(folder.at("client.crt"), "CERT");
  const user = { "client-certificate": "client.crt", "client-key-data": base64("KEY") };
  const access = await loadKubeconfigAccess({ kubeconfig: kubeconfig(folder, user, { "tls-server-name": "api" }) });
  assert.equal(access.server, "https://10.0.0.1:6443");
  const { tls, headers } = await access.credentials();
  assert.deepEqual(tls, { ca: "CA", cert: "CERT", key: "KEY", servername: "api" });
  assert.deepEqual(headers, {});
  writeFileSync(folder.at("client.crt"), "RENEWED");
  assert.equal((await access.credentials()).tls.cert, "RENEWED");
});

test("a token from a file loses its newline, and is read again when it was refused", async () => {
  using folder = new TempFolder();
  writeFileSync(folder.at("token"), "one\n");
  const access = await loadKubeconfigAccess({ kubeconfig: kubeconfig(folder, { tokenFile: "token" }) });
  assert.equal((await access.credentials()).headers.authorization, "Bearer one");
  writeFileSync(folder.at("token"), "two\n");
  access.refused();
  assert.equal((await access.credentials()).headers.authorization, "Bearer two");
});

test("an exec plugin learns where the cluster is, and runs again when its credential was refused", async () => {
  using folder = new TempFolder();
  writeFileSync(folder.at("count"), "");
  const script = `#!/bin/sh
echo x >> ${folder.at("count")}
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s-%s"}}' "$(wc -l < ${folder.at("count")})" "$(printf '%s' "$KUBERNETES_EXEC_INFO" | grep -o 'https://[^"]*')"
`;
  writeFileSync(folder.at("plugin"), script);
  chmodSync(folder.at("plugin"), 0o755);
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: folder.at("plugin"),
    args: [],
    interactiveMode: "Never",
  };
  const access = await loadKubeconfigAccess({ kubeconfig: kubeconfig(folder, { exec }) });
  assert.equal((await access.credentials()).headers.authorization, "Bearer 1-https://10.0.0.1:6443");
  assert.equal((await access.credentials()).headers.authorization, "Bearer 1-https://10.0.0.1:6443");
  access.refused();
  assert.equal((await access.credentials()).headers.authorization, "Bearer 2-https://10.0.0.1:6443");
});

test("a password is sent as such", async () => {
  using folder = new TempFolder();
  const access = await loadKubeconfigAccess({ kubeconfig: kubeconfig(folder, { username: "a", password: "b" }) });
  assert.equal((await access.credentials()).headers.authorization, `Basic ${base64("a:b")}`);
});

function noYaml(folder: TempFolder): string {
  writeFileSync(folder.at("x"), "{");
  return folder.at("x");
}

for (const [what, make] of [
  ["no file", (folder: TempFolder) => folder.at("missing")],
  ["no YAML", noYaml],
  ["plain HTTP", (folder: TempFolder) => kubeconfig(folder, {}, { server: "http://10.0.0.1" })],
  ["a SOCKS proxy", (folder: TempFolder) => kubeconfig(folder, {}, { "proxy-url": "socks5://10.0.0.1" })],
] as const) {
  test(`${what} is an error that says so`, async () => {
    using folder = new TempFolder();
    await assert.rejects(loadKubeconfigAccess({ kubeconfig: make(folder) }), (error) =>
      isPicoletError(error, "invalid"),
    );
  });
}

test("a context that is not there is an error that says so", async () => {
  using folder = new TempFolder();
  const asked = loadKubeconfigAccess({ kubeconfig: kubeconfig(folder, {}), context: "other" });
  await assert.rejects(asked, (error) => isPicoletError(error, "invalid"));
});
