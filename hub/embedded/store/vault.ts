/**
 * Secrets at rest. What the store keeps of Secrets, and the key that signs service accounts' tokens, is sealed with a
 * data key of this store (AES-256-GCM). Data keys are in the store, sealed with a root key of `hub-keys.json`: a copy
 * of the store without that file shows no Secret, and every backup brings its own data keys along.
 */
import { randomBytes } from "node:crypto";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type Database from "better-sqlite3";
import type { FleetKeys } from "./fleet-keys.ts";
import { KEY_BYTES, openBytes, sealBytes } from "./sealing.ts";

/** Bootstrap tokens, node keys, revoked keys and service accounts' tokens are Secrets, too. */
export const SEALED_RESOURCE = "secrets";
const SEALED_META: ReadonlySet<string> = new Set(["service-account-key"]);

/** A JSON text begins with a brace, a PEM with a dash. */
const PREFIX = "sealed:1:";
const ID_LENGTH = 8;
const META_KEYS = "data-keys";
const META_CLEAN = "plain-text-gone";

/** As long as a leaked data key is worth something, and no longer than it takes a backup to be forgotten. */
const MAX_AGE_MS = 90 * 86_400_000;
/**
 * A random nonce allows 2^32 texts of one key. One revision seals three at the most (object, history, what was there
 * before), and a later rotation reads but does not seal with the old key: 2^30 revisions stay below.
 */
const MAX_REVISIONS = 2 ** 30;
/**
 * Rows sealed again in one transaction: 10 ms on a busy machine for Secrets of 3.5 KiB. A slice every half minute
 * brings the 5,000 changes that are kept, and as many Secrets, under the new key within two hours.
 */
const RESEAL_ROWS = 50;

interface DataKey {
  readonly id: string;
  readonly key: Uint8Array;
  readonly madeAtMs: number;
  /** The store's revision when it was made. */
  readonly fromRevision: number;
}

interface StoredDataKey {
  readonly id: string;
  readonly root: string;
  readonly sealed: string;
  readonly madeAtMs: number;
  readonly fromRevision: number;
}

/** The table that is being sealed again, and the last row that is done. */
type Reseal = { readonly table: "objects" | "history"; readonly after: number };

export interface VaultComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly keys: FleetKeys;
  readonly database: Database.Database;
}

const placeOfObject = (namespace: string, name: string, revision: number): readonly string[] => [
  "object",
  SEALED_RESOURCE,
  namespace,
  name,
  String(revision),
];

const placeOfChange = (revision: number, column: "body" | "previous"): readonly string[] => [
  "change",
  SEALED_RESOURCE,
  String(revision),
  column,
];

export class Vault {
  readonly #components: VaultComponents;
  /** The newest last. */
  #keys: readonly DataKey[];
  #reseal: Reseal | undefined;

