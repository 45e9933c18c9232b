/** The work of patches and applies grows as their input does, and their results are those of the plain definitions. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MODELS } from "@picolet/test/support/unit/embedded/api-server.ts";
import fc from "fast-check";
import { applyPatch, type Operation, Pointer } from "rfc6902";
import { StepBudget } from "../api/limits.ts";
import type { ApiObject } from "../api/resource-definition.ts";
import { StatusError } from "../api/status-error.ts";
import { nodeResource } from "../resources/node-resource.ts";
import type { ModelSource } from "../schema/models.ts";
import { jsonPatch } from "./json-patch.ts";
import { trackUpdate } from "./managed-fields.ts";
import { applyConfiguration } from "./server-side-apply.ts";
import { strategicMerge } from "./strategic-merge.ts";

type Fields = Record<string, unknown>;

const many = <T>(count: number, make: (index: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));
const nodeOf = (conditions: readonly Fields[], metadata: Fields = {}): ApiObject => ({
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "a", ...metadata },
  status: { conditions },
});
const conditions = (count: number, status: string): Fields[] => many(count, (i) => ({ type: `T${i}`, status }));

/** Counts how often a type is looked up: once for each object that is taken apart. */
class CountedModels implements ModelSource {
  lookups = 0;

  get(name: string) {
    this.lookups += 1;
    return MODELS.get(name);
  }
}

const UNBOUNDED = Number.POSITIVE_INFINITY;

function apply(live: ApiObject | undefined, config: ApiObject, manager: string, isForced: boolean) {
  const models = new CountedModels();
  const budget = new StepBudget(UNBOUNDED);
  const request = { definition: nodeResource, live, config, manager, subresource: "", isForced, now: new Date(0) };
  const object = applyConfiguration(models, request, budget);
  return { object, work: budget.spent + models.lookups };
}

/** Work for an input of `count` items. */
const WORK: Readonly<Record<string, (count: number) => number>> = {
  "a strategic merge that changes every item": (count) => {
    const budget = new StepBudget(UNBOUNDED);
    const models = new CountedModels();
    const live = { status: { conditions: conditions(count, "True") } };
    strategicMerge(models, "V1Node", live, { status: { conditions: conditions(count, "False") } }, budget);
    return budget.spent + models.lookups;
  },
  "a strategic merge that deletes and orders": (count) => {
    const budget = new StepBudget(UNBOUNDED);
    const live = { status: { conditions: conditions(count, "True") } };
    const patch = {
      conditions: conditions(count, "x").map(({ type }) => ({ type, $patch: "delete" })),
      "$setElementOrder/conditions": conditions(count, "x").map(({ type }) => ({ type })),
    };
    strategicMerge(MODELS, "V1Node", live, { status: patch }, budget);
    return budget.spent;
  },
  "a first apply": (count) => apply(undefined, nodeOf(conditions(count, "True")), "one", false).work,
  "an apply over another manager's": (count) => {
    const { object } = apply(undefined, nodeOf(conditions(count, "True")), "one", false);
    return apply(object, nodeOf(conditions(count, "False")), "two", true).work;
  },
  "an apply that removes all but one": (count) => {
    const { object } = apply(undefined, nodeOf(conditions(count, "True")), "one", false);
    return apply(object, nodeOf(conditions(1, "True")), "one", false).work;
  },
  "an update of what was applied": (count) => {
    const { object: old } = apply(undefined, nodeOf(conditions(count, "True")), "one", false);
    const models = new CountedModels();
    const object = nodeOf(conditions(count, "False"));
    const write = { definition: nodeResource, object, old, subresource: "", manager: "two", now: new Date(0) };
    trackUpdate(models, write);
    return models.lookups;
  },
  "a test of a list": (count) => {
    const budget = new StepBudget(UNBOUNDED);
    const patch = [{ op: "test", path: "/x", value: many(count, (i) => i) }];
    jsonPatch({ x: many(count, (i) => i) }, patch, budget);
    return budget.spent;
  },
  "copies of a list": (count) => {
    const budget = new StepBudget(UNBOUNDED);
    const patch = [
      { op: "copy", from: "/x", path: "/y" },
      { op: "move", from: "/y", path: "/z" },
    ];
    jsonPatch({ x: many(count, (i) => i) }, patch, budget);
    return budget.spent;
  },
};

