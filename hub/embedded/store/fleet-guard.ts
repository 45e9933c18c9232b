/**
 * A hub serves only the store that it left. What it left is kept beside the store: `hub-keys.json` names the fleet,
 * `hub-mark.json` how far the store is written. A store that is gone, empty, another fleet's or older would tell every
 * board to end pods, so that it is refused until the operator accepts exactly this store, once.
 */
import { createHash } from "node:crypto";
import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type Database from "better-sqlite3";
import { readOptionalFile, writeDurably } from "./durable-file.ts";
import { FleetKeys } from "./fleet-keys.ts";
import { Vault } from "./vault.ts";

/** The reason of the error when a store is refused; `picolet-hub` exits with its own code for it. */
export const REFUSED_STORE = "RefusedStore";

/**
 * Added to the revision by a restore: more than any hub can have given out since the mark (a thousand a second for
 * thirty years), so that every watcher's revision is behind the floor and none is met again. Room for 9,000 restores.
 */
const REVISION_STEP = 1_000_000_000_000;

/** The facts that a store records about itself. */
export type StoreFacts =
  | { readonly kind: "absent" | "empty" }
  | {
      readonly kind: "filled";
      /** Undefined: an older picolet-hub made it, which knew no fleets. */
      readonly fleet: string | undefined;
      readonly revision: number;
      /** Number of a hub's starts on it. */
      readonly starts: number;
    };

/** A store never falls behind it; it may be ahead by what was written since. */
export interface Mark {
  readonly revision: number;
  readonly starts: number;
}

/** The facts that are kept beside the store. */
export interface GuardRecord {
  /** Undefined: there is no hub-keys.json. */
  readonly fleet: string | undefined;
  readonly hasCa: boolean;
  readonly mark: Mark | undefined;
}

export type Verdict =
  /** Nothing was ever here, or the first start was interrupted. */
  | { readonly kind: "first" }
  /** As the hub left it; `isNew`: it gets its fleet's id now. */
  | { readonly kind: "own"; readonly isNew: boolean }
  | { readonly kind: "refused"; readonly problem: string; readonly isAcceptable: boolean };

/** @returns the verdict on a store that is found beside `kept` */
export function judgeStore(store: StoreFacts, { fleet, hasCa, mark }: GuardRecord): Verdict {
  // The mark is written when the first start has made the store, the CA after that.
  const hasServed = hasCa || mark !== undefined;
  if (store.kind !== "filled") {
    if (!hasServed) return { kind: "first" };
    const problem = store.kind === "absent" ? "is missing" : "is empty";
    return refused(`${problem}, but the keys beside it show that a fleet was served from here`, true);
  }
  if (fleet === undefined) {
    if (store.fleet === undefined) return { kind: "own", isNew: true };
    const what = `belongs to fleet ${store.fleet}, but hub-keys.json is missing beside it; put back your copy of that file`;
    return refused(`${what}: without it no Secret can be read`, false);
  }
  if (store.fleet === undefined) {
    if (mark === undefined) return { kind: "own", isNew: true };
    return refused(`names no fleet: it is from before fleet ${fleet} got its id`, true);
  }
  if (store.fleet !== fleet) {
    const how = "put back the store of this fleet, or start with the whole data directory of the other";
    return refused(`belongs to fleet ${store.fleet}, the keys beside it to fleet ${fleet}; ${how}`, false);
  }
  if (mark !== undefined && (store.revision < mark.revision || store.starts < mark.starts)) {
    const have = `revision ${store.revision}, start ${store.starts}`;
    return refused(`is older (${have}) than what was served last (${mark.revision}, start ${mark.starts})`, true);
  }
  return { kind: "own", isNew: false };
}

const refused = (problem: string, isAcceptable: boolean): Verdict => ({ kind: "refused", problem, isAcceptable });

export interface FleetGuardInit {
  readonly dataDir: string;
  /** The value of `--accept-restored-store`: the code of the store that was refused. */
  readonly accept?: string | undefined;
  /** Fleets whose boards must accept this hub as their own. */
  readonly adopt?: readonly string[] | undefined;
  /** As `FleetKeysInit`. */
  readonly credential?: Uint8Array | undefined;
}

export interface FleetGuardComponents {
  readonly clock: Clock;
  readonly log: Log;
}

