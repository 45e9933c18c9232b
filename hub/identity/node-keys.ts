/**
 * The key of each node, and the certificates that are refused before their end, as Secrets in the hub's own namespace.
 *
 * Not on the Node object, which would be the obvious place: a node may write its own Node, annotations included
 * (NodeRestriction guards some labels only), and could so hand its name to another key, or lock itself in after a
 * reset. Secrets of a namespace in which no pod of the node mounts them can neither be read nor written by a node
 * (NodeAuthorizer), and fewer roles of a cluster may write Secrets than ConfigMaps. The hashes are no secret.
 */
import { createHash } from "node:crypto";
import { type KubeClient, type KubeObject, SECRETS } from "@picolet/hub-core/kube-client/kube-client.ts";
import {
  joinedRevocations,
  type NodeKeyRecord,
  type NodeKeys,
  type NodeRevocation,
  type Revocations,
} from "@picolet/hub-core/node-credentials.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { nodeNameProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { type Clock, type Log, millis, type Random } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { dataOf } from "./bootstrap-tokens.ts";

export interface NodeKeysInit {
  /** The hub's own. */
  readonly namespace: string;
}

/** Attempts at a Secret that several replicas write; all of them get their turn within so many. */
const MAX_CONFLICTS = 8;
const MAX_NAME_LENGTH = 253;
const PREFIX = "picolet-node-key.";

export class NodeKeysInKubernetes implements NodeKeys {
  readonly #client: KubeClient;
  readonly #namespace: string;

  constructor(components: { readonly client: KubeClient }, init: NodeKeysInit) {
    this.#client = components.client;
    this.#namespace = init.namespace;
  }

