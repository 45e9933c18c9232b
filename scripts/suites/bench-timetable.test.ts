import assert from "node:assert/strict";
import { test } from "node:test";
import {
  describeDurations,
  describeParts,
  LIMIT_SECONDS,
  PART_NAMES,
  partOf,
  plannedSeconds,
  selectParts,
} from "./bench-timetable.ts";

test("a whole run is all parts but the kubelet, which takes a file", () => {
  const all = PART_NAMES.filter((name) => name !== "kubelet");
  assert.deepEqual(selectParts({ only: undefined, hasKubelet: false }), all);
  assert.deepEqual(selectParts({ only: undefined, hasKubelet: true }), PART_NAMES);
});

test("parts are measured in the document's order, each once, whatever the order that names them", () => {
  assert.deepEqual(selectParts({ only: "edgectl,floors,edgectl", hasKubelet: false }), ["floors", "edgectl"]);
  assert.deepEqual(selectParts({ only: "edgectl", hasKubelet: true }), ["kubelet", "edgectl"]);
  for (const name of PART_NAMES) assert.deepEqual(selectParts({ only: name, hasKubelet: name === "kubelet" }), [name]);
});

test("a part that there is not is named", () => {
  assert.throws(() => selectParts({ only: "agent,tunnels,", hasKubelet: false }), /no part tunnels, $/);
  assert.throws(() => selectParts({ only: "kubelet", hasKubelet: false }), /needs --kubelet FILE/);
});

test("a whole run takes at most 12 minutes by the timetable", () => {
  const { total, phases } = plannedSeconds(selectParts({ only: undefined, hasKubelet: false }));
  assert.ok(total <= LIMIT_SECONDS, `${total} s: ${JSON.stringify(phases)}`);
});

test("what rests is counted once, what is timed as often as it is", () => {
  const { seconds: agent } = partOf("agent");
  const { seconds: floors } = partOf("floors");
  const { phases } = plannedSeconds(["floors", "agent", "stats", "edgectl"]);
  assert.equal(phases.rest, Math.max(agent.rest ?? 0, floors.rest ?? 0));
  assert.equal(phases.setUp, (agent.setUp ?? 0) + (floors.setUp ?? 0));
  assert.equal(phases.measure, (partOf("stats").seconds.measure ?? 0) + (partOf("edgectl").seconds.measure ?? 0));
});

test("a part that rests says what it waits for", () => {
  for (const name of PART_NAMES) {
    const { waits, seconds } = partOf(name);
    assert.equal(waits !== undefined, seconds.rest !== undefined, name);
    assert.equal(seconds.setUp !== undefined, seconds.rest !== undefined, name);
  }
  const lines = describeParts();
  assert.equal(lines.length, PART_NAMES.length);
  for (const [index, name] of PART_NAMES.entries()) assert.ok(lines[index]?.startsWith(`${name} (`), lines[index]);
});

test("durations are shown beside the timetable's, with the part that others waited for", () => {
  const { seconds } = partOf("floors");
  const lines = describeDurations({
    phases: { setUp: 20.5, rest: 151, measure: 9.2 },
    parts: { floors: { setUp: 0.5, rest: 75 }, agent: { setUp: 20, rest: 151 }, edgectl: { measure: 9.2 } },
  });
  assert.deepEqual(
    lines.map((line) => line.split(/ {2,}/)[0]),
    ["part", "floors", "agent", "edgectl", "all"],
  );
  assert.match(lines[1] ?? "", new RegExp(` 75 \\(${seconds.rest}\\) .* agent, 76\\.0 s$`));
  assert.match(lines[2] ?? "", /\)$/);
  assert.match(lines[4] ?? "", /^all +20\.5 +151 +9\.2$/);
});
