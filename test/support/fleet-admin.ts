import { EVENTS } from "../../hub/bridge/event-writer.ts";
import { type KubeClient, type KubeObject, PODS, type ResourceType } from "../../hub/core/kube-client.ts";
import { HttpKubeClient } from "../../hub/kubernetes/http-kube-client.ts";
import { KubeTransport } from "../../hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "../../hub/kubernetes/kubeconfig-access.ts";
import { systemClock } from "../../protocol/async/system-clock.ts";
import type { Pod } from "../../protocol/pod.ts";
import type { Fleet } from "./fleet.ts";

/** Generous: the machine is shared, and a loaded one has been seen ten times slower. */
const WAIT_LIMIT_MS = 120_000;
/** Of what was seen while waiting in vain, so much is shown. */
const MAX_SHOWN = 20;
const NAMESPACE = "default";
const NEVER = new AbortController().signal;

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

  static async of(fleet: Fleet): Promise<FleetAdmin> {
    const access = await loadKubeconfigAccess({ kubeconfig: fleet.ready.kubeconfig });
    return new FleetAdmin(new KubeTransport({ access, clock: systemClock, random: { next: Math.random } }));
  }

  /** @param object needs neither apiVersion nor kind when it is of the core group */
  async create(type: ResourceType, object: Readonly<Record<string, unknown>>): Promise<KubeObject> {
    const { name } = object.metadata as { readonly name: string };
    const whole = { apiVersion: type.version, kind: type.kind, ...object };
    return await this.client.create(type, refOf(type, name), whole, {}, NEVER);
  }

  async patch(type: ResourceType, name: string, patch: unknown, subresource = ""): Promise<KubeObject> {
    const options = subresource === "" ? {} : { subresource };
    return await this.client.patch(type, refOf(type, name), "strategic", patch, options, NEVER);
  }

  async delete(type: ResourceType, name: string, gracePeriodSeconds?: number): Promise<void> {
    const options = gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds };
    await this.client.delete(type, refOf(type, name), options, NEVER);
  }

  /** The first object, there already or to come, that fits. @throws with the latest ones when none does in two minutes */
  async until(type: ResourceType, what: string, fits: (object: KubeObject) => boolean): Promise<KubeObject> {
    const seen: string[] = [];
    const look = (object: KubeObject): boolean => {
      seen.push(JSON.stringify({ ...object, metadata: { name: object.metadata.name } }));
      return fits(object);
    };
    const limit = AbortSignal.timeout(WAIT_LIMIT_MS);
    try {
      const { items, resourceVersion } = await this.client.list(type, { namespace: NAMESPACE }, limit);
      const there = items.find(look);
      if (there !== undefined) return there;
      for await (const event of this.client.watch(type, { namespace: NAMESPACE, resourceVersion }, limit)) {
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
