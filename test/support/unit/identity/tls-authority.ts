/**
 * A certificate authority of one test: serving and client certificates for 127.0.0.1 that live a day, from `now` on.
 */
import { createPublicKey, generateKeyPairSync } from "node:crypto";
import {
  type CertificateAuthority,
  issueClientCertificate,
  issueServingCertificate,
  type KeyPair,
  makeAuthority,
  makeServerPair,
  readRequest,
} from "@picolet/hub/identity/certificate-authority.ts";
import { alternativeNamesOf } from "@picolet/hub/identity/serving-request.ts";
import type { NameAttribute } from "@picolet/protocol/pki/distinguished-name.ts";
import type { AlternativeNames } from "@picolet/protocol/pki/extensions.ts";

/** The names and addresses that a PKCS#10 request asks for. */
export const requestedNames = (requestPem: string): AlternativeNames => alternativeNamesOf(readRequest(requestPem));

export class TlsAuthority {
  readonly #authority: CertificateAuthority;
  readonly #now: Date;

  constructor(name = "test authority", now = new Date()) {
    this.#now = now;
    this.#authority = makeAuthority(name, { days: 1, now });
  }

  get ca(): string {
    return this.#authority.certificate;
  }

  /** @param names more than `127.0.0.1` and `localhost` */
  issueServer(...names: readonly string[]): KeyPair {
    return makeServerPair(this.#authority, ["127.0.0.1", "localhost", ...names], { days: 1, now: this.#now });
  }

  /** For these names and addresses and no other. @param now of its beginning; it lives a day */
  issueServerFor(names: readonly string[], now = this.#now): KeyPair {
    return makeServerPair(this.#authority, names, { days: 1, now });
  }

  issueClient(subject: readonly NameAttribute[]): KeyPair {
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const publicKey = createPublicKey(privateKey).export({ type: "spki", format: "der" });
    const request = { subject, publicKey } as unknown as Parameters<typeof issueClientCertificate>[1];
    return {
      privateKey: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
      certificate: issueClientCertificate(this.#authority, request, { days: 1, now: this.#now }),
    };
  }

  /** The serving certificate that a PKCS#10 request asks for. @param names other ones than the request's */
  signServing(requestPem: string, now = this.#now, names = requestedNames(requestPem)): string {
    return issueServingCertificate(this.#authority, readRequest(requestPem), names, { days: 1, now });
  }

  /** The certificate that a PKCS#10 request asks for, as a cluster's signer makes it. */
  sign(requestPem: string): string {
    return issueClientCertificate(this.#authority, requestPem, { days: 1, now: this.#now });
  }
}
