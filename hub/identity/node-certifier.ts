/**
 * The one place that decides who may have a node's name, for every way to a node's client certificate (joining,
 * renewal, CertificateSigningRequests), and the one that takes a name away. It writes the record before anything is
 * signed.
 */

import type { LabelledCounts } from "@picolet/hub-core/counts.ts";
import {
  CERTIFICATE_KEY_EXTRA,
  isRevoked,
  type NodeKeyRecord,
  type NodeKeys,
  type Revocations,
} from "@picolet/hub-core/node-credentials.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { nodeOfUser } from "@picolet/protocol/pki/node-subject.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import { REPLACE_NODES_GROUP } from "./bootstrap-tokens.ts";
import type { RevokedKeysInKubernetes } from "./node-keys.ts";

/** The claim of a key to a name. */
export type NodeClaim =
  /** A join token, or the consent of the approver of the request. */
  | { readonly kind: "token"; readonly mayReplace: boolean }
  /** A certificate of that name, whose key its holder has proved to have. */
  | {
      readonly kind: "renewal";
      readonly spkiHash: string;
      readonly hasExpired: boolean;
    };

export interface RequestedIdentity {
  readonly node: string;
  /** Hash of the key that asks for the name. */
  readonly spkiHash: string;
}

/** A user of the API server who has made a CertificateSigningRequest. */
export interface Requestor {
  readonly name: string;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

export interface NodeCertifierComponents {
  readonly keys: NodeKeys;
  readonly revoked: Pick<RevokedKeysInKubernetes, "read" | "revoke" | "admit">;
  readonly clock: Clock;
  readonly log: Log;
  /** By the kind of the claim and its result: `granted`, or the code of the refusal. */
  readonly claims?: LabelledCounts;
}

/** Replicas and the API server's controller write one record; each is certified about once a year. */
const MAX_CONFLICTS = 5;
export class NodeCertifier {
  readonly #components: NodeCertifierComponents;

  constructor(components: NodeCertifierComponents) {
    this.#components = components;
  }

  /**
   * Records that `wish` has the name from now on, unless it may not. A certificate may be signed once this has
   * resolved.
   * @throws `permission_denied`; `unavailable` (retryable) when the record keeps changing
   */
  async claim(wish: RequestedIdentity, claim: NodeClaim, signal: AbortSignal): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#claimOnce(wish, claim, signal);
        this.#components.claims?.add([claim.kind, "granted"]);
        return;
      } catch (error) {
        if (!isPicoletError(error, "conflict")) {
          if (!isCancelled(error))
            this.#components.claims?.add([claim.kind, isPicoletError(error) ? error.code : "internal"]);
          throw error;
        }
        if (attempt >= MAX_CONFLICTS) {
          this.#components.claims?.add([claim.kind, "conflict"]);
          const message = `node ${wish.node} is being certified just now`;
          throw new PicoletError("unavailable", message, { retryable: true, cause: error });
        }
      }
    }
  }

  /**
   * Refuses a requestor whose own certificate was revoked after it made its request.
   * @throws `permission_denied`
   */
  async checkRequestor(requestor: Requestor, node: string, signal: AbortSignal): Promise<void> {
    const spkiHash = requestor.extra[CERTIFICATE_KEY_EXTRA]?.[0];
    // An administrator who acts as the node shows no certificate of it.
    if (spkiHash === undefined) return;
    if (isRevoked(await this.#components.revoked.read(signal), { node, spkiHash })) {
      throw new PicoletError("permission_denied", `the certificate of node ${node} was revoked`);
    }
  }

  /**
   * `picolet-hub node reset`: every certificate that the name has ever got is refused from now on, and the name is
   * free.
   * @returns the key on record, if there was one
   */
  async reset(node: string, signal: AbortSignal): Promise<string | undefined> {
    const { keys, revoked, log } = this.#components;
    const record = await keys.get(node, signal).catch((error: unknown) => {
      if (!isPicoletError(error, "corrupt")) throw error;
      log.warn("resets a node whose key record is damaged", { node, error: describeError(error) });
      return undefined;
    });
    await revoked.revoke(node, { spkiHash: record?.spkiHash, newKey: undefined }, signal);
    await keys.delete(node, signal);
    return record?.spkiHash;
  }

  async #claimOnce(wish: RequestedIdentity, claim: NodeClaim, signal: AbortSignal): Promise<void> {
    const { keys, revoked, log } = this.#components;
    const { node, spkiHash } = wish;
    const [known, revocations] = [await keys.get(node, signal), await revoked.read(signal)];
    const decision = judge(wish, claim, known, revocations);
    if (decision.kind === "recorded") return;
    if (decision.kind === "refused") throw new PicoletError("permission_denied", decision.why);
    if (decision.kind === "replace") {
      // The name gets a new board: the old one, should it still be somewhere, does not share it. First of all, as an
      // attempt that fails later is made again by a board whose key is on record then.
      await revoked.revoke(node, { spkiHash: known?.spkiHash, newKey: spkiHash }, signal);
      await this.#record(wish, known?.version, signal);
      return;
    }
    if (decision.warning !== undefined) log.warn(decision.warning, { node });
    await this.#record(wish, known?.version, signal);
    await revoked.admit(node, spkiHash, revocations.nodes.get(node), signal);
  }

  async #record(
    { node, spkiHash }: RequestedIdentity,
    version: string | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { keys, clock } = this.#components;
    await keys.set(node, { spkiHash, certifiedAtMs: clock.wall().getTime() }, version, signal);
  }
}

