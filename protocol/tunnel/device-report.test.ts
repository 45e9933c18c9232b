import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_DEVICES_LENGTH, parseDraDrivers, shownDevices } from "./device-report.ts";

test("devices are shown sorted, a line each, and those beyond the limit are counted", () => {
  const camera = (device: string, isHealthy = true) => ({ resource: "example.com/camera", device, isHealthy });
  const lines = "example.com/camera /dev/video0\nexample.com/camera /dev/video1 !";
  assert.equal(shownDevices([camera("/dev/video1", false), camera("/dev/video0")]), lines);
  assert.equal(shownDevices([]), "");
  const many = Array.from({ length: 500 }, (_, index) => camera(`/dev/video${1000 + index}`));
  const text = shownDevices(many);
  assert.ok(text.length <= MAX_DEVICES_LENGTH);
  const shown = text.split("\n");
  assert.equal(shown.at(-1), `and ${500 - (shown.length - 1)} more`);
  assert.equal(shownDevices([camera("x".repeat(MAX_DEVICES_LENGTH))]), "and 1 more");
});

test("drivers are a list of names, and anything else is none", () => {
  assert.deepEqual(parseDraDrivers('["a","b"]'), new Set(["a", "b"]));
  assert.deepEqual(parseDraDrivers("[]"), new Set());
  for (const text of ["", "{}", "[1]", '[""]', `["${"x".repeat(64)}"]`, JSON.stringify(Array(65).fill("a"))])
    assert.equal(parseDraDrivers(text), undefined, text.slice(0, 20));
});
