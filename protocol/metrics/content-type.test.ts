import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { formatOf } from "./content-type.ts";

/** Prometheus 2.43 and later. */
const PROMETHEUS =
  "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

for (const [accept, format] of [
  ["", "prometheus"],
  ["*/*", "prometheus"],
  ["text/plain", "prometheus"],
  ["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "prometheus"],
  ["application/openmetrics-text", "openmetrics"],
  [PROMETHEUS, "openmetrics"],
  ["text/plain;q=0.9, application/openmetrics-text; version=1.0.0; q=0.5", "prometheus"],
  ["application/openmetrics-text;q=0", "prometheus"],
  ["application/openmetrics-text;q=nonsense", "prometheus"],
] as const) {
  test(`${accept === "" ? "no header" : accept}: ${format}`, () => assert.equal(formatOf(accept), format));
}

test("any header has an answer", () => {
  fc.assert(fc.property(fc.string(), (accept) => assert.ok(["prometheus", "openmetrics"].includes(formatOf(accept)))));
});