for (const [name, workOf] of Object.entries(WORK)) {
  test(`twice the input is twice the work: ${name}`, () => {
    const [once, twice] = [workOf(500), workOf(1000)];
    assert.ok(once > 0);
    assert.ok(twice < 2.1 * once, `${once} steps, then ${twice}`);
  });
}

test("every patch is refused when it has used its steps", () => {
  const isTooMuch = (error: unknown): boolean => error instanceof StatusError && error.statusCode === 413;
  const patch = { status: { conditions: conditions(100, "x") } };
  assert.throws(() => strategicMerge(MODELS, "V1Node", {}, patch, new StepBudget(50)), isTooMuch);
  assert.throws(() => jsonPatch({}, [{ op: "test", path: "", value: 1 }], new StepBudget(0)), isTooMuch);
  const request = { definition: nodeResource, manager: "a", subresource: "", isForced: false, now: new Date(0) };
  const both = { live: nodeOf(conditions(9, "x")), config: nodeOf(conditions(9, "x")) };
  assert.throws(() => applyConfiguration(MODELS, { ...request, ...both }, new StepBudget(5)), isTooMuch);
});

test("a refusal of an apply stays small, however many conflicts name however long a key", () => {
  const type = "t".repeat(500_000);
  const fields = Object.fromEntries(many(300, (i) => [`f:x${i}`, {}]));
  const fieldsV1 = { "f:status": { "f:conditions": { [`k:${JSON.stringify({ type })}`]: fields } } };
  const entry = { manager: "one", operation: "Update", apiVersion: "v1", time: "", fieldsType: "FieldsV1", fieldsV1 };
  const config = nodeOf([{ type, ...Object.fromEntries(many(300, (i) => [`x${i}`, "y"])) }]);
  assert.throws(
    () => apply(nodeOf([], { managedFields: [entry] }), config, "two", false),
    (error) => {
      assert.ok(error instanceof StatusError && error.statusCode === 409);
      assert.match(error.message, /^Apply failed with 300 conflicts, of which the first 256 are: conflicts with "one"/);
      assert.equal(error.details?.causes?.length, 256);
      assert.ok(JSON.stringify(error.toStatus()).length < 400_000);
      return true;
    },
  );
});

test("a refusal of an apply stays small, however long the name of the other manager is", () => {
  const long = "x".repeat(300_000);
  const owned = Object.fromEntries(many(300, (i) => [`f:x${i}`, {}]));
  const fieldsV1 = { "f:metadata": { "f:labels": owned } };
  const entry = { manager: long, operation: "Update", apiVersion: long, subresource: long, time: "", fieldsV1 };
  const config = nodeOf([], { labels: Object.fromEntries(many(300, (i) => [`x${i}`, "y"])) });
  assert.throws(
    () => apply(nodeOf([], { managedFields: [entry] }), config, "two", false),
    (error) => {
      assert.ok(error instanceof StatusError && error.statusCode === 409);
      assert.match(
        error.message,
        /^Apply failed with 300 conflicts, .* conflicts with "x{317}…" with subresource "x{317}…" using x{317}…:\n/,
      );
      assert.ok(JSON.stringify(error.toStatus()).length < 400_000);
      return true;
    },
  );
});

const letter = fc.constantFrom("a", "b", "c", "d");
const item = fc.record(
  { type: letter, status: letter, reason: letter },
  { requiredKeys: ["type"], noNullPrototype: true },
);

