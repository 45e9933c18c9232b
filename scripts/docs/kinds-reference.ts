/** docs/kinds.md: what works of each kind with static pods, with the embedded hub and with Kubernetes. Pure. */
import type { ResourceDefinition } from "@picolet/hub-embedded/api/resource-definition.ts";
import { ABSENT_RESOURCES } from "./hub-api-paths.ts";
import { code, table } from "./markdown.ts";

interface KindRow {
  /** With manifests on the board, and no hub. */
  readonly files: string;
  /** With the embedded hub; of a kind that it does not serve the reason is `ABSENT_RESOURCES`'. */
  readonly embedded: string;
  /** With a hub in front of a cluster. */
  readonly cluster: string;
}

const NO_API = "no";
const BY_CLUSTER = "the cluster's controllers; their pods run on boards";
const STORED = "stored";

const row = (embedded: string, cluster: string, files = NO_API): KindRow => ({ embedded, cluster, files });

/** By the resource's name. Every stored resource of the embedded API server has a row. */
const KINDS: Readonly<Record<string, KindRow>> = {
  pods: row("scheduled to boards, and run", "run", "run; those that name objects of a cluster are refused"),
  nodes: row("made by boards; leases, conditions, taints, eviction", "the same, by the cluster's controllers"),
  namespaces: row("yes, with Pod Security", "the cluster's", "a name alone"),
  configmaps: row("in volumes and variables, followed", "the same"),
  secrets: row(
    "in volumes and variables, followed; encrypted at rest on hub and board",
    "the same, encrypted on the board",
  ),
  serviceaccounts: row("tokens in projected volumes", "the same"),
  limitranges: row("defaults and limits of pods", "the cluster's"),
  podtemplates: row(STORED, "the cluster's"),
  services: row(
    "an address, endpoints, variables in pods; nothing proxies it",
    "variables in pods; kube-proxy or a CNI of your own",
  ),
  endpoints: row("made for Services", "the cluster's"),
  endpointslices: row("made for Services", "the cluster's"),
  ingresses: row("stored, with a warning: nothing serves them", "those that a controller of yours serves"),
  ingressclasses: row(STORED, "the cluster's"),
  networkpolicies: row("stored, with a warning: a CNI plugin of yours may enforce them", "the same, the CNI plugin's"),
  events: row("kept for an hour", "the cluster's", "`edgectl events`"),
  persistentvolumes: row("`local`, `hostPath`, NFS and CSI", "the same"),
  persistentvolumeclaims: row("bound to existing volumes; nothing provisions", "the cluster's provisioners"),
  daemonsets: row("a pod for each board; boards that are away stop no rollout", BY_CLUSTER),
  controllerrevisions: row("of DaemonSets", "the cluster's"),
  leases: row("renewed by the hub while the tunnel lives", "the same"),
  certificatesigningrequests: row("signed for boards and clients", "the cluster's signers"),
  poddisruptionbudgets: row("evictions respect them", "the cluster's"),
  runtimeclasses: row("handlers, overhead, `wasm`", "the same", "`wasm`, and handlers of the runtime by their names"),
  priorityclasses: row(
    "order of eviction, preemption and shutdown",
    "the same",
    "the pod's own `priority`; `system-node-critical` by its name",
  ),
  storageclasses: row("default and binding mode; no provisioner", "the cluster's"),
  csidrivers: row("attachment, tokens, republishing", "the same"),
  csinodes: row("made by boards with drivers", "the same"),
  csistoragecapacities: row(STORED, "the cluster's"),
  volumeattachments: row("attached and detached", "the cluster's"),
  deviceclasses: row("in the allocation of claims", "the cluster's"),
  resourceclaims: row("whole devices, allocated and prepared", "prepared; the cluster allocates"),
  resourceclaimtemplates: row("claims of pods are made from them", "the cluster's"),
  resourceslices: row("read; removed with drivers that are gone", "the same"),
  roles: row("authorization of every request", "the cluster's"),
  clusterroles: row("authorization of every request", "the cluster's"),
  rolebindings: row("authorization of every request", "the cluster's"),
  clusterrolebindings: row("authorization of every request", "the cluster's"),
  customresourcedefinitions: row("an empty list: none can be made", "the cluster's"),
};

/** Kinds that people look for although the embedded API server does not serve them. */
const BY_CLUSTER_ALONE: Readonly<Record<string, string>> = {
  deployments: BY_CLUSTER,
  replicasets: BY_CLUSTER,
  statefulsets: BY_CLUSTER,
  jobs: BY_CLUSTER,
  cronjobs: BY_CLUSTER,
  replicationcontrollers: BY_CLUSTER,
  horizontalpodautoscalers: "the cluster's, by the hub's `metrics.k8s.io`",
  resourcequotas: "the cluster's",
};

/** @param served the resources of the embedded API server. @throws TypeError when a stored one has no row */
export function kindsReference(served: readonly ResourceDefinition[]): string {
  const stored = served.filter(({ answer, live }) => answer === undefined && live === undefined);
  const rows = stored.map(({ plural }) => {
    const found = KINDS[plural];
    if (found === undefined) throw new TypeError(`scripts/docs/kinds-reference.ts has no row for ${plural}`);
    return [code(plural), found.files, found.embedded, found.cluster];
  });
  const absent = Object.entries(BY_CLUSTER_ALONE).map(([plural, cluster]) => {
    const why = ABSENT_RESOURCES.find(({ plurals }) => plurals.includes(plural))?.why;
    if (why === undefined) throw new TypeError(`${plural} is served, and needs a row of its own`);
    return [code(plural), NO_API, "no", cluster];
  });
  return `# Kinds of objects

<!-- Made by \`npm run docs\` of the embedded API server's table of resources: do not edit. -->

What works where: with static pods and no hub, with the API server that the hub brings (\`--embedded\`), and with the
hub in front of a Kubernetes cluster. "The same" is as with the embedded hub. [hub-api.md](hub-api.md) has the verbs,
and why some kinds are not served.

${table(["kind", "static pods", "embedded hub", "Kubernetes"], [...rows, ...absent])}
`;
}
