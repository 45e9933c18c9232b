import type { Component } from "../../../protocol/async/component.ts";
import type { Watch } from "../../../protocol/async/watch.ts";
import {
  CONFIG_MAPS,
  NODES,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
  PODS,
  type ResourceType,
  SECRETS,
  SERVICES,
} from "../../core/kube-client.ts";
import type { ResourceDefinition } from "../resource-definition.ts";
import { InitialObjects } from "./bootstrap/initial-objects.ts";
import { CertificateController } from "./certificates/certificate-controller.ts";
import type { CertificateIssuer } from "./certificates/certificate-issuer.ts";
import { TokenCleaner } from "./certificates/token-cleaner.ts";
import { DaemonSetController } from "./daemon-sets/daemon-set-controller.ts";
import { DisruptionController } from "./disruption/disruption-controller.ts";
import { EndpointsController } from "./endpoints/endpoints-controller.ts";
import { EventRecorder } from "./event-recorder.ts";
import { GarbageCollector } from "./garbage/garbage-collector.ts";
import { NamespaceController } from "./namespaces/namespace-controller.ts";
import { DEFAULT_ACCOUNT, NamespaceFurniture, ROOT_CA_MAP } from "./namespaces/namespace-furniture.ts";
import { NodeLifecycleController } from "./nodes/node-lifecycle-controller.ts";
import { PodCollector } from "./nodes/pod-collector.ts";
import { byNamespace, type CacheIndex, ObjectCache, type ObjectCacheInit } from "./object-cache.ts";
import type { ControllerPorts } from "./ports.ts";
import {
  CERTIFICATE_SIGNING_REQUESTS,
  CONTROLLER_REVISIONS,
  DAEMON_SETS,
  ENDPOINT_SLICES,
  ENDPOINTS,
  LEASES,
  NAMESPACES,
  POD_DISRUPTION_BUDGETS,
  SERVICE_ACCOUNTS,
  STORAGE_CLASSES,
} from "./resource-types.ts";
import { Scheduler } from "./scheduling/scheduler.ts";
import { EphemeralClaims } from "./volumes/ephemeral-claims.ts";
import { VolumeBinder } from "./volumes/volume-binder.ts";

export interface EmbeddedControllersInit {
  /** What the API server serves: everything in it is collected when its owner goes, and deleted with its namespace. */
  readonly definitions: readonly ResourceDefinition[];
  /** PEM: what clients in pods check the API server's certificate against. */
  readonly caBundle: Watch<string>;
  /** Undefined: CertificateSigningRequests wait for somebody else to sign them. */
  readonly issuer: CertificateIssuer | undefined;
}

const byNode: CacheIndex = (pod) => {
  const { nodeName } = (pod.spec ?? {}) as { nodeName?: string };
  return nodeName === undefined || nodeName === "" ? [] : [nodeName];
};

/** What does not belong to anything and that nothing belongs to; events would make the graph many times as large. */
const UNOWNED: ReadonlySet<string> = new Set(["events"]);

/** All controllers, with the caches they share, in the order in which they are to be started. */
export function embeddedControllers(components: ControllerPorts, init: EmbeddedControllersInit): readonly Component[] {
  const caches: ObjectCache[] = [];
  const cache = (cacheInit: ObjectCacheInit): ObjectCache => {
    const made = new ObjectCache(components, cacheInit);
    caches.push(made);
    return made;
  };
  const pods = cache({ type: PODS, indexes: { node: byNode, namespace: byNamespace } });
  const nodes = cache({ type: NODES });
  const namespaces = cache({ type: NAMESPACES });
  const daemonSets = cache({ type: DAEMON_SETS, indexes: { namespace: byNamespace } });
  const revisions = cache({ type: CONTROLLER_REVISIONS, indexes: { namespace: byNamespace } });
  const budgets = cache({ type: POD_DISRUPTION_BUDGETS, indexes: { namespace: byNamespace } });
  const claims = cache({ type: PERSISTENT_VOLUME_CLAIMS });
  const volumes = cache({ type: PERSISTENT_VOLUMES });
  const classes = cache({ type: STORAGE_CLASSES });
  const services = cache({ type: SERVICES, indexes: { namespace: byNamespace } });
  const endpoints = cache({ type: ENDPOINTS });
  const slices = cache({ type: ENDPOINT_SLICES, indexes: { namespace: byNamespace } });
  const leases = cache({ type: LEASES });
  const requests = cache({ type: CERTIFICATE_SIGNING_REQUESTS });
  const shared = [...caches];
  const accounts = cache({
    type: SERVICE_ACCOUNTS,
    selection: { fieldSelector: `metadata.name=${DEFAULT_ACCOUNT}`, metadataOnly: true },
  });
  const rootCaMaps = cache({ type: CONFIG_MAPS, selection: { fieldSelector: `metadata.name=${ROOT_CA_MAP}` } });
  const tokens = cache({
    type: SECRETS,
    selection: { namespace: "kube-system", fieldSelector: "type=bootstrap.kubernetes.io/token" },
  });
  const stored = init.definitions
    .filter(({ answer, plural }) => answer === undefined && !UNOWNED.has(plural))
    .map(typeOf);
  const owned = stored.map(
    (type) => shared.find((each) => isSame(each.type, type)) ?? cache({ type, selection: { metadataOnly: true } }),
  );
  const events = new EventRecorder(components);
  return [
    new InitialObjects(components),
    ...caches,
    events,
    new Scheduler({ ...components, events, caches: { pods, nodes, namespaces, claims, volumes, classes } }),
    new VolumeBinder({ ...components, events, caches: { claims, volumes, classes, nodes, pods } }),
    new EphemeralClaims({ ...components, events, caches: { pods, claims } }),
    new EndpointsController({ ...components, caches: { services, pods, endpoints, slices } }),
    new DaemonSetController({ ...components, events, caches: { daemonSets, revisions, pods, nodes } }),
    new NodeLifecycleController({ ...components, events, caches: { nodes, pods, leases } }),
    new PodCollector({ ...components, caches: { pods, nodes } }),
    new NamespaceController({ ...components, namespaces, types: deletable(init.definitions) }),
    new NamespaceFurniture({ ...components, caches: { namespaces, accounts, rootCaMaps } }, init),
    new GarbageCollector({ ...components, caches: owned }),
    new DisruptionController({ ...components, caches: { budgets, pods } }),
    new TokenCleaner({ ...components, tokens }),
    ...(init.issuer === undefined ? [] : [new CertificateController({ ...components, requests, issuer: init.issuer })]),
  ];
}

const typeOf = ({ group, version, plural, kind, namespaced }: ResourceDefinition): ResourceType => ({
  group,
  version,
  plural,
  kind,
  namespaced,
});

const isSame = (left: ResourceType, right: ResourceType): boolean =>
  left.group === right.group && left.plural === right.plural;

const deletable = (definitions: readonly ResourceDefinition[]): readonly ResourceType[] =>
  definitions.filter(({ answer, namespaced }) => answer === undefined && namespaced).map(typeOf);
