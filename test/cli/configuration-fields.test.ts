/** A field of the configuration is a row of the table and a line of documentation: all else follows from the two. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Configuration,
  formatConfigurationProblem,
  loadConfiguration,
} from "@picolet/agent/config/configuration.ts";
import { CONFIGURATION_FIELDS, type FieldTable } from "@picolet/agent/config/configuration-fields.ts";
import { describeFields } from "@picolet/agent/config/field-descriptions.ts";
import { FIELD_DOCUMENTATION, FIELD_GROUPS } from "@picolet/agent/config/field-documentation.ts";
import { shownConfiguration } from "@picolet/agent/config/shown-configuration.ts";
import { configurationReference } from "@picolet/scripts/docs/configuration-reference.ts";
import { EdgectlBench } from "../support/unit/agent/edgectl-bench.ts";

const BOARD = { memoryBytes: 536_870_912 };

const WITH_DUMMY = {
  ...CONFIGURATION_FIELDS,
  lights: {
    fields: {
      interval: { kind: "duration", default: 90_000, min: 1000, max: 600_000 },
      colour: { kind: "text", default: "green", choices: ["green", "red"] },
      memory: { kind: "bytes", default: 2_097_152 },
    },
  },
} as const satisfies FieldTable;

const DOCUMENTATION = {
  ...FIELD_DOCUMENTATION,
  lights: "The lights of the board.",
  "lights.interval": "How often they blink.",
  "lights.colour": "Their colour.",
  "lights.memory": { meaning: "What they remember.", byDefault: "not much" },
};

type WithLights = Configuration & { readonly lights: Readonly<Record<string, unknown>> };

function load(
  text: string,
  table: FieldTable,
): { readonly configuration: WithLights; readonly ignored: readonly string[] } {
  const result = loadConfiguration(text, "board", BOARD, table);
  assert.ok(result.ok, JSON.stringify(result));
  return { configuration: result.configuration as WithLights, ignored: result.notActedUpon };
}

function problems(text: string): readonly string[] {
  const result = loadConfiguration(text, "board", BOARD, WITH_DUMMY);
  return result.ok ? [] : result.problems.map((each) => formatConfigurationProblem("c", each));
}

test("it is read with its defaults, limits and choices, and shown as a file has it", () => {
  const { configuration } = load("lights: {interval: 5s}", WITH_DUMMY);
  assert.deepEqual(configuration.lights, { interval: 5000, colour: "green", memory: 2_097_152 });
  assert.deepEqual(load("", WITH_DUMMY).configuration.lights.interval, 90_000);
  const shown = shownConfiguration(configuration, WITH_DUMMY).lights;
  assert.deepEqual(shown, { colour: "green", interval: "5s", memory: "2Mi" });
  assert.deepEqual(problems("lights: {interval: 1h}"), [
    "c:1: lights.interval: Invalid value: 3600s: must be between 1s and 600s, inclusive",
  ]);
  assert.match(problems("lights: {colour: blue}").join(), /^c:1: lights.colour: Unsupported value: "blue"/);
  assert.match(problems("lights: {interval: 5}").join(), /^c:1: lights.interval: .*must be a duration/);
  assert.deepEqual(problems("lights: {color: red}"), ["c:1: lights.color: Unknown field, did you mean colour?"]);
});

test("it is reported as ignored until its row says that it is acted upon", () => {
  const acted = { ...WITH_DUMMY, lights: { ...WITH_DUMMY.lights, isActedUpon: true } } as const;
  assert.deepEqual(load("lights: {colour: red}", WITH_DUMMY).ignored, ["lights"]);
  assert.deepEqual(load("lights: {colour: green}", WITH_DUMMY).ignored, []);
  assert.deepEqual(load("lights: {colour: red}", acted).ignored, []);
});

test("it is in the reference, where its row says whether it is acted upon", () => {
  const referenceOf = (table: FieldTable): string =>
    configurationReference({
      fields: describeFields(table, DOCUMENTATION),
      groups: [...FIELD_GROUPS, { title: "Lights", fields: DOCUMENTATION }],
      programs: [],
      kubeletFlags: [],
    });
  const row = "| `lights.interval` | duration, 1s to 10m | `1m30s` | How often they blink. |";
  const ignored = referenceOf(WITH_DUMMY);
  assert.ok(ignored.indexOf(row) > ignored.indexOf("## Accepted and not acted upon"), ignored);
  const acted = referenceOf({ ...WITH_DUMMY, lights: { ...WITH_DUMMY.lights, isActedUpon: true } });
  assert.ok(acted.indexOf(row) > 0 && acted.indexOf(row) < acted.indexOf("## Accepted and not acted upon"));
  assert.ok(acted.includes("| `lights.colour` | one of green, red | `green` | Their colour. |"));
  assert.ok(acted.includes("| `lights.memory` | size | not much | What they remember. |"));
});

test("a field without documentation is refused by name", () => {
  assert.throws(() => describeFields(WITH_DUMMY, FIELD_DOCUMENTATION), /the field lights has no documentation/);
});

test("every field is documented in one group, and every line documents a field", () => {
  const paths = describeFields(CONFIGURATION_FIELDS, FIELD_DOCUMENTATION).map(({ path }) => path);
  const documented = FIELD_GROUPS.flatMap(({ fields }) => Object.keys(fields));
  assert.deepEqual(documented.toSorted(), paths.toSorted());
});

test("a default that follows from the machine is told in words", () => {
  for (const [name, field] of Object.entries<FieldTable[string]>(CONFIGURATION_FIELDS))
    if ("isDerived" in field)
      assert.equal(typeof FIELD_DOCUMENTATION[name as keyof typeof FIELD_DOCUMENTATION], "object");
});

test("edgectl explain shows a field, a mapping with what is in it, and what was meant", async (t) => {
  const bench = await EdgectlBench.start(t);
  await bench.stopAgent();
  const { code, out } = await bench.run(["explain", "wasm.registries[3].insecure"]);
  assert.deepEqual(
    [code, out],
    [0, "wasm.registries[].insecure: true or false\ndefault: false\nWhether it is reached by plain HTTP.\n"],
  );
  const hub = (await bench.run(["explain", "hub"])).out;
  assert.match(hub, /^hub: mapping\n.*\nhub.server: /s);
  assert.match((await bench.run(["explain", "podCIDR"])).out, /\naccepted, and not acted upon\n/);
  const all = (await bench.run(["explain"])).out;
  assert.match(all, /^staticPodPath\n {4}\S/m);
  assert.doesNotMatch(all, /^podCIDR$/m);
  for (const line of all.split("\n")) assert.match(line, /^[\x20-\x7e]{0,80}$/);
  const wrong = await bench.run(["explain", "wasm.maxComponentsize"]);
  assert.deepEqual(
    [wrong.code, wrong.error.split("\n")[0]],
    [64, 'edgectl: the configuration has no field "wasm.maxComponentsize"; did you mean "wasm.maxComponentSize"?'],
  );
  assert.equal((await bench.run(["__complete", "explain", "wasm.max"])).out, "wasm.maxComponentSize\n");
  const parsed = JSON.parse((await bench.run(["explain", "maxPods", "-o", "json"])).out) as unknown;
  assert.deepEqual(parsed, [
    {
      path: "maxPods",
      type: "whole number",
      default: "110",
      meaning: "How many pods the node takes.",
      isActedUpon: true,
    },
  ]);
});
