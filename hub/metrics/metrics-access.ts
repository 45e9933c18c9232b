/** Decides which users may read the metrics of the hub and its boards. */
import type { IncomingMessage } from "node:http";
import { TLSSocket } from "node:tls";
import {
  type KubeletUser,
  type PathQuestion,
  type ResourceQuestion,
  ReviewedAccess,
  type Reviews,
  subjectUser,
  unauthorized,
} from "@picolet/kubelet-api/serving/kubelet-access.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { verifyChain } from "@picolet/protocol/pki/chain.ts";
import { CLIENT_AUTH } from "@picolet/protocol/pki/extensions.ts";
import { certificatesOf } from "@picolet/protocol/pki/pem.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { isSignedBy, peerChain } from "../identity/authenticate-node.ts";

export type MetricsQuestion = PathQuestion | ResourceQuestion;

/** How an API server that passes requests on shows for whom (its `--requestheader-…` flags). */
export interface FrontProxy {
  /** PEM: the CA of its client certificate; "": there is none, and no request is believed to be passed on. */
  readonly ca: string;
  /** Common names of such certificates; empty: any. */
  readonly allowedNames: readonly string[];
  /** Names of headers in lower case. */
  readonly userHeaders: readonly string[];
  readonly groupHeaders: readonly string[];
  /** Beginnings of names of headers, in lower case; the rest of the name is a key of the user's `extra`. */
  readonly extraPrefixes: readonly string[];
}

export interface MetricsAccessComponents {
  readonly reviews: Reviews<MetricsQuestion>;
  /** PEM: the CAs of users' client certificates. */
  readonly clientCa: Watch<string>;
  readonly frontProxy: Watch<FrontProxy>;
  readonly clock: Clock;
}

const MAX_NAME = 1024;
const MAX_GROUPS = 256;

const ANONYMOUS = "system:anonymous";
const AUTHENTICATED = "system:authenticated";
const UNAUTHENTICATED = "system:unauthenticated";

/**
 * Adds the group of all users, as a Kubernetes API server does. An API server that asks in its own name, as
 * `system:kube-aggregator` for discovery, names no group.
 */
function withAuthenticated(name: string, groups: readonly string[]): readonly string[] {
  const isSaid = groups.includes(AUTHENTICATED) || groups.includes(UNAUTHENTICATED);
  return isSaid || name === ANONYMOUS ? groups : [...groups, AUTHENTICATED];
}

/** @param headers names and values in turn; keys are percent-encoded in names, as Kubernetes has them */
function extraIn(headers: readonly string[], prefixes: readonly string[]): KubeletUser["extra"] {
  const extra = new Map<string, string[]>();
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const [name = "", value = ""] = [headers[at]?.toLowerCase(), headers[at + 1]];
    const prefix = prefixes.find((each) => each !== "" && name.startsWith(each));
    if (prefix === undefined) continue;
    const key = decodedKey(name.slice(prefix.length));
    extra.set(key, [...(extra.get(key) ?? []), value]);
  }
  return extra.size === 0 ? undefined : Object.fromEntries(extra);
}

function decodedKey(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export class MetricsAccess {
  readonly #components: MetricsAccessComponents;
  readonly #access: ReviewedAccess<MetricsQuestion>;

  constructor(components: MetricsAccessComponents) {
    this.#components = components;
    this.#access = new ReviewedAccess(components);
  }

  /** PEM: the CAs that a server asks client certificates of. */
  get clientCas(): string {
    return `${this.#components.clientCa.current}\n${this.#components.frontProxy.current.ca}`;
  }

  /**
   * Finds the user that a certificate of the front proxy names, else the subject of one of the client CA, else the user
   * of the token.
   * The issuer of a certificate is judged here, so that none counts for both.
   * @throws `permission_denied`, with the reason `Unauthorized` for an unknown user
   */
  async userOf(request: IncomingMessage, signal: AbortSignal): Promise<KubeletUser> {
    const { socket } = request;
    const user = socket instanceof TLSSocket ? (this.#passedOn(request, socket) ?? this.#certified(socket)) : undefined;
    const known = user ?? (await this.#access.bearer(request, signal));
    if (known === undefined) throw unauthorized();
    return known;
  }

  /** @throws `permission_denied` */
  async require(user: KubeletUser, question: MetricsQuestion, signal: AbortSignal): Promise<void> {
    if (await this.#access.allows(user, question, signal)) return;
    const what =
      "path" in question
        ? `path "${question.path}"`
        : `resource "${question.resource}" in API group "${question.group}"`;
    throw new PicoletError("permission_denied", `User "${user.name}" cannot ${question.verb} ${what}`);
  }

  #passedOn(request: IncomingMessage, socket: TLSSocket): KubeletUser | undefined {
    const { ca, allowedNames, userHeaders, groupHeaders, extraPrefixes } = this.#components.frontProxy.current;
    const header = (name: string): string => [request.headers[name] ?? []].flat().join(",");
    const name = userHeaders.map(header).find((value) => value !== "");
    if (ca === "" || name === undefined || name.length > MAX_NAME || !this.#isIssuedBy(ca, socket)) return undefined;
    const proxy = subjectUser(socket)?.name ?? "";
    // With no list of names any certificate of the CA is the proxy's: then it may issue no user's.
    const isNamed = allowedNames.length === 0 ? !this.#isUsers(socket) : allowedNames.includes(proxy);
    if (!isNamed) return undefined;
    // Several headers of one name, which Node joins but for the raw ones.
    const { rawHeaders } = request;
    const groups = rawHeaders.flatMap((raw, index) =>
      index % 2 === 0 && groupHeaders.includes(raw.toLowerCase()) ? (rawHeaders[index + 1] ?? []) : [],
    );
    const extra = extraIn(rawHeaders, extraPrefixes);
    return {
      name,
      groups: withAuthenticated(name, groups.slice(0, MAX_GROUPS)),
      ...(extra !== undefined && { extra }),
    };
  }

  #certified(socket: TLSSocket): KubeletUser | undefined {
    return this.#isUsers(socket) ? subjectUser(socket) : undefined;
  }

  #isUsers(socket: TLSSocket): boolean {
    return this.#isIssuedBy(this.#components.clientCa.current, socket);
  }

  #isIssuedBy(ca: string, socket: TLSSocket): boolean {
    const chain = peerChain(socket);
    const anchors = certificatesOf(ca);
    if (chain.length === 0 || anchors.length === 0) return false;
    const atMs = this.#components.clock.wall().getTime();
    try {
      const time = { atMs, isLowerBound: false, graceMs: 0 };
      verifyChain({ chain, anchors, purpose: CLIENT_AUTH, time, isSignedBy });
      return true;
    } catch {
      return false;
    }
  }
}
