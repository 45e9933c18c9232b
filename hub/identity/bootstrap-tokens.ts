/**
 * Kubernetes' bootstrap tokens: Secrets `bootstrap-token-<id>` of type bootstrap.kubernetes.io/token in kube-system,
 * the same that kubeadm makes. https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
 */

import { createHash, randomInt, timingSafeEqual } from "node:crypto";
import { HUB_NAMESPACE } from "@picolet/hub-core/access-table.ts";
import { type KubeClient, type KubeObject, SECRETS } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { JoinTokens, VerifiedToken } from "@picolet/hub-core/node-credentials.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import { TOKEN_PATTERN } from "@picolet/protocol/pki/join-messages.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { TokenUses } from "./token-uses.ts";

/** A token of this group may give the name of a node to another board. */
export const REPLACE_NODES_GROUP = "system:bootstrappers:picolet:replace-nodes";
/** Every token has it. */
const BOOTSTRAPPERS_GROUP = "system:bootstrappers";
/** Extra groups as Kubernetes allows them. */
const GROUP_PATTERN = /^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$/;

export interface CreateTokenInit {
  /**
   * Milliseconds from now; 0: never expires, as kubeadm has it. The command line's default is an hour: time to get from
   * the terminal to the board and power it on, not time to leak. kubeadm's day is there for the asking.
   */
  readonly ttlMs: number;
  readonly description: string;
  /** True when boards that join with it may take over names that others have. */
  readonly replaceNodes: boolean;
  /** How many nodes may join with it; undefined: any number. */
  readonly uses?: number | undefined;
}

export interface TokenReport {
  readonly id: string;
  /** Undefined: never. */
  readonly expiresAtMs: number | undefined;
  readonly description: string;
  readonly groups: readonly string[];
  /** `authentication`, `signing`. */
  readonly usages: readonly string[];
  /** Undefined: any number of nodes may join with it. */
  readonly uses?: { readonly used: number; readonly most: number };
}

/** An annotation: kubeadm and Kubernetes' own controllers leave it alone. */
const USES = "picolet.io/uses";
const NAMESPACE = "kube-system";
const TYPE = "bootstrap.kubernetes.io/token";
const ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH = 6;
const SECRET_LENGTH = 16;
/** 36^6 ids: even the second attempt is never needed. */
const MAX_ATTEMPTS = 5;
/** Compared with where there is no such token, so that the work is the same. */
const NO_SECRET = "0".repeat(SECRET_LENGTH);

export class BootstrapTokens implements JoinTokens {
  readonly #client: KubeClient;
  readonly #clock: Clock;
  readonly #uses: TokenUses;

  constructor(components: { readonly client: KubeClient; readonly clock: Clock }) {
    this.#client = components.client;
    this.#clock = components.clock;
    this.#uses = new TokenUses(components, { namespace: HUB_NAMESPACE });
  }

