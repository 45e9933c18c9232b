/** The agent is killed at any point: what was accepted is there, and nothing is half there. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Store } from "@picolet/agent/store/store.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { testProgram } from "../support/unit/machine/bundles.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { TemporaryFolder } from "../support/unit/store/store-samples.ts";
import { podsOf, remoteOf } from "./history.ts";

const WRITER = await testProgram("test/store/writer.ts");
const KILLS = 25;

/**
 * Kills the writer some time after it has accepted `lines` revisions.
 * @returns the last printed revision
 */
async function writeAndKill(path: string, lines: number, spins: number): Promise<number> {
  const child = spawn(process.execPath, [WRITER, path], { stdio: ["ignore", "pipe", "inherit"] });
  let last = 0;
  let left = lines;
  const reader = createInterface({ input: child.stdout });
  reader.on("line", (line) => {
    last = Number(line);
    left -= 1;
    if (left !== 0) return;
    // Somewhere within the next changes, not always right after a line.
    for (let n = 0; n < spins; n += 1) Math.sqrt(n);
    child.kill("SIGKILL");
  });
  await Promise.all([once(child, "exit"), once(reader, "close")]);
  return last;
}

/** Objects, cursor and pods are of one revision. */
function checkRemote({ objects, desired }: Store, accepted: number): void {
  const { revision } = objects.cursor;
  assert.ok(revision === accepted || revision === accepted + 1, `${accepted} accepted, the cursor is at ${revision}`);
  const { upserts, pods } = remoteOf(revision);
  const held = [...objects.inventory()].map(({ key }) => ({ key, object: objects.object(key) }));
  assert.deepEqual(
    held.toSorted((x, y) => (x.key < y.key ? -1 : 1)),
    upserts.map(({ key, object }) => ({ key, object })),
  );
  assert.deepEqual(
    [...desired.desired.current.pods.values()].filter(({ source }) => source === "api"),
    pods,
  );
}

test(`a store whose process is killed ${KILLS} times holds what it had accepted, whole`, async () => {
  using folder = new TemporaryFolder();
  const path = folder.file("picolet.db");
  for (let kill = 0; kill < KILLS; kill += 1) {
    const accepted = await writeAndKill(path, 1 + ((kill * 7) % 60), (kill * 7919) % 500_000);
    await using store = new Store({ clock: systemClock, log: new RecordedLog() }, { path });
    assert.deepEqual(store.state.current, { kind: "durable", opening: { kind: "opened" } });
    const revision = store.desired.revision("file");
    // The next revision, not yet printed, may be there.
    assert.ok(revision === accepted || revision === accepted + 1, `${accepted} accepted, ${revision} found`);
    const wanted = podsOf(revision);
    const found = [...store.desired.desired.current.pods.values()].filter(({ source }) => source === "file");
    assert.deepEqual(
      found.toSorted((x, y) => (x.uid < y.uid ? -1 : 1)),
      wanted,
    );
    assert.equal(store.desired.replace("file", revision, wanted), "accepted");
    checkRemote(store, accepted);
  }
  assert.deepEqual(
    readdirSync(folder.path).filter((name) => name.includes("damaged")),
    [],
  );
});