export const storePathIn = (dataDir: string): string => join(dataDir, "hub.db");

export class FleetGuard {
  readonly #components: FleetGuardComponents;
  readonly #init: FleetGuardInit;
  readonly #markPath: string;
  readonly #hasCa: boolean;
  #keys: FleetKeys | undefined;
  #mark: Mark | undefined;
  /** The store was refused, and accepted. */
  #isAccepted = false;

  /**
   * @throws `corrupt` when a file beside the store cannot be used, `permission_denied` when its keys cannot be opened
   */
  constructor(components: FleetGuardComponents, init: FleetGuardInit) {
    const { dataDir, credential, adopt = [] } = init;
    this.#components = components;
    this.#init = init;
    this.#markPath = join(dataDir, "hub-mark.json");
    this.#hasCa = existsSync(join(dataDir, "hub-ca.json"));
    this.#keys = FleetKeys.load({ path: this.#keysPath, credential });
    this.#keys?.adopt(adopt);
    this.#mark = readMark(this.#markPath);
  }

  /** @throws before `judge` has let a store pass */
  get keys(): FleetKeys {
    if (this.#keys === undefined) throw new PicoletError("internal", "the fleet has no keys yet");
    return this.#keys;
  }

  get kept(): GuardRecord {
    return { fleet: this.#keys?.fleet, hasCa: this.#hasCa, mark: this.#mark };
  }

  /**
   * To be called before anything of the store is changed: with `absent` before its file is made, then with what is in
   * it.
   * @throws `conflict` with the reason `RefusedStore`
   */
  judge(path: string, facts: StoreFacts): void {
    const verdict = judgeStore(facts, this.kept);
    if (verdict.kind === "refused") this.#refuse(path, facts, verdict);
    if (verdict.kind === "own" && !verdict.isNew && this.#mark === undefined && this.#hasCa) {
      const { log } = this.#components;
      log.warn("cannot tell how far the store is written: its mark is missing", { mark: this.#markPath });
    }
    // A store that was accepted while it was absent is empty when it is read again.
    const { dataDir, credential, adopt = [] } = this.#init;
    if (this.#keys !== undefined) return;
    const keysPath = this.#keysPath;
    this.#keys = FleetKeys.make({ path: keysPath, credential }, this.#components.clock);
    this.#keys.adopt(adopt);
    this.#components.log.info("the fleet has got its id", { fleet: this.#keys.fleet, keys: keysPath, dataDir });
  }

  #refuse(path: string, facts: StoreFacts, verdict: Extract<Verdict, { kind: "refused" }>): void {
    const { log } = this.#components;
    const { accept } = this.#init;
    const code = this.#codeOf(facts);
    if (this.#isAccepted || (verdict.isAcceptable && accept === code)) {
      if (!this.#isAccepted) log.warn("serving a store that was refused, as the operator accepted", { code });
      this.#isAccepted = true;
      return;
    }
    const consequence = "boards then end every pod that is not in it, and what was written since is lost";
    const how = verdict.isAcceptable
      ? `; restore a backup with \`picolet-hub restore\`, put the store back, or serve it as it is with ` +
        `--accept-restored-store ${code}: ${consequence}`
      : "";
    const stale = accept !== undefined && accept !== code ? ` (${accept} was accepted for another store)` : "";
    throw new PicoletError("conflict", `cannot serve ${path}: it ${verdict.problem}${how}${stale}`, {
      reason: REFUSED_STORE,
    });
  }

  /** Says which store was refused: a flag that stays in a unit file accepts no other one later. */
  #codeOf(facts: StoreFacts): string {
    const { fleet, mark } = this.kept;
    // An absent store is made empty by the first start that accepts it.
    const store = facts.kind === "filled" ? facts : { kind: "empty" };
    return createHash("sha256").update(JSON.stringify({ store, fleet, mark })).digest("hex").slice(0, 8);
  }

  /** The store is this fleet's from now on. @returns what opens its Secrets */
  admit(database: Database.Database): Vault {
    const { revision, starts } = markOf(database);
    database.transaction(() => {
      if (this.#isAccepted) advanceRevision(database, Math.max(revision, this.#mark?.revision ?? 0));
      writeIdentity(database, this.keys.fleet, Math.max(starts, this.#mark?.starts ?? 0) + 1);
    })();
    const vault = new Vault({ ...this.#components, keys: this.keys, database });
    this.reached(markOf(database));
    return vault;
  }

  /** A backup that takes the place of the store. @throws as `judge` */
  admitBackup(path: string, database: Database.Database): void {
    const facts = factsOf(database);
    const verdict = judgeStore(facts, this.kept);
    // That it is older is what a backup is for.
    const isOlder = facts.kind === "filled" && facts.fleet !== undefined && facts.fleet === this.#keys?.fleet;
    if (verdict.kind === "refused" && !isOlder) this.#refuse(path, facts, verdict);
    const { revision, starts } = markOf(database);
    const keys = this.#keys;
    database.transaction(() => {
      advanceRevision(database, Math.max(revision, this.#mark?.revision ?? 0));
      if (keys !== undefined) writeIdentity(database, keys.fleet, Math.max(starts, this.#mark?.starts ?? 0));
    })();
    // Opens its data keys: one that these root keys do not open is of no use.
    if (keys !== undefined) new Vault({ ...this.#components, keys, database });
  }

  /**
   * The store has come this far, on disk. Two fsyncs where it is further than the mark: to be called every half minute,
   * and at the end. A copy of the store that is older than the mark by less than that cannot be distinguished from it.
   */
  reached(mark: Mark): void {
    if (this.#mark !== undefined && mark.revision <= this.#mark.revision && mark.starts <= this.#mark.starts) return;
    writeDurably(this.#markPath, `${JSON.stringify(mark)}\n`);
    this.#mark = mark;
  }

  get #keysPath(): string {
    return join(this.#init.dataDir, "hub-keys.json");
  }
}

/** Revisions go on above `revision`; every client lists again, and no cursor of a board goes backwards. */
export function advanceRevision(database: Database.Database, revision: number): void {
  const next = revision + REVISION_STEP;
  database.prepare("UPDATE meta SET value = ? WHERE name = 'revision'").run(next);
  database.exec("DELETE FROM history; DELETE FROM floors");
  // The resource "" means all of them.
  database.prepare("INSERT INTO floors VALUES ('', ?)").run(next);
}

/** @returns `absent` for no file and for one without a byte in it */
export const fileFacts = (path: string): StoreFacts | undefined =>
  existsSync(path) && statSync(path).size > 0 ? undefined : { kind: "absent" };

/**
 * Reads the facts of a store of any format. The namespaces are made at the first start: a store without an object was
 * served only if that was interrupted, and then it has given out no revision yet.
 */
export function factsOf(database: Database.Database): StoreFacts {
  const hasObjects = database.prepare("SELECT EXISTS (SELECT 1 FROM objects)").pluck().get() === 1;
  const fleet = metaOf(database, "fleet");
  const mark = markOf(database);
  if (!hasObjects && (fleet === undefined || mark.revision > 1)) return { kind: "empty" };
  return { kind: "filled", fleet: fleet === undefined ? undefined : String(fleet), ...mark };
}

const metaOf = (database: Database.Database, name: string): unknown =>
  database.prepare("SELECT value FROM meta WHERE name = ?").pluck().get(name) ?? undefined;

/** The revision and start count that are safe in the store. */
export const markOf = (database: Database.Database): Mark => ({
  revision: Number(metaOf(database, "revision") ?? 1),
  starts: Number(metaOf(database, "starts") ?? 0),
});

function writeIdentity(database: Database.Database, fleet: string, starts: number): void {
  const write = database.prepare("INSERT OR REPLACE INTO meta VALUES (?, ?)");
  write.run("fleet", fleet);
  write.run("starts", starts);
}

function readMark(path: string): Mark | undefined {
  const text = readOptionalFile(path);
  if (text === undefined) return undefined;
  try {
    const { revision, starts } = JSON.parse(text) as Record<string, unknown>;
    if (!Number.isSafeInteger(revision) || !Number.isSafeInteger(starts)) throw new Error("its numbers are missing");
    return { revision: Number(revision), starts: Number(starts) };
  } catch (cause) {
    const message = `cannot use ${path}: remove it if the store beside it is the newest there is`;
    throw new PicoletError("corrupt", message, { cause });
  }
}
