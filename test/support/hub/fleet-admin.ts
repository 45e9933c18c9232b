import assert from "node:assert/strict";
import { EVENTS } from "@picolet/hub/bridge/event-writer.ts";
import { HttpKubeClient } from "@picolet/hub/kubernetes/http-kube-client.ts";
import { KubeTransport } from "@picolet/hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import {
  type KubeClient,
  type KubeObject,
  NODES,
  PODS,
  type ResourceType,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";

/** Generous: the machine is shared, and a loaded one has been seen ten times slower. */
const WAIT_LIMIT_MS = 120_000;
/** Bounds the objects that a failed wait shows. */
const MAX_SHOWN = 20;
const NAMESPACE = "default";
const NEVER = new AbortController().signal;

export interface NodeCondition {
  readonly type: string;
  readonly status: string;
  readonly lastTransitionTime: string;
}

export interface EventSeen {
  readonly involvedObject: { readonly name: string };
  readonly type: string;
  readonly reason: string;
  readonly message: string;
}

/** The administrator of a fleet's API server, in the namespace `default`. */
export class FleetAdmin implements AsyncDisposable {
  readonly client: KubeClient;
  readonly #transport: KubeTransport;

  private constructor(transport: KubeTransport) {
    this.#transport = transport;
    this.client = new HttpKubeClient(transport);
  }

  static async of(fleet: { readonly ready: { readonly kubeconfig: string } }): Promise<FleetAdmin> {
    const access = await loadKubeconfigAccess({ kubeconfig: fleet.ready.kubeconfig });
    return new FleetAdmin(new KubeTransport({ access, clock: systemClock, random: { next: Math.random } }));
  }

  /** @param object needs neither apiVersion nor kind */
  async create(type: ResourceType, object: Readonly<Record<string, unknown>>): Promise<KubeObject> {
    const { name } = object.metadata as { readonly name: string };
    const whole = {
      apiVersion: type.group === "" ? type.version : `${type.group}/${type.version}`,
      kind: type.kind,
      ...object,
    };
    return await this.client.create(type, refOf(type, name), whole, {}, NEVER);
  }

  async pod(name: string): Promise<Pod> {
    return (await this.client.get(PODS, refOf(PODS, name), NEVER)) as unknown as Pod;
  }

  async patch(type: ResourceType, name: string, patch: unknown, subresource = ""): Promise<KubeObject> {
    const options = subresource === "" ? {} : { subresource };
    return await this.client.patch(type, refOf(type, name), "strategic", patch, options, NEVER);
  }

  async delete(type: ResourceType, name: string, gracePeriodSeconds?: number): Promise<void> {
    const options = gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds };
    await this.client.delete(type, refOf(type, name), options, NEVER);
  }

  /**
   * The first object, there already or to come, that fits. @throws with the latest ones when none does in two minutes
   */
  async until(type: ResourceType, what: string, fits: (object: KubeObject) => boolean): Promise<KubeObject> {
    const seen: string[] = [];
    const look = (object: KubeObject): boolean => {
      const { metadata, spec: _, ...rest } = object;
      seen.push(`${metadata.name}: ${JSON.stringify(rest)}`);
      return fits(object);
    };
    const limit = AbortSignal.timeout(WAIT_LIMIT_MS);
    const where = type.namespaced ? { namespace: NAMESPACE } : {};
    try {
      const { items, resourceVersion } = await this.client.list(type, where, limit);
      const there = items.find(look);
      if (there !== undefined) return there;
      for await (const event of this.client.watch(type, { ...where, resourceVersion }, limit)) {
        if (event.type !== "BOOKMARK" && look(event.object)) return event.object;
      }
      throw new Error("the watch ended");
    } catch (cause) {
      throw new Error(`${what} did not come about:\n${seen.slice(-MAX_SHOWN).join("\n")}`, { cause });
    }
  }

  async untilPod(name: string, what: string, fits: (pod: Pod) => boolean): Promise<Pod> {
    const isIt = (object: KubeObject): boolean => object.metadata.name === name && fits(object as unknown as Pod);
    return (await this.until(PODS, `${name}: ${what}`, isIt)) as unknown as Pod;
  }

  /** Until a node is there whose condition has that status. @returns the condition */
  async untilCondition(node: string, type: string, status: "True" | "False" | "Unknown"): Promise<NodeCondition> {
    let found: NodeCondition | undefined;
    await this.until(NODES, `${node}: ${type} is ${status}`, (object) => {
      if (object.metadata.name !== node) return false;
      const { conditions = [] } = (object.status ?? {}) as { readonly conditions?: readonly NodeCondition[] };
      found = conditions.find((each) => each.type === type && each.status === status);
      return found !== undefined;
    });
    if (found === undefined) throw new Error(`${node} has no condition ${type}`);
    return found;
  }

  /** Deletes these pods, or all there are, and waits until they are gone. */
  async clear(fits: (pod: Pod) => boolean = () => true): Promise<void> {
    const { items, resourceVersion } = await this.client.list(PODS, { namespace: NAMESPACE }, NEVER);
    const left = new Map(
      items.filter((each) => fits(each as unknown as Pod)).map(({ metadata }) => [metadata.uid, metadata.name]),
    );
    for (const name of left.values()) await this.#deleteIfThere(name);
    if (left.size === 0) return;
    const limit = AbortSignal.timeout(WAIT_LIMIT_MS);
    for await (const event of this.client.watch(PODS, { namespace: NAMESPACE, resourceVersion }, limit)) {
      if (event.type === "DELETED") left.delete(event.object.metadata.uid);
      if (left.size === 0) return;
    }
    throw new Error(`the watch ended before these had gone: ${[...left.values()].join(", ")}`);
  }

  async #deleteIfThere(name: string): Promise<void> {
    try {
      await this.delete(PODS, name);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw error;
    }
  }

  /**
   * Waits until an event with that reason was reported for that object.
   * @throws when there are several
   */
  async toldOnce(name: string, reason: string): Promise<void> {
    await this.untilEvent(name, `an event ${reason}`, (event) => event.reason === reason);
    assert.equal(await this.eventsOf(name, reason), 1, `${reason} of ${name}`);
  }

  async eventsOf(name: string, reason: string): Promise<number> {
    const { items } = await this.client.list(EVENTS, {}, NEVER);
    const isIt = (event: EventSeen): boolean => event.reason === reason && event.involvedObject.name === name;
    return items.filter((each) => isIt(each as unknown as EventSeen)).length;
  }

  async untilEvent(pod: string, what: string, fits: (event: EventSeen) => boolean): Promise<EventSeen> {
    const isIt = (object: KubeObject): boolean => {
      const event = object as unknown as EventSeen;
      return event.involvedObject.name === pod && fits(event);
    };
    return (await this.until(EVENTS, `${pod}: ${what}`, isIt)) as unknown as EventSeen;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#transport[Symbol.asyncDispose]();
  }
}

const refOf = ({ namespaced }: ResourceType, name: string): { namespace: string; name: string } => ({
  namespace: namespaced ? NAMESPACE : "",
  name,
});
