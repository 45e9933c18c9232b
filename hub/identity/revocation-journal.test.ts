/** Revocations outlast any store. */
import assert from "node:assert/strict";
import { appendFileSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { isRevoked } from "@picolet/hub-core/node-credentials.ts";
import { MemorySecrets } from "@picolet/test/support/unit/identity/memory-secrets.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { seededRandom } from "@picolet/test/support/unit/ports/seeded-random.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { RevokedKeysInKubernetes } from "./node-keys.ts";
import { KeptRevocations, type RevocationFact, RevocationJournal } from "./revocation-journal.ts";

const never = new AbortController().signal;
const hashOf = (n: number): string => n.toString(16).padStart(64, "0");
const keyFact = (n: number): RevocationFact => ({
  kind: "key",
  spkiHash: hashOf(n),
  node: `edge-${n}`,
  atMs: 1000 + n,
});

const open = (folder: TempFolder, log = new RecordedLog()): RevocationJournal =>
  new RevocationJournal({ log }, { path: folder.at("hub-revocations.jsonl") });

test("facts are there for the next hub, each once, the later of two about a name", () => {
  using folder = new TempFolder();
  const journal = open(folder);
  const before = (resets: number, ...keys: string[]): RevocationFact => {
    return { kind: "name", node: "edge-1", resets, keys, atMs: 1 };
  };
  journal.add([keyFact(1), keyFact(2), before(10)]);
  journal.add([keyFact(1), before(30), before(30, hashOf(7))]);
  journal.add([before(20)]);
  assert.deepEqual(open(folder).facts, [keyFact(1), keyFact(2), before(30, hashOf(7))]);
  const { keys, nodes } = open(folder).current;
  assert.deepEqual([keys.has(hashOf(1)), keys.has(hashOf(3))], [true, false]);
  assert.deepEqual([...nodes], [["edge-1", { resets: 30, keys: [hashOf(7)] }]]);
  assert.equal(
    readFileSync(folder.at("hub-revocations.jsonl"), "utf8").split("\n").length,
    6,
    "what is known costs nothing",
  );
  assert.equal(statSync(folder.at("hub-revocations.jsonl")).mode & 0o777, 0o600);
});

test("a line that a power cut left half is no harm, a damaged one is said, and no other is lost", () => {
  using folder = new TempFolder();
  const path = folder.at("hub-revocations.jsonl");
  open(folder).add([keyFact(1), keyFact(2)]);
  appendFileSync(path, '{"kind":"key","spkiHash":"00');
  open(folder).add([keyFact(3)]);
  assert.deepEqual(open(folder).facts, [keyFact(1), keyFact(2), keyFact(3)]);
  writeFileSync(path, readFileSync(path, "utf8").replace(hashOf(2), "zz"));
  const log = new RecordedLog();
  assert.deepEqual(open(folder, log).facts, [keyFact(1), keyFact(3)]);
  assert.deepEqual(
    log.entries.map(({ level }) => level),
    ["error"],
  );
});

test("the journal is bounded: the earliest go", () => {
  using folder = new TempFolder();
  const journal = open(folder);
  for (let round = 0; round < 3; round += 1) {
    journal.add(Array.from({ length: 8000 }, (_, n) => keyFact(round * 8000 + n)));
  }
  assert.equal(journal.facts.length, 10_000);
  const again = open(folder).facts;
  assert.deepEqual([again.length, again[0], again.at(-1)], [10_000, keyFact(14_000), keyFact(23_999)]);
  assert.ok(statSync(folder.at("hub-revocations.jsonl")).size < 2_000_000);
});

test("what was revoked is refused after an older store was restored, and that store learns of it", async () => {
  using folder = new TempFolder();
  const [clock, random, log] = [new VirtualClock(), seededRandom(1), new RecordedLog()];
  const hub = async (
    client: MemorySecrets,
    work: (stored: RevokedKeysInKubernetes, kept: KeptRevocations) => Promise<void>,
  ) => {
    const stored = new RevokedKeysInKubernetes({ client, clock, random, log }, { namespace: "picolet-system" });
    const journal = open(folder);
    const kept = new KeptRevocations({ stored, journal, clock, log });
    await stored.restore(journal.current, never);
    const stop = new AbortController();
    const parts = [stored, kept].map((each) => endOfRun(each.run(stop.signal)));
    await stored.ready(never);
    await work(stored, kept);
    stop.abort();
    await Promise.all(parts);
  };
  const until = async ({ revoked }: KeptRevocations, node: string, n: number): Promise<void> => {
    for await (const { keys, nodes } of revoked.changes(never)) if (keys.has(hashOf(n)) && nodes.has(node)) return;
  };
  await hub(new MemorySecrets(), async (stored, kept) => {
    await stored.revoke("edge-1", { spkiHash: hashOf(1), newKey: undefined }, never);
    const entry = (await stored.read(never)).nodes.get("edge-1");
    await stored.admit("edge-1", hashOf(11), entry, never);
    await stored.revoke("edge-3", { spkiHash: hashOf(3), newKey: undefined }, never);
    await stored.revoke("edge-3", { spkiHash: hashOf(4), newKey: undefined }, never);
    await until(kept, "edge-3", 4);
  });
  // The backup knows of another one, and of an earlier reset of the second.
  const restored = new MemorySecrets();
  const before = new RevokedKeysInKubernetes({ client: restored, clock, random, log }, { namespace: "picolet-system" });
  await before.revoke("edge-2", { spkiHash: hashOf(2), newKey: undefined }, never);
  await before.revoke("edge-3", { spkiHash: hashOf(3), newKey: hashOf(33) }, never);
  await hub(restored, async (stored, kept) => {
    assert.ok(kept.revoked.current.keys.has(hashOf(1)), "from the first moment on");
    for (const { keys, nodes } of [await stored.read(never), kept.revoked.current]) {
      assert.ok([1, 3, 4].every((n) => keys.has(hashOf(n))));
      assert.deepEqual(
        nodes.get("edge-1"),
        { resets: 1, keys: [hashOf(11)] },
        "the key that was certified since stays",
      );
      assert.deepEqual(nodes.get("edge-3"), { resets: 2, keys: [] }, "a key of before the second reset does not");
    }
    await until(kept, "edge-2", 2);
  });
  const writes = restored.writes;
  await hub(restored, async () => undefined);
  assert.equal(restored.writes, writes, "what the store knows is not written again");
  assert.equal(isRevoked(open(folder).current, { node: "edge-3", spkiHash: hashOf(33) }), true);
});