  async get(node: string, signal: AbortSignal): Promise<(NodeKeyRecord & { readonly version: string }) | undefined> {
    const object = await find(this.#client, this.#namespace, secretNameOf(node), signal);
    if (object === undefined) return undefined;
    const { node: recorded, spkiHash = "", certifiedAtMs } = dataOf(object);
    if (recorded !== node || !KEY_HASH.test(spkiHash)) {
      const help = `\`picolet-hub node reset ${node}\` removes it`;
      throw new PicoletError(
        "corrupt",
        `the key record of node ${node} (Secret ${object.metadata.name}) is damaged; ${help}`,
      );
    }
    const version = object.metadata.resourceVersion ?? "";
    return { spkiHash, certifiedAtMs: Number(certifiedAtMs) || 0, version };
  }

  async set(
    node: string,
    { spkiHash, certifiedAtMs }: NodeKeyRecord,
    version: string | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const ref = { namespace: this.#namespace, name: secretNameOf(node) };
    const data = encoded({ node, spkiHash, certifiedAtMs: String(certifiedAtMs) });
    const object = { apiVersion: "v1", kind: "Secret", metadata: ref, type: "Opaque", data };
    try {
      if (version === undefined) await this.#client.create(SECRETS, ref, object, {}, signal);
      else {
        const metadata = { ...ref, resourceVersion: version };
        await this.#client.update(SECRETS, ref, { ...object, metadata }, {}, signal);
      }
    } catch (error) {
      if (!isPicoletError(error, "already_exists") && !isPicoletError(error, "not_found")) throw error;
      throw new PicoletError("conflict", `the key record of node ${node} has changed`, { cause: error });
    }
  }

  async delete(node: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#client.delete(SECRETS, { namespace: this.#namespace, name: secretNameOf(node) }, {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }
}

const REVOKED_SECRET = "picolet-revoked-keys";
/** Key of a name that was reset: `node.NAME`, or a hash where that is too long for a Secret's key. */
const NODE_PREFIX = "node.";
const NODE_HASH_PREFIX = "node-sha256.";
const KEY_HASH = /^[0-9a-f]{64}$/;
/**
 * Bounds names and values; a Secret holds 1 MiB. An entry has some 220 bytes. Beyond it the earliest are dropped: a
 * board's certificate and its window are over after a year and a half, so only a fleet that resets more than six boards
 * a day for so long comes near it. Only administrators and tokens that may replace nodes add entries.
 */
const MAX_REVOKED_BYTES = 768 * KIBIBYTE;
/**
 * Latest keys of one name: the board's own, the one it renews with, and those of attempts whose answers were lost. A
 * holder of the name adds about one a year; a board with an older one must join again.
 */
const MAX_KEYS_SINCE = 8;
/** After a watch that broke, before the next: drawn from up to so long, so that replicas do not come in step. */
const RETRY_MS = 10_000;

const NOTHING: Revocations = { keys: new Set(), nodes: new Map() };

export interface RevokeInit {
  /** The known key: refused under any other name as well. */
  readonly spkiHash: string | undefined;
  /** The key that has the name from now on. */
  readonly newKey: string | undefined;
}

/** The deny list, followed by a watch: a reset reaches every replica within a moment. */
export class RevokedKeysInKubernetes implements Component {
  readonly name = "revoked keys";
  readonly revoked: Watch<Revocations>;
  readonly #components: RevokedKeysComponents;
  readonly #namespace: string;
  readonly #source = new WatchSource(NOTHING);
  readonly #isRead = new WatchSource(false);
  #version = "";
  #parsed: { readonly version: string; readonly value: Revocations } | undefined;

  constructor(components: RevokedKeysComponents, init: NodeKeysInit) {
    this.#components = components;
    this.#namespace = init.namespace;
    this.revoked = this.#source;
  }

  /** True once `revoked` has been read. Before that no client certificate may be accepted. */
  get isRead(): boolean {
    return this.#isRead.current;
  }

  /** Resolves once it has been read. Needs `run`. */
  async ready(signal: AbortSignal): Promise<void> {
    for await (const isRead of this.#isRead.changes(signal)) if (isRead) return;
  }

  /** As the API server has it now, which `revoked` may be a moment behind. */
  async read(signal: AbortSignal): Promise<Revocations> {
    const object = await find(this.#components.client, this.#namespace, REVOKED_SECRET, signal);
    const version = object?.metadata.resourceVersion ?? "";
    // A long list takes milliseconds to parse, and changes with a reset alone.
    if (this.#parsed?.version !== version) this.#parsed = { version, value: revocationsIn(object) };
    return this.#parsed.value;
  }

  /** From now on every certificate is refused that `node` has ever had, but for those of `newKey`. */
  async revoke(node: string, { spkiHash, newKey }: RevokeInit, signal: AbortSignal): Promise<void> {
    const revokedAtMs = this.#components.clock.wall().getTime();
    await this.#change((old) => {
      const resets = (revocationsOf(old).nodes.get(node)?.resets ?? 0) + 1;
      const entry = { node, resets, keys: newKey === undefined ? [] : [newKey], revokedAtMs };
      const ofKey = spkiHash === undefined ? {} : { [spkiHash]: JSON.stringify({ node, revokedAtMs }) };
      return { ...old, ...ofKey, [entryNameOf(node)]: JSON.stringify(entry) };
    }, signal);
  }

  /**
   * Lets the certificates of a key in for a name that was reset. Nothing is written for one that never was.
   * @param judged of `node`, as the decision was made from it
   * @throws `conflict` when the name has been reset since
   */
  async admit(node: string, spkiHash: string, judged: NodeRevocation | undefined, signal: AbortSignal): Promise<void> {
    const isAsJudged = ({ keys, nodes }: Revocations): boolean =>
      nodes.get(node)?.resets === judged?.resets && !keys.has(spkiHash);
    const check = (now: Revocations): void => {
      if (!isAsJudged(now)) throw new PicoletError("conflict", `node ${node} was reset meanwhile`);
    };
    if (judged === undefined) return check(await this.read(signal));
    await this.#change((old) => {
      const now = revocationsOf(old);
      check(now);
      const { keys = [] } = now.nodes.get(node) ?? {};
      const latest = [...keys.filter((each) => each !== spkiHash), spkiHash].slice(-MAX_KEYS_SINCE);
      const revokedAtMs = revokedAt(old[entryNameOf(node)] ?? "");
      const entry = { node, resets: judged.resets, keys: latest, revokedAtMs };
      return { ...old, [entryNameOf(node)]: JSON.stringify(entry) };
    }, signal);
  }

  /** Adds what a restored store does not know any more. Nothing is written when there is nothing. */
  async restore(kept: Revocations, signal: AbortSignal): Promise<void> {
    const known = await this.read(signal);
    const wanted = joinedRevocations(known, kept);
    const keys = [...wanted.keys].filter((each) => !known.keys.has(each));
    const nodes = [...wanted.nodes].filter(([node, entry]) => !isSameEntry(known.nodes.get(node), entry));
    if (keys.length + nodes.length === 0) return;
    const { clock, log } = this.#components;
    log.warn("the store lacks revocations; they are added again", { keys: keys.length, nodes: nodes.length });
    const revokedAtMs = clock.wall().getTime();
    await this.#change((old) => {
      const added = Object.fromEntries([
        ...keys.map((each) => [each, JSON.stringify({ node: "", revokedAtMs })] as const),
        ...nodes.map(([node, { resets, keys: since }]) => {
          const entry = { node, resets, keys: since.slice(-MAX_KEYS_SINCE), revokedAtMs };
          return [entryNameOf(node), JSON.stringify(entry)] as const;
        }),
      ]);
      return { ...old, ...added };
    }, signal);
  }

