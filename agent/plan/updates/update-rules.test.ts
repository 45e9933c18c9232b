import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import * as fc from "fast-check";
import { compareVersions } from "./compare-versions.ts";
import { fieldChanges, ownersFields } from "./configuration-change.ts";
import { type HealthBefore, type HealthNow, healthProblem } from "./judge-health.ts";

const ASCENDING = [
  "0.9~rc1",
  "0.9",
  "0.9-1",
  "0.9a",
  "0.9+git1",
  "0.10",
  "1.0~beta",
  "1.0~rc.2",
  "1.0",
  "1.0-1",
  "1.0-10",
  "1.0.1",
  "1.01.2",
  "2025.12",
  "1:0.1",
];

test("versions are ordered as Debian orders them", () => {
  for (const [index, one] of ASCENDING.entries())
    for (const [other, text] of ASCENDING.entries())
      assert.equal(Math.sign(compareVersions(one, text)), Math.sign(index - other), `${one} and ${text}`);
  assert.equal(compareVersions("1.0", "1.00"), 0);
});

const DPKG = "/usr/bin/dpkg";
test("versions are ordered as dpkg orders them", { skip: !existsSync(DPKG) }, () => {
  const part = fc.stringMatching(/^\d[0-9a-z.+~]{0,6}$/);
  const version = fc
    .tuple(part, fc.option(fc.stringMatching(/^[0-9a-z.+~]{1,3}$/)))
    .map(([a, b]) => (b ? `${a}-${b}` : a));
  fc.assert(
    fc.property(version, version, (one, other) => {
      const holds = (operator: string): boolean =>
        spawnSync(DPKG, ["--compare-versions", one, operator, other]).status === 0;
      const expected = holds("lt") ? -1 : holds("gt") ? 1 : 0;
      assert.equal(Math.sign(compareVersions(one, other)), expected, `${one} and ${other}`);
    }),
    { numRuns: 40 },
  );
});

test("a hub may not change whom a board trusts and as whom it shows itself, nor take that away with what it is in", () => {
  assert.deepEqual(ownersFields({ maxPods: 5, hub: { server: "https://b" }, wasm: { p3: true } }), []);
  const refused = [
    [{ nodeName: "x" }, ["nodeName"]],
    [{ hub: { caHash: "sha256:1", token: "t" } }, ["hub.caHash", "hub.token"]],
    [{ hub: null }, ["hub.caHash", "hub.caFile", "hub.token", "hub.tokenFile"]],
    [{ updates: { allowed: [] } }, ["updates"]],
    [{ secretsAtRest: null }, ["secretsAtRest"]],
  ] as const;
  for (const [change, fields] of refused) assert.deepEqual(ownersFields(change), fields);
});

test("mappings are merged, lists replace, null takes away", () => {
  const changes = [...fieldChanges({ a: { b: 1, c: null }, d: [{ e: 1 }], f: {} })];
  assert.deepEqual(changes, [
    { path: ["a", "b"], value: 1 },
    { path: ["a", "c"], value: undefined },
    { path: ["d"], value: [{ e: 1 }] },
  ]);
});

const pod = (uid: string, isReady = true) => ({ name: `shop/${uid}`, uid, isReady });
const running = { isRunning: true, isReady: true, isOver: false };
const BEFORE: HealthBefore = { isReady: true, isConnected: true, pods: [pod("a"), pod("b", false)] };
const NOW: HealthNow = {
  notReady: "",
  isConnected: true,
  tunnelProblem: "",
  pods: new Map([
    ["a", running],
    ["b", { ...running, isReady: false }],
  ]),
};

const HEALTH: readonly [
  name: string,
  before: Partial<HealthBefore>,
  now: Partial<HealthNow>,
  problem: RegExp | undefined,
][] = [
  ["as before", {}, {}, undefined],
  ["the node is not ready", {}, { notReady: "no runtime" }, /^the node is not ready: no runtime$/],
  ["it was not ready before either", { isReady: false }, { notReady: "no runtime" }, undefined],
  ["no tunnel", {}, { isConnected: false, tunnelProblem: "refused" }, /^no connection to the hub: refused$/],
  ["there was no tunnel before", { isConnected: false }, { isConnected: false }, undefined],
  ["a pod that was ready only runs", {}, { pods: new Map([["a", { ...running, isReady: false }]]) }, /shop\/a$/],
  ["a pod is not wanted any more", {}, { pods: new Map([["b", running]]) }, undefined],
  [
    "a pod was ended by the drain",
    {},
    { pods: new Map([["a", { isRunning: false, isReady: false, isOver: true }]]) },
    undefined,
  ],
  [
    "many are missing",
    { pods: ["1", "2", "3", "4", "5", "6", "7"].map((uid) => pod(uid)) },
    { pods: new Map(["1", "2", "3", "4", "5", "6", "7"].map((uid) => [uid, { ...running, isReady: false }])) },
    /: shop\/1, shop\/2, shop\/3, shop\/4, shop\/5 and 2 more$/,
  ],
];

for (const [name, before, now, problem] of HEALTH)
  test(`health: ${name}`, () => {
    const found = healthProblem({ ...BEFORE, ...before }, { ...NOW, ...now });
    if (problem === undefined) assert.equal(found, undefined);
    else assert.match(found ?? "", problem);
  });
