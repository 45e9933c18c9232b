/** The data keys in memory: what seals and opens boxes while the agent runs. No provider is asked after the start. */
import { createHmac, randomBytes } from "node:crypto";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import type { SecretsAtRestReport } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";
import type { Sealer } from "../core/store/sealer.ts";
import {
  type DataKey,
  decrypt,
  encrypt,
  KEY_BYTES,
  type KeyFolder,
  NONCE_BYTES,
  type ProviderKind,
  type ProviderRecord,
  TAG_BYTES,
  wrapKey,
  writeKeyFile,
} from "./key-file.ts";

/** First byte of a box. */
const VERSION = 1;
/** Version, generation (32 bits, big endian). */
const HEADER_BYTES = 5;

const DAY_MS = 86_400_000;
/**
 * A key that leaked in a backup is of no use for what is sealed later; a rotation rewrites some hundred KiB at most.
 */
export const ROTATION_MS = 90 * DAY_MS;
/**
 * Random nonces bound a key to 2^32 messages (NIST SP 800-38D, 8.3). Each message is a write of 4 KiB or more to the
 * disk, and the count starts again with the process: within 90 days that bound would take 16 TiB of writes.
 */
export const MAX_MESSAGES = 2 ** 24;
/** A disk that refuses a file is asked again when space may have come. */
const ROTATION_RETRY = seconds(3600);
/** The generation of a key that is never written down; no durable key gets there by counting. */
const EPHEMERAL_GENERATION = 0xffff_ffff;

/** The keys of a store that a provider has unlocked. */
export interface UnlockedKeys {
  readonly id: string;
  readonly provider: ProviderRecord;
  readonly kek: Buffer;
  readonly keys: readonly DataKey[];
  readonly scrubbed: boolean;
}

/** Why what an earlier process sealed may not open any more, or what this one seals will not. */
export interface KeyProblem {
  /**
   * `lost`: there is a new key. `unavailable`: the provider may give the key at the next start, this process has its
   * own.
   */
  readonly kind: "lost" | "unavailable";
  readonly provider: ProviderKind | "unknown";
  readonly reason: string;
}

export interface DataKeysInit {
  /** Undefined: the key is random and lost with this process. */
  readonly unlocked: UnlockedKeys | undefined;
  readonly problem: KeyProblem | undefined;
}

export function newDataKey(generation: number, now: Date): DataKey {
  return { generation, createdAtMs: now.getTime(), key: randomBytes(KEY_BYTES) };
}

/** The keys in their order, with a new one at the end. Of the older ones those that `needs` says stay. */
export function appendDataKey(keys: readonly DataKey[], now: Date): readonly DataKey[] {
  return [...keys, newDataKey((keys.at(-1)?.generation ?? 0) + 1, now)];
}

/** A clock that went back makes no key old. */
export const isRotationDue = ({ createdAtMs }: DataKey, now: Date): boolean =>
  now.getTime() - createdAtMs >= ROTATION_MS;

export class DataKeys implements Sealer {
  readonly problem: KeyProblem | undefined;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #folder: KeyFolder;
  readonly #ephemeral: DataKey;
  #unlocked: UnlockedKeys | undefined;
  #messages = 0;
  /** After a rotation that failed. */
  #retryAt = 0 as MonotonicMs;

  constructor(
    components: { readonly clock: Clock; readonly log: Log; readonly folder: KeyFolder },
    { unlocked, problem }: DataKeysInit,
  ) {
    this.#clock = components.clock;
    this.#log = components.log;
    this.#folder = components.folder;
    this.#unlocked = unlocked;
    this.#ephemeral = newDataKey(EPHEMERAL_GENERATION, components.clock.wall());
    this.problem = problem;
  }

  get generation(): number {
    return this.#current.generation;
  }

  get isDurable(): boolean {
    return this.#unlocked !== undefined;
  }

  get isScrubbed(): boolean {
    return this.#unlocked?.scrubbed === true;
  }

