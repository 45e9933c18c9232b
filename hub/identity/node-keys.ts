/**
 * Which key each node has, and which keys are never accepted again, as Secrets in the hub's own namespace.
 *
 * Not on the Node object, which would be the obvious place: a node may write its own Node, annotations included
 * (NodeRestriction guards some labels only), and could so hand its name to another key, or lock itself in after a reset.
 * Secrets of a namespace in which no pod of the node mounts them can neither be read nor written by a node
 * (NodeAuthorizer), and fewer roles of a cluster may write Secrets than ConfigMaps. The hashes are no secret.
 */
import { createHash } from "node:crypto";
import type { Component } from "../../protocol/async/component.ts";
import { WatchSource } from "../../protocol/async/watch.ts";
import { describeError, isPicoletError, PicoletError } from "../../protocol/errors.ts";
import { type Clock, type Log, millis, type Random } from "../../protocol/ports.ts";
import type { NodeKeys } from "../core/identity.ts";
import { type KubeClient, type KubeObject, SECRETS } from "../core/kube-client.ts";
import type { RevokedKeys } from "./authenticate-node.ts";
import { dataOf } from "./bootstrap-tokens.ts";

export interface NodeKeysInit {
  /** The hub's own. */
  readonly namespace: string;
}

export type NodeKeyRecord = NonNullable<Awaited<ReturnType<NodeKeys["get"]>>>;

/** Of a Secret that several replicas write: all of them get their turn within so many attempts. */
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

  async get(node: string, signal: AbortSignal): Promise<NodeKeyRecord | undefined> {
    const object = await find(this.#client, this.#namespace, secretNameOf(node), signal);
    if (object === undefined) return undefined;
    const { node: recorded, spkiHash, certifiedAtMs } = dataOf(object);
    if (recorded !== node || !/^[0-9a-f]{64}$/.test(spkiHash ?? "")) {
      throw new PicoletError("corrupt", `the key record of node ${node} (Secret ${object.metadata.name}) is damaged`);
    }
    return { spkiHash: spkiHash ?? "", certifiedAtMs: Number(certifiedAtMs) || 0 };
  }

  async set(node: string, { spkiHash, certifiedAtMs }: NodeKeyRecord, signal: AbortSignal): Promise<void> {
    const data = { node, spkiHash, certifiedAtMs: String(certifiedAtMs) };
    await change(this.#client, this.#namespace, secretNameOf(node), () => data, signal);
  }

  /** Whoever joins next under that name, with a token, has it. Nothing happens when nobody has. */
  async delete(node: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#client.delete(SECRETS, { namespace: this.#namespace, name: secretNameOf(node) }, {}, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }
}

/** `picolet-hub node reset`: the board that has the name is refused from now on, and the name is free. @returns its key */
export async function resetNode(
  components: { readonly keys: NodeKeysInKubernetes; readonly revoked: RevokedKeysInKubernetes },
  node: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const record = await components.keys.get(node, signal);
  if (record === undefined) return undefined;
  await components.revoked.add(record.spkiHash, node, signal);
  await components.keys.delete(node, signal);
  return record.spkiHash;
}

const REVOKED_SECRET = "picolet-revoked-keys";
/**
 * 150 bytes each, and a Secret holds 1 MiB. Beyond it the earliest go: a board's certificate and its window are over
 * after a year and a half, so that only a fleet that resets more than nine boards a day for so long comes near it.
 */
const MAX_REVOKED = 5000;
/** After a watch that broke, before the next: drawn from up to so long, so that replicas do not come in step. */
const RETRY_MS = 10_000;

/** The deny list, followed by a watch: a reset reaches every replica within a moment. */
export class RevokedKeysInKubernetes implements Component {
  readonly name = "revoked keys";
  readonly revoked: RevokedKeys;
  readonly #components: RevokedKeysComponents;
  readonly #namespace: string;
  readonly #source: WatchSource<ReadonlySet<string>>;
  readonly #isRead = new WatchSource(false);

  constructor(components: RevokedKeysComponents, init: NodeKeysInit) {
    this.#components = components;
    this.#namespace = init.namespace;
    this.#source = new WatchSource<ReadonlySet<string>>(new Set());
    this.revoked = this.#source;
  }

  /** Resolves once the list has been read: before that nobody may be let in. Needs `run`. */
  async ready(signal: AbortSignal): Promise<void> {
    for await (const isRead of this.#isRead.changes(signal)) if (isRead) return;
  }

  async add(spkiHash: string, node: string, signal: AbortSignal): Promise<void> {
    const { client, clock } = this.#components;
    const entry = JSON.stringify({ node, revokedAtMs: clock.wall().getTime() });
    const added = (old: Readonly<Record<string, string>>): Record<string, string> => {
      const entries = Object.entries({ ...old, [spkiHash]: entry });
      const byAge = entries.toSorted(([, left], [, right]) => revokedAt(left) - revokedAt(right));
      return Object.fromEntries(byAge.slice(-MAX_REVOKED));
    };
    this.#take(await change(client, this.#namespace, REVOKED_SECRET, added, signal));
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
    const hashes = Object.keys(dataOf(object)).filter((name) => /^[0-9a-f]{64}$/.test(name));
    const { current } = this.#source;
    if (hashes.length === current.size && hashes.every((hash) => current.has(hash))) return;
    this.#source.set(new Set(hashes));
  }
}

export interface RevokedKeysComponents {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

function revokedAt(entry: string): number {
  try {
    const value = JSON.parse(entry) as { readonly revokedAtMs?: unknown };
    return typeof value.revokedAtMs === "number" ? value.revokedAtMs : 0;
  } catch {
    return 0;
  }
}

/** A node's name may fill all that an object's name may have. */
function secretNameOf(node: string): string {
  const name = `${PREFIX}${node}`;
  if (name.length <= MAX_NAME_LENGTH) return name;
  return `picolet-node-key-sha256.${createHash("sha256").update(node).digest("hex")}`;
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
    const texts = Object.entries(make(dataOf(old)));
    const data = Object.fromEntries(texts.map(([key, value]) => [key, Buffer.from(value).toString("base64")]));
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
