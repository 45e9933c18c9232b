import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { isMirrorPod } from "@picolet/hub-core/pod-references.ts";
import type { Clock, Random } from "@picolet/protocol/ports.ts";
import { calculateJwkThumbprint, exportJWK, jwtVerify, SignJWT } from "jose";
import { generateUid } from "../api/object-meta.ts";
import type { ApiObject, ObjectLookup, UserInfo } from "../api/resource-definition.ts";
import type { ObjectStore } from "../store/object-store.ts";
import { AUTHENTICATED, SERVICE_ACCOUNTS } from "./attributes.ts";

const ALGORITHM = "ES256";
const KEY_NAME = "service-account-key";
/** A pod that is being deleted keeps its tokens as long after its deletion time, as in Kubernetes. */
const POD_GRACE_MS = 60_000;

/** The object that a token is tied to: the token ends with it. */
export interface TokenBinding {
  readonly kind: "Pod" | "Secret" | "Node";
  readonly name: string;
  readonly uid: string;
}

export interface TokenSpec {
  readonly namespace: string;
  readonly serviceAccount: { readonly name: string; readonly uid: string };
  readonly audiences: readonly string[];
  readonly expirationSeconds: number;
  readonly binding: TokenBinding | undefined;
  /** The node of the bound pod. */
  readonly node: { readonly name: string; readonly uid: string } | undefined;
}

interface BoundClaim {
  readonly name?: unknown;
  readonly uid?: unknown;
}

interface KubernetesClaims {
  readonly namespace?: unknown;
  readonly serviceaccount?: BoundClaim;
  readonly pod?: BoundClaim;
  readonly secret?: BoundClaim;
  readonly node?: BoundClaim;
}

interface Components {
  readonly store: ObjectStore;
  readonly lookup: ObjectLookup;
  readonly clock: Clock;
  readonly random: Random;
}

/** Bound tokens of service accounts: signed and checked here, and by others through the published keys. */
export class ServiceAccountTokens {
  readonly issuer: string;
  readonly #components: Components;
  readonly #privateKey: KeyObject;
  readonly #publicKey: KeyObject;

  /**
   * @param issuer the `iss` of tokens and the audience of the API itself:
   * `https://kubernetes.default.svc.cluster.local`
   */
  constructor(components: Components, issuer: string) {
    this.issuer = issuer;
    this.#components = components;
    this.#privateKey = createPrivateKey(storedKey(components.store));
    this.#publicKey = createPublicKey(this.#privateKey);
  }

