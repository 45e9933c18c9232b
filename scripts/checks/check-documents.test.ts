import assert from "node:assert/strict";
import { test } from "node:test";
import {
  anchorsOf,
  commentFaults,
  documentFaults,
  messageFaults,
  readmeFault,
  roomsDocument,
  treeOf,
} from "./check-documents.ts";

const DOCUMENT = "docs/a.md";

/** A tree of two packages, with one symbol and one document with an anchor. */
const tree = treeOf(
  ["README.md", DOCUMENT, "docs/b.md", "agent/plan/plan-pod.ts", "hub/core/fleet.ts"],
  ["agent/", "hub/core/"],
  new Set(["PodWorkers"]),
  new Map([
    [DOCUMENT, new Set<string>()],
    ["docs/b.md", anchorsOf("# Two words\n\n## Two words\n")],
  ]),
);
const faults = (text: string): string => documentFaults(DOCUMENT, text, tree).join("\n");

test("a path that does not exist is refused, in any form of it", () => {
  assert.equal(faults("`agent/plan/plan-pod.ts`, `plan-pod.ts`, `agent/plan/`, `b.md`"), "");
  assert.match(faults("one\n\n`agent/plan/gone.ts`"), /^docs\/a\.md:3: there is no agent\/plan\/gone\.ts/);
  assert.match(faults("`gone.ts`"), /there is no gone\.ts/);
  assert.match(faults("`agent/gone/`"), /there is no agent\/gone\//);
});

test("folders of a board and built files are not the tree's", () => {
  assert.equal(faults("`var/lib/picolet/`, `/etc/picolet.yaml`, `dist/picolet/`, `dist/x.ts`"), "");
});

test("a path resolves from the package and the folder of the file that names it", () => {
  assert.deepEqual(documentFaults("agent/README.md", "`plan/plan-pod.ts`", tree), []);
  assert.deepEqual(documentFaults("agent/plan/README.md", "`plan/plan-pod.ts`", tree), []);
  assert.match(documentFaults("hub/core/README.md", "`plan/plan-pod.ts`", tree).join(), /there is no/);
});

test("a symbol that the source does not have is refused, with or without a member", () => {
  assert.equal(faults("`PodWorkers`, `PodWorkers.end`, `PodWorkers.end()`, `Pod`"), "");
  assert.match(faults("`PodLooks`"), /the source has no PodLooks/);
  assert.match(faults("`PodLooks.end`"), /the source has no PodLooks/);
});

test("a link without a file and an anchor without a heading are refused", () => {
  assert.equal(
    faults("[b](b.md) [b](b.md#two-words) [c](b.md#two-words-1) [agent](../agent) [web](https://x.test/)"),
    "",
  );
  assert.match(faults("[c](c.md)"), /the link to c\.md names no file/);
  assert.match(faults("[b](b.md#three)"), /the link to b\.md#three names no heading of docs\/b\.md/);
  assert.match(faults("[here](#gone)"), /names no heading of docs\/a\.md/);
});

test("fenced code is left out, and lines keep their numbers", () => {
  assert.equal(faults("```\n`gone.ts` [x](gone.md)\n```"), "");
  assert.match(faults("```\ncode\n```\n`gone.ts`"), /^docs\/a\.md:4:/);
});

test("a path and a symbol of a comment are checked, with the line on which they are", () => {
  const comments = [
    { value: "*\n * See `plan/gone.ts`, not `plan/plan-pod.ts`.\n * `PodLooks`, `PodWorkers` ", line: 5 },
  ];
  assert.deepEqual(commentFaults("agent/plan/plan-pod.ts", comments, tree), [
    "agent/plan/plan-pod.ts:6: there is no plan/gone.ts: correct the path",
    "agent/plan/plan-pod.ts:7: the source has no PodLooks: correct the name",
  ]);
});

test("the document of rooms has each room of each package by its path", () => {
  const rooms = { "./": { owns: "The rest." }, "plan/": { owns: "Decides a | b." } };
  const document = roomsDocument([{ name: "@picolet/agent", folder: "agent/", rooms }]);
  assert.match(document, /^# Rooms\n/);
  assert.ok(
    document.endsWith(`## @picolet/agent

| room | what it owns |
| --- | --- |
| \`agent/\` | The rest. |
| \`agent/plan/\` | Decides a \\| b. |
`),
    document,
  );
});

test("a package without a README, or with one that is longer than a screen, is refused", () => {
  assert.match(readmeFault("agent/", undefined) ?? "", /^agent\/ has no README\.md/);
  assert.equal(readmeFault("agent/", "line\n".repeat(60)), undefined);
  assert.match(readmeFault("agent/", "line\n".repeat(61)) ?? "", /^agent\/README\.md has 61 lines, and may have 60/);
});

test("a message of the troubleshooting guide that the source does not have is refused", () => {
  const sources = ['throw new Error("cannot open " + path + ": it is in use")'];
  assert.deepEqual(messageFaults("t.md", "### `cannot open …: it is in use`\n", sources), []);
  assert.match(messageFaults("t.md", "# T\n\n### `cannot open …: it is gone`\n", sources).join(), /^t\.md:3: /);
});
