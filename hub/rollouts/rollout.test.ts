import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import fc from "fast-check";
import { boardOf, parseTurn, type Turn, turnAnnotations, wishKey } from "./board.ts";
import { boardsOf, parseBoardCount, parseRollout, type RolloutSpec, rolloutData } from "./rollout.ts";

const SPEC: RolloutSpec = {
  kind: "os",
  target: "registry.example/os:2",
  selector: "role=edge",
  hub: "picolet",
  maxUnavailable: "10%",
  maxFailures: 3,
  canary: 1,
  window: "02:00-05:00",
  bandwidth: "256Ki",
  healthDeadline: "10m",
  allowDowngrade: true,
};

const configMap = (data: unknown, kind = "os"): KubeObject => ({
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: {
    name: "r",
    uid: "u",
    resourceVersion: "7",
    creationTimestamp: "2026-01-01T00:00:00Z",
    labels: { "picolet.io/rollout": kind },
  },
  data,
});

test("a rollout is read as it was stored", () => {
  const { spec, action, order, acceptedFailures, status } = parseRollout(configMap(rolloutData(SPEC)));
  assert.deepEqual(spec, SPEC);
  assert.deepEqual([action, order, acceptedFailures], ["run", "2026-01-01T00:00:00Z r", 0]);
  assert.deepEqual([status.phase, status.message], ["Pending", "no hub has seen it yet"]);
  const configuration: RolloutSpec = { ...SPEC, kind: "configuration", target: "logLevel: debug\n", window: undefined };
  const data = rolloutData(configuration);
  assert.equal(data.configuration, configuration.target, "people can read it");
  assert.deepEqual(parseRollout(configMap(data, "configuration")).spec, configuration);
});

test("what is wrong with a ConfigMap is said in a sentence", () => {
  const problemOf = (change: object, data: object = {}, kind?: string): string =>
    parseRollout(configMap({ spec: JSON.stringify({ ...SPEC, ...change }), action: "run", ...data }, kind)).problem;
  const cases: readonly (readonly [string, RegExp])[] = [
    [problemOf({}, { spec: "{" }), /^spec is no JSON object$/],
    [problemOf({ kind: "all" }), /^spec\.kind must be one of os, agent, configuration$/],
    [problemOf({}, {}, "agent"), /^the label picolet\.io\/rollout must be os, as spec\.kind$/],
    [problemOf({ target: "no image" }), /^picolet\.io\/os-image: invalid reference format/],
    [problemOf({ target: "" }), /^there is nothing to roll out$/],
    [problemOf({ maxUnavailable: "0%" }), /must be numbers above 0, or shares such as 10%$/],
    [problemOf({ maxFailures: 1.5 }), /must be numbers above 0, or shares such as 10%$/],
    [problemOf({ canary: -1 }), /^spec\.canary must be a number$/],
    [problemOf({ window: "at night" }), /^picolet\.io\/update-window: "at night" is no window/],
    [problemOf({}, { action: "go" }), /^action must be one of run, pause, stop, undo$/],
    [problemOf({ kind: "configuration" }, {}, "configuration"), /^configuration is missing$/],
  ];
  for (const [problem, expected] of cases) assert.match(problem, expected);
});

test("shares of boards are rounded as Deployments round theirs", () => {
  assert.equal(boardsOf("10%", 19, "down"), 1);
  assert.equal(boardsOf("10%", 5, "down"), 1);
  assert.equal(boardsOf("10%", 1000, "down"), 100);
  assert.equal(boardsOf("10%", 11, "up"), 2);
  assert.equal(boardsOf(3, 1, "down"), 3);
  for (const wrong of ["", "0", "0%", "101%", "-1", "1.5", "x", "1 %", "9999999"])
    assert.equal(parseBoardCount(wrong), undefined, wrong);
  assert.deepEqual([parseBoardCount("3"), parseBoardCount("100%")], [3, "100%"]);
});

const TURN: Turn = { name: "r", uid: "u", order: "o", key: "k", before: "a", isUndone: false };

test("a turn is read as it was written, and what no hub has written is none", () => {
  for (const turn of [TURN, { ...TURN, before: undefined }, { ...TURN, isUndone: true }]) {
    const text = turnAnnotations(SPEC, turn)["picolet.io/rollout-os"];
    assert.deepEqual(parseTurn(text ?? undefined), turn);
  }
  const text = JSON.stringify({ name: "r", uid: "u", order: "o", key: "k" });
  assert.ok(parseTurn(text) !== undefined);
  for (const wrong of [
    "",
    "{",
    "null",
    "[]",
    text.replace('"u"', "1"),
    text.replace("}", ',"before":1}'),
    text + " ".repeat(200_000),
  ])
    assert.equal(parseTurn(wrong), undefined, wrong.slice(0, 80));
});

test("nothing that is in a ConfigMap or a Node makes the hub throw", () => {
  const texts = fc.oneof(fc.string(), fc.json(), fc.constant(JSON.stringify(SPEC)));
  const data = fc.oneof(
    fc.anything(),
    fc.record({ spec: texts, action: texts, status: texts, configuration: texts, "accepted-failures": texts }),
  );
  fc.assert(fc.property(data, (value) => void parseRollout(configMap(value))));
  fc.assert(
    fc.property(texts, texts, texts, (wish, turn, updateReport) => {
      const annotations = { "picolet.io/os-image": wish, "picolet.io/rollout-os": turn };
      const node = { name: "n", uid: "u", resourceVersion: "1", labels: {}, annotations, ready: "True", updateReport };
      assert.equal(boardOf(node).parts.os.wish, wish);
    }),
  );
});

test("a configuration is called by the first digits of its hash, as the board calls it", () => {
  assert.equal(wishKey("configuration", ""), "e3b0c44298fc1c14");
  assert.equal(wishKey("os", "a/b:1"), "a/b:1");
});
