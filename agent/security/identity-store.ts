/**
 * The identity on disk through power cuts. `identity.pem` is what is used; `identity.previous.pem` is there as long as
 * that one has not been seen to work: what a hub accepted last. At any moment at least one of the two is whole.
 */
import { createPrivateKey, generateKeyPairSync } from "node:crypto";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { DurableFolder } from "./durable-folder.ts";
import { encodeIdentity, parseIdentity, type StoredIdentity } from "./identity-file.ts";

const CURRENT = "identity.pem";
const PREVIOUS = "identity.previous.pem";
/** Being written; nothing reads it. */
const NEXT = "identity.new.pem";
/** The last unreadable file, kept for diagnosis. It holds a key like the others. */
const DAMAGED = "identity.damaged.pem";
/** The key of a request that is under way: the answer may be lost, and the hub knows the node by it from then on. */
const PENDING_KEY = "pending-key.pem";
const NEXT_KEY = "pending-key.new.pem";

type Found = { readonly kind: "whole"; readonly identity: StoredIdentity } | { readonly kind: "none" | "damaged" };

export class IdentityStore {
  readonly #folder: DurableFolder;
  readonly #log: Log;
  #current: StoredIdentity | undefined;
  #previous: StoredIdentity | undefined;

  constructor(components: { readonly folder: DurableFolder; readonly log: Log }) {
    this.#folder = components.folder;
    this.#log = components.log;
  }

  get current(): StoredIdentity | undefined {
    return this.#current;
  }

  /** There while `current` has not worked yet. */
  get previous(): StoredIdentity | undefined {
    return this.#previous;
  }

  /**
   * Reads what is there, and mends what a power cut or a bad disk left. A disk that cannot be written to any more is no
   * reason to be without an identity. @throws `unavailable` when it cannot be read
   */
  load(): void {
    const current = this.#find(CURRENT);
    const previous = this.#find(PREVIOUS);
    const [first, second] = [current, previous].filter((each) => each.kind === "whole");
    this.#current = first?.identity;
    this.#previous = second?.identity;
    if (current.kind === "damaged") {
      this.#log.error("the node's identity is damaged", { kept: DAMAGED, recovered: first !== undefined });
    }
    try {
      this.#mend(current.kind, previous.kind);
    } catch (error) {
      this.#log.error("cannot mend the node's identity on disk", { error: describeError(error) });
    }
  }

  #mend(current: Found["kind"], previous: Found["kind"]): void {
    if (current === "damaged") this.#folder.rename(CURRENT, DAMAGED);
    if (previous === "damaged") this.#folder.remove(PREVIOUS);
    if (previous === "whole" && current !== "whole") this.#folder.rename(PREVIOUS, CURRENT);
    this.#folder.remove(NEXT);
    this.#folder.remove(NEXT_KEY);
    this.#folder.sync();
  }

  /** `next` is used from now on; what has worked last stays until `next` has. @throws what the disk throws */
  replace(next: StoredIdentity): void {
    this.#folder.write(NEXT, encodeIdentity(next));
    if (this.#current !== undefined && this.#previous === undefined) {
      this.#folder.rename(CURRENT, PREVIOUS);
      // Were the next rename on disk without this one, the old pair would be gone.
      this.#folder.sync();
      this.#previous = this.#current;
    }
    this.#folder.rename(NEXT, CURRENT);
    this.#folder.sync();
    this.#current = next;
    this.#folder.remove(PENDING_KEY);
  }

  /** The same key and certificate, other CAs to know the hub by. */
  replaceTrust(hubCa: string, trust: string): void {
    if (this.#current === undefined) return;
    const next = { ...this.#current, hubCa, trust };
    this.#folder.write(NEXT, encodeIdentity(next));
    this.#folder.rename(NEXT, CURRENT);
    this.#folder.sync();
    this.#current = next;
  }

  /** `current` is known to work: the one before it goes. */
  worked(): void {
    if (this.#previous === undefined || this.#current === undefined) return;
    // Where the disk failed in the middle of a change, the one before may be all that is on it.
    if (this.#folder.read(CURRENT) !== encodeIdentity(this.#current)) return;
    this.#folder.remove(PREVIOUS);
    this.#folder.sync();
    this.#previous = undefined;
  }

  /** `current` was refused before it ever worked: the one before it is used again. @returns whether there was one */
  fallBack(): boolean {
    if (this.#previous === undefined) return false;
    this.#folder.rename(PREVIOUS, CURRENT);
    this.#folder.sync();
    this.#current = this.#previous;
    this.#previous = undefined;
    return true;
  }

  /**
   * A P-256 key, PEM, for the next request: the one of a request whose answer never came, or a new one. On disk before
   * any other part gets it.
   */
  pendingKey(): string {
    const old = this.#folder.read(PENDING_KEY);
    if (old !== undefined && isKey(old)) return old;
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
    this.#folder.write(NEXT_KEY, key);
    this.#folder.rename(NEXT_KEY, PENDING_KEY);
    this.#folder.sync();
    return key;
  }

  /** The hub will not have that key. */
  dropPendingKey(): void {
    this.#folder.remove(PENDING_KEY);
  }

  #find(name: string): Found {
    try {
      const text = this.#folder.read(name);
      return text === undefined ? { kind: "none" } : { kind: "whole", identity: parseIdentity(text) };
    } catch (error) {
      if (!isPicoletError(error, "corrupt")) throw error;
      this.#log.warn("cannot use a stored identity", { file: name, error: describeError(error) });
      return { kind: "damaged" };
    }
  }
}

function isKey(text: string): boolean {
  try {
    return createPrivateKey(text).asymmetricKeyDetails?.namedCurve === "prime256v1";
  } catch {
    return false;
  }
}
