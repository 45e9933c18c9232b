/** The hub's configuration file and the administrator's kubeconfig for other machines. A real hub process. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { parseHubArguments } from "@picolet/hub/main/arguments.ts";
import { Fleet, kubectlMissing } from "../support/hub/test-fleet.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const HUB = "dist/hub/bin/picolet-hub";
const hub = (...args: string[]) => spawnSync(HUB, args, { encoding: "utf8", timeout: 60_000 });

test("a wrong file: every problem, exit code 78, and nothing is started", () => {
  using folder = new TempFolder();
  const file = folder.at("config.yaml");
  writeFileSync(file, `embeded: true\ndataDir: ${folder.at("data")}\ndrainTime: soon\n`);
  const { status, stderr, stdout } = hub("serve", "--config", file);
  assert.deepEqual([status, stdout], [78, ""]);
  assert.equal(
    stderr,
    `picolet-hub: ${file}:1: embeded: Unknown field, did you mean embedded?\n` +
      `picolet-hub: ${file}:3: drainTime: Invalid value: "soon": must be a duration such as 10s, not "soon"\n`,
  );
  const missing = hub("serve", "--config", folder.at("none.yaml"));
  assert.equal(missing.status, 78);
  assert.match(missing.stderr, /cannot read .*none\.yaml: .*ENOENT/);
  assert.equal(hub("serve", "--config", folder.path).status, 78);
});

test("the example of the Debian package is taken", () => {
  const text = readFileSync("firmware/packages/picolet-hub/config.yaml", "utf8");
  const parsed = parseHubArguments([], () => text.replaceAll(/^#(serverName:| {2}- )/gm, "$1"));
  assert.deepEqual(parsed.command === "serve" && [parsed.cluster.kind, parsed.serverNames], [
    "embedded",
    ["hub.example.com"],
  ]);
});

test("a kubeconfig for other machines has a name that the hub's certificate has", {
  skip: kubectlMissing("1.32"),
}, async () => {
  using folder = new TempFolder();
  const file = folder.at("config.yaml");
  writeFileSync(file, "serverName: [hub.example, 203.0.113.7]\ndrainTime: 1s\n");
  await using fleet = await Fleet.start(["--config", file]);
  const { port } = new URL(fleet.ready.api);
  const kubeconfig = (...args: string[]) => hub("kubeconfig", "--config", file, "--data-dir", fleet.dataDir, ...args);
  const printed = kubeconfig();
  assert.equal(printed.status, 0, printed.stderr);
  const clusterOf = (text: string): string =>
    (JSON.parse(text) as { clusters: [{ cluster: { server: string } }] }).clusters[0].cluster.server;
  assert.equal(clusterOf(printed.stdout), `https://hub.example:${port}`);
  assert.equal(clusterOf(kubeconfig("--server", "203.0.113.7:443").stdout), "https://203.0.113.7:443");

  // Its name is good for the certificate, its CA and token for the API server.
  writeFileSync(folder.at("kubeconfig"), printed.stdout);
  const way = [
    "--server",
    fleet.ready.api,
    "--tls-server-name",
    "hub.example",
    "--kubeconfig",
    folder.at("kubeconfig"),
  ];
  assert.match(await fleet.kubectl(["auth", "can-i", "*", "*", ...way]), /^yes/);

  const other = kubeconfig("--server", "other.example");
  assert.equal(other.status, 64);
  assert.match(
    other.stderr,
    /does not name other\.example: start the hub with --server-name other\.example; it names hub\./,
  );
  assert.match(hub("kubeconfig", "--data-dir", fleet.dataDir).stderr, /--server NAME, or serverName/);
  assert.match(hub("kubeconfig", "--data-dir", folder.path, "--server", "a").stderr, /no hub has ever run on/);
});
