/** Plans Endpoints and EndpointSlices of a service as Kubernetes 1.34 makes them. Pure. */

import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import { hasEnded, isPodReady } from "../../api/typed-objects.ts";
import { stableHash } from "../stable-hash.ts";

export interface ServicePort {
  readonly name?: string;
  readonly protocol?: string;
  readonly port: number;
  readonly targetPort?: number | string;
}

export interface Service extends KubeObject {
  readonly spec?: {
    readonly type?: string;
    readonly clusterIP?: string;
    readonly selector?: Readonly<Record<string, string>>;
    readonly ports?: readonly ServicePort[];
    readonly publishNotReadyAddresses?: boolean;
  };
}

interface EndpointPort {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
}

export interface EndpointsPlan {
  readonly subsets: readonly object[];
  readonly slices: readonly KubeObject[];
}

/** Kubernetes' own: what is beyond is in the slices alone. */
const MAX_ADDRESSES = 1000;
const MAX_ENDPOINTS_PER_SLICE = 100;

const SERVICE_NAME = "kubernetes.io/service-name";
const MANAGED_BY = "endpointslice.kubernetes.io/managed-by";
export const SLICE_CONTROLLER = "endpointslice-controller.k8s.io";

interface Backend {
  readonly pod: Pod;
  readonly ports: readonly EndpointPort[];
}

/** @param pods those that the service selects */
export function planEndpoints(service: Service, pods: readonly Pod[]): EndpointsPlan {
  const backends = pods
    .filter((pod) => !hasEnded(pod) && (pod.status?.podIP ?? "") !== "")
    .sort((left, right) => (left.metadata.name < right.metadata.name ? -1 : 1))
    .map((pod): Backend => ({ pod, ports: portsOf(service, pod) }));
  const groups = Map.groupBy(backends, ({ ports }) => JSON.stringify(ports));
  const slices = [...groups].flatMap(([ports, group]) => slicesOf(service, ports, group));
  return {
    subsets: [...groups.values()].flatMap((group) => subsetOf(service, group)),
    // An empty slice says that there are no endpoints; without one, a reader could not tell that from a missing
    // controller.
    slices: slices.length === 0 ? slicesOf(service, "[]", []) : slices,
  };
}

/** Those that the pod has; a port by a name that none of its containers knows is left out. */
function portsOf({ spec }: Service, pod: Pod): readonly EndpointPort[] {
  return (spec?.ports ?? []).flatMap(({ name = "", protocol = "TCP", port, targetPort = port }) => {
    const number = typeof targetPort === "number" ? targetPort : namedPort(pod, targetPort, protocol);
    return number === undefined ? [] : [{ name, port: number, protocol }];
  });
}

function namedPort({ spec }: Pod, name: string, protocol: string): number | undefined {
  const sidecars = (spec.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === "Always");
  const ports = [...spec.containers, ...sidecars].flatMap((container: Container) => container.ports ?? []);
  return ports.find((port) => port.name === name && (port.protocol ?? "TCP") === protocol)?.containerPort;
}

const isTerminating = ({ metadata }: Pod): boolean => metadata.deletionTimestamp !== undefined;

const targetOf = ({ metadata: { namespace, name, uid } }: Pod): object => ({ kind: "Pod", namespace, name, uid });

function subsetOf({ spec }: Service, group: readonly Backend[]): readonly object[] {
  const publishesAll = spec?.publishNotReadyAddresses === true;
  const told = group.filter(({ pod }) => publishesAll || !isTerminating(pod)).slice(0, MAX_ADDRESSES);
  const [first] = told;
  if (first === undefined) return [];
  const addressOf = ({ pod }: Backend): object => ({
    ip: pod.status?.podIP,
    ...(pod.spec.hostname === undefined || pod.spec.hostname === "" ? {} : { hostname: pod.spec.hostname }),
    nodeName: pod.spec.nodeName,
    targetRef: targetOf(pod),
  });
  const isTaken = ({ pod }: Backend): boolean => publishesAll || isPodReady(pod);
  const ready = told.filter(isTaken).map(addressOf);
  const notReady = told.filter((each) => !isTaken(each)).map(addressOf);
  return [
    {
      ...(ready.length === 0 ? {} : { addresses: ready }),
      ...(notReady.length === 0 ? {} : { notReadyAddresses: notReady }),
      ...(first.ports.length === 0 ? {} : { ports: withoutEmptyNames(first.ports) }),
    },
  ];
}

const withoutEmptyNames = (ports: readonly EndpointPort[]): readonly object[] =>
  ports.map(({ name, ...port }) => (name === "" ? port : { name, ...port }));

function slicesOf(service: Service, ports: string, group: readonly Backend[]): readonly KubeObject[] {
  const { name, namespace, uid } = service.metadata;
  const owner = { apiVersion: "v1", kind: "Service", name, uid: uid ?? "", controller: true, blockOwnerDeletion: true };
  const count = Math.max(1, Math.ceil(group.length / MAX_ENDPOINTS_PER_SLICE));
  return Array.from({ length: count }, (_, index) => {
    const part = group.slice(index * MAX_ENDPOINTS_PER_SLICE, (index + 1) * MAX_ENDPOINTS_PER_SLICE);
    return {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: {
        name: `${name}-${stableHash(`${ports} ${index}`)}`,
        ...(namespace === undefined ? {} : { namespace }),
        labels: {
          ...service.metadata.labels,
          [SERVICE_NAME]: name,
          [MANAGED_BY]: SLICE_CONTROLLER,
          ...(service.spec?.clusterIP === "None" ? { "service.kubernetes.io/headless": "" } : {}),
        },
        ownerReferences: [owner],
      },
      addressType: "IPv4",
      endpoints: part.map(({ pod }) => endpointOf(service, pod)),
      ports: JSON.parse(ports) as unknown,
    };
  });
}

function endpointOf({ spec }: Service, pod: Pod): object {
  const serving = isPodReady(pod);
  const terminating = isTerminating(pod);
  const ready = spec?.publishNotReadyAddresses === true || (serving && !terminating);
  return {
    addresses: [pod.status?.podIP],
    conditions: { ready, serving, terminating },
    ...(pod.spec.hostname === undefined || pod.spec.hostname === "" ? {} : { hostname: pod.spec.hostname }),
    nodeName: pod.spec.nodeName,
    targetRef: targetOf(pod),
  };
}
