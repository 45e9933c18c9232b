/**
 * `store-keys.json`, beside the store: the data keys, each wrapped with the key-encryption key, and what the provider
 * needs to recover that one. It is replaced as a whole by rename, so a power cut leaves the previous file or the next.
 */
import { createCipheriv, createDecipheriv, hash, randomBytes } from "node:crypto";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KEY_FILE } from "./key-file-name.ts";

const NEXT_KEY_FILE = "store-keys.new.json";

export const KEY_BYTES = 32;
/** 96 random bits, the length that GCM takes without hashing (NIST SP 800-38D, 8.2.2). */
export const NONCE_BYTES = 12;
export const TAG_BYTES = 16;
const CIPHER = "aes-256-gcm";

/** A folder of small files, each replaced as a whole (`agent/security/durable-folder.ts`). */
export interface KeyFolder {
  /** Undefined: there is no such file. @throws `corrupt`, `unavailable` */
  read(name: string): string | undefined;
  write(name: string, text: string): void;
  rename(from: string, to: string): void;
  remove(name: string): void;
  sync(): void;
}

/** The record from which a provider recovers the key-encryption key. Binary fields are base64. */
export type ProviderRecord =
  | { readonly kind: "tpm2"; readonly public: string; readonly private: string }
  | { readonly kind: "systemd-creds"; readonly credential: string; readonly boundTo: "host" | "host+tpm2" }
  | { readonly kind: "rpi-otp"; readonly salt: string }
  /** Absolute, or a name beside the store. */
  | { readonly kind: "file"; readonly path: string };

export type ProviderKind = ProviderRecord["kind"];

export interface DataKey {
  readonly generation: number;
  readonly createdAtMs: number;
  readonly key: Buffer;
}

/** A data key that is still wrapped. */
export interface WrappedKey {
  readonly generation: number;
  readonly createdAtMs: number;
  readonly wrapped: string;
}

export interface KeyFile {
  readonly version: 1;
  /** Random, of this set of keys. */
  readonly id: string;
  readonly provider: ProviderRecord;
  /** See `Sealer.isScrubbed`. */
  readonly scrubbed: boolean;
  /** In the order of their generations; the last is in use. */
  readonly keys: readonly WrappedKey[];
}

/** @returns nonce, ciphertext and tag */
export function encrypt(key: Buffer, additional: string, plain: Uint8Array): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce);
  cipher.setAAD(Buffer.from(additional));
  return Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
}

/** @returns undefined when the bytes, the key or `additional` are not those of `encrypt` */
export function decrypt(key: Buffer, additional: string, box: Uint8Array): Buffer | undefined {
  if (box.length < NONCE_BYTES + TAG_BYTES) return undefined;
  const decipher = createDecipheriv(CIPHER, key, box.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.from(additional));
  decipher.setAuthTag(box.subarray(-TAG_BYTES));
  try {
    return Buffer.concat([decipher.update(box.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()]);
  } catch {
    return undefined;
  }
}

const wrapIdentity = (id: string, { generation, createdAtMs }: Omit<DataKey, "key">): string =>
  JSON.stringify(["picolet data key", id, generation, createdAtMs]);

export function wrapKey(kek: Buffer, id: string, { generation, createdAtMs, key }: DataKey): WrappedKey {
  const wrapped = encrypt(kek, wrapIdentity(id, { generation, createdAtMs }), key).toString("base64");
  return { generation, createdAtMs, wrapped };
}

/** @returns undefined when the wrapped key is damaged or `kek` is another one */
export function unwrapKey(kek: Buffer, id: string, { wrapped, ...rest }: WrappedKey): DataKey | undefined {
  const key = decrypt(kek, wrapIdentity(id, rest), Buffer.from(wrapped, "base64"));
  return key?.length === KEY_BYTES ? { generation: rest.generation, createdAtMs: rest.createdAtMs, key } : undefined;
}

/** On disk when it returns. @throws what the disk throws; the file before it stays then */
export function writeKeyFile(folder: KeyFolder, file: KeyFile): void {
  folder.write(NEXT_KEY_FILE, `${JSON.stringify({ ...file, digest: digestOf(file) }, undefined, 2)}\n`);
  folder.rename(NEXT_KEY_FILE, KEY_FILE);
  folder.sync();
}

/** @throws `corrupt` when it is no key file of a version that this picolet knows */
export function parseKeyFile(text: string): KeyFile {
  let file: (Partial<KeyFile> & { readonly digest?: unknown }) | null;
  try {
    file = JSON.parse(text) as typeof file;
  } catch (cause) {
    throw new PicoletError("corrupt", `${KEY_FILE} is damaged`, { cause });
  }
  const { version, id, provider, keys, scrubbed } = file ?? {};
  const isWhole =
    version === 1 &&
    typeof id === "string" &&
    isRecord(provider) &&
    Array.isArray(keys) &&
    keys.length > 0 &&
    keys.every(isWrapped);
  const found: KeyFile | undefined = isWhole ? { version, id, provider, scrubbed: scrubbed === true, keys } : undefined;
  if (found === undefined || digestOf(found) !== file?.digest)
    throw new PicoletError("corrupt", `${KEY_FILE} is damaged, or of a newer picolet`);
  return found;
}

/** Finds accidents: a provider could not tell a damaged record from a device that does not work now. */
const digestOf = ({ version, id, provider, scrubbed, keys }: KeyFile): string =>
  hash("sha256", JSON.stringify([version, id, provider, scrubbed, keys]));

function isWrapped(value: unknown): boolean {
  const { generation, createdAtMs, wrapped } = (value ?? {}) as Partial<WrappedKey>;
  return Number.isSafeInteger(generation) && typeof createdAtMs === "number" && typeof wrapped === "string";
}

const FIELDS: Readonly<Record<ProviderKind, readonly string[]>> = {
  tpm2: ["public", "private"],
  "systemd-creds": ["credential", "boundTo"],
  "rpi-otp": ["salt"],
  file: ["path"],
};

function isRecord(value: unknown): value is ProviderRecord {
  const record = (value ?? {}) as Readonly<Record<string, unknown>>;
  const fields = Object.hasOwn(FIELDS, String(record.kind)) ? FIELDS[record.kind as ProviderKind] : undefined;
  return fields?.every((field) => typeof record[field] === "string") === true;
}
