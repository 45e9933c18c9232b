/** The hub's side of RemoteObjects without a tunnel: a set of objects, and what an agent lacks of it. */
import { hash } from "node:crypto";
import type { RemoteObjects } from "@picolet/agent/core/hub/tunnel-ports.ts";
import type { RemoteChange } from "@picolet/agent/core/store/store-ports.ts";
import { digestOf } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { type ObjectKey, objectKey, type RemoteObject } from "@picolet/protocol/tunnel/messages.ts";

const HASH_BYTES = 16;
const EPOCH_BYTES = 8;

const sha256 = (bytes: Uint8Array): Uint8Array => hash("sha256", bytes, "buffer");

export type PodObject = Readonly<Record<string, unknown>> & {
  readonly metadata: Readonly<Record<string, unknown>> & { readonly uid: string; readonly name: string };
};

export class RemoteHub {
  readonly objects = new Map<ObjectKey, RemoteObject>();
  revision = 1;
  #epoch = 1;

  get epoch(): Uint8Array {
    const epoch = new Uint8Array(EPOCH_BYTES);
    epoch[0] = this.#epoch;
    return epoch;
  }

  put(object: PodObject): void {
    this.set(objectKey("Pod", "default", object.metadata.name), object);
  }

  set(key: ObjectKey, object: Readonly<Record<string, unknown>>): void {
    const bytes = hash("sha256", JSON.stringify(object), "buffer").subarray(0, HASH_BYTES);
    this.objects.set(key, { key, hash: bytes, object });
    this.revision += 1;
  }

  pod(name: string): PodObject | undefined {
    return this.objects.get(objectKey("Pod", "default", name))?.object as PodObject | undefined;
  }

  get pods(): PodObject[] {
    return [...this.objects.values()]
      .filter(({ key }) => key.startsWith("Pod/"))
      .map(({ object }) => object as PodObject);
  }

  /** As `kubectl delete`: what is left of it is for the node to end. */
  deletePod(name: string, deletionGracePeriodSeconds: number, deletionTimestamp = "2026-01-31T12:00:00Z"): void {
    const known = this.pod(name);
    if (known === undefined) return;
    this.put({ ...known, metadata: { ...known.metadata, deletionTimestamp, deletionGracePeriodSeconds } });
  }

  /** As `kubectl delete --force`, or the end of a graceful deletion. */
  removePod(name: string): void {
    if (this.objects.delete(objectKey("Pod", "default", name))) this.revision += 1;
  }

  /** Another life of the hub, with objects that may be those of a backup. */
  restart(objects: ReadonlyMap<ObjectKey, RemoteObject> = new Map(this.objects)): void {
    this.#epoch += 1;
    this.revision = 1;
    this.objects.clear();
    for (const [key, object] of objects) this.objects.set(key, object);
  }

  /** The change that turns the agent's set into this one. */
  changeFor(agent: RemoteObjects): RemoteChange {
    const held = new Map([...agent.inventory()].map(({ key, hash: own }) => [key, own]));
    const upserts = [...this.objects.values()].filter(({ key, hash: own }) => {
      const known = held.get(key);
      return known === undefined || !equalBytes(known, own);
    });
    const deletes = [...held.keys()].filter((key) => !this.objects.has(key));
    const digest = digestOf(sha256, this.objects.values());
    return { cursor: { epoch: this.epoch, revision: this.revision, digest }, upserts, deletes };
  }

  /** As a session that has gone through. */
  bringTo(agent: RemoteObjects): void {
    const change = this.changeFor(agent);
    if (change.upserts.length + change.deletes.length > 0) agent.apply(change);
    else agent.confirm(change.cursor);
  }
}
