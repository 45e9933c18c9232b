/** An agent in an hour without events, to the last call, wakeup and commit: one more fails. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { Store } from "@picolet/agent/store/store.ts";
import { filePod, SmallAgent, SmallBoard } from "../support/unit/agent/small-agent.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { TemporaryFolder } from "../support/unit/store/store-samples.ts";

/** By then the lists have become rare. */
const SETTLE_MS = 600_000;
const HOUR_MS = 3_600_000;

interface Rest {
  readonly lists: number;
  /** Calls per pod. */
  readonly inspections: number;
  readonly otherCalls: number;
  readonly wakeups: number;
  readonly hasCommitted: boolean;
}

async function atRest(pods: number): Promise<Rest> {
  using folder = new TemporaryFolder();
  using board = new SmallBoard();
  const { clock, runtime } = board;
  const path = folder.file("root/picolet.db");
  await using store = new Store({ clock, log: new RecordedLog() }, { path });
  await using agent = new SmallAgent(board, { store });
  await agent.want(...Array.from({ length: pods }, (_, index) => filePod(`p${index}`)));
  await agent.pass(SETTLE_MS);
  assert.equal(runtime.list().length, pods);
  const calls: string[] = [];
  const { fault } = runtime.faults;
  runtime.faults.fault = (call) => {
    calls.push(call.kind);
    return fault(call);
  };
  let wakeups = 0;
  const { sleep } = clock;
  clock.sleep = (duration, signal) => {
    wakeups += 1;
    return sleep.call(clock, duration, signal);
  };
  const before = contentOf(dirname(path));
  await agent.pass(HOUR_MS);
  const count = (kind: string): number => calls.filter((each) => each === kind).length;
  const [lists, inspections] = [count("list"), count("inspect")];
  const otherCalls = calls.length - lists - inspections;
  return { lists, inspections, otherCalls, wakeups, hasCommitted: contentOf(dirname(path)) !== before };
}

/** Every byte that the store has on disk: a commit changes some. */
const contentOf = (folder: string): string =>
  readdirSync(folder)
    .sort()
    .map((name) => `${name} ${readFileSync(join(folder, name)).toString("base64")}`)
    .join("\n");

const expected: readonly (readonly [pods: number, Rest])[] = [
  [1, { lists: 120, inspections: 6, otherCalls: 0, wakeups: 306, hasCommitted: false }],
  [10, { lists: 120, inspections: 60, otherCalls: 0, wakeups: 360, hasCommitted: false }],
  [50, { lists: 120, inspections: 300, otherCalls: 0, wakeups: 840, hasCommitted: false }],
];

for (const [pods, rest] of expected) {
  test(`an agent at rest with ${pods} pods looks as often as it has to and writes nothing`, async () => {
    assert.deepEqual(await atRest(pods), rest);
  });
}
