import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_CONFIGURATION_LENGTH, parseDirective, parseReport } from "./node-updates.ts";
import { formatWindow, minutesUntil, parseWindow } from "./update-window.ts";

test("annotations become a directive", () => {
  const result = parseDirective({
    "picolet.io/os-image": "registry.example/fleet/os:1.2",
    "picolet.io/update-window": "22:30-04:00",
    "picolet.io/update-bandwidth": "256Ki",
    "picolet.io/update-health-deadline": "90s",
    other: "x",
  });
  assert.deepEqual(result, {
    ok: true,
    directive: {
      osImage: "registry.example/fleet/os:1.2",
      agentPackage: undefined,
      configuration: undefined,
      window: { fromMinute: 22 * 60 + 30, toMinute: 4 * 60 },
      bytesPerSecond: 256 * 1024,
      healthDeadlineMs: 90_000,
      allowDowngrade: false,
    },
  });
});

test("a wrong directive names every problem with its annotation", () => {
  const result = parseDirective({
    "picolet.io/os-image": "file:///os.raucb",
    "picolet.io/agent-package": "not an image",
    "picolet.io/configuration": "x".repeat(MAX_CONFIGURATION_LENGTH + 1),
    "picolet.io/update-window": "25:00-26:00",
    "picolet.io/update-bandwidth": "fast",
    "picolet.io/update-health-deadline": "soon",
  });
  assert.ok(!result.ok);
  assert.deepEqual(
    result.problems.map((each) => each.slice(0, each.indexOf(":"))).sort(),
    ["agent-package", "configuration", "os-image", "update-bandwidth", "update-health-deadline", "update-window"].map(
      (each) => `picolet.io/${each}`,
    ),
  );
});

test("a window may span midnight, and tells how long it is closed", () => {
  const night = parseWindow("22:00-02:00");
  assert.ok(night !== undefined);
  assert.equal(formatWindow(night), "22:00-02:00");
  assert.equal(minutesUntil(night, 23 * 60), 0);
  assert.equal(minutesUntil(night, 60), 0);
  assert.equal(minutesUntil(night, 2 * 60), 20 * 60);
  assert.equal(minutesUntil(night, 21 * 60 + 59), 1);
  for (const wrong of ["", "2:00-3:00", "02:00-02:00", "24:00-01:00", "02:00", "02:00-05:00 "])
    assert.equal(parseWindow(wrong), undefined, wrong);
});

test("a report that a board did not write is none", () => {
  const update = { kind: "os", target: "a/b:1", state: "trial", message: "", since: "2026-01-01T00:00:00Z" };
  const report = { osVersion: "1.2", slot: "A", updates: [update] };
  assert.deepEqual(parseReport(JSON.stringify(report)), report);
  const wrong = [
    "",
    "null",
    "[]",
    '{"updates":{}}',
    JSON.stringify({ ...report, slot: 1 }),
    JSON.stringify({ updates: [{ ...update, kind: "else" }] }),
    JSON.stringify({ updates: [{ ...update, state: "else" }] }),
    JSON.stringify({ updates: [{ ...update, message: "x".repeat(513) }] }),
    JSON.stringify({ updates: [update, update, update, update] }),
    `{"updates":[],"pad":"${"x".repeat(9_000)}"}`,
  ];
  for (const text of wrong) assert.equal(parseReport(text), undefined, text.slice(0, 80));
});
