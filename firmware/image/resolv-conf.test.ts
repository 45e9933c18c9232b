import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";

const SCRIPT = fileURLToPath(new URL("tree/usr/lib/picolet-image/write-resolv-conf", import.meta.url));

const execute = promisify(execFile);
const WRITERS = 12;

/** @param state the content of networkd's file; undefined: networkd has not written it yet */
function resolvConf(state: string | undefined): readonly string[] {
  using folder = new TempFolder();
  const [from, to] = [folder.at("state"), folder.at("resolve/resolv.conf")];
  if (state !== undefined) writeFileSync(from, state);
  const env = { PATH: process.env.PATH ?? "", PICOLET_NETIF_STATE: from, PICOLET_RESOLV_CONF: to };
  execFileSync("sh", [SCRIPT], { env, stdio: "pipe" });
  assert.deepEqual(readdirSync(folder.at("resolve")), ["resolv.conf"]);
  return readFileSync(to, "utf8").trimEnd().split("\n").slice(1);
}

for (const [what, state, lines] of [
  ["one server of DHCP", "OPER_STATE=routable\nDNS=10.0.2.3\n", ["nameserver 10.0.2.3", "search ."]],
  [
    "several links, IPv6 with a zone, and search domains",
    "DNS=192.0.2.1 2001:db8::53 fe80::1%eth0\nNTP=192.0.2.9\nDOMAINS=example.com lab.example.com\n",
    [
      ...["nameserver 192.0.2.1", "nameserver 2001:db8::53", "nameserver fe80::1%eth0"],
      "search example.com lab.example.com",
    ],
  ],
  [
    "names for TLS, which a resolver without TLS leaves out, and ports, which it cannot use",
    "DNS=192.0.2.1#dns.example 192.0.2.2:5353 [2001:db8::1]:853#dns.example 192.0.2.3\n",
    ["nameserver 192.0.2.1", "nameserver 192.0.2.3", "search ."],
  ],
  ["no link yet", undefined, ["search ."]],
  ["a link without a server", "OPER_STATE=degraded\nDNS=\nDOMAINS=\n", ["search ."]],
] as const)
  test(`resolv.conf: ${what}`, () => assert.deepEqual(resolvConf(state), lines));

test("resolv.conf: one writer is in no other's way", async () => {
  using folder = new TempFolder();
  const [from, to] = [folder.at("state"), folder.at("resolve/resolv.conf")];
  writeFileSync(from, "DNS=192.0.2.1\n");
  const env = { PATH: process.env.PATH ?? "", PICOLET_NETIF_STATE: from, PICOLET_RESOLV_CONF: to };
  // networkd ends when the one of its start fails.
  await Promise.all(Array.from({ length: WRITERS }, () => execute("sh", [SCRIPT], { env })));
  assert.match(readFileSync(to, "utf8"), /^nameserver 192\.0\.2\.1$/m);
  assert.deepEqual(readdirSync(folder.at("resolve")), ["resolv.conf"]);
});
