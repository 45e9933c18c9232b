import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { benchDocument, writeDocument } from "./bench-document.ts";
import { type RunState, runParts } from "./bench-run.ts";
import type { PartName } from "./bench-timetable.ts";

const TIMES = { buildSeconds: 7, totalSeconds: 70 };
const durations = { phases: { measure: 60 }, parts: { edgectl: { measure: 60 } } };

test("parts come in the timetable's order, then ratios, durations, and what failed", () => {
  const state: RunState<PartName> = {
    figures: {
      edgectl: { p50: 1 },
      floors: { bareTls: { anonMiB: 10 } },
      agent: { withHub: { pods0: { anonMiB: 15 } } },
    },
    errors: { wasm: { phase: "measure", message: "no memory" } },
    unfinished: ["stats"],
    durations,
  };
  const document = benchDocument(state, TIMES) as Record<string, unknown>;
  assert.deepEqual(Object.keys(document), [
    ...["floors", "agent", "edgectl", "ratios", "durations", "failed", "errors", "unfinished"],
  ]);
  assert.deepEqual(document.ratios, { ofKubelet: { pods0: {} }, ofBareTls: { pods0: { anonMiB: 1.5 } } });
  assert.deepEqual(document.durations, { total: 70, build: 7, ...durations });
  assert.deepEqual(
    [document.failed, document.errors],
    [["wasm"], { wasm: { phase: "measure", message: "no memory" } }],
  );
});

test("a whole run has no unfinished parts, and its goals at the end", () => {
  const state: RunState<PartName> = { figures: {}, errors: {}, unfinished: [], durations };
  assert.deepEqual(Object.keys(benchDocument(state, TIMES, { goals: [], missedGoals: [] })), [
    ...["ratios", "durations", "failed", "errors", "goals", "missedGoals"],
  ]);
});

test("a run that is cut off keeps the parts that it had", async () => {
  using folder = new TempFolder();
  const path = folder.at("deep/bench.json");
  const read = () => JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
  const works = {
    stats: { measure: () => Promise.resolve({ lookCpuMs: 1 }) },
    edgectl: {
      // The run is here when it is cut off.
      measure: () => {
        assert.deepEqual(read().stats, { lookCpuMs: 1 });
        assert.deepEqual(read().unfinished, ["edgectl"]);
        return Promise.resolve({ status: 2 });
      },
    },
  };
  const state = await runParts(works, {
    now: () => 0,
    sleep: async (_, signal) => void (await once(signal, "abort")),
    limitMs: () => 1000,
    onChange: (each) => void writeDocument(path, benchDocument(each as RunState<PartName>, TIMES)),
    onError: (_, __, error) => assert.ifError(error),
  });
  assert.deepEqual(state.errors, {});
  assert.deepEqual([read().stats, read().edgectl], [{ lookCpuMs: 1 }, { status: 2 }]);
  assert.ok(!existsSync(`${path}.new`), "the file beside it is renamed");
});
