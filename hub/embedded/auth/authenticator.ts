import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { TLSSocket } from "node:tls";
import { CERTIFICATE_KEY_EXTRA, type CertificateFacts } from "@picolet/hub-core/node-credentials.ts";
import { NODES_GROUP, nodeOfUser } from "@picolet/protocol/pki/node-subject.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { ApiObject, ObjectLookup, UserInfo } from "../api/resource-definition.ts";
import { StatusError } from "../api/status-error.ts";
import { ANONYMOUS, AUTHENTICATED } from "./attributes.ts";
import type { ServiceAccountTokens } from "./service-account-tokens.ts";

/** A token that the operator made: the admin's. */
export interface StaticToken {
  readonly token: string;
  readonly user: string;
  readonly uid?: string;
  readonly groups: readonly string[];
}

interface Components {
  readonly clock: Clock;
  readonly lookup: ObjectLookup;
  readonly serviceAccounts: ServiceAccountTokens;
  readonly isRevoked: IsRevoked;
}

/**
 * Asked with every request, so that an open connection is shut out too. Undefined: it is not known yet what is revoked;
 * the request is refused with 503.
 */
export type IsRevoked = (certificate: CertificateFacts) => boolean | undefined;

interface CertificateUser {
  readonly user: UserInfo;
  readonly notAfterMs: number;
  readonly facts: CertificateFacts;
}

/** As kube-apiserver has it from 1.32 on. */
const CREDENTIAL_ID = "authentication.kubernetes.io/credential-id";

const unauthorized = (): StatusError => new StatusError("Unauthorized", "Unauthorized");

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

/** Compares in a time that does not depend on how much is right. */
export const sameSecret = (a: string, b: string): boolean => timingSafeEqual(digest(a), digest(b));

/**
 * Identifies a caller by a client certificate, a static token, a service account's token, a bootstrap token; without
 * any of these `system:anonymous`. Wrong credentials are refused, not taken for none.
 */
export class Authenticator {
  readonly #components: Components;
  readonly #tokens: readonly StaticToken[];
  readonly #certificates = new WeakMap<TLSSocket, CertificateUser | "none" | "invalid">();

  constructor(components: Components, tokens: readonly StaticToken[]) {
    this.#components = components;
    this.#tokens = tokens;
  }

