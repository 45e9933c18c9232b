/** Reading `picolet.yaml` as people write it. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CA_HASH, FACTS, TOKEN } from "@picolet/test/support/unit/firmware/test-board.ts";
import fc from "fast-check";
import { BOARD_FILE_TEMPLATE, exampleOf } from "./board-file-template.ts";
import { BOARD_FILE_FIELDS } from "./plan/board-file-fields.ts";
import { planBoard } from "./plan/board-plan.ts";
import { MAX_BOARD_FILE_BYTES, nameByRule, readBoardFile, type Surroundings } from "./read-board-file.ts";
import { withoutToken } from "./wipe-token.ts";

const AROUND: Surroundings = {
  ...{ facts: FACTS, machine: { memoryBytes: 536_870_912 }, defaults: {}, present: "", owned: [], named: undefined },
};
const TEMPLATE = readFileSync(BOARD_FILE_TEMPLATE, "utf8");

function problems(input: string | Uint8Array, around = AROUND): readonly string[] {
  const read = readBoardFile(typeof input === "string" ? Buffer.from(input) : input, around);
  return read.ok ? [] : read.problems;
}

test("the template says nothing, and with all its fields in force it is good", () => {
  const empty = readBoardFile(Buffer.from(TEMPLATE), AROUND);
  assert.ok(empty.ok, JSON.stringify(empty));
  assert.deepEqual(empty.file, {});
  const whole = readBoardFile(Buffer.from(exampleOf(TEMPLATE)), AROUND);
  assert.ok(whole.ok, JSON.stringify(whole));
  assert.equal(whole.nodeName, "edge-deadbeef");
  assert.deepEqual(Object.keys(whole.file), Object.keys(BOARD_FILE_FIELDS));
  assert.ok(planBoard(whole).size > 10);
});

test("an editor of Windows may have written it", () => {
  const text = exampleOf(TEMPLATE).replaceAll("\n", "\r\n");
  assert.deepEqual(problems(`\uFEFF${text}`), []);
  assert.deepEqual(problems(Buffer.from(`\uFEFF${text}`, "utf16le")), [
    "the file is UTF-16, which Windows calls Unicode: save it as UTF-8",
  ]);
  assert.deepEqual(problems(Buffer.from("node:\r\n  name: a\r\n# caf\xe9\r\n", "latin1")), [
    "line 3: a character is not UTF-8: save the file as UTF-8",
  ]);
  assert.deepEqual(problems("node:\r\n\tname: a\r\n"), [
    "line 2: Tabs are not allowed as indentation: indent with spaces, never with the Tab key",
  ]);
  assert.match(problems("hub:\0\0").join(), /line 1: the file has bytes that are no text/);
});

test("a file that is too large is refused unread", () => {
  assert.deepEqual(problems(Buffer.alloc(MAX_BOARD_FILE_BYTES + 1, "#")), [
    "the file is too large: at most 262144 bytes are read",
  ]);
  assert.deepEqual(problems(Buffer.alloc(MAX_BOARD_FILE_BYTES, "#")), []);
});

const WRONG: readonly (readonly [text: string, ...problems: string[]])[] = [
  ["just text", 'must be fields and their values, such as "hub:"'],
  ["- a list", 'must be fields and their values, such as "hub:"'],
  ["node:\n  nmae: a", "line 2: node.nmae: Unknown field, did you mean name?"],
  ["netwrok: {}", "line 1: netwrok: Unknown field, did you mean network?"],
  ["proxy: {http: 'http://a:1'}", "line 1: proxy.http: Unknown field, did you mean httpProxy?"],
  ["proxy: {no: [a]}", "line 1: proxy.false: Unknown field, did you mean noProxy?"],
  ["node: {labels: {rack: 7}}", "line 1: node.labels.rack: Invalid value: 7: must be a string (put it in quotes)"],
  ["node: {name: Board_1}", /line 1: node\.name: Invalid value: "Board_1": a lowercase RFC 1123 subdomain/],
  [
    "node: {name: a, nameRule: mac}",
    /line 1: node\.nameRule: Forbidden: may not be specified together with node\.name/,
  ],
  ["node: {nameRule: edge}", /line 1: node\.nameRule: .*would give every board the same name/],
  ["node: {nameRule: 'e-{seriel:8}'}", /\{seriel:8\} is not known, did you mean \{serial\}\?/],
  ["node: {nameRule: 'E_{mac:6}'}", /line 1: node\.nameRule: Invalid value: "E_aabbcc": a lowercase/],
  ["node: {taints: [{key: a, effect: Never}]}", /line 1: node\.taints\[0\]\.effect: Unsupported value: "Never"/],
  [
    `hub: {server: 'ftp://a', caHash: '${CA_HASH}'}`,
    "line 1: hub.server: Invalid value: a hub is reached by https or wss, not by ftp",
  ],
  [`hub: {url: a, server: b}`, "line 1: hub.url: Forbidden: is another name of hub.server: write one of them"],
  [
    `hub: {caHash: '${CA_HASH}'}`,
    'line 1: hub.server: Required value: the hub\'s name or URL, such as "hub.example.com"',
  ],
  [
    `hub:\n  server: a\n  token: ${TOKEN}x\n  caHash: sha256:12`,
    /line 4: hub\.caHash: Invalid value: "sha256:12": must be "sha256:" and 64/,
  ],
  [
    "network: {ethernet: {address: 192.168.1.5}}",
    'line 1: network.ethernet.address: Invalid value: "192.168.1.5": must have the length of its prefix: "192.168.1.5/24"',
  ],
  ["network: {ethernet: {address: 192.168.1/24}}", /must be an address with its prefix, such as "192\.168\.1\.20\/24"/],
  ["network: {ethernet: {gateway: 10.0.0.1}}", "line 1: network.ethernet.address: Required value: a gateway is given"],
  ["network: {ethernet: {dhcp: false}}", "line 1: network.ethernet.address: Required value: dhcp is false"],
  ["network: {ethernet: {interface: 'a b'}}", /must be an interface such as "end0"/],
  [
    "network: {vlans: [{id: 5000}]}",
    "line 1: network.vlans[0].id: Invalid value: 5000: must be between 1 and 4094, inclusive",
  ],
  [
    "network: {wifi: [{ssid: a, password: short}]}",
    "line 1: network.wifi[0].password: Invalid value: must have 8 to 63 characters of ASCII, or 64 hexadecimal digits; it has 5",
  ],
  [
    "network: {wifi: [{ssid: a, password: 12345678}]}",
    "line 1: network.wifi[0].password: Invalid value: must be a string (put it in quotes)",
  ],
  [
    "network: {wifi: [{ssid: a, country: de}]}",
    'line 1: network.wifi[0].country: Invalid value: "de": must be two capital letters, such as "DE"',
  ],
  ["network: {wifi: secret-password}", "line 1: network.wifi: Invalid value: must be a list"],
  ['network: {wifi: [{ssid: "a\\nb"}]}', /must be the name of a network, of 1 to 32 bytes/],
  ["network: {wifi: [{ssid: a}, {ssid: a}]}", /network\.wifi\[1\]\.ssid: Duplicate value/],
  ["time: {zone: Europe/Berlim}", /line 1: time\.zone: Invalid value: "Europe\/Berlim": must be a time zone/],
  ["time: {servers: 'a b'}", /must be a host name or an address/],
  ["ssh: {authorizedKeys: [ssh-ed25519]}", /must be one line of a \.pub file/],
  [
    "ssh: {authorizedKeys: ['command=\"sh\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBhBW1Dv5Gyu0AM0FWzkQhAUHHMO4oVGYjIVQ5vSCL2l']}",
    /must be one line of a \.pub file/,
  ],
  [
    "ssh: {authorizedKeys: ['-----BEGIN OPENSSH PRIVATE KEY-----']}",
    /this is a private key, which must never leave its owner/,
  ],
  ['proxy: {httpProxy: "http://a:1\\nX=y"}', /proxy\.httpProxy: Invalid value: must have neither spaces/],
  ["proxy: {httpProxy: 'http://me:secret@a/path'}", /proxy\.httpProxy: Invalid value: must be an http or https URL/],
  ["registries: [{host: 'https://a'}]", /line 1: registries\[0\]\.host: .*must be a host as images name it/],
  [
    "registries: [{host: a, username: me}]",
    "line 1: registries[0].password: Required value: one is of no use without the other",
  ],
  ["registries: [{host: a, ca: nonsense}]", /must be PEM/],
  [
    "staticPods: [{kind: Pod, apiVersion: v1, metadata: {name: a}, spec: {containers: [{name: c}]}}]",
    /line 1: staticPods\[0\]\.spec\.containers\[0\]\.image: Required value/,
  ],
  ["staticPods: [{kind: Deployment, apiVersion: apps/v1}]", /staticPods\[0\]/],
  ["preload: {images: [/etc/shadow]}", /must be a path on this partition/],
  ["preload: {images: [a/../../b]}", /must be a path on this partition/],
  ["watchdog: {timeout: 1s}", "line 1: watchdog.timeout: Invalid value: 1s: must be 0s, or between 5s and 10m"],
  ["config: {maxPods: many}", 'line 1: config.maxPods: Invalid value: "many": must be a number'],
  ["config: {maxPod: 3}", "line 1: config.maxPod: Unknown field, did you mean maxPods?"],
  ["config: {hub: {token: x}}\nhub: {server: a}", /config\.hub\.token: Forbidden: write it as hub\.token/],
  ["a: 1\na: 2", /line 2: Map keys must be unique/],
] as never;

for (const [text, ...expected] of WRONG)
  test(`is refused with what to do: ${text.slice(0, 60).replaceAll("\n", " ")}`, () => {
    const found = problems(text);
    assert.equal(found.length >= expected.length, true, JSON.stringify(found));
    for (const each of expected as readonly (string | RegExp)[])
      if (typeof each === "string") assert.ok(found.includes(each), JSON.stringify(found));
      else assert.match(found.join("\n"), each);
    assert.doesNotMatch(found.join("\n"), /secret/);
  });

test("all problems come at once, in the order of the file, and no token is in them", () => {
  const found = problems(
    `hub: ${TOKEN}\nnode: {labels: {${TOKEN}: 7}}\nmore: "${TOKEN}"\nnetwork: {wifi: [{ssid: a, password: x}]}\n`,
  );
  assert.deepEqual(
    found.map((each) => each.slice(0, 7)),
    ["line 1:", "line 2:", "line 3:", "line 4:"],
  );
  assert.doesNotMatch(found.join(), new RegExp(TOKEN.replace(".", "\\.")));
});

test("names follow from a board's own numbers", () => {
  const name = (rule: string, facts = FACTS) => nameByRule(rule, facts as never);
  assert.deepEqual(name("serial"), { ok: true, name: "10000000deadbeef" });
  assert.deepEqual(name("mac"), { ok: true, name: "dca632aabbcc" });
  assert.deepEqual(name("edge-{serial:4}-{mac:2}"), { ok: true, name: "edge-beef-cc" });
  assert.deepEqual(name("s-{serial}", { serial: " AB/cd 12 ".toLowerCase() } as never), {
    ok: true,
    name: "s-ab-cd-12",
  });
  assert.match(
    JSON.stringify(name("{serial}", { mac: "02" } as never)),
    /this board has no serial number: use \{mac\}, or node\.name/,
  );
  assert.match(JSON.stringify(name("{mac:0}")), /must be \{mac\}, or \{mac:6\}/);
});

test("whatever bytes come, they are read or refused, and a token is never shown nor left", () => {
  const seeds = [TEMPLATE, exampleOf(TEMPLATE), `hub: {server: a, token: ${TOKEN}, caHash: '${CA_HASH}'}\n`];
  const mutated = fc
    .tuple(
      fc.constantFrom(...seeds),
      fc.array(fc.tuple(fc.nat(), fc.nat(9), fc.string({ maxLength: 4 })), { maxLength: 4 }),
    )
    .map(([text, changes]) =>
      changes.reduce((before, [at, count, piece]) => {
        const start = at % (before.length + 1);
        return before.slice(0, start) + piece + before.slice(start + count);
      }, text),
    );
  fc.assert(
    fc.property(fc.oneof(mutated, fc.string({ unit: "binary", maxLength: 200 })), (text) => {
      const read = readBoardFile(Buffer.from(text), AROUND);
      if (!read.ok) {
        assert.ok(read.problems.length > 0);
        assert.equal(
          read.problems.some((each) => each.includes(TOKEN) || each.includes("\n")),
          false,
        );
        return;
      }
      for (const path of planBoard(read).keys()) assert.match(path, /^\/(?:data|etc|var)\/[^\0]*$/);
      for (const path of planBoard(read).keys()) assert.equal(path.split("/").includes(".."), false);
      const wiped = withoutToken(text);
      if ((read.file.hub?.token ?? "") === "") assert.equal(wiped, undefined);
      else if (wiped !== undefined) {
        const again = readBoardFile(Buffer.from(wiped), AROUND);
        assert.ok(again.ok);
        assert.deepEqual(again.file, { ...read.file, hub: { ...read.file.hub, token: "" } });
      }
    }),
    { numRuns: 150 },
  );
});

for (const [before, after] of [
  [`hub:\n  token: ${TOKEN}\n`, 'hub:\n  token: ""\n'],
  [`hub: {token: '${TOKEN}', server: a}\n`, 'hub: {token: "", server: a}\n'],
  [`hub:\r\n  token:   "${TOKEN}"   # once\r\n  server: a\r\n`, 'hub:\r\n  token:   ""   # once\r\n  server: a\r\n'],
  [`\uFEFFhub:\n  token: ${TOKEN}`, '\uFEFFhub:\n  token: ""'],
  [`hub:\n  token: >-\n    ${TOKEN}\n  server: a\n`, 'hub:\n  token: ""\n  server: a\n'],
  [`hub: {token: ""}\n`, undefined],
  [`hub: {}\n`, undefined],
  [`t: &t ${TOKEN}\nhub: {token: *t}\n`, undefined],
] as const)
  test(`the token goes from ${JSON.stringify(before)}`, () => {
    assert.equal(withoutToken(before), after);
  });
