/**
 * The hub's own CA and the certificate it serves with: made at the first start, kept in a PemStore, renewed while
 * connections go on. Several replicas share one store; the replica that writes second reads what the first one wrote.
 */
import { randomBytes, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import type { Component } from "@picolet/protocol/async/component.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { parseCertificate } from "@picolet/protocol/pki/certificate.ts";
import { certificatesOf } from "@picolet/protocol/pki/pem.ts";
import { type Clock, type Log, seconds } from "@picolet/protocol/ports.ts";
import {
  type CertificateAuthority,
  caHash,
  crossSign,
  loadAuthority,
  makeAuthority,
  makeServerPair,
} from "./certificate-authority.ts";
import type { PemFiles, PemStore } from "./pem-store.ts";
import { assertPair, type Serving, type ServingIdentity } from "./serving.ts";

export interface HubCaInit {
  /** DNS names and IP addresses under which agents (and kubectl) reach the hub. */
  readonly names: readonly string[];
  /** Before the random part of the CA's common name. */
  readonly caName?: string;
  /** Lifetime of the server's certificate. It is renewed at two thirds. */
  readonly serverDays?: number;
  readonly caDays?: number;
}

/** Short, because a renewal costs nothing: a thief of the server's key can pose as the hub no longer than this. */
const SERVER_DAYS = 30;
const CA_NAME = "picolet-hub-ca";
/** A board that was away for years still finds the CA that it knows. */
const CA_DAYS = 3650;
/** A CA is followed by the next one when so little of its time is left, as what it issues cannot outlive it. */
const CA_ROTATION_DAYS = 365;
const DAY_MS = 86_400_000;
const CHECK_INTERVAL = seconds(3600);
/** Replicas that start at once meet in a conflict or two; more mean that the store does not keep what it is given. */
const MAX_CONFLICTS = 5;

/** Names in the store. `old-ca.*` and `cross-ca.crt` are there from the first rotation on. */
const FILE = {
  caCert: "ca.crt",
  caKey: "ca.key",
  oldCaCert: "old-ca.crt",
  oldCaKey: "old-ca.key",
  /** The CA, as signed by the old one: served with the certificate, for agents that know only the old one. */
  crossCaCert: "cross-ca.crt",
  cert: "tls.crt",
  key: "tls.key",
} as const;

export class HubCa implements Component {
  readonly name = "hub CA";
  readonly #store: PemStore;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #init: Required<HubCaInit>;
  readonly #serving: WatchSource<ServingIdentity>;
  #authority: CertificateAuthority;

  private constructor(components: HubCaComponents, init: Required<HubCaInit>, files: PemFiles) {
    this.#store = components.store;
    this.#clock = components.clock;
    this.#log = components.log;
    this.#init = init;
    this.#authority = authorityOf(files);
    this.#serving = new WatchSource(servingOf(files));
  }

  /** @throws what the store throws, `corrupt` when it holds no CA that can be used: it is never replaced unasked */
  static async open(components: HubCaComponents, init: HubCaInit, signal: AbortSignal): Promise<HubCa> {
    const full = { caName: CA_NAME, serverDays: SERVER_DAYS, caDays: CA_DAYS, ...init };
    const files = await update(components, (old) => broughtUpToDate(old, full, components.clock.wall(), false), signal);
    return new HubCa(components, full, files);
  }

  get serving(): Serving {
    return this.#serving;
  }

  /** For what else the hub has to sign with it. Changes with a rotation. */
  get authority(): CertificateAuthority {
    return this.#authority;
  }

  /** The pin by which boards know the hub: `sha256:<hex>`. */
  get hash(): string {
    return caHash(this.#authority.certificate);
  }

  /**
   * Makes a new CA and serves with it at once. The old one stays in the bundle, and signs the new one, so that agents
   * which have not heard of the rotation, or are away for years, come in as before. A third CA displaces the first.
   */
  async rotateCa(signal: AbortSignal): Promise<void> {
    await this.#refresh(true, signal);
  }

  async run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#clock.sleep(CHECK_INTERVAL, signal);
      try {
        await this.#refresh(false, signal);
      } catch (error) {
        if (signal.aborted) throw error;
        this.#log.warn("cannot renew the hub's certificate", { error: describeError(error) });
      }
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }

  async #refresh(newCa: boolean, signal: AbortSignal): Promise<void> {
    const now = this.#clock.wall();
    const components = { store: this.#store, clock: this.#clock, log: this.#log };
    const files = await update(components, (old) => broughtUpToDate(old, this.#init, now, newCa), signal);
    const serving = servingOf(files);
    const { current } = this.#serving;
    if (serving.certificateChain === current.certificateChain && serving.caBundle === current.caBundle) return;
    this.#authority = authorityOf(files);
    this.#serving.set(serving);
    this.#log.info("the hub serves with a new certificate", { ca: this.hash });
  }
}

export interface HubCaComponents {
  readonly store: PemStore;
  readonly clock: Clock;
  readonly log: Log;
}

/** @param change returns the same object when nothing changes */
async function update(
  { store }: HubCaComponents,
  change: (files: PemFiles | undefined) => PemFiles,
  signal: AbortSignal,
): Promise<PemFiles> {
  for (let attempt = 0; ; attempt += 1) {
    const stored = await store.load(signal);
    const files = change(stored?.files);
    if (files === stored?.files) return files;
    try {
      await store.save(files, stored?.version, signal);
      return files;
    } catch (error) {
      if (!isPicoletError(error, "conflict") || attempt >= MAX_CONFLICTS) throw error;
    }
  }
}

function broughtUpToDate(
  old: PemFiles | undefined,
  { names, caName, serverDays, caDays }: Required<HubCaInit>,
  now: Date,
  newCa: boolean,
): PemFiles {
  let files = old;
  if (files === undefined) files = filesOf(makeAuthority(newName(caName), { days: caDays, now }));
  else if (newCa || endsWithin(files[FILE.caCert], CA_ROTATION_DAYS * DAY_MS, now))
    files = rotated(files, { caName, caDays, now });
  if (!isDue(files, names, now)) return files;
  const pair = makeServerPair(authorityOf(files), names, { days: serverDays, now });
  return { ...files, [FILE.cert]: pair.certificate, [FILE.key]: pair.privateKey };
}

/** A random part distinguishes it from the CAs before and after, where only names are shown. */
const newName = (caName: string): string => `${caName}-${randomBytes(4).toString("hex")}`;

function filesOf({ certificate, key }: CertificateAuthority): PemFiles {
  return { [FILE.caCert]: certificate, [FILE.caKey]: key.export({ type: "pkcs8", format: "pem" }).toString() };
}

function rotated(
  files: PemFiles,
  { caName, caDays, now }: { readonly caName: string; readonly caDays: number; readonly now: Date },
): PemFiles {
  const old = authorityOf(files);
  const next = makeAuthority(newName(caName), { days: caDays, now });
  const oldFiles = filesOf(old);
  return {
    ...filesOf(next),
    [FILE.oldCaCert]: oldFiles[FILE.caCert] ?? "",
    [FILE.oldCaKey]: oldFiles[FILE.caKey] ?? "",
    [FILE.crossCaCert]: crossSign(old, next, now),
  };
}

function isDue(files: PemFiles, names: readonly string[], now: Date): boolean {
  const [certificate, key] = [files[FILE.cert], files[FILE.key]];
  if (certificate === undefined || key === undefined) return true;
  const [own = new Uint8Array()] = certificatesOf(certificate);
  const { notBeforeMs, notAfterMs } = parseCertificate(own);
  if (now.getTime() > notBeforeMs + ((notAfterMs - notBeforeMs) * 2) / 3) return true;
  const parsed = new X509Certificate(own);
  const covers = (name: string): boolean =>
    (isIP(name) === 0 ? parsed.checkHost(name, { subject: "never" }) : parsed.checkIP(name)) !== undefined;
  return !names.every((name) => covers(name.replace(/^\*\./, "any.")));
}

const endsWithin = (certificate: string | undefined, spanMs: number, now: Date): boolean => {
  const [own = new Uint8Array()] = certificatesOf(certificate ?? "");
  return parseCertificate(own).notAfterMs - now.getTime() < spanMs;
};

/** @throws `corrupt` */
function authorityOf(files: PemFiles): CertificateAuthority {
  try {
    return loadAuthority(files[FILE.caCert] ?? "", files[FILE.caKey] ?? "");
  } catch (error) {
    const message = "cannot use the stored CA: restore it, or remove all of it to begin with a new one";
    throw new PicoletError("corrupt", message, { cause: error });
  }
}

function servingOf(files: PemFiles): ServingIdentity {
  const [own = new Uint8Array()] = certificatesOf(files[FILE.cert] ?? "");
  const privateKey = files[FILE.key] ?? "";
  assertPair(own, privateKey);
  const [oldCert, oldKey] = [files[FILE.oldCaCert], files[FILE.oldCaKey]];
  const old = oldCert === undefined || oldKey === undefined ? undefined : loadAuthority(oldCert, oldKey);
  return {
    certificateChain: `${files[FILE.cert]}${files[FILE.crossCaCert] ?? ""}`,
    privateKey,
    caBundle: `${files[FILE.caCert]}${oldCert ?? ""}`,
    caKeys: [authorityOf(files).key, ...(old === undefined ? [] : [old.key])],
  };
}
