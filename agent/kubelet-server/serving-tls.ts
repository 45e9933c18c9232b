/** Key, certificate and client CA of the kubelet's port: files of the owner, an issued certificate, or the agent's own. */
import { createPrivateKey, generateKeyPairSync, randomBytes, sign as signBytes, X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import type { SecureContextOptions, SecureVersion } from "node:tls";
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { encodeCertificate } from "@picolet/protocol/pki/certificate.ts";
import { derOid, derSequence } from "@picolet/protocol/pki/der.ts";
import { encodeName } from "@picolet/protocol/pki/distinguished-name.ts";
import {
  extendedKeyUsage,
  KEY_USAGE,
  keyUsage,
  SERVER_AUTH,
  subjectAltName,
} from "@picolet/protocol/pki/extensions.ts";
import { certificatesOf, encodePem } from "@picolet/protocol/pki/pem.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { type Pair, type PairFile, parsePair } from "./serving-pair.ts";

export interface ServingTlsComponents {
  readonly clock: Clock;
  /** The agent's own certificate and key. */
  readonly own: PairFile;
  /** Those that the cluster has issued. */
  readonly issued: Pick<PairFile, "read">;
}

export interface ServingTlsInit {
  readonly nodeName: string;
  /** Addresses of the board, for a certificate of its own. */
  readonly addresses: () => readonly string[];
  /** Both or neither; "": the agent's own. */
  readonly certFile: string;
  readonly keyFile: string;
  /** PEM, whose client certificates are accepted; "": none. */
  readonly clientCaFile: string;
  readonly minVersion: SecureVersion | undefined;
  /** OpenSSL's names; empty: Node's. */
  readonly ciphers: readonly string[];
}

const DAY_MS = 86_400_000;
/** The kubelet's, for a certificate that it signs itself. */
const LIFETIME_DAYS = 365;
/** A certificate that is about to end is replaced. */
const RENEW_DAYS = 30;
/** Clocks differ by minutes. */
const BACKDATE_MS = 60 * 60_000;
/** 127 bits at random: positive, and never the same twice. */
const SERIAL_BYTES = 16;
const ECDSA_WITH_SHA256 = derSequence(derOid("1.2.840.10045.4.3.2"));

export class ServingTls {
  readonly #clock: Clock;
  readonly #own: PairFile;
  readonly #issued: Pick<PairFile, "read">;
  readonly #init: ServingTlsInit;
  readonly #files: readonly string[];
  #versions = "";
  #renewAtMs = 0;
  #issuedText: string | undefined;

  constructor({ clock, own, issued }: ServingTlsComponents, init: ServingTlsInit) {
    this.#clock = clock;
    this.#own = own;
    this.#issued = issued;
    this.#init = init;
    this.#files = [init.certFile, init.keyFile, init.clientCaFile].filter((path) => path !== "");
  }

  /** True when files have changed, or the agent's own certificate has to be renewed, or the issued one has ended. */
  hasChanged(): boolean {
    const isOwn = this.#init.certFile === "";
    if (isOwn && this.#issued.read() !== this.#issuedText) return true;
    const isDue = isOwn && this.#clock.wall().getTime() >= this.#renewAtMs;
    return isDue || this.#versionsNow() !== this.#versions;
  }

  /** @throws `invalid` for a file that cannot be read */
  options(): SecureContextOptions {
    const { certFile, keyFile, clientCaFile, minVersion, ciphers } = this.#init;
    const versions = this.#versionsNow();
    const pair = certFile === "" ? this.#ownPair() : readPair(certFile, keyFile);
    // An empty list is none; leaving it out would accept every public authority.
    const ca = clientCaFile === "" ? [] : readCertificates(clientCaFile);
    this.#versions = versions;
    return {
      ...{ ...pair, ca, minVersion: minVersion ?? "TLSv1.2" },
      ...(ciphers.length === 0 ? {} : { ciphers: ciphers.join(":") }),
    };
  }

  /** The one that the cluster has issued, until it ends. Its beginning is not judged: the board's clock may be late. */
  #ownPair(): Pair {
    const nowMs = this.#clock.wall().getTime();
    this.#issuedText = this.#issued.read();
    const issued = parsePair(this.#issuedText);
    const endMs = issued === undefined ? 0 : Date.parse(new X509Certificate(issued.cert).validTo);
    if (issued !== undefined && nowMs < endMs) {
      this.#renewAtMs = endMs;
      return issued;
    }
    const kept = parsePair(this.#own.read());
    const pair = kept !== undefined && isCurrent(kept.cert, nowMs) ? kept : this.#makePair(nowMs);
    this.#renewAtMs = Date.parse(new X509Certificate(pair.cert).validTo) - RENEW_DAYS * DAY_MS;
    return pair;
  }

  /** As a kubelet without a signer: self-signed, with the node's name and addresses. */
  #makePair(nowMs: number): Pair {
    const { nodeName, addresses } = this.#init;
    const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const serial = randomBytes(SERIAL_BYTES);
    serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
    const name = encodeName([{ type: "CN", value: `${nodeName}@${Math.floor(nowMs / 1000)}` }]);
    const der = encodeCertificate(
      {
        ...{ serial, issuer: name, subject: name, signatureAlgorithm: ECDSA_WITH_SHA256 },
        notBeforeMs: nowMs - BACKDATE_MS,
        notAfterMs: nowMs + LIFETIME_DAYS * DAY_MS,
        publicKey: publicKey.export({ type: "spki", format: "der" }),
        extensions: [
          keyUsage(KEY_USAGE.digitalSignature | KEY_USAGE.keyEncipherment),
          extendedKeyUsage(SERVER_AUTH),
          subjectAltName({ dns: [nodeName], addresses: addresses().map(addressBytes) }),
        ],
      },
      (signed) => signBytes("sha256", signed, privateKey),
    );
    const cert = encodePem("CERTIFICATE", der);
    const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
    this.#own.write(cert + key);
    return { cert, key };
  }

  #versionsNow(): string {
    return this.#files.map(versionOf).join(" ");
  }
}

function versionOf(path: string): string {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat === undefined ? "none" : `${stat.ino}-${stat.mtimeMs}-${stat.size}`;
}

const unreadable = (path: string, cause: unknown): PicoletError =>
  new PicoletError("invalid", `cannot read ${path}`, { cause });

/** OpenSSL takes a text without any certificate for an empty list: no client would be known any more. */
function readCertificates(path: string): string {
  try {
    const text = readFileSync(path, "utf8");
    const certificates = certificatesOf(text);
    if (certificates.length === 0) throw new PicoletError("invalid", "there is no certificate in it");
    for (const certificate of certificates) new X509Certificate(certificate);
    return text;
  } catch (error) {
    throw unreadable(path, error);
  }
}

function readPair(certFile: string, keyFile: string): Pair {
  const cert = readCertificates(certFile);
  let isPair: boolean;
  const key = readKey(keyFile);
  try {
    isPair = new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
  } catch (error) {
    throw unreadable(keyFile, error);
  }
  if (!isPair) throw new PicoletError("invalid", `the key in ${keyFile} does not belong to ${certFile}`);
  return { cert, key };
}

function readKey(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** False too for one that begins in the future: a clock that was wrong made it. */
function isCurrent(certificate: string, nowMs: number): boolean {
  const { validFrom, validTo } = new X509Certificate(certificate);
  return Date.parse(validFrom) <= nowMs && nowMs < Date.parse(validTo) - RENEW_DAYS * DAY_MS;
}