  seal(identity: readonly string[], plain: Uint8Array): Buffer {
    if (this.#messages >= MAX_MESSAGES || isRotationDue(this.#current, this.#clock.wall())) this.#rotate();
    const { generation, key } = this.#current;
    this.#messages += 1;
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt8(VERSION);
    header.writeUInt32BE(generation, 1);
    return Buffer.concat([header, encrypt(key, boxIdentity(generation, identity), plain)]);
  }

  open(identity: readonly string[], box: Uint8Array): Buffer | undefined {
    const generation = this.generationOf(box);
    const known = this.#keys.find((each) => each.generation === generation);
    return known && decrypt(known.key, boxIdentity(generation, identity), box.subarray(HEADER_BYTES));
  }

  generationOf(box: Uint8Array): number {
    if (box.length < HEADER_BYTES + NONCE_BYTES + TAG_BYTES || box[0] !== VERSION) return 0;
    return Buffer.from(box.buffer, box.byteOffset, box.length).readUInt32BE(1);
  }

  /** The key before the current one stays for a period: tokens and records are sealed again as they are renewed. */
  settle(generations: ReadonlySet<number>): void {
    if (this.#unlocked === undefined) return;
    const { keys } = this.#unlocked;
    const left = keys.filter((each, n) => n >= keys.length - 2 || generations.has(each.generation));
    if (left.length === keys.length && this.isScrubbed) return;
    try {
      this.#replace({ ...this.#unlocked, keys: left, scrubbed: true });
    } catch (error) {
      this.#log.warn("cannot drop keys that nothing needs", { error: describeError(error) });
    }
  }

  /** A fingerprint by which equal texts are recognized, and which cannot be used to test guesses without the key. */
  fingerprint(text: string): string {
    return createHmac("sha256", this.#current.key).update("picolet fingerprint\0").update(text).digest("hex");
  }

  /** The data key is another one from now on. @throws what the disk throws */
  rotate(): void {
    if (this.#unlocked === undefined) return;
    this.#replace({ ...this.#unlocked, keys: appendDataKey(this.#unlocked.keys, this.#clock.wall()) });
    this.#messages = 0;
    this.#log.info("the key of the store's Secrets has been rotated", { generation: this.generation });
  }

  report(): Omit<SecretsAtRestReport, "unreadable"> {
    const { provider } = this.#unlocked ?? {};
    const { createdAtMs, generation } = this.#current;
    const isDurable = this.#unlocked !== undefined;
    return {
      provider: provider?.kind ?? "memory",
      protectsAgainst: provider === undefined ? PROTECTION.memory : protectionOf(provider),
      keyGeneration: isDurable ? generation : 0,
      keyCreatedAt: new Date(createdAtMs).toISOString(),
      rotatesAt: isDurable ? new Date(createdAtMs + ROTATION_MS).toISOString() : null,
      problem: this.problem?.reason ?? "",
    };
  }

  get #current(): DataKey {
    return this.#unlocked?.keys.at(-1) ?? this.#ephemeral;
  }

  get #keys(): readonly DataKey[] {
    return this.#unlocked?.keys ?? [this.#ephemeral];
  }

  /** On a disk that refuses, the key goes on: far below the bound of messages that is no danger. */
  #rotate(): void {
    const now = this.#clock.monotonic();
    try {
      if (now >= this.#retryAt) this.rotate();
    } catch (error) {
      this.#retryAt = (now + ROTATION_RETRY) as MonotonicMs;
      this.#log.warn("cannot rotate the key of the store's Secrets", { error: describeError(error) });
    }
    if (this.#messages >= MAX_MESSAGES * 2)
      throw new PicoletError("resource_exhausted", "cannot seal more with one key, and it cannot be rotated");
  }

  /** On disk first: what is sealed with a new key must never be there without it. */
  #replace(next: UnlockedKeys): void {
    saveKeys(this.#folder, next);
    this.#unlocked = next;
  }
}

/** @throws what the disk throws */
export function saveKeys(folder: KeyFolder, { id, provider, kek, keys, scrubbed }: UnlockedKeys): void {
  writeKeyFile(folder, { version: 1, id, provider, scrubbed, keys: keys.map((each) => wrapKey(kek, id, each)) });
}

const boxIdentity = (generation: number, identity: readonly string[]): string =>
  JSON.stringify(["picolet", VERSION, generation, ...identity]);

/** Completes the sentence "protects against …". */
const PROTECTION: Readonly<Record<ProviderKind | "memory" | "systemd-creds-host", string>> = {
  tpm2: "a stolen disk and copies of it; not against root on this board",
  "systemd-creds": "a stolen disk and copies of it (systemd uses the TPM); not against root on this board",
  "systemd-creds-host": "copies of the agent's files; not against a stolen disk, which holds systemd's key",
  "rpi-otp": "a stolen disk and copies of it; not against a stolen board that starts unsigned systems",
  file: "copies of the database without its key file; not against a stolen disk",
  memory: "a stolen disk and copies of it: the key ends with the agent's process, and the hub sends Secrets again",
};

const protectionOf = (provider: ProviderRecord): string =>
  provider.kind === "systemd-creds" && provider.boundTo === "host"
    ? PROTECTION["systemd-creds-host"]
    : PROTECTION[provider.kind];
