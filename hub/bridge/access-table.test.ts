import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ACCESS_TABLE, rowsOf } from "@picolet/hub-core/access-table.ts";
import { parseAllDocuments } from "yaml";
import { DATA_TYPES } from "./remote-data.ts";

interface Role {
  readonly kind: string;
  readonly metadata: { readonly namespace?: string };
  readonly rules?: readonly {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly resourceNames?: readonly string[];
    readonly verbs: readonly string[];
  }[];
}

const right = (...parts: readonly string[]): string => parts.join(" ");

test("the hub's role in a cluster grants the hub's rows of the table, and nothing else", () => {
  const documents = parseAllDocuments(readFileSync("hub/deploy/rbac.yaml", "utf8")).map((each) => each.toJS() as Role);
  const granted = documents.flatMap(({ kind, metadata: { namespace = "" }, rules = [] }) =>
    rules.flatMap(({ apiGroups, resources, resourceNames = [], verbs }) =>
      apiGroups.flatMap((group) =>
        resources.flatMap((resource) =>
          verbs.map((verb) =>
            right(kind === "Role" ? namespace : "", group, resource, verb, [...resourceNames].join()),
          ),
        ),
      ),
    ),
  );
  const listed = rowsOf("hub").flatMap(({ namespace = "", group, resources, verbs, names = [] }) =>
    resources.flatMap((resource) => verbs.map((verb) => right(namespace, group, resource, verb, names.join()))),
  );
  assert.deepEqual(granted.sort(), listed.sort());
});

test("everything that a board is sent because its pods name it, it may read for that reason alone", () => {
  for (const { type } of DATA_TYPES) {
    const rows = rowsOf("board").filter(
      (each) => each.group === type.group && each.resources.includes(type.plural) && each.verbs.includes("get"),
    );
    // These name no user's content, or are named after the node.
    const others: Readonly<Record<string, string>> = {
      RuntimeClass: "any",
      CSIDriver: "any",
      VolumeAttachment: "attached",
    };
    const expected = others[type.kind] ?? "named";
    assert.deepEqual(
      rows.map(({ relation }) => relation),
      [expected],
      type.kind,
    );
  }
});

test("no row grants everything, and each names what it is about", () => {
  for (const { group, resources, verbs, relation, names } of ACCESS_TABLE) {
    for (const each of [group, ...resources, ...verbs]) assert.doesNotMatch(each, /\*/);
    assert.ok(resources.length > 0 && verbs.length > 0);
    assert.equal(relation === "listed", names !== undefined);
  }
});
