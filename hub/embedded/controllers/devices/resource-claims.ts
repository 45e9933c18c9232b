import { type KubeObject, PODS, RESOURCE_CLAIMS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { keyOf } from "@picolet/hub-core/kube-client/reflector.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import { controllerOf, hasEnded, podOf } from "../../api/typed-objects.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { EventRecorder } from "../event-recorder.ts";
import type { ObjectCache } from "../object-cache.ts";
import { type Consumer, claimNameOf, POD_CLAIM_ANNOTATION, podClaimsOf, type ResourceClaim } from "./claims-of-pod.ts";
import { ALLOCATED_HERE } from "./device-allocator.ts";

export interface ResourceClaimCaches {
  readonly pods: ObjectCache;
  readonly resourceClaims: ObjectCache;
  readonly claimTemplates: ObjectCache;
}

interface Template {
  readonly metadata?: {
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec?: object;
}

const POD_KEY = "pod ";
const CLAIM_KEY = "claim ";

/**
 * Makes the claims that pods ask for by templates, and removes pods that have ended from the users of claims. Claims of
 * templates belong to their pod and go with it.
 */
export class ResourceClaims extends Controller {
  readonly #ports: ControllerPorts;
  readonly #caches: ResourceClaimCaches;
  readonly #events: EventRecorder;

  constructor({
    caches,
    events,
    ...ports
  }: ControllerPorts & { readonly caches: ResourceClaimCaches; readonly events: EventRecorder }) {
    super(ports, { name: "resource claim controller", needs: Object.values(caches) });
    this.#ports = ports;
    this.#caches = caches;
    this.#events = events;
    const { pods, resourceClaims, claimTemplates } = caches;
    pods.onChange(({ key, before, after }) => {
      const pod = after ?? before;
      if (pod === undefined || podClaimsOf(podOf(pod)).length === 0) return;
      this.loop.add(`${POD_KEY}${key}`);
      if (after === undefined || hasEnded(podOf(after))) this.#addClaimsOf(podOf(pod));
    });
    resourceClaims.onChange(({ key, before, after }) => {
      if (after !== undefined) this.loop.add(`${CLAIM_KEY}${key}`);
      const owner = after === undefined && before !== undefined ? controllerOf(before.metadata) : undefined;
      if (owner?.kind === "Pod") this.loop.add(`${POD_KEY}${before?.metadata.namespace}/${owner.name}`);
    });
    claimTemplates.onChange(({ before, after }) => {
      if (before !== undefined || after === undefined) return;
      for (const { metadata } of pods.list("namespace", after.metadata.namespace ?? "")) {
        this.loop.add(`${POD_KEY}${keyOf(metadata.namespace, metadata.name)}`);
      }
    });
  }

  #addClaimsOf(pod: Pod): void {
    for (const { name } of podClaimsOf(pod)) {
      const claim = claimNameOf(pod, name);
      if (claim !== undefined) this.loop.add(`${CLAIM_KEY}${keyOf(pod.metadata.namespace, claim)}`);
    }
  }

  protected async reconcile(key: string, signal: AbortSignal): Promise<Millis | undefined> {
    if (key.startsWith(CLAIM_KEY)) await this.#releaseEnded(key.slice(CLAIM_KEY.length), signal);
    else await this.#makeClaims(key.slice(POD_KEY.length), signal);
    return undefined;
  }

  async #makeClaims(key: string, signal: AbortSignal): Promise<void> {
    const object = this.#caches.pods.get(key);
    if (object === undefined || object.metadata.deletionTimestamp !== undefined) return;
    const pod = podOf(object);
    if (hasEnded(pod)) return;
    const made: { name: string; resourceClaimName: string }[] = [];
    for (const { name, resourceClaimTemplateName } of podClaimsOf(pod)) {
      if (resourceClaimTemplateName === undefined) continue;
      const known = claimNameOf(pod, name);
      if (known !== undefined && this.#caches.resourceClaims.find(pod.metadata.namespace, known) !== undefined)
        continue;
      const claim = this.#claimFor(pod, name) ?? (await this.#make(object, name, resourceClaimTemplateName, signal));
      if (claim !== undefined && claim !== known) made.push({ name, resourceClaimName: claim });
    }
    if (made.length === 0) return;
    const { namespace = "", name, uid } = object.metadata;
    const patch = { metadata: { uid }, status: { resourceClaimStatuses: made } };
    await this.#ports.client.patch(PODS, { namespace, name }, "strategic", patch, { subresource: "status" }, signal);
  }

  /** A claim that was made before a status could be written. */
  #claimFor({ metadata }: Pod, podClaim: string): string | undefined {
    return this.#caches.resourceClaims
      .list("namespace", metadata.namespace)
      .filter((claim) => controllerOf(claim.metadata)?.uid === metadata.uid)
      .find((claim) => claim.metadata.annotations?.[POD_CLAIM_ANNOTATION] === podClaim)?.metadata.name;
  }

  async #make(
    pod: KubeObject,
    podClaim: string,
    templateName: string,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const { namespace = "", name, uid = "" } = pod.metadata;
    const template = this.#caches.claimTemplates.find(namespace, templateName);
    if (template === undefined) {
      const message = `PodResourceClaim ${podClaim}: resourceclaimtemplate.resource.k8s.io "${templateName}" not found`;
      this.#record(pod, message);
      return undefined;
    }
    const { metadata: { labels, annotations } = {}, spec } = (template.spec ?? {}) as Template;
    const owner = { apiVersion: "v1", kind: "Pod", name, uid, controller: true, blockOwnerDeletion: true };
    const claim = {
      apiVersion: "resource.k8s.io/v1",
      kind: "ResourceClaim",
      metadata: {
        ...{ namespace, generateName: `${name}-${podClaim}-`, labels },
        annotations: { ...annotations, [POD_CLAIM_ANNOTATION]: podClaim },
        ownerReferences: [owner],
      },
      spec,
    };
    try {
      const made = await this.#ports.client.create(RESOURCE_CLAIMS, { namespace, name: "" }, claim, {}, signal);
      return made.metadata.name;
    } catch (error) {
      if (!isPicoletError(error, "invalid")) throw error;
      this.#record(pod, `PodResourceClaim ${podClaim}: ${error.message}`);
      return undefined;
    }
  }

  #record(pod: KubeObject, message: string): void {
    const reason = "FailedResourceClaimCreation";
    this.#events.record(pod, { type: "Warning", reason, message, component: "resource_claim" });
  }

  /**
   * Removes users that have ended. A claim without users gives back the devices that the scheduler gave it; an
   * allocation by another client stays.
   */
  async #releaseEnded(key: string, signal: AbortSignal): Promise<void> {
    const claim = this.#caches.resourceClaims.get(key) as ResourceClaim | undefined;
    if (claim === undefined) return;
    const consumers = claim.status?.reservedFor ?? [];
    const { namespace = "", name, uid, finalizers = [], deletionTimestamp } = claim.metadata;
    const users = consumers.filter((consumer) => this.#isUser(namespace, consumer));
    const isOurs = finalizers.includes(ALLOCATED_HERE);
    const isUnused = users.length === 0 && (consumers.length > 0 || deletionTimestamp !== undefined);
    let { resourceVersion } = claim.metadata;
    const isAllocated = claim.status?.allocation !== undefined;
    if (users.length < consumers.length || (isUnused && isOurs && isAllocated)) {
      const status = {
        reservedFor: users.length === 0 ? null : users,
        ...(isUnused && isOurs ? { allocation: null } : {}),
      };
      const patch = { metadata: { uid, resourceVersion }, status };
      const options = { subresource: "status" };
      const changed = await this.#ports.client.patch(
        ...([RESOURCE_CLAIMS, { namespace, name }, "merge", patch, options, signal] as const),
      );
      ({ resourceVersion } = changed.metadata);
    }
    if (!isUnused || !isOurs) return;
    const left = finalizers.filter((each) => each !== ALLOCATED_HERE);
    const patch = { metadata: { uid, resourceVersion, finalizers: left } };
    await this.#ports.client.patch(RESOURCE_CLAIMS, { namespace, name }, "merge", patch, {}, signal);
  }

  #isUser(namespace: string, { resource, name, uid }: Consumer): boolean {
    if (resource !== "pods") return true;
    const pod = this.#caches.pods.find(namespace, name);
    return pod !== undefined && pod.metadata.uid === uid && !hasEnded(podOf(pod));
  }
}