test("a list is merged by its key as item after item would be", () => {
  const directive = fc.option(fc.constant("delete"), { nil: undefined, freq: 4 });
  const patch = fc.array(
    fc.tuple(item, directive).map(([fields, $patch]) => ($patch ? { ...fields, $patch } : fields)),
  );
  fc.assert(
    fc.property(fc.array(item), patch, (live, changes) => {
      let expected: Fields[] = live.map((each) => ({ ...each }));
      for (const { $patch, ...change } of changes as readonly Fields[]) {
        const found = expected.find(({ type }) => type === change.type);
        if ($patch === "delete") expected = expected.filter(({ type }) => type !== change.type);
        else if (found === undefined) expected.push(change);
        else Object.assign(found, change);
      }
      const merged = strategicMerge(
        MODELS,
        "V1Node",
        { status: { conditions: live } },
        { status: { conditions: changes } },
      );
      assert.deepEqual(merged, { status: { conditions: expected } });
    }),
  );
});

test("JSON patches do what another implementation of RFC 6902 does", () => {
  const value = fc.oneof(
    letter,
    // Not the same list each time: one list in two places of a document would change in both.
    fc.array(letter, { maxLength: 0 }),
    fc.array(letter, { maxLength: 3 }),
    fc.dictionary(letter, letter, { noNullPrototype: true }),
  );
  const document = fc.dictionary(letter, fc.oneof(value, fc.array(value, { maxLength: 3 })), { noNullPrototype: true });
  const step = fc.oneof(letter, fc.constantFrom("0", "1", "-"));
  const pointer = fc.array(step, { minLength: 1, maxLength: 3 }).map((steps) => `/${steps.join("/")}`);
  const operation = fc.oneof(
    fc.record({ op: fc.constantFrom("add", "replace", "test"), path: pointer, value }),
    fc.record({ op: fc.constantFrom("move", "copy"), from: pointer, path: pointer }),
    fc.record({ op: fc.constant("remove"), path: pointer }),
  );
  let applied = 0;
  fc.assert(
    fc.property(document, operation, (object, patch) => {
      const theirs = structuredClone(object);
      let ours: Fields;
      try {
        ours = jsonPatch(structuredClone(object), [patch]);
      } catch (error) {
        // The other one takes names for the places in lists, and accepts more.
        assert.ok(error instanceof StatusError && error.statusCode === 422, String(error));
        return;
      }
      // The other one finds the target of a move before it removes, which moves items of a list.
      const steps: readonly object[] =
        "from" in patch && patch.op === "move"
          ? [
              { op: "remove", path: patch.from },
              { op: "add", path: patch.path, value: Pointer.fromJSON(patch.from).get(object) },
            ]
          : [patch];
      const problems = applyPatch(theirs, structuredClone(steps) as Operation[]);
      assert.ok(problems.every((problem) => problem === null));
      assert.deepEqual(ours, theirs);
      applied += 1;
    }),
    { numRuns: 3000, examples: [[{ d: ["a", "a", {}] }, { op: "move", from: "/d/0", path: "/d/1/a" }]] },
  );
  assert.ok(applied > 300, `${applied} patches could be applied`);
});

test("an apply gives what was applied, changes nothing when it is repeated, and takes back only its own", () => {
  const list = fc.uniqueArray(item, { selector: ({ type }) => type });
  fc.assert(
    fc.property(list, list, list, (before, first, second) => {
      const live = nodeOf(before);
      const { object: one } = apply(structuredClone(live), nodeOf(structuredClone(first)), "one", true);
      const shown = (node: ApiObject): readonly Fields[] => (node.status as { conditions?: Fields[] }).conditions ?? [];
      const valueAt = (node: ApiObject, type: unknown): Fields => shown(node).find((each) => each.type === type) ?? {};
      for (const each of first) assert.deepEqual({ ...valueAt(one, each.type), ...each }, valueAt(one, each.type));
      const { object: again } = apply(structuredClone(one), nodeOf(structuredClone(first)), "one", false);
      assert.deepEqual(again, one);
      const { object: two } = apply(structuredClone(one), nodeOf(structuredClone(second)), "one", true);
      for (const { type } of before) assert.ok(shown(two).some((each) => each.type === type));
      const kept = new Set<string>([...before, ...second].map(({ type }) => type));
      for (const { type } of shown(two)) assert.ok(kept.has(String(type)), `${String(type)} is nobody's`);
    }),
    { numRuns: 300 },
  );
});
