import {
  CONFIG_MAPS,
  CSI_DRIVERS,
  CSI_NODES,
  NODES,
  PERSISTENT_VOLUME_CLAIMS,
  PERSISTENT_VOLUMES,
  PODS,
  RESOURCE_CLAIMS,
  type ResourceType,
  SECRETS,
  SERVICES,
  VOLUME_ATTACHMENTS,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import {
  CERTIFICATE_SIGNING_REQUESTS,
  CONTROLLER_REVISIONS,
  DAEMON_SETS,
  DEVICE_CLASSES,
  ENDPOINT_SLICES,
  ENDPOINTS,
  LEASES,
  NAMESPACES,
  POD_DISRUPTION_BUDGETS,
  RESOURCE_CLAIM_TEMPLATES,
  RESOURCE_SLICES,
  SERVICE_ACCOUNTS,
  STORAGE_CLASSES,
} from "@picolet/hub-core/kube-client/resource-types.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { ResourceDefinition } from "./api/resource-definition.ts";
import { DisruptionController } from "./controllers/availability/disruption-controller.ts";
import { EndpointsController } from "./controllers/availability/endpoints-controller.ts";
import { CertificateController } from "./controllers/certificates/certificate-controller.ts";
import type { CertificateIssuer } from "./controllers/certificates/certificate-issuer.ts";
import { TokenCleaner } from "./controllers/certificates/token-cleaner.ts";
import { InitialObjects } from "./controllers/cluster/initial-objects.ts";
import { NamespaceController } from "./controllers/cluster/namespace-controller.ts";
import { DEFAULT_ACCOUNT, NamespaceDefaults, ROOT_CA_MAP } from "./controllers/cluster/namespace-defaults.ts";
import type { ControllerPorts } from "./controllers/controller-ports.ts";
import { DaemonSetController } from "./controllers/daemon-sets/daemon-set-controller.ts";
import { ResourceClaims } from "./controllers/devices/resource-claims.ts";
import { EventRecorder } from "./controllers/event-recorder.ts";
import { GarbageCollector } from "./controllers/lifecycle/garbage-collector.ts";
import { NodeLifecycleController } from "./controllers/lifecycle/node-lifecycle-controller.ts";
import { PodCollector } from "./controllers/lifecycle/pod-collector.ts";
import { byNamespace, type CacheIndex, ObjectCache, type ObjectCacheInit } from "./controllers/object-cache.ts";
import { Scheduler } from "./controllers/scheduling/scheduler.ts";
import { AttachDetachController } from "./controllers/volumes/attach-detach-controller.ts";
import { driverVolume } from "./controllers/volumes/attachable-volumes.ts";
import { EphemeralClaims } from "./controllers/volumes/ephemeral-claims.ts";
import { VolumeBinder } from "./controllers/volumes/volume-binder.ts";
import { CachingSelectorCompiler } from "./expressions/selector-compiler.ts";

export interface EmbeddedControllersInit {
  /**
   * The resources that the API server serves: each object is collected when its owner goes, and deleted with its
   * namespace.
   */
  readonly definitions: readonly ResourceDefinition[];
  /** PEM: what clients in pods check the API server's certificate against. */
  readonly caBundle: Watch<string>;
  /** Undefined: CertificateSigningRequests wait for another signer. */
  readonly issuer: CertificateIssuer | undefined;
}

const byNode: CacheIndex = (pod) => {
  const { nodeName } = (pod.spec ?? {}) as { nodeName?: string };
  return nodeName === undefined || nodeName === "" ? [] : [nodeName];
};

const byVolume: CacheIndex = (attachment) => {
  const { source } = (attachment.spec ?? {}) as { source?: { persistentVolumeName?: string } };
  return source?.persistentVolumeName === undefined ? [] : [source.persistentVolumeName];
};

/** By the disk that a volume of a CSI driver names. */
const byDisk: CacheIndex = (volume) => {
  const { id } = driverVolume(volume) ?? {};
  return id === undefined ? [] : [id];
};

/** Resources without owners and dependents; events would make the graph many times as large. */
const UNOWNED: ReadonlySet<string> = new Set(["events"]);

/** All controllers, with the caches they share, in the order in which they must be started. */
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
  const volumes = cache({ type: PERSISTENT_VOLUMES, indexes: { disk: byDisk } });
  const classes = cache({ type: STORAGE_CLASSES });
  const services = cache({ type: SERVICES, indexes: { namespace: byNamespace } });
  const endpoints = cache({ type: ENDPOINTS });
  const slices = cache({ type: ENDPOINT_SLICES, indexes: { namespace: byNamespace } });
  const leases = cache({ type: LEASES });
  const requests = cache({ type: CERTIFICATE_SIGNING_REQUESTS });
  const resourceClaims = cache({ type: RESOURCE_CLAIMS, indexes: { namespace: byNamespace } });
  const claimTemplates = cache({ type: RESOURCE_CLAIM_TEMPLATES });
  const drivers = cache({ type: CSI_DRIVERS });
  const driverNodes = cache({ type: CSI_NODES });
  const attachments = cache({ type: VOLUME_ATTACHMENTS, indexes: { node: byNode, volume: byVolume } });
  const deviceClasses = cache({ type: DEVICE_CLASSES });
  const resourceSlices = cache({ type: RESOURCE_SLICES });
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
    new Scheduler({
      ...components,
      events,
      compiler: new CachingSelectorCompiler(),
      caches: {
        ...{ pods, nodes, namespaces, claims, volumes, classes, driverNodes, attachments },
        ...{ resourceClaims, deviceClasses, resourceSlices },
      },
    }),
    new VolumeBinder({ ...components, events, caches: { claims, volumes, classes, nodes, pods } }),
    new AttachDetachController({
      ...components,
      events,
      caches: { pods, nodes, claims, volumes, drivers, attachments },
    }),
    new EphemeralClaims({ ...components, events, caches: { pods, claims } }),
    new ResourceClaims({ ...components, events, caches: { pods, resourceClaims, claimTemplates } }),
    new EndpointsController({ ...components, caches: { services, pods, endpoints, slices } }),
    new DaemonSetController({ ...components, events, caches: { daemonSets, revisions, pods, nodes } }),
    new NodeLifecycleController({ ...components, events, caches: { nodes, pods, leases } }),
    new PodCollector({ ...components, caches: { pods, nodes } }),
    new NamespaceController({ ...components, namespaces, types: deletable(init.definitions) }),
    new NamespaceDefaults({ ...components, caches: { namespaces, accounts, rootCaMaps } }, init),
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
