import { hash } from "node:crypto";
import type { ObjectRef, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { kubeTime } from "@picolet/protocol/kube-time.ts";
import type { EventItem } from "@picolet/protocol/tunnel/messages.ts";
import {
  forEachConcurrently,
  isTerminating,
  MAX_CONCURRENT_WRITES,
  type NodeConnection,
  retryableRefusal,
} from "./node-connection.ts";
import type { Fields } from "./remote-object.ts";

export const EVENTS: ResourceType = { group: "", version: "v1", plural: "events", kind: "Event", namespaced: true };

const COMPONENT = "kubelet";
/** Length of a name (RFC 1123 subdomain). A longer one is cut before the hash. */
const MAX_NAME = 253;
/** The API server refuses longer ones. */
const MAX_MESSAGE = 1024;

/** Writes a node's events. One that repeats is the same object with a higher count, however often it is sent. */
export class EventWriter {
  readonly #connection: NodeConnection;

  constructor(connection: NodeConnection) {
    this.#connection = connection;
  }

  putAll(events: readonly EventItem[], signal: AbortSignal): Promise<void> {
    return forEachConcurrently(events, MAX_CONCURRENT_WRITES, (event) => this.#put(event, signal));
  }

  async #put(item: EventItem, signal: AbortSignal): Promise<void> {
    const ref = eventRef(item, this.#connection.node);
    try {
      if (item.count > 1 && (await this.#repeat(ref, item, signal))) return;
      if (await this.#create(ref, item, signal)) return;
      await this.#repeat(ref, item, signal);
    } catch (error) {
      // `resource_exhausted` is an event that is too large; a quota that is used up is `unavailable`, and waits.
      const isRefused = (["invalid", "not_found", "resource_exhausted"] as const).some((code) =>
        isPicoletError(error, code),
      );
      const isHopeless = isTerminating(error) || isRefused;
      if (!isHopeless && isPicoletError(error, "permission_denied")) throw retryableRefusal(error, "write an event");
      if (!isHopeless) throw error;
      const { log } = this.#connection;
      log.warn("the API server does not take an event", { event: ref.name, error: describeError(error) });
    }
  }

  /** @returns false when there is none, which may have outlived its hour */
  async #repeat(ref: ObjectRef, item: EventItem, signal: AbortSignal): Promise<boolean> {
    const { count, lastAtMs } = item;
    const patch = { count, lastTimestamp: kubeTime(new Date(lastAtMs)), message: messageOf(item) };
    try {
      await this.#connection.client.patch(EVENTS, ref, "merge", patch, {}, signal);
      return true;
    } catch (error) {
      if (isPicoletError(error, "not_found")) return false;
      throw error;
    }
  }

  /** @returns false when there is one */
  async #create(ref: ObjectRef, item: EventItem, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#connection.client.create(EVENTS, ref, eventObject(ref, item, this.#connection.node), {}, signal);
      return true;
    } catch (error) {
      if (isPicoletError(error, "already_exists")) return false;
      throw error;
    }
  }
}

const messageOf = ({ message }: EventItem): string => message.slice(0, MAX_MESSAGE);

/** Events of objects without a namespace are in `default`. */
function eventRef({ id, regarding }: EventItem, node: string): ObjectRef {
  const digest = hash("sha256", `${node}\n${id}`, "hex").slice(0, 16);
  const name = regarding.name.slice(0, MAX_NAME - digest.length - 1).replace(/[^a-z0-9]+$/, "");
  return {
    namespace: regarding.namespace === "" ? "default" : regarding.namespace,
    name: `${name || "event"}.${digest}`,
  };
}

function eventObject(ref: ObjectRef, item: EventItem, node: string): Fields {
  const { regarding, type, reason, count, firstAtMs, lastAtMs } = item;
  const { kind, namespace, name, uid, fieldPath } = regarding;
  const involved = {
    kind,
    name,
    apiVersion: "v1",
    // kubectl looks for a Node's events by its name in the place of the UID, as the kubelet writes them.
    uid: kind === "Node" ? name : uid,
    ...(namespace === "" ? {} : { namespace }),
    ...(fieldPath === "" ? {} : { fieldPath }),
  };
  return {
    apiVersion: "v1",
    kind: "Event",
    metadata: { namespace: ref.namespace, name: ref.name },
    involvedObject: involved,
    type,
    reason,
    message: messageOf(item),
    count,
    firstTimestamp: kubeTime(new Date(firstAtMs)),
    lastTimestamp: kubeTime(new Date(lastAtMs)),
    source: { component: COMPONENT, host: node },
    reportingComponent: COMPONENT,
    reportingInstance: node,
  };
}