/** The claim of a user of the API server who requests `node`. */
export function claimOf(requestor: Requestor, node: string): NodeClaim {
  const spkiHash = requestor.extra[CERTIFICATE_KEY_EXTRA]?.[0];
  if (nodeOfUser(requestor) === node && spkiHash !== undefined) return { kind: "renewal", spkiHash, hasExpired: false };
  return { kind: "token", mayReplace: requestor.groups.includes(REPLACE_NODES_GROUP) };
}

type Decision =
  /** Nothing must be written: the hub recorded the key when it made the request, or at an earlier attempt. */
  | { readonly kind: "recorded" }
  | { readonly kind: "take"; readonly warning?: string }
  | { readonly kind: "replace" }
  | { readonly kind: "refused"; readonly why: string };

/** Pure. */
function judge(
  { node, spkiHash }: RequestedIdentity,
  claim: NodeClaim,
  known: NodeKeyRecord | undefined,
  revocations: Revocations,
): Decision {
  const refused = (why: string): Decision => ({ kind: "refused", why });
  if (revocations.keys.has(spkiHash)) {
    return refused("the key was revoked: remove the board's identity and join again");
  }
  const entry = revocations.nodes.get(node);
  // A record from before a reset, as of a backup or of a board that was certified in the same moment, is void.
  const record = entry === undefined || entry.keys.includes(known?.spkiHash ?? "") ? known : undefined;
  if (claim.kind === "token") {
    if (record === undefined) return { kind: "take" };
    if (record.spkiHash === spkiHash) return { kind: "recorded" };
    if (claim.mayReplace) return { kind: "replace" };
    return refused(
      `node ${node} has joined before with another key: choose another nodeName, or let it be replaced, with ` +
        `\`picolet-hub node reset ${node}\` or a token of \`picolet-hub token create --replace-nodes\``,
    );
  }
  if (isRevoked(revocations, { node, spkiHash: claim.spkiHash })) {
    return refused(`the certificate of node ${node} was revoked`);
  }
  // The record has the new key already when the answer to an earlier attempt was lost.
  const isLatest = record !== undefined && [claim.spkiHash, spkiHash].includes(record.spkiHash);
  if (claim.hasExpired && !isLatest) {
    const what = record === undefined ? "was deleted or reset" : "has another key by now";
    return refused(`node ${node} ${what}: it can only join again, with a token of \`picolet-hub token create\``);
  }
  const isDouble = record !== undefined && !isLatest;
  return isDouble
    ? { kind: "take", warning: "a node renews with a key that is not its latest: are there two boards of this name?" }
    : { kind: "take" };
}