  /** @throws StatusError 401 */
  async authenticate(message: IncomingMessage): Promise<UserInfo> {
    const { authorization } = message.headers;
    const fromCertificate = this.#fromCertificate(message);
    if (fromCertificate !== undefined) return fromCertificate;
    const token = authorization === undefined ? webSocketToken(message) : /^Bearer +(\S+)$/i.exec(authorization)?.[1];
    if (token === undefined) {
      if (authorization !== undefined) throw unauthorized();
      return ANONYMOUS;
    }
    const found = await this.authenticateToken(token, [this.#components.serviceAccounts.issuer]);
    if (found === undefined) throw unauthorized();
    return found.user;
  }

  /** Undefined: the token is none of ours. */
  async authenticateToken(
    token: string,
    audiences: readonly string[],
  ): Promise<{ readonly user: UserInfo; readonly audiences: readonly string[] } | undefined> {
    const fixed = this.#tokens.find((each) => sameSecret(each.token, token));
    const isForUs = audiences.includes(this.#components.serviceAccounts.issuer);
    if (fixed !== undefined) {
      const { user, uid = "", groups } = fixed;
      return isForUs
        ? { user: { name: user, uid, groups: [...groups, AUTHENTICATED], extra: {} }, audiences }
        : undefined;
    }
    const bootstrap = isForUs ? this.#fromBootstrapToken(token) : undefined;
    if (bootstrap !== undefined) return { user: bootstrap, audiences };
    return this.#components.serviceAccounts.verify(token, audiences);
  }

  #fromCertificate({ socket }: IncomingMessage): UserInfo | undefined {
    if (!(socket instanceof TLSSocket)) return undefined;
    let known = this.#certificates.get(socket);
    if (known === undefined) {
      known = readCertificate(socket);
      this.#certificates.set(socket, known);
    }
    if (known === "none") return undefined;
    // A connection may outlive its certificate.
    if (known === "invalid") throw unauthorized();
    const isRevoked = this.#components.isRevoked(known.facts);
    if (isRevoked === undefined) {
      throw new StatusError("ServiceUnavailable", "which certificates are revoked has not been read yet: try again");
    }
    if (isRevoked) throw unauthorized();
    if (known.notAfterMs < this.#components.clock.wall().getTime()) throw unauthorized();
    return known.user;
  }

  #fromBootstrapToken(token: string): UserInfo | undefined {
    const [, id = "", secret = ""] = /^([a-z0-9]{6})\.([a-z0-9]{16})$/.exec(token) ?? [];
    if (id === "") return undefined;
    const object = this.#components.lookup.get("secrets", "kube-system", `bootstrap-token-${id}`);
    if (object === undefined || object.type !== "bootstrap.kubernetes.io/token") return undefined;
    const value = (key: string): string => secretValue(object, key);
    const expiration = value("expiration");
    const isExpired = expiration !== "" && !(Date.parse(expiration) > this.#components.clock.wall().getTime());
    const isRight = sameSecret(value("token-secret"), secret) && value("token-id") === id;
    if (!isRight || isExpired || value("usage-bootstrap-authentication") !== "true") return undefined;
    if (object.metadata.deletionTimestamp !== undefined) return undefined;
    const extra = value("auth-extra-groups")
      .split(",")
      .filter((each) => /^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$/.test(each));
    return {
      name: `system:bootstrap:${id}`,
      uid: "",
      groups: ["system:bootstrappers", ...extra, AUTHENTICATED],
      extra: {},
    };
  }
}

function secretValue(object: ApiObject, key: string): string {
  const data = object.data;
  const value =
    typeof data === "object" && data !== null ? (data as Readonly<Record<string, unknown>>)[key] : undefined;
  return typeof value === "string" ? Buffer.from(value, "base64").toString("utf8") : "";
}

/** Browsers cannot set headers on a WebSocket: Kubernetes takes the token as a subprotocol. */
function webSocketToken({ headers }: IncomingMessage): string | undefined {
  const prefix = "base64url.bearer.authorization.k8s.io.";
  const protocols = (headers["sec-websocket-protocol"] ?? "").split(",").map((each) => each.trim());
  const found = protocols.find((each) => each.startsWith(prefix));
  return found === undefined ? undefined : Buffer.from(found.slice(prefix.length), "base64url").toString("utf8");
}

function readCertificate(socket: TLSSocket): CertificateUser | "none" | "invalid" {
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return "none";
  if (!socket.authorized) return "invalid";
  const { CN, O: organizations } = certificate.toLegacyObject().subject as { CN?: unknown; O?: unknown };
  if (typeof CN !== "string" || CN === "") return "invalid";
  const listed: readonly unknown[] = Array.isArray(organizations) ? organizations : [organizations];
  const groups = listed.filter((each): each is string => typeof each === "string" && each !== "");
  const node = nodeOfUser({ name: CN, groups });
  // A name that no node can have, of whom the rules for nodes would say nothing.
  if (node === undefined && groups.includes(NODES_GROUP)) return "invalid";
  const spkiHash = createHash("sha256")
    .update(certificate.publicKey.export({ type: "spki", format: "der" }))
    .digest("hex");
  const credential = `X509SHA256=${createHash("sha256").update(certificate.raw).digest("hex")}`;
  const ofNode = { [CERTIFICATE_KEY_EXTRA]: [spkiHash] };
  const extra = { [CREDENTIAL_ID]: [credential], ...(node === undefined ? {} : ofNode) };
  const user = { name: CN, uid: "", groups: [...new Set([...groups, AUTHENTICATED])], extra };
  return { user, notAfterMs: Date.parse(certificate.validTo), facts: { node, spkiHash } };
}
