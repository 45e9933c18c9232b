/** Issues the certificates of CertificateSigningRequests with the hub's CA. */
import type { RequestedNames } from "@picolet/protocol/pki/extensions.ts";
import { nodeOfSubject } from "@picolet/protocol/pki/node-subject.ts";
import type { Clock, Millis } from "@picolet/protocol/ports.ts";
import {
  type CertificateAuthority,
  issueClientCertificate,
  issueServingCertificate,
  readRequest,
} from "./certificate-authority.ts";
import { claimOf, type NodeCertifier, type Requestor } from "./node-certifier.ts";
import { readNodeRequest } from "./node-request.ts";
import { alternativeNamesOf, refuseHubNames } from "./serving-request.ts";

const DAY_MS = 86_400_000;

export interface RequestIssuerComponents {
  /** `authority` changes with a rotation. */
  readonly ca: { readonly authority: CertificateAuthority };
  readonly certifier: NodeCertifier;
  readonly clock: Pick<Clock, "wall">;
}

export interface RequestIssuerInit {
  /** No certificate is valid for longer. */
  readonly longest: Millis;
  /** DNS names and addresses of the hub, which no kubelet may have. */
  readonly hubNames: readonly string[];
}

interface NodeCertificateRequest {
  readonly requestPem: string;
  readonly expirationSeconds: number | undefined;
  readonly requestor: Requestor;
}

/** The one signer of client certificates: boards that join, renewals and CertificateSigningRequests all end here. */
export class RequestIssuer {
  readonly #components: RequestIssuerComponents;
  readonly #init: RequestIssuerInit;

  constructor(components: RequestIssuerComponents, init: RequestIssuerInit) {
    this.#components = components;
    this.#init = init;
  }

  /** @throws `invalid` for what is no request, or is not signed by its own key */
  read(requestPem: string): {
    readonly commonName: string;
    readonly organizations: readonly string[];
    readonly hasOthers: boolean;
    readonly names: RequestedNames;
  } {
    const request = readRequest(requestPem);
    const { subject, extensions, hasOtherAttributes } = request;
    const values = (type: string): string[] => subject.filter((each) => each.type === type).map(({ value }) => value);
    const [commonName = "", ...moreNames] = values("CN");
    return {
      commonName: moreNames.length > 0 ? "" : commonName,
      organizations: values("O"),
      hasOthers: moreNames.length > 0 || extensions.length > 0 || hasOtherAttributes,
      names: alternativeNamesOf(request),
    };
  }

  issue(requestPem: string, expirationSeconds: number | undefined): string {
    return issueClientCertificate(this.#components.ca.authority, requestPem, this.#validity(expirationSeconds));
  }

  async issueNode(
    { requestPem, expirationSeconds, requestor }: NodeCertificateRequest,
    signal: AbortSignal,
  ): Promise<string> {
    const wish = readNodeRequest(requestPem);
    await this.#components.certifier.claim(wish, claimOf(requestor, wish.node), signal);
    return this.issue(wish.pem, expirationSeconds);
  }

  async issueServing(
    { requestPem, expirationSeconds, requestor }: NodeCertificateRequest,
    signal: AbortSignal,
  ): Promise<string> {
    const request = readRequest(requestPem);
    const node = nodeOfSubject(request.subject);
    const names = alternativeNamesOf(request);
    refuseHubNames(names, this.#init.hubNames);
    await this.#components.certifier.checkRequestor(requestor, node, signal);
    const { authority } = this.#components.ca;
    return issueServingCertificate(authority, request, names, this.#validity(expirationSeconds));
  }

  #validity(expirationSeconds = Number.POSITIVE_INFINITY): { readonly days: number; readonly now: Date } {
    const lifeMs = Math.min(this.#init.longest, expirationSeconds * 1000);
    return { days: lifeMs / DAY_MS, now: this.#components.clock.wall() };
  }
}
