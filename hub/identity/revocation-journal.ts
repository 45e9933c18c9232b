/**
 * Keeps revocations when an older store is restored: each is also appended to a file beside the store, and brought back
 * into a store that does not know it.
 */
import {
  closeSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { joinedRevocations, type NodeRevocation, type Revocations } from "@picolet/hub-core/node-credentials.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";

/** Facts are only ever added. */
export type RevocationFact =
  /** No certificate of this key is good any more. */
  | { readonly kind: "key"; readonly spkiHash: string; readonly node: string; readonly atMs: number }
  /**
   * The name was reset for the `resets`th time: no certificate that it ever got is good, but those of `keys`, admitted
   * since.
   */
  | {
      readonly kind: "name";
      readonly node: string;
      readonly resets: number;
      readonly keys: readonly string[];
      readonly atMs: number;
    };

/** The identity of a fact: of two with the same key the later one counts. */
const keyOf = (fact: RevocationFact): string => (fact.kind === "key" ? `key ${fact.spkiHash}` : `name ${fact.node}`);

/**
 * As many as the list of revoked keys has (MAX_REVOKED), and as many names: 2 MiB of lines of 200 bytes. Beyond it the
 * earliest go, whose certificates ended long ago.
 */
const MAX_FACTS = 10_000;
const SPKI_HASH = /^[0-9a-f]{64}$/;

/** An append-only file of JSON lines, each on the disk before anyone relies on it. */
export class RevocationJournal {
  readonly #log: Log;
  readonly #path: string;
  readonly #facts = new Map<string, RevocationFact>();
  #current: Revocations | undefined;
  /** Lines of the file, those that later ones replaced included. */
  #lines = 0;

  /** @throws `failed` when the file is there and cannot be read */
  constructor({ log }: { readonly log: Log }, init: { readonly path: string }) {
    this.#log = log;
    this.#path = init.path;
    this.#load();
  }

  get facts(): readonly RevocationFact[] {
    return [...this.#facts.values()];
  }

  /** The same, as certificates are judged by it. */
  get current(): Revocations {
    this.#current ??= revocationsOf([...this.#facts.values()]);
    return this.#current;
  }

  /**
   * Appends those that are new; they are on the disk when this returns. @throws `failed` when they cannot be written
   */
  add(facts: readonly RevocationFact[]): void {
    const added = facts.filter((fact) => this.#isNews(fact));
    if (added.length === 0) return;
    try {
      const file = openSync(this.#path, "a", 0o600);
      try {
        writeSync(file, added.map((fact) => `${JSON.stringify(fact)}\n`).join(""));
        fsyncSync(file);
      } finally {
        closeSync(file);
      }
    } catch (cause) {
      throw new PicoletError("failed", `cannot write ${this.#path}`, { cause });
    }
    this.#take(added);
    if (this.#lines > 2 * MAX_FACTS) this.#rewrite();
  }

  #isNews(fact: RevocationFact): boolean {
    const known = this.#facts.get(keyOf(fact));
    if (known === undefined) return true;
    if (fact.kind !== "name" || known.kind !== "name") return false;
    // Never back to an earlier reset; within one the list of keys that were admitted grows.
    return fact.resets > known.resets || (fact.resets === known.resets && fact.keys.join() !== known.keys.join());
  }

  #take(facts: readonly RevocationFact[]): void {
    this.#current = undefined;
    this.#lines += facts.length;
    for (const fact of facts) {
      this.#facts.delete(keyOf(fact));
      this.#facts.set(keyOf(fact), fact);
    }
    for (const key of this.#facts.keys()) {
      if (this.#facts.size <= MAX_FACTS) return;
      this.#facts.delete(key);
    }
  }

  #load(): void {
    let text: string;
    try {
      text = readFileSync(this.#path, "utf8");
    } catch (cause) {
      if (errnoOf(cause) === "ENOENT") return;
      throw new PicoletError("failed", `cannot read ${this.#path}`, { cause });
    }
    // A power cut may have left half of a line: nothing relied on it. What comes next must not be joined to it.
    const end = text.lastIndexOf("\n") + 1;
    if (end < text.length) truncateSync(this.#path, Buffer.byteLength(text.slice(0, end)));
    const lines = text.slice(0, end).split("\n").slice(0, -1);
    const facts = lines.map(parseFact);
    const damaged = facts.filter((fact) => fact === undefined).length;
    if (damaged > 0) this.#log.error("lines of the revocations are damaged", { file: this.#path, lines: damaged });
    this.#take(facts.filter((fact) => fact !== undefined && this.#isNews(fact)) as RevocationFact[]);
    this.#lines = lines.length;
  }

  #rewrite(): void {
    const aside = `${this.#path}.new`;
    writeFileSync(aside, this.facts.map((fact) => `${JSON.stringify(fact)}\n`).join(""), { mode: 0o600, flush: true });
    renameSync(aside, this.#path);
    this.#lines = this.#facts.size;
  }
}

function revocationsOf(facts: readonly RevocationFact[]): Revocations {
  const keys = new Set<string>();
  const nodes = new Map<string, NodeRevocation>();
  for (const fact of facts) {
    if (fact.kind === "key") keys.add(fact.spkiHash);
    else nodes.set(fact.node, { resets: fact.resets, keys: fact.keys });
  }
  return { keys, nodes };
}

function parseFact(line: string): RevocationFact | undefined {
  try {
    const fact = JSON.parse(line) as RevocationFact;
    const { kind, node, atMs } = fact;
    if (typeof node !== "string" || !Number.isFinite(atMs)) return undefined;
    if (kind === "key") return SPKI_HASH.test(fact.spkiHash) ? fact : undefined;
    const isName = kind === "name" && Number.isSafeInteger(fact.resets) && Array.isArray(fact.keys);
    return isName && fact.keys.every((each) => SPKI_HASH.test(each)) ? fact : undefined;
  } catch {
    return undefined;
  }
}

export interface KeptRevocationsComponents {
  readonly stored: { readonly revoked: Watch<Revocations> };
  readonly journal: RevocationJournal;
  readonly clock: Clock;
  readonly log: Log;
}

/** The union of the store's revocations and the journal's. What the store learns is appended to the journal. */
export class KeptRevocations implements Component {
  readonly name = "kept revocations";
  readonly #components: KeptRevocationsComponents;
  readonly #revoked: WatchSource<Revocations>;

  constructor(components: KeptRevocationsComponents) {
    this.#components = components;
    this.#revoked = new WatchSource(components.journal.current);
  }

  /** The journal's count from the first moment on. */
  get revoked(): Watch<Revocations> {
    return this.#revoked;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { stored, journal, clock, log } = this.#components;
    for await (const { keys, nodes } of stored.revoked.changes(signal)) {
      const atMs = clock.wall().getTime();
      const ofKeys = [...keys].map((spkiHash): RevocationFact => ({ kind: "key", spkiHash, node: "", atMs }));
      const ofNodes = [...nodes].map(([node, entry]): RevocationFact => ({ kind: "name", node, ...entry, atMs }));
      try {
        journal.add([...ofKeys, ...ofNodes]);
      } catch (error) {
        log.error("a restored backup would make a revoked key good again", { error: describeError(error) });
      }
      this.#revoked.set(joinedRevocations({ keys, nodes }, journal.current));
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}
