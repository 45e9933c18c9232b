/** The cluster's services with the fields that containers' environment needs: one watch for all nodes. */

import { type KubeObject, SERVICES } from "@picolet/hub-core/kube-client/kube-client.ts";
import { type CachedObject, Reflector, type ReflectorComponents } from "@picolet/hub-core/kube-client/reflector.ts";
import { type ObjectHash, type ObjectKey, objectKey } from "@picolet/protocol/tunnel/messages.ts";
import { remoteService } from "./remote-data.ts";
import { PackedObject } from "./stored-objects.ts";

/**
 * Services that one node receives. Each takes some 300 bytes on the node's disk and makes seven variables in every
 * container of its namespace: with a thousand, processes do not start. Of more, the first by namespace and name are
 * sent.
 */
export const MAX_SERVICES = 256;

/** All pods receive its service, also those that want no service links. */
const API_NAMESPACE = "default";
const API_SERVICE = `${API_NAMESPACE}/kubernetes`;

interface StoredService extends CachedObject {
  readonly namespace: string;
  readonly packed: PackedObject;
}

export interface ServiceCacheInit {
  /** A service of this namespace can be had, is another, or is gone. */
  readonly onChange: (namespace: string) => void;
  /** As `onChange`, of the one that concerns every node. */
  readonly onApiServiceChange: () => void;
}

export class ServiceCache {
  readonly services: Reflector<StoredService>;

  constructor(components: ReflectorComponents, { onChange, onApiServiceChange }: ServiceCacheInit) {
    this.services = new Reflector<StoredService>(components, {
      type: SERVICES,
      trim: storedService,
      indexes: { namespace: ({ namespace }) => [namespace] },
      onChange: ({ key, before, after }) => {
        if (before?.packed.isEqual(after?.packed) === true) return;
        if (key === API_SERVICE) onApiServiceChange();
        onChange((after ?? before)?.namespace ?? "");
      },
    });
  }

  object(key: ObjectKey): PackedObject | undefined {
    return this.services.store.get(key.slice("Service/".length))?.packed;
  }

  /** Adds the services of these namespaces to a node's desired set. */
  addTo(hashes: Map<ObjectKey, ObjectHash>, namespaces: ReadonlySet<string>): void {
    const { store } = this.services;
    const paths = [...namespaces].sort().flatMap((each) => [...store.keysBy("namespace", each)].sort());
    const chosen = new Set([API_SERVICE, ...paths]);
    for (const path of [...chosen].slice(0, MAX_SERVICES)) {
      const packed = store.get(path)?.packed;
      if (packed !== undefined) hashes.set(packed.key, packed.hash);
    }
  }
}

function storedService(service: KubeObject): StoredService | undefined {
  const { name, namespace = "", resourceVersion = "" } = service.metadata;
  const remote = remoteService(service);
  if (remote === undefined) return undefined;
  return { resourceVersion, namespace, packed: new PackedObject(objectKey("Service", namespace, name), remote) };
}