  async sign(spec: TokenSpec): Promise<{ readonly token: string; readonly expiresAt: Date }> {
    const { clock, random } = this.#components;
    const now = Math.floor(clock.wall().getTime() / 1000);
    const expires = now + spec.expirationSeconds;
    const { binding, node, namespace, serviceAccount } = spec;
    const claims = {
      "kubernetes.io": {
        namespace,
        serviceaccount: serviceAccount,
        ...(binding === undefined ? {} : { [binding.kind.toLowerCase()]: { name: binding.name, uid: binding.uid } }),
        ...(node === undefined ? {} : { node }),
      },
    };
    const token = await new SignJWT(claims)
      .setProtectedHeader({ alg: ALGORITHM, kid: await this.#keyId() })
      .setIssuer(this.issuer)
      .setSubject(`system:serviceaccount:${namespace}:${serviceAccount.name}`)
      .setAudience([...spec.audiences])
      .setIssuedAt(now)
      .setNotBefore(now)
      .setExpirationTime(expires)
      .setJti(generateUid(random))
      .sign(this.#privateKey);
    return { token, expiresAt: new Date(expires * 1000) };
  }

  /**
   * The user of a token, and those of `audiences` that it is for; undefined for a token that is not valid here.
   * @param audiences one of them must be the token's
   */
  async verify(
    token: string,
    audiences: readonly string[],
  ): Promise<{ readonly user: UserInfo; readonly audiences: readonly string[] } | undefined> {
    const currentDate = this.#components.clock.wall();
    let payload: Awaited<ReturnType<typeof jwtVerify>>["payload"];
    try {
      const options = { issuer: this.issuer, audience: [...audiences], algorithms: [ALGORITHM], currentDate };
      ({ payload } = await jwtVerify(token, this.#publicKey, { ...options, requiredClaims: ["exp", "sub"] }));
    } catch {
      return undefined;
    }
    const claims = payload["kubernetes.io"] as KubernetesClaims | undefined;
    const namespace = String(claims?.namespace ?? "");
    const name = String(claims?.serviceaccount?.name ?? "");
    const account = this.#components.lookup.get("serviceaccounts", namespace, name);
    if (claims === undefined || account === undefined || account.metadata.uid !== claims.serviceaccount?.uid)
      return undefined;
    if (account.metadata.deletionTimestamp !== undefined || !this.#isBoundToLiving(namespace, claims)) return undefined;
    const found = typeof payload.aud === "string" ? [payload.aud] : (payload.aud ?? []);
    return {
      user: userOf(namespace, account, claims, payload.jti),
      audiences: found.filter((each) => audiences.includes(each)),
    };
  }

  /** RFC 7517, for `/openid/v1/jwks`. */
  async keys(): Promise<Readonly<Record<string, unknown>>> {
    const jwk = await exportJWK(this.#publicKey);
    return { keys: [{ use: "sig", ...jwk, kid: await this.#keyId(), alg: ALGORITHM }] };
  }

  discovery(address: string): Readonly<Record<string, unknown>> {
    return {
      issuer: this.issuer,
      jwks_uri: `${address}/openid/v1/jwks`,
      response_types_supported: ["id_token"],
      subject_types_supported: ["public"],
      id_token_signing_alg_values_supported: [ALGORITHM],
    };
  }

  async #keyId(): Promise<string> {
    return calculateJwkThumbprint(await exportJWK(this.#publicKey));
  }

  #isBoundToLiving(namespace: string, { pod, secret, node }: KubernetesClaims): boolean {
    const { lookup } = this.#components;
    const isAlive = (claim: BoundClaim | undefined, found: (name: string) => ApiObject | undefined): boolean => {
      if (claim === undefined) return true;
      const object = found(String(claim.name ?? ""));
      if (object === undefined || object.metadata.uid !== claim.uid) return false;
      // Not signed any more; earlier versions did.
      if (isMirrorPod(object)) return false;
      const { deletionTimestamp } = object.metadata;
      const now = this.#components.clock.wall().getTime();
      return deletionTimestamp === undefined || now < Date.parse(deletionTimestamp) + POD_GRACE_MS;
    };
    return (
      isAlive(pod, (name) => lookup.get("pods", namespace, name)) &&
      isAlive(secret, (name) => lookup.get("secrets", namespace, name)) &&
      // With a pod the node is information only.
      (pod !== undefined || isAlive(node, (name) => lookup.get("nodes", "", name)))
    );
  }
}

function storedKey(store: ObjectStore): string {
  const known = store.getMeta(KEY_NAME);
  if (known !== undefined) return known;
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const pem = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  store.setMeta(KEY_NAME, pem);
  return pem;
}

export const serviceAccountUser = (namespace: string, name: string): string =>
  `system:serviceaccount:${namespace}:${name}`;

function userOf(
  namespace: string,
  account: ApiObject,
  { pod, node }: KubernetesClaims,
  id: string | undefined,
): UserInfo {
  const extra: Record<string, string[]> = {};
  const note = (what: string, claim: BoundClaim | undefined): void => {
    if (claim === undefined) return;
    extra[`authentication.kubernetes.io/${what}-name`] = [String(claim.name)];
    extra[`authentication.kubernetes.io/${what}-uid`] = [String(claim.uid)];
  };
  note("pod", pod);
  note("node", node);
  if (id !== undefined) extra["authentication.kubernetes.io/credential-id"] = [`JTI=${id}`];
  return {
    name: serviceAccountUser(namespace, account.metadata.name),
    uid: account.metadata.uid ?? "",
    groups: [SERVICE_ACCOUNTS, `${SERVICE_ACCOUNTS}:${namespace}`, AUTHENTICATED],
    extra,
  };
}
