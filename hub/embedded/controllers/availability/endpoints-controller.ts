import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { keyOf } from "@picolet/hub-core/kube-client/reflector.ts";
import { ENDPOINT_SLICES, ENDPOINTS } from "@picolet/hub-core/kube-client/resource-types.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { canonicalJson } from "@picolet/protocol/pod/container-hash.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import { hasLabels } from "../../api/label-selector.ts";
import { controllerOf, podOf } from "../../api/typed-objects.ts";
import { Controller } from "../controller.ts";
import type { ControllerPorts } from "../controller-ports.ts";
import type { ObjectCache, ObjectChange } from "../object-cache.ts";
import { planEndpoints, type Service, SLICE_CONTROLLER } from "./plan-endpoints.ts";

export interface EndpointsCaches {
  readonly services: ObjectCache;
  readonly pods: ObjectCache;
  readonly endpoints: ObjectCache;
  readonly slices: ObjectCache;
}

/** Endpoints and EndpointSlices of every service that selects pods. */
export class EndpointsController extends Controller {
  readonly #ports: ControllerPorts;
  readonly #caches: EndpointsCaches;

  constructor({ caches, ...ports }: ControllerPorts & { readonly caches: EndpointsCaches }) {
    super(ports, { name: "endpoints controller", needs: Object.values(caches) });
    this.#ports = ports;
    this.#caches = caches;
    caches.services.onChange(({ key }) => this.loop.add(key));
    caches.pods.onChange((change) => this.#podChanged(change));
    caches.endpoints.onChange(({ key }) => this.loop.add(key));
    caches.slices.onChange(({ before, after }) => {
      const { namespace, ownerReferences } = (after ?? before)?.metadata ?? {};
      const owner = controllerOf(ownerReferences === undefined ? {} : { ownerReferences });
      if (owner?.kind === "Service") this.loop.add(keyOf(namespace, owner.name));
    });
  }

  #podChanged({ before, after }: ObjectChange): void {
    const { namespace = "" } = (after ?? before)?.metadata ?? {};
    for (const service of this.#caches.services.list("namespace", namespace) as readonly Service[]) {
      const isConcerned = [before, after].some((pod) => pod !== undefined && isSelected(service, pod));
      if (isConcerned) this.loop.add(keyOf(namespace, service.metadata.name));
    }
  }

  protected async reconcile(key: string, signal: AbortSignal): Promise<Millis | undefined> {
    const service = this.#caches.services.get(key) as Service | undefined;
    // Slices have their owner; Endpoints of a service that is gone go with its name.
    if (service === undefined) {
      const left = this.#caches.endpoints.get(key);
      if (left?.metadata.labels?.[MANAGED_BY] === CONTROLLER) await this.#remove(ENDPOINTS, left, signal);
      return undefined;
    }
    if (service.metadata.deletionTimestamp !== undefined || !selectsPods(service)) return undefined;
    const { namespace = "", name, labels } = service.metadata;
    const pods = this.#caches.pods.list("namespace", namespace).filter((pod) => isSelected(service, pod));
    const { subsets, slices } = planEndpoints(service, pods.map(podOf));
    const isHeadless = service.spec?.clusterIP === "None";
    const managed = { ...labels, [MANAGED_BY]: CONTROLLER, ...(isHeadless ? { [HEADLESS]: "" } : {}) };
    const metadata = { namespace, name, labels: managed };
    const endpoints = { apiVersion: "v1", kind: "Endpoints", metadata, subsets };
    await this.#ensure(ENDPOINTS, endpoints, this.#caches.endpoints.get(key), signal);
    for (const slice of slices) {
      const existing = this.#caches.slices.find(namespace, slice.metadata.name);
      await this.#ensure(ENDPOINT_SLICES, slice, existing, signal);
    }
    for (const slice of this.#slicesOf(service)) {
      const isWanted = slices.some(({ metadata: { name: wanted } }) => wanted === slice.metadata.name);
      if (!isWanted) await this.#remove(ENDPOINT_SLICES, slice, signal);
    }
    return undefined;
  }

  #slicesOf({ metadata: { namespace = "", uid } }: Service): readonly KubeObject[] {
    const isOurs = ({ metadata }: KubeObject): boolean =>
      metadata.labels?.["endpointslice.kubernetes.io/managed-by"] === SLICE_CONTROLLER &&
      controllerOf(metadata)?.uid === uid;
    return this.#caches.slices.list("namespace", namespace).filter(isOurs);
  }

  async #ensure(
    type: typeof ENDPOINTS,
    wanted: KubeObject,
    existing: KubeObject | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { client } = this.#ports;
    const { namespace = "", name } = wanted.metadata;
    if (existing === undefined) {
      try {
        await client.create(type, { namespace, name }, wanted, {}, signal);
      } catch (error) {
        // Its namespace is about to go, or the cache is behind.
        const isSettled = isPicoletError(error, "permission_denied") || isPicoletError(error, "not_found");
        if (!isSettled) throw error;
      }
    } else if (contentOf(existing) !== contentOf(wanted)) {
      const metadata = { ...existing.metadata, ...wanted.metadata };
      await client.update(type, { namespace, name }, { ...existing, ...wanted, metadata }, {}, signal);
    }
  }

  async #remove(type: typeof ENDPOINTS, { metadata }: KubeObject, signal: AbortSignal): Promise<void> {
    const { namespace = "", name, uid } = metadata;
    try {
      await this.#ports.client.delete(type, { namespace, name }, uid === undefined ? {} : { uid }, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found") && !isPicoletError(error, "conflict")) throw error;
    }
  }
}

const MANAGED_BY = "endpoints.kubernetes.io/managed-by";
const CONTROLLER = "endpoint-controller";
const HEADLESS = "service.kubernetes.io/headless";

const selectsPods = ({ spec }: Service): boolean =>
  spec?.type !== "ExternalName" && Object.keys(spec?.selector ?? {}).length > 0;

const isSelected = (service: Service, { metadata }: KubeObject): boolean =>
  selectsPods(service) && hasLabels(metadata.labels ?? {}, service.spec?.selector ?? {});

const contentOf = ({ metadata, subsets = [], endpoints, ports }: KubeObject): string =>
  canonicalJson([metadata.labels, metadata.ownerReferences, subsets, endpoints, ports]);