  /**
   * Opens the store's data keys, makes the first one, and seals what an older picolet-hub left in clear.
   * @throws `corrupt` when none of the root keys opens the data keys
   */
  constructor(components: VaultComponents) {
    this.#components = components;
    this.#keys = this.#load();
    if (this.#keys.length === 0) this.#addKey();
    else if (this.#isSealedWithFormerRoot()) this.rotate();
    if (this.#meta(META_CLEAN) === undefined || this.#hasPlainText()) this.#clean();
    else if (this.#keys.length > 1) this.#reseal = { table: "objects", after: 0 };
  }

  sealObject(namespace: string, name: string, revision: number, body: string): string {
    return this.#seal(placeOfObject(namespace, name, revision), body);
  }

  sealChange(revision: number, column: "body" | "previous", body: string): string {
    return this.#seal(placeOfChange(revision, column), body);
  }

  /** @throws `corrupt` that names the object */
  openObject(namespace: string, name: string, revision: number, sealed: string): string {
    return this.#open(`Secret ${namespace}/${name}`, placeOfObject(namespace, name, revision), sealed);
  }

  /** @throws `corrupt` */
  openChange(revision: number, column: "body" | "previous", sealed: string): string {
    return this.#open(`change ${revision} of Secrets`, placeOfChange(revision, column), sealed);
  }

  sealMeta(name: string, value: string): string {
    return SEALED_META.has(name) ? this.#seal(["meta", name], value) : value;
  }

  /** @throws `corrupt` */
  openMeta(name: string, value: string): string {
    return SEALED_META.has(name) ? this.#open(name, ["meta", name], value) : value;
  }

  /**
   * Makes a new data key when it is time, and seals the next slice of what older keys sealed. To be called now and
   * then, outside of a transaction.
   */
  maintain(): void {
    const { clock } = this.#components;
    const newest = this.#newest;
    const isOld = clock.wall().getTime() - newest.madeAtMs > MAX_AGE_MS;
    if (this.#reseal === undefined && (isOld || this.#revision() - newest.fromRevision > MAX_REVISIONS)) this.rotate();
    if (this.#reseal !== undefined) this.#resealSlice(this.#reseal);
  }

  /** A new data key from now on, under the newest root key; what older ones sealed follows in slices. */
  rotate(): void {
    this.#addKey();
    this.#reseal = { table: "objects", after: 0 };
    this.#components.log.info("sealing Secrets with a new key", { key: this.#newest.id });
  }

  get isResealing(): boolean {
    return this.#reseal !== undefined;
  }

  get #newest(): DataKey {
    const last = this.#keys.at(-1);
    if (last === undefined) throw new PicoletError("internal", "the store has no data key");
    return last;
  }

  #seal(place: readonly string[], text: string): string {
    const { id, key } = this.#newest;
    return `${PREFIX}${id}:${sealBytes(key, [id, ...place], Buffer.from(text)).toString("base64")}`;
  }

  #open(what: string, place: readonly string[], sealed: string): string {
    // A row of an older picolet-hub, which `#clean` has not reached yet.
    if (!sealed.startsWith(PREFIX)) return sealed;
    const start = PREFIX.length;
    const id = sealed.slice(start, start + ID_LENGTH);
    const found = this.#keys.find((each) => each.id === id);
    try {
      if (found === undefined) throw new Error(`there is no data key ${id}`);
      const bytes = Buffer.from(sealed.slice(start + ID_LENGTH + 1), "base64");
      return openBytes(found.key, [id, ...place], bytes).toString();
    } catch (cause) {
      const message = `cannot read ${what}: what the store keeps of it is damaged; delete it, or restore a backup`;
      throw new PicoletError("corrupt", message, { cause });
    }
  }

  #load(): readonly DataKey[] {
    const stored = this.#meta(META_KEYS);
    if (stored === undefined) return [];
    const { keys } = this.#components;
    return (JSON.parse(stored) as readonly StoredDataKey[]).map(({ id, root, sealed, madeAtMs, fromRevision }) => {
      const found = keys.find(root);
      try {
        if (found === undefined) throw new Error(`there is no root key ${root} in it`);
        const key = openBytes(found.key, ["data-key", keys.fleet, id], Buffer.from(sealed, "base64"));
        return { id, key, madeAtMs, fromRevision };
      } catch (cause) {
        const message = `cannot read the store's Secrets with ${keys.path}: put back the copy of it that belongs to this store`;
        throw new PicoletError("corrupt", message, { cause });
      }
    });
  }

  #isSealedWithFormerRoot(): boolean {
    const stored = JSON.parse(this.#meta(META_KEYS) ?? "[]") as readonly StoredDataKey[];
    return stored.some(({ root }) => root !== this.#components.keys.current.id);
  }

  /** On the disk before anything is sealed with it. */
  #addKey(): void {
    const key = randomBytes(KEY_BYTES);
    const id = randomBytes(ID_LENGTH / 2).toString("hex");
    const madeAtMs = this.#components.clock.wall().getTime();
    this.#save([...this.#keys, { id, key, madeAtMs, fromRevision: this.#revision() }]);
  }

  #save(dataKeys: readonly DataKey[]): void {
    const { keys } = this.#components;
    const { id: root, key: rootKey } = keys.current;
    const stored = dataKeys.map(({ id, key, madeAtMs, fromRevision }): StoredDataKey => {
      const sealed = sealBytes(rootKey, ["data-key", keys.fleet, id], key).toString("base64");
      return { id, root, sealed, madeAtMs, fromRevision };
    });
    this.#setMeta(META_KEYS, JSON.stringify(stored));
    this.#keys = dataKeys;
  }

  #resealSlice({ table, after }: Reseal): void {
    const { database, log } = this.#components;
    const next = database.transaction(() => (table === "objects" ? this.#objects(after) : this.#changes(after)))();
    if (next !== undefined) this.#reseal = { table, after: next };
    else if (table === "objects") this.#reseal = { table: "history", after: 0 };
    else {
      database.transaction(() => this.#resealMeta())();
      this.#save([this.#newest]);
      this.#reseal = undefined;
      log.info("all Secrets are sealed with the new key", { key: this.#newest.id });
    }
  }

  /** @returns where the next slice begins; undefined: there is none */
  #objects(after: number): number | undefined {
    const { database } = this.#components;
    const sql = `SELECT id, namespace, name, revision, body FROM objects
      WHERE resource = '${SEALED_RESOURCE}' AND id > ? ORDER BY id LIMIT ${RESEAL_ROWS}`;
    const update = database.prepare("UPDATE objects SET body = ? WHERE id = ?");
    type Row = { id: number; namespace: string; name: string; revision: number; body: string };
    const rows = database.prepare<[number], Row>(sql).all(after);
    for (const { id, namespace, name, revision, body } of rows) {
      const plain = this.#whole(() => this.openObject(namespace, name, revision, body));
      if (plain !== undefined) update.run(this.sealObject(namespace, name, revision, plain), id);
    }
    return rows.at(-1)?.id;
  }

  #changes(after: number): number | undefined {
    const { database } = this.#components;
    const sql = `SELECT revision, body, previous FROM history
      WHERE resource = '${SEALED_RESOURCE}' AND revision > ? ORDER BY revision LIMIT ${RESEAL_ROWS}`;
    const update = database.prepare("UPDATE history SET body = ?, previous = ? WHERE revision = ?");
    type Row = { revision: number; body: string; previous: string | null };
    const rows = database.prepare<[number], Row>(sql).all(after);
    for (const { revision, body, previous } of rows) {
      const again = (column: "body" | "previous", text: string): string | undefined => {
        const plain = this.#whole(() => this.openChange(revision, column, text));
        return plain === undefined ? undefined : this.sealChange(revision, column, plain);
      };
      const before = previous === null ? null : (again("previous", previous) ?? previous);
      update.run(again("body", body) ?? body, before, revision);
    }
    return rows.at(-1)?.revision;
  }

  #resealMeta(): void {
    for (const name of SEALED_META) {
      const value = this.#meta(name);
      const plain = value === undefined ? undefined : this.#whole(() => this.openMeta(name, value));
      if (plain !== undefined) this.#setMeta(name, this.sealMeta(name, plain));
    }
  }

  /** A damaged value stays as it is, so that it may be mended. */
  #whole(open: () => string): string | undefined {
    try {
      return open();
    } catch (error) {
      this.#components.log.error("cannot seal a damaged Secret again", { error });
      return undefined;
    }
  }

  #hasPlainText(): boolean {
    const isPlain = `NOT LIKE '${PREFIX}%'`;
    const sql = `SELECT EXISTS (SELECT 1 FROM objects WHERE resource = '${SEALED_RESOURCE}' AND body ${isPlain})
      OR EXISTS (SELECT 1 FROM history WHERE resource = '${SEALED_RESOURCE}' AND body ${isPlain})`;
    const inMeta = [...SEALED_META].some((name) => this.#meta(name)?.startsWith(PREFIX) === false);
    return inMeta || this.#components.database.prepare(sql).pluck().get() === 1;
  }

  /**
   * Seals everything that is in clear, and leaves nothing of it in the file or its log: pages that SQLite has freed
   * keep their content until VACUUM leaves them out. Done once, before a request is served.
   */
  #clean(): void {
    const { database, log } = this.#components;
    if (this.#hasPlainText())
      log.info("sealing the Secrets of a store that kept them in clear; older backups still do");
    // A crash on the way must not let the next start believe that it is done.
    database.prepare("DELETE FROM meta WHERE name = ?").run(META_CLEAN);
    for (this.#reseal = { table: "objects", after: 0 }; this.#reseal !== undefined; ) this.#resealSlice(this.#reseal);
    // Its temporary file holds only what is sealed by now, and a large store would fill the memory.
    database.pragma("temp_store = FILE");
    database.exec("VACUUM");
    database.pragma("temp_store = MEMORY");
    database.pragma("wal_checkpoint(TRUNCATE)");
    this.#setMeta(META_CLEAN, "1");
  }

  #revision(): number {
    return Number(this.#meta("revision") ?? 1);
  }

  #meta(name: string): string | undefined {
    const value = this.#components.database.prepare("SELECT value FROM meta WHERE name = ?").pluck().get(name);
    return value === undefined || value === null ? undefined : String(value);
  }

  #setMeta(name: string, value: string): void {
    this.#components.database.prepare("INSERT OR REPLACE INTO meta VALUES (?, ?)").run(name, value);
  }
}
