import { hash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, type MonotonicMs, seconds } from "@picolet/protocol/ports.ts";
import { subresourcesOf } from "./kubelet-path.ts";

export interface KubeletUser {
  readonly name: string;
  readonly groups: readonly string[];
  /** Facts that the user's authenticator added, for webhooks that authorize by them. */
  readonly extra?: Readonly<Record<string, readonly string[]>> | undefined;
}

export interface AccessQuestion {
  /** `get`, `create` … of resource `nodes`. */
  readonly verb: string;
  readonly node: string;
  /** `proxy`, `log`, `stats`, `metrics` … */
  readonly subresource: string;
}

/** A right to a path that is no resource. */
export interface PathQuestion {
  readonly verb: string;
  readonly path: string;
}

/** A right to objects of an API group. */
export interface ResourceQuestion {
  readonly verb: string;
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  /** "" for all, and for resources without. */
  readonly namespace: string;
  /** "" for collections. */
  readonly name: string;
}

/**
 * Authenticates and authorizes users: Kubernetes through TokenReview and SubjectAccessReview, or the embedded server
 * itself.
 */
export interface Reviews<Question> {
  /** @returns undefined for an unknown token. @throws when the reviewer is not available */
  userOfToken(token: string, signal: AbortSignal): Promise<KubeletUser | undefined>;
  allows(user: KubeletUser, question: Question, signal: AbortSignal): Promise<boolean>;
}
export type KubeletReviews = Reviews<AccessQuestion>;

/**
 * The kubelet's defaults: authentication.webhook.cacheTTL, authorization.webhook.cacheAuthorizedTTL and
 * …UnauthorizedTTL.
 */
const TOKEN_TTL = seconds(120);
const ALLOWED_TTL = seconds(300);
const DENIED_TTL = seconds(30);
/** Answers kept, of either kind; the oldest goes. An API server is one user, asking of each node in few ways. */
const MAX_ANSWERS = 20_000;
/** Service account tokens have some 1,200 characters. */
const MAX_TOKEN_LENGTH = 16 * 1024;

const VERBS: Readonly<Record<string, string>> = {
  ...{ GET: "get", HEAD: "get", POST: "create" },
  ...{ PUT: "update", PATCH: "patch", DELETE: "delete" },
};

/** Answers that are good for a while. */
class AnswerCache<T> {
  readonly #clock: Clock;
  readonly #limit: number;
  readonly #answers = new Map<string, { readonly value: T; readonly until: MonotonicMs }>();

  constructor(clock: Clock, limit: number) {
    this.#clock = clock;
    this.#limit = limit;
  }

