/** The power goes at every step of every change of the identity: one pair that a hub accepted is always left. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { DurableFolderOnDisk } from "@picolet/agent/security/durable-folder.ts";
import type { StoredIdentity } from "@picolet/agent/security/identity-file.ts";
import { IdentityStore } from "@picolet/agent/security/identity-store.ts";
import fc from "fast-check";
import { testProgram } from "../support/unit/machine/bundles.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { ModelFolder, PowerCut } from "./model-folder.ts";
import { storedIdentities } from "./stored-identities.ts";

const POOL = storedIdentities(5);
/** More than any change takes. */
const MAX_STEPS = 12;

type Action = "replace" | "worked" | "fallBack" | "trust" | "pending";

/** The certificates that are known to work: two while the newer one's success is being written down. */
interface World {
  disk: ReadonlyMap<string, string>;
  proven: ReadonlySet<string>;
  next: number;
}

const certificateOf = (identity: StoredIdentity | undefined): string => identity?.certificateChain ?? "";

function act(store: IdentityStore, action: Action, next: StoredIdentity): void {
  if (action === "replace") store.replace(next);
  else if (action === "worked") store.worked();
  else if (action === "fallBack") store.fallBack();
  else if (action === "trust") store.replaceTrust(next.hubCa, `sha256:${Math.floor(certificateOf(next).length)}`);
  else store.pendingKey();
}

/** One life: starts from what the last left, does one thing, and loses power after `steps`. */
function live(world: World, action: Action, steps: number, survives: () => boolean): void {
  const folder = new ModelFolder(world.disk, steps, survives);
  const store = new IdentityStore({ folder, log: new RecordedLog() });
  const next = POOL[world.next % POOL.length];
  assert.ok(next !== undefined);
  try {
    store.load();
    const isUsable = [store.current, store.previous].some((each) => world.proven.has(certificateOf(each)));
    assert.ok(isUsable || world.proven.size === 0, `nothing that works is left: ${[...world.disk.keys()]}`);
    assert.ok(world.proven.size === 0 || store.current !== undefined);
    if (action === "worked") world.proven = new Set([...world.proven, certificateOf(store.current)].filter(Boolean));
    if (action === "replace") world.next += 1;
    act(store, action, next);
    if (action === "worked") world.proven = new Set([certificateOf(store.current)].filter(Boolean));
  } catch (error) {
    if (!(error instanceof PowerCut)) throw error;
  }
  world.disk = folder.afterCut();
}

test("at least one pair that worked is left, wherever in whatever change the power goes", () => {
  const actions = fc.constantFrom<Action>("replace", "worked", "fallBack", "trust", "pending");
  const lives = fc.array(fc.tuple(actions, fc.nat(MAX_STEPS), fc.nat()), { minLength: 1, maxLength: 12 });
  fc.assert(
    fc.property(lives, (all) => {
      const world: World = { disk: new Map(), proven: new Set(), next: 0 };
      live(world, "replace", 1000, () => true);
      live(world, "worked", 1000, () => true);
      for (const [action, steps, seed] of all) {
        const random = seededRandom(seed);
        live(world, action, steps, () => random.next() < 0.5);
      }
      live(world, "pending", 1000, () => true);
    }),
    { numRuns: 400 },
  );
});

test("a disk that refuses one step, and then no more, costs no identity either", () => {
  for (let step = 0; step < MAX_STEPS; step += 1) {
    const world: World = { disk: new Map(), proven: new Set(), next: 0 };
    live(world, "replace", 1000, () => true);
    live(world, "worked", 1000, () => true);
    const folder = new ModelFolder(world.disk, 1000, () => true);
    const store = new IdentityStore({ folder, log: new RecordedLog() });
    store.load();
    const proven = certificateOf(store.current);
    folder.failAt(step);
    const [, next] = POOL;
    assert.ok(next !== undefined);
    const attempt = (action: Action): void => {
      try {
        act(store, action, next);
      } catch (error) {
        assert.match(String(error), /EIO/);
      }
    };
    attempt("pending");
    attempt("replace");
    // The agent connects with the certificate that it has, and that works.
    const used = certificateOf(store.current);
    attempt("worked");
    const found = new IdentityStore({
      folder: new ModelFolder(folder.afterCut(), 1000, () => true),
      log: new RecordedLog(),
    });
    found.load();
    assert.ok(
      [found.current, found.previous].some((each) => certificateOf(each) === used),
      `step ${step}`,
    );
    assert.ok(used === proven || used === certificateOf(next));
  }
});

test("a disk on which nothing can be changed any more still gives the identity away", () => {
  const world: World = { disk: new Map(), proven: new Set(), next: 0 };
  live(world, "replace", 1000, () => true);
  const folder = new ModelFolder(world.disk, 0, () => true);
  const store = new IdentityStore({ folder, log: new RecordedLog() });
  store.load();
  assert.ok(store.current !== undefined);
});

const WRITER = await testProgram("test/identity/identity-writer.ts");
const KILLS = 12;

test(`a process that replaces its identity all the time, killed ${KILLS} times, finds one that had worked`, async () => {
  using folder = new TempFolder();
  for (let kill = 0; kill < KILLS; kill += 1) {
    const child = spawn(process.execPath, [WRITER, folder.path], { stdio: ["ignore", "pipe", "inherit"] });
    let lines = 0;
    const reader = createInterface({ input: child.stdout });
    // There are but four, which come again and again.
    let last = "";
    reader.on("line", (line) => {
      last = line;
      lines += 1;
      if (lines < 1 + ((kill * 5) % 17)) return;
      // Somewhere within the next change, not always right after a line.
      for (let n = 0; n < (kill * 7919) % 300_000; n += 1) Math.sqrt(n);
      child.kill("SIGKILL");
    });
    await Promise.all([once(child, "exit"), once(reader, "close")]);
    const store = new IdentityStore({ folder: new DurableFolderOnDisk(folder), log: new RecordedLog() });
    store.load();
    const left = [store.current, store.previous].map((each) =>
      certificateOf(each).slice(-100, -30).replaceAll("\n", ""),
    );
    // Its next one may have been written down as worked just before it could say so.
    assert.ok(left.includes(last) || store.previous === undefined, `${left} ${last}`);
    assert.ok(store.current !== undefined);
  }
});
