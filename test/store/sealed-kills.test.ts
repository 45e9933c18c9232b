/**
 * The agent is killed while it encrypts an old store, changes Secrets and rotates keys: all opens, nothing is in plain.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Store } from "@picolet/agent/store/store.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { testProgram } from "../support/unit/machine/bundles.ts";
import { filesWith } from "../support/unit/machine/raw-bytes.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { TemporaryFolder } from "../support/unit/store/store-samples.ts";
import { MARK, openSealedStore, sealedChange, sealedContents } from "./sealed-history.ts";

const WRITER = await testProgram("test/store/sealed-writer.ts");
/** While the old store is sealed, then while Secrets change. */
const KILLS_AT_LINE = [1, 2, 3, 4, 8, 13, 27, 40, 66];

/** Kills the writer some time after it wrote `lines`. */
async function writeAndKill(folder: string, lines: number, spins: number): Promise<void> {
  const child = spawn(process.execPath, [WRITER, folder], { stdio: ["ignore", "pipe", "inherit"] });
  let left = lines;
  const reader = createInterface({ input: child.stdout });
  reader.on("line", () => {
    left -= 1;
    if (left !== 0) return;
    for (let n = 0; n < spins; n += 1) Math.sqrt(n);
    child.kill("SIGKILL");
  });
  await Promise.all([once(child, "exit"), once(reader, "close")]);
}

async function check(folder: string): Promise<void> {
  const { store, keys } = await openSealedStore(folder, systemClock);
  await using _ = store;
  assert.equal(keys.problem, undefined);
  assert.deepEqual(store.state.current, { kind: "durable", opening: { kind: "opened" } });
  assert.equal(store.unreadable.current.size, 0);
  const { revision, epoch } = store.objects.cursor;
  assert.equal(epoch.length, 1, "nothing has to be asked for again");
  const held = [...store.objects.inventory()].map(
    ({ key }) => [key, (store.objects.object(key) as { data: { text: string } }).data.text] as const,
  );
  assert.deepEqual(new Map(held.toSorted()), new Map([...sealedContents(revision)].toSorted()));
}

test("kills at any point of a store's first encryption, of changes and of rotations leave what was accepted, sealed", async () => {
  using folder = new TemporaryFolder();
  {
    await using old = new Store({ clock: systemClock, log: new RecordedLog() }, { path: folder.file("picolet.db") });
    const { upserts, deletes, wanted } = sealedChange(1);
    const digest = old.objects.digestAfter({ upserts, deletes });
    old.objects.apply(
      { cursor: { epoch: Uint8Array.of(1), revision: 1, digest }, upserts, deletes },
      { wanted, removed: [] },
    );
  }
  assert.notDeepEqual(filesWith(folder.path, MARK), [], "in plain, as older ones wrote it");
  for (const [kill, lines] of KILLS_AT_LINE.entries()) {
    await writeAndKill(folder.path, lines, (kill * 7919) % 300_000);
    // From the sixth batch on everything has been sealed and overwritten.
    if (lines > 6) assert.deepEqual(filesWith(folder.path, MARK), [], `after kill ${kill}`);
    await check(folder.path);
  }
});