  get(key: string): T | undefined {
    const found = this.#answers.get(key);
    if (found === undefined) return undefined;
    if (found.until > this.#clock.monotonic()) return found.value;
    this.#answers.delete(key);
    return undefined;
  }

  set(key: string, value: T, ttl: Millis): void {
    this.#answers.delete(key);
    const [oldest] = this.#answers.keys();
    if (this.#answers.size >= this.#limit && oldest !== undefined) this.#answers.delete(oldest);
    this.#answers.set(key, { value, until: (this.#clock.monotonic() + ttl) as MonotonicMs });
  }
}

/** The kubelet's settings of `authentication` and `authorization`. */
export interface KubeletAccessInit {
  /** Default: `MAX_ANSWERS`. */
  readonly maxAnswers?: number;
  readonly tokenTtl?: Millis;
  readonly allowedTtl?: Millis;
  readonly deniedTtl?: Millis;
  /** False: a bearer token is no credential. Default: true. */
  readonly reviewsTokens?: boolean;
  /** True: a request without credentials has the user `system:anonymous`. Default: false. */
  readonly allowsAnonymous?: boolean;
  /** True: every user may do everything. Default: false. */
  readonly allowsEverything?: boolean;
  /** Called before the reviewer is asked for a request, which no cached answer is for. @throws to refuse the request */
  readonly beforeReview?: (request: IncomingMessage) => void;
}

/** Users by client certificate or bearer token, and their rights, each for as long as a kubelet keeps an answer. */
export class ReviewedAccess<Question> {
  readonly #reviews: Reviews<Question>;
  readonly #init: KubeletAccessInit;
  readonly #users: AnswerCache<KubeletUser>;
  readonly #answers: AnswerCache<boolean>;

  constructor(
    { reviews, clock }: { readonly reviews: Reviews<Question>; readonly clock: Clock },
    init: KubeletAccessInit = {},
  ) {
    const { maxAnswers = MAX_ANSWERS } = init;
    this.#reviews = reviews;
    this.#init = init;
    this.#users = new AnswerCache(clock, maxAnswers);
    this.#answers = new AnswerCache(clock, maxAnswers);
  }

  /** @returns undefined: the request has no token, or an unknown one */
  async bearer(request: IncomingMessage, signal: AbortSignal): Promise<KubeletUser | undefined> {
    const token = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "")?.[1];
    if (token === undefined || token.length > MAX_TOKEN_LENGTH) return undefined;
    const { tokenTtl = TOKEN_TTL, beforeReview } = this.#init;
    const key = hash("sha256", token);
    const known = this.#users.get(key);
    if (known !== undefined) return known;
    beforeReview?.(request);
    const user = await this.#reviews.userOfToken(token, signal);
    if (user !== undefined) this.#users.set(key, user, tokenTtl);
    return user;
  }

  /** @param request the request that asks, for `beforeReview` */
  async allows(
    user: KubeletUser,
    question: Question,
    signal: AbortSignal,
    request?: IncomingMessage,
  ): Promise<boolean> {
    const { allowedTtl = ALLOWED_TTL, deniedTtl = DENIED_TTL, beforeReview } = this.#init;
    const key = JSON.stringify([user.name, user.groups, user.extra ?? {}, question]);
    const known = this.#answers.get(key);
    if (known !== undefined) return known;
    if (request !== undefined) beforeReview?.(request);
    const allowed = await this.#reviews.allows(user, question, signal);
    this.#answers.set(key, allowed, allowed ? allowedTtl : deniedTtl);
    return allowed;
  }
}

const ANONYMOUS: KubeletUser = { name: "system:anonymous", groups: ["system:unauthenticated"] };

/** Answered with 401. @param cause why it is not known who asks */
export const unauthorized = (cause?: unknown): PicoletError =>
  new PicoletError("permission_denied", "Unauthorized", { reason: "Unauthorized", cause });

/** Authenticates by a client certificate or a bearer token, then reviews the user's rights. */
export class KubeletAccess {
  readonly #access: ReviewedAccess<AccessQuestion>;
  readonly #init: KubeletAccessInit;

  constructor(components: { readonly reviews: KubeletReviews; readonly clock: Clock }, init: KubeletAccessInit = {}) {
    this.#access = new ReviewedAccess(components, init);
    this.#init = init;
  }

  /** @throws `permission_denied`, with the reason `Unauthorized` for an unknown user */
  async check(request: IncomingMessage, node: string, signal: AbortSignal): Promise<KubeletUser> {
    const user = await this.#userOf(request, signal);
    if (this.#init.allowsEverything === true) return user;
    const verb = VERBS[request.method ?? ""] ?? "";
    const subresources = subresourcesOf(request.url ?? "");
    for (const subresource of subresources) {
      if (await this.#access.allows(user, { verb, node, subresource }, signal, request)) return user;
    }
    const what = `user=${user.name}, verb=${verb}, resource=nodes, subresource(s)=[${subresources.join(" ")}]`;
    throw new PicoletError("permission_denied", `Forbidden (${what})`);
  }

  async #userOf(request: IncomingMessage, signal: AbortSignal): Promise<KubeletUser> {
    const { reviewsTokens = true, allowsAnonymous = false } = this.#init;
    const certified = certifiedUser(request.socket as TLSSocket);
    if (certified !== undefined) return certified;
    const user = reviewsTokens ? await this.#access.bearer(request, signal) : undefined;
    if (user !== undefined) return user;
    // As a kubelet: a credential that is wrong is no anonymous request.
    if (allowsAnonymous && (request.headers.authorization === undefined || !reviewsTokens)) return ANONYMOUS;
    throw unauthorized();
  }
}

const certifiedUser = (socket: TLSSocket): KubeletUser | undefined =>
  socket.authorized ? subjectUser(socket) : undefined;

/**
 * The user of a certificate, which the caller has verified. Kubernetes' way: the common name is the user, organisations
 * are groups.
 */
export function subjectUser(socket: TLSSocket): KubeletUser | undefined {
  const subject: { readonly CN?: string | string[]; readonly O?: string | string[] } | undefined =
    socket.getPeerCertificate().subject;
  const [name, ...more] = [subject?.CN ?? []].flat();
  if (name === undefined || name === "" || more.length > 0) return undefined;
  return { name, groups: [...[subject?.O ?? []].flat(), "system:authenticated"] };
}