  async #change(
    make: (old: Readonly<Record<string, string>>) => Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<void> {
    const { client } = this.#components;
    this.#take(await change(client, this.#namespace, REVOKED_SECRET, (old) => bounded(make(old)), signal));
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, log, random } = this.#components;
    for (;;) {
      try {
        await this.#follow(signal);
      } catch (error) {
        if (signal.aborted) throw error;
        log.warn("cannot follow the revoked keys; those that are known count", { error: describeError(error) });
      }
      await clock.sleep(millis(random.next() * RETRY_MS), signal);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const options = { namespace: this.#namespace, fieldSelector: `metadata.name=${REVOKED_SECRET}` };
    const { client } = this.#components;
    const { items, resourceVersion } = await client.list(SECRETS, options, signal);
    this.#take(items.find(({ metadata }) => metadata.name === REVOKED_SECRET));
    this.#isRead.set(true);
    for await (const event of client.watch(SECRETS, { ...options, resourceVersion }, signal)) {
      if (event.type === "BOOKMARK" || event.object.metadata.name !== REVOKED_SECRET) continue;
      this.#take(event.type === "DELETED" ? undefined : event.object);
    }
  }

  #take(object: KubeObject | undefined): void {
    const version = object?.metadata.resourceVersion ?? "";
    if (version === this.#version) return;
    this.#version = version;
    this.#source.set(revocationsIn(object));
  }
}

const isSameEntry = (known: NodeRevocation | undefined, { resets, keys }: NodeRevocation): boolean =>
  known?.resets === resets && keys.slice(-MAX_KEYS_SINCE).every((each) => known.keys.includes(each));

const revocationsIn = (object: KubeObject | undefined): Revocations => revocationsOf(dataOf(object));

/** A name whose entry is damaged counts as one that was just reset: no certificate of it is good, and it is free. */
function revocationsOf(data: Readonly<Record<string, string>>): Revocations {
  const names = Object.keys(data);
  const nodes = new Map<string, NodeRevocation>();
  for (const name of names) {
    if (!name.startsWith(NODE_PREFIX) && !name.startsWith(NODE_HASH_PREFIX)) continue;
    const { node, resets, keys } = objectOf(data[name] ?? "");
    const isWhole = typeof node === "string" && entryNameOf(node) === name && typeof resets === "number";
    if (isWhole) nodes.set(node, { resets, keys: textsOf(keys) });
    else if (name.startsWith(NODE_PREFIX)) {
      nodes.set(name.slice(NODE_PREFIX.length), { resets: 0, keys: [] });
    }
  }
  return { keys: new Set(names.filter((name) => KEY_HASH.test(name))), nodes };
}

function bounded(data: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const byAge = Object.entries(data).toSorted(([, left], [, right]) => revokedAt(right) - revokedAt(left));
  let bytes = 0;
  const kept = byAge.filter(([name, value]) => {
    bytes += name.length + value.length;
    return bytes <= MAX_REVOKED_BYTES;
  });
  return Object.fromEntries(kept.reverse());
}

export interface RevokedKeysComponents {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

function revokedAt(entry: string): number {
  const { revokedAtMs } = objectOf(entry);
  return typeof revokedAtMs === "number" ? revokedAtMs : 0;
}

function objectOf(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
  } catch {
    return {};
  }
}

const textsOf = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];

function entryNameOf(node: string): string {
  const name = `${NODE_PREFIX}${node}`;
  return name.length <= MAX_NAME_LENGTH ? name : `${NODE_HASH_PREFIX}${hashOf(node)}`;
}

const hashOf = (text: string): string => createHash("sha256").update(text).digest("hex");

const encoded = (texts: Readonly<Record<string, string>>): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(texts).map(([key, value]) => [key, Buffer.from(value).toString("base64")]));

/** A node's name may fill all that an object's name may have. */
function secretNameOf(node: string): string {
  if (nodeNameProblems(node).length > 0) {
    throw new PicoletError("invalid", `${JSON.stringify(node)} is no name that a node can have`);
  }
  const name = `${PREFIX}${node}`;
  if (name.length <= MAX_NAME_LENGTH) return name;
  return `picolet-node-key-sha256.${hashOf(node)}`;
}

async function find(client: KubeClient, namespace: string, name: string, signal: AbortSignal) {
  try {
    return await client.get(SECRETS, { namespace, name }, signal);
  } catch (error) {
    if (isPicoletError(error, "not_found")) return undefined;
    throw error;
  }
}

async function change(
  client: KubeClient,
  namespace: string,
  name: string,
  make: (data: Readonly<Record<string, string>>) => Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<KubeObject> {
  for (let attempt = 0; ; attempt += 1) {
    const old = await find(client, namespace, name, signal);
    const data = encoded(make(dataOf(old)));
    const ref = { namespace, name };
    try {
      if (old !== undefined) return await client.update(SECRETS, ref, { ...old, data }, {}, signal);
      const object = { apiVersion: "v1", kind: "Secret", metadata: ref, type: "Opaque", data };
      return await client.create(SECRETS, ref, object, {}, signal);
    } catch (error) {
      const isRace = isPicoletError(error, "conflict") || isPicoletError(error, "already_exists");
      if (!isRace || attempt >= MAX_CONFLICTS) throw error;
    }
  }
}
