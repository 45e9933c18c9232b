/**
 * `hub-keys.json` beside the store: which fleet the data directory belongs to, and the root keys that the store's data
 * keys are sealed with. The store is worth nothing without it, and it proves that a missing store is not a first start.
 */
import { createHash, hkdfSync, randomBytes, randomUUID } from "node:crypto";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { MAX_FORMER_FLEETS } from "@picolet/protocol/tunnel/message-codec.ts";
import { readOptionalFile, writeDurably } from "./durable-file.ts";
import { KEY_BYTES, openBytes, sealBytes } from "./sealing.ts";

export interface RootKey {
  /** 8 hexadecimal digits. */
  readonly id: string;
  readonly key: Uint8Array;
  readonly madeAt: string;
}

export interface FleetKeysInit {
  readonly path: string;
  /**
   * The credential `picolet-hub-key` of systemd, any text or bytes. With it, root keys are in the file only sealed by
   * it; undefined: they are in the file in clear.
   */
  readonly credential?: Uint8Array | undefined;
}

/**
 * Root keys that are kept after a rotation, so that backups made before it can still be restored. A backup older than
 * eight rotations is not kept by anyone who rotates for a reason.
 */
const MAX_ROOT_KEYS = 9;
/** A UUID; that of a cluster is one too. */
const FLEET_ID = /^[0-9a-zA-Z-]{8,64}$/;
const FORMAT = 1;

interface Content {
  readonly fleet: string;
  readonly formerFleets: readonly string[];
  /** The newest last; never empty. */
  readonly roots: readonly RootKey[];
}

interface StoredRoot {
  readonly id: string;
  readonly madeAt: string;
  readonly key?: string;
  readonly sealed?: string;
}

export class FleetKeys {
  readonly #init: FleetKeysInit;
  #content: Content;

  private constructor(init: FleetKeysInit, content: Content) {
    this.#init = init;
    this.#content = content;
  }

  /** @returns undefined when there is no file. @throws `corrupt`; `permission_denied` when the credential is missing */
  static load(init: FleetKeysInit): FleetKeys | undefined {
    const text = readOptionalFile(init.path);
    if (text === undefined) return undefined;
    const { content, isAsWanted } = parse(text, init);
    const keys = new FleetKeys(init, content);
    // A credential that came later seals what was in the file as it is.
    if (!isAsWanted) keys.#write(content);
    return keys;
  }

  /** A new fleet's; on the disk when this returns. */
  static make(init: FleetKeysInit, clock: Clock): FleetKeys {
    const content = { fleet: randomUUID(), formerFleets: [], roots: [makeRoot(clock)] };
    const keys = new FleetKeys(init, content);
    keys.#write(content);
    return keys;
  }

  get path(): string {
    return this.#init.path;
  }

  get fleet(): string {
    return this.#content.fleet;
  }

  /** Former identities: their boards learn that this hub took them over. */
  get formerFleets(): readonly string[] {
    return this.#content.formerFleets;
  }

  get current(): RootKey {
    const last = this.#content.roots.at(-1);
    if (last === undefined) throw new PicoletError("internal", "there is no root key");
    return last;
  }

  find(id: string): RootKey | undefined {
    return this.#content.roots.find((each) => each.id === id);
  }

  /** A new root key is the current one from now on; the ones before it still open backups. */
  rotate(clock: Clock): void {
    this.#write({ ...this.#content, roots: [...this.#content.roots, makeRoot(clock)].slice(-MAX_ROOT_KEYS) });
  }

  /** @throws `invalid` for what is no fleet's id, or more of them than a welcome carries */
  adopt(fleets: readonly string[]): void {
    const known = this.#content.formerFleets;
    const added = fleets.filter((each) => each !== this.fleet && !known.includes(each));
    if (added.length === 0) return;
    this.#write({ ...this.#content, formerFleets: validateFleetIds([...known, ...added]) });
  }

