/** Requests the serving certificate of port 10250 from the cluster, and renews it (the kubelet's serverTLSBootstrap). */
import { createPrivateKey, generateKeyPairSync, sign, X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { addressBytes } from "@picolet/kubelet-api/fairness/address-bytes.ts";
import { backoffDelay, EQUAL_JITTER } from "@picolet/protocol/async/backoff.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { encodeCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { subjectAltName } from "@picolet/protocol/pki/extensions.ts";
import { nodeSubject } from "@picolet/protocol/pki/node-subject.ts";
import { certificatesOf, encodePem } from "@picolet/protocol/pki/pem.ts";
import { rotationTimeMs } from "@picolet/protocol/pki/rotation.ts";
import { type Clock, type Log, type Millis, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { ServingReply } from "@picolet/protocol/tunnel/stream.ts";
import type { ClientReviews } from "../core/hub/cluster-objects.ts";
import { type Pair, type PairFile, parsePair } from "./serving-pair.ts";

export interface ServingCertificateComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly hub: ClientReviews;
  /** The issued certificate and its key. */
  readonly issued: PairFile;
  /** A request that is not decided yet, and its key: it survives a restart, because a person may approve it later. */
  readonly pending: PairFile;
}

export interface ServingCertificateInit {
  readonly nodeName: string;
  readonly addresses: () => readonly string[];
}

/** A person may approve the request; the cluster keeps an approved one for an hour. 48 questions of 1 KB a day. */
const DECISION_DELAYS = { first: seconds(5), max: seconds(1800), jitter: EQUAL_JITTER };
/** Nothing is sent while there is no hub. */
const OFFLINE_DELAYS = { first: seconds(2), max: seconds(300), jitter: EQUAL_JITTER };
/** How soon a change of the board's addresses is seen. */
const LONGEST_WAIT = seconds(3600);
/** A board with addresses of others asks at once without them. The hub names all of them in one answer. */
const MAX_SMALLER_REQUESTS = 2;
/** The next request after a denial waits as long as any. */
const MANY_ATTEMPTS = 16;

export class ServingCertificate {
  readonly #components: ServingCertificateComponents;
  readonly #init: ServingCertificateInit;
  /** Addresses that the hub knows as another node's. Forgotten when the board's own change. */
  #taken: readonly string[] = [];
  #takenOf = "";
  #attempts = 0;
  #offline = 0;
  #rotation = { certificate: "", atMs: 0 };
  #logged = "";

  constructor(components: ServingCertificateComponents, init: ServingCertificateInit) {
    this.#components = components;
    this.#init = init;
  }

  /** Does what is due. @returns when to call it again */
  async step(signal: AbortSignal): Promise<Millis> {
    try {
      for (let round = 0; round <= MAX_SMALLER_REQUESTS; round += 1) {
        const untilRenewal = this.#untilRenewal();
        if (untilRenewal > 0) {
          this.#attempts = 0;
          return millis(Math.min(untilRenewal, LONGEST_WAIT));
        }
        const { state } = await this.#ask(signal);
        if (state === "denied") this.#attempts = MANY_ATTEMPTS;
        if (state === "pending" || state === "denied") break;
      }
    } catch (error) {
      if (isCancelled(error)) throw error;
      // An offline board reports its tunnel elsewhere.
      if (isPicoletError(error, "unavailable")) {
        this.#offline += 1;
        return backoffDelay(OFFLINE_DELAYS, this.#offline, this.#components.random.next());
      }
      this.#say("cannot get a serving certificate", { error: describeError(error) });
    }
    this.#offline = 0;
    this.#attempts += 1;
    return backoffDelay(DECISION_DELAYS, this.#attempts, this.#components.random.next());
  }

  #untilRenewal(): number {
    const { clock, random, issued } = this.#components;
    const pair = parsePair(issued.read());
    if (pair === undefined) return 0;
    const certificate = new X509Certificate(pair.cert);
    if (!this.#isFor(certificate)) return 0;
    if (this.#rotation.certificate !== pair.cert) {
      const [notBeforeMs, notAfterMs] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
      this.#rotation = { certificate: pair.cert, atMs: rotationTimeMs({ notBeforeMs, notAfterMs }, random.next()) };
    }
    return Math.max(0, this.#rotation.atMs - clock.wall().getTime());
  }

  /** The names and addresses that the board has now, and no others. */
  #isFor(certificate: X509Certificate): boolean {
    const { dns, addresses } = this.#names();
    const named = (certificate.subjectAltName ?? "").split(", ").filter((each) => each !== "");
    return (
      named.length === dns.length + addresses.length &&
      dns.every((name) => certificate.checkHost(name, { subject: "never" }) !== undefined) &&
      addresses.every((address) => certificate.checkIP(address) !== undefined)
    );
  }

  #names(): { readonly dns: readonly string[]; readonly addresses: readonly string[] } {
    const all = this.#init.addresses();
    if (all.join() !== this.#takenOf) {
      this.#takenOf = all.join();
      this.#taken = [];
    }
    return { dns: [this.#init.nodeName], addresses: all.filter((address) => !this.#taken.includes(keyOf(address))) };
  }

  async #ask(signal: AbortSignal): Promise<ServingReply> {
    const { hub, pending, issued } = this.#components;
    const { names, request, key, isKept } = this.#request();
    const reply = parseReply(await hub.review({ review: "serving", request }, signal));
    switch (reply.state) {
      case "pending":
        if (!isKept) pending.write(`${names}\n${request}${key}`);
        this.#say("the serving certificate waits for approval", { names });
        break;
      case "taken":
        this.#taken = [...this.#taken, ...reply.addresses.map(keyOf)];
        this.#say("the hub refuses addresses for the serving certificate", { addresses: reply.addresses.join() });
        break;
      case "denied":
        // A denial is final for its request.
        pending.remove();
        this.#say("the serving certificate was denied", { reason: reply.reason });
        break;
      case "issued": {
        const pair = this.#checked(reply.certificate, key);
        issued.write(pair.cert + pair.key);
        pending.remove();
        this.#say("has a serving certificate", { names });
      }
    }
    return reply;
  }

  /** @throws `invalid` for a certificate of another key or of other names */
  #checked(chain: string, key: string): Pair {
    const cert = certificatesOf(chain)
      .map((each) => encodePem("CERTIFICATE", each))
      .join("");
    const pair = parsePair(cert + key);
    if (pair === undefined) throw new PicoletError("invalid", "the issued certificate is not of this board's key");
    if (!this.#isFor(new X509Certificate(pair.cert))) {
      throw new PicoletError("invalid", "the issued certificate has other names than the request");
    }
    return pair;
  }

  /** The request on disk, if it is for the names of now; else a new one. */
  #request(): { readonly names: string; readonly request: string; readonly key: string; readonly isKept: boolean } {
    const { dns, addresses } = this.#names();
    const names = [...dns, ...addresses].join();
    const [, kept, request, key] = PENDING.exec(this.#components.pending.read() ?? "") ?? [];
    if (kept === names && request !== undefined && key !== undefined && isPrivateKey(key)) {
      return { names, request, key, isKept: true };
    }
    return { names, ...makeRequest(this.#init.nodeName, { dns, addresses }), isKept: false };
  }

  /** Once until it changes. */
  #say(text: string, fields: Readonly<Record<string, string>>): void {
    const said = `${text} ${JSON.stringify(fields)}`;
    if (said === this.#logged) return;
    this.#logged = said;
    this.#components.log.info(text, fields);
  }
}

/** Names, request and key. */
const PENDING =
  /^(.*)\n(-----BEGIN CERTIFICATE REQUEST-----\n[\s\S]*?-----END CERTIFICATE REQUEST-----\n)(-----BEGIN PRIVATE KEY-----[\s\S]*)$/;

const keyOf = (address: string): string => addressBytes(address).join();

function isPrivateKey(key: string): boolean {
  try {
    createPrivateKey(key);
    return true;
  } catch {
    return false;
  }
}

function makeRequest(
  nodeName: string,
  { dns, addresses }: { readonly dns: readonly string[]; readonly addresses: readonly string[] },
): { readonly request: string; readonly key: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const der = encodeCertificateRequest(
    nodeSubject(nodeName),
    publicKey.export({ type: "spki", format: "der" }),
    (signed) => sign("sha256", signed, privateKey),
    [subjectAltName({ dns, addresses: addresses.map(addressBytes) })],
  );
  const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  return { request: encodePem("CERTIFICATE REQUEST", der), key };
}

/** @throws `invalid` */
function parseReply(value: unknown): ServingReply {
  const reply = (value ?? {}) as Partial<Record<string, unknown>>;
  const { state, certificate, reason, addresses } = reply;
  if (state === "pending") return { state };
  if (state === "issued" && typeof certificate === "string") return { state, certificate };
  if (state === "denied") return { state, reason: typeof reason === "string" ? reason : "" };
  if (state === "taken" && Array.isArray(addresses)) {
    return { state, addresses: addresses.filter((each) => typeof each === "string" && isIP(each) !== 0) };
  }
  throw new PicoletError("invalid", "cannot read the hub's answer about the serving certificate");
}
