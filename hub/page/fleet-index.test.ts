import assert from "node:assert/strict";
import { test } from "node:test";
import { fleetBoard } from "./fleet-index.ts";

const report = (state: string): string =>
  JSON.stringify({ updates: [{ kind: "os", target: "t", state, message: "", since: "2026-11-23T00:00:00Z" }] });

test("a board's state is what its conditions and its updates say", () => {
  const of = (conditions: string, updateReport?: string): string => {
    const { state, problem } = fleetBoard("b", { conditions, version: "v1", updateReport });
    return problem === "" ? state : `${state} ${problem}`;
  };
  assert.equal(of("DiskPressure=False,Ready=True"), "r");
  assert.equal(of("DiskPressure=True,MemoryPressure=True,Ready=True"), "p DiskPressure, MemoryPressure");
  assert.equal(of("Ready=False"), "n not ready");
  assert.equal(of("DiskPressure=Unknown,Ready=Unknown"), "a");
  assert.equal(of(""), "a");
  assert.equal(of("Ready=True", "no JSON"), "r");
  assert.equal(of("Ready=True", report("rolledBack")), "p update of os rolledBack");
  assert.equal(of("Ready=True", report("trial")), "r");
});

test("a board's words are cut", () => {
  const long = "x".repeat(5000);
  const { version, problem } = fleetBoard("b", {
    conditions: `${long}=True,Ready=True`,
    version: long,
    updateReport: undefined,
  });
  assert.ok(version.length <= 64 && problem.length <= 120);
});