  #write(content: Content): void {
    const { path, credential } = this.#init;
    const keys = content.roots.map(({ id, madeAt, key }): StoredRoot => {
      if (credential === undefined) return { id, madeAt, key: Buffer.from(key).toString("base64") };
      const sealed = sealBytes(sealingKey(credential), ["root-key", content.fleet, id], key);
      return { id, madeAt, sealed: sealed.toString("base64") };
    });
    const { fleet, formerFleets } = content;
    writeDurably(path, `${JSON.stringify({ format: FORMAT, fleet, formerFleets, keys }, undefined, 1)}\n`);
    this.#content = content;
  }
}

/** @throws `invalid` */
export function validateFleetIds(fleets: readonly string[]): readonly string[] {
  const wrong = fleets.find((each) => !FLEET_ID.test(each));
  if (wrong !== undefined) throw new PicoletError("invalid", `${wrong} is no id of a fleet`);
  if (fleets.length <= MAX_FORMER_FLEETS) return fleets;
  throw new PicoletError("invalid", `a hub can adopt ${MAX_FORMER_FLEETS} fleets, not ${fleets.length}`);
}

const makeRoot = (clock: Clock): RootKey => {
  const key = randomBytes(KEY_BYTES);
  return { id: createHash("sha256").update(key).digest("hex").slice(0, 8), key, madeAt: clock.wall().toISOString() };
};

const sealingKey = (credential: Uint8Array): Uint8Array =>
  new Uint8Array(hkdfSync("sha256", credential, "", "picolet-hub root keys", KEY_BYTES));

function parse(text: string, init: FleetKeysInit): { readonly content: Content; readonly isAsWanted: boolean } {
  try {
    const { format, fleet, formerFleets, keys } = JSON.parse(text) as Record<string, unknown>;
    if (format !== FORMAT) throw new Error(`its format is ${String(format)}, this picolet-hub knows ${FORMAT}`);
    if (typeof fleet !== "string" || !FLEET_ID.test(fleet)) throw new Error("it names no fleet");
    if (!Array.isArray(formerFleets) || !Array.isArray(keys) || keys.length === 0) throw new Error("a part is missing");
    const stored = keys as readonly StoredRoot[];
    const roots = stored.map((each) => readRoot(each, fleet, init));
    const wantsSealed = init.credential !== undefined;
    const isAsWanted = stored.every(({ sealed }) => (sealed !== undefined) === wantsSealed);
    return { content: { fleet, formerFleets: validateFleetIds(formerFleets.map(String)), roots }, isAsWanted };
  } catch (error) {
    if (error instanceof PicoletError && error.code === "permission_denied") throw error;
    const message = `cannot use ${init.path}: put back a copy of it; what the store keeps of Secrets needs it`;
    throw new PicoletError("corrupt", message, { cause: error });
  }
}

function readRoot({ id, madeAt, key, sealed }: StoredRoot, fleet: string, init: FleetKeysInit): RootKey {
  if (typeof id !== "string" || typeof madeAt !== "string") throw new Error("a key has no id");
  if (sealed === undefined) return { id, madeAt, key: wholeKey(Buffer.from(key ?? "", "base64")) };
  const opened = openRoot(Buffer.from(sealed, "base64"), ["root-key", fleet, id], init);
  return { id, madeAt, key: wholeKey(opened) };
}

function openRoot(sealed: Buffer, place: readonly string[], { path, credential }: FleetKeysInit): Buffer {
  const hint = "start the hub from its systemd unit with LoadCredentialEncrypted=picolet-hub-key";
  if (credential === undefined) {
    throw new PicoletError("permission_denied", `cannot use ${path}: its keys are sealed; ${hint}`);
  }
  try {
    return openBytes(sealingKey(credential), place, sealed);
  } catch (error) {
    const message = `cannot use ${path}: its keys were sealed with another credential; ${hint} of this machine`;
    throw new PicoletError("permission_denied", message, { cause: error });
  }
}

function wholeKey(bytes: Uint8Array): Uint8Array {
  if (bytes.length === KEY_BYTES) return bytes;
  throw new Error("a key is not whole");
}