  async verify(token: string, signal: AbortSignal): Promise<VerifiedToken> {
    if (!TOKEN_PATTERN.test(token)) throw new PicoletError("permission_denied", "the token is not of the form of one");
    const [id = "", secret = ""] = token.split(".");
    const object = await this.#find(id, signal);
    const data = dataOf(object);
    const isRight = equal(secret, data["token-secret"] ?? NO_SECRET);
    const why = problemOf(object, data, id, this.#clock.wall()) ?? (isRight ? undefined : "the secret is wrong");
    if (why !== undefined) throw new PicoletError("permission_denied", `token ${id}: ${why}`);
    const uses = usesOf(object);
    return { id, groups: [BOOTSTRAPPERS_GROUP, ...extraGroups(data)], ...(uses === undefined ? {} : { uses }) };
  }

  async use({ id, uses }: VerifiedToken, node: string, signal: AbortSignal): Promise<void> {
    if (uses !== undefined) await this.#uses.take(id, uses, node, signal);
  }

  /** @returns the token, which is shown once and cannot be asked for again by anyone who may not read Secrets there */
  async create({ ttlMs, description, replaceNodes, uses }: CreateTokenInit, signal: AbortSignal): Promise<string> {
    for (let attempt = 1; ; attempt += 1) {
      const [id, secret] = [randomText(ID_LENGTH), randomText(SECRET_LENGTH)];
      const expiration = kubeTime(this.#clock.wall().getTime() + ttlMs);
      const data: Record<string, string> = {
        "token-id": id,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        ...(ttlMs === 0 ? {} : { expiration }),
        ...(description === "" ? {} : { description }),
        ...(replaceNodes ? { "auth-extra-groups": REPLACE_NODES_GROUP } : {}),
      };
      const encoded = Object.entries(data).map(
        ([name, value]) => [name, Buffer.from(value).toString("base64")] as const,
      );
      const name = nameOf(id);
      const object = {
        apiVersion: "v1",
        kind: "Secret",
        metadata: {
          name,
          namespace: NAMESPACE,
          ...(uses === undefined ? {} : { annotations: { [USES]: String(uses) } }),
        },
        type: TYPE,
        data: Object.fromEntries(encoded),
      };
      try {
        if (uses !== undefined)
          await this.#uses.prune(
            (await this.list(signal)).map((each) => each.id),
            signal,
          );
        await this.#client.create(SECRETS, { namespace: NAMESPACE, name }, object, {}, signal);
        return `${id}.${secret}`;
      } catch (error) {
        if (!isPicoletError(error, "already_exists") || attempt >= MAX_ATTEMPTS) throw error;
      }
    }
  }

  /** Those that have expired too, until the cluster's token cleaner removes them. */
  async list(signal: AbortSignal): Promise<readonly TokenReport[]> {
    const reports = (await this.#all(signal)).map(async (object): Promise<TokenReport> => {
      const data = dataOf(object);
      const expiration = data.expiration === undefined ? undefined : Date.parse(data.expiration);
      const id = data["token-id"] ?? object.metadata.name.slice(nameOf("").length);
      const most = usesOf(object);
      return {
        id,
        expiresAtMs: expiration,
        description: data.description ?? "",
        groups: extraGroups(data),
        usages: ["authentication", "signing"].filter((usage) => data[`usage-bootstrap-${usage}`] === "true"),
        ...(most === undefined ? {} : { uses: { used: await this.#uses.count(id, signal), most } }),
      };
    });
    return await Promise.all(reports);
  }

  /** @param idOrToken both are understood, as by kubeadm. @throws `not_found`, `invalid` */
  async delete(idOrToken: string, signal: AbortSignal): Promise<void> {
    const id = idOrToken.split(".")[0] ?? "";
    if (!/^[a-z0-9]{6}$/.test(id)) throw new PicoletError("invalid", "a token's id has six characters of a-z and 0-9");
    await this.#client.delete(SECRETS, { namespace: NAMESPACE, name: nameOf(id) }, {}, signal);
    await this.#uses.forget(id, signal);
  }

  async #all(signal: AbortSignal): Promise<readonly KubeObject[]> {
    const options = { namespace: NAMESPACE, fieldSelector: `type=${TYPE}` };
    const { items } = await this.#client.list(SECRETS, options, signal);
    return items.filter(({ type }) => type === TYPE);
  }

  async #find(id: string, signal: AbortSignal): Promise<KubeObject | undefined> {
    try {
      return await this.#client.get(SECRETS, { namespace: NAMESPACE, name: nameOf(id) }, signal);
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw error;
    }
  }
}

/** A number that cannot be read lets no one in. Undefined: there is no limit. */
function usesOf(object: KubeObject | undefined): number | undefined {
  const text = object?.metadata.annotations?.[USES];
  if (text === undefined) return undefined;
  return /^\d{1,6}$/.test(text) ? Number(text) : 0;
}

const nameOf = (id: string): string => `bootstrap-token-${id}`;

const randomText = (length: number): string =>
  Array.from({ length }, () => ALPHABET[randomInt(ALPHABET.length)] ?? "").join("");

const equal = (left: string, right: string): boolean =>
  timingSafeEqual(createHash("sha256").update(left).digest(), createHash("sha256").update(right).digest());

function problemOf(
  object: KubeObject | undefined,
  data: Readonly<Record<string, string>>,
  id: string,
  now: Date,
): string | undefined {
  if (object === undefined) return "no token has this id";
  if (object.type !== TYPE || data["token-id"] !== id || data["token-secret"] === undefined) return "it is malformed";
  if (object.metadata.deletionTimestamp !== undefined) return "it is being deleted";
  // An expiration that cannot be read counts as over, as in Kubernetes.
  if (data.expiration !== undefined && !(Date.parse(data.expiration) > now.getTime())) return "it has expired";
  return data["usage-bootstrap-authentication"] === "true" ? undefined : "it is not for authentication";
}

/** A Secret's `data` as text. */
export function dataOf(object: KubeObject | undefined): Readonly<Record<string, string>> {
  const data = object?.data;
  if (typeof data !== "object" || data === null) return {};
  const texts = Object.entries(data).filter((entry): entry is [string, string] => typeof entry[1] === "string");
  return Object.fromEntries(texts.map(([name, value]) => [name, Buffer.from(value, "base64").toString("utf8")]));
}

const extraGroups = (data: Readonly<Record<string, string>>): string[] =>
  (data["auth-extra-groups"] ?? "").split(",").filter((group) => GROUP_PATTERN.test(group));
