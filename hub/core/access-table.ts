/**
 * The rights of the hub's own subjects, as data. The embedded API server's Node authorizer and
 * NodeRestriction evaluate the rows of a board, its bootstrap roles are made of the rows of a join token and of anyone,
 * the hub's own client is held to the rows of the hub, and `hub/deploy/rbac.yaml` grants the same rows in a cluster. A
 * right that is in no row is not granted. Rights of service accounts and people are RBAC objects of the cluster.
 *
 * The rows of a board are those of Kubernetes 1.34 with `--authorization-mode=Node,RBAC` and NodeRestriction, for the
 * resources that are served here (plugin/pkg/auth/authorizer/node, plugin/pkg/admission/noderestriction);
 * test/golden/authorization-1.34.json has the decisions of a real kube-apiserver.
 */

/** The parts of the fleet whose rights are fixed. */
export type Subject =
  /** `system:node:NAME` of `system:nodes`, by its certificate or through its tunnel. */
  | "board"
  /** `system:bootstrap:ID` of `system:bootstrappers`. */
  | "join token"
  /** Every authenticated user, `system:authenticated`: all that a service account without roles may do. */
  | "anyone"
  /** `system:picolet-hub`: the tunnel and the bridge, where they do not act as a board. */
  | "hub";

/** The tie between subject and object, as far as the request alone shows it. Checked by the authorizer. */
export type Relation =
  /** Nothing; where the row has a `body`, admission decides. */
  | "any"
  /** The object has the board's name. */
  | "self"
  /** A pod bound to the board. */
  | "bound"
  /** Objects by the field selector `spec.nodeName=BOARD`, or one pod that is bound to it. */
  | "selected"
  /** A pod bound to the board that is no mirror pod names it; or a volume of a claim that such a pod names. */
  | "named"
  /** `spec.nodeName` is the board. */
  | "attached"
  /** A name in `names`. */
  | "listed"
  /** A user whose name is a board's. */
  | "a board";

/** The rule for objects that are written. Checked by admission, which sees them. */
export type BodyRule =
  /** Named as the board. */
  | "self"
  /** The board's own Node, its taints, owners and Kubernetes' labels untouched. */
  | "own node"
  /** A mirror pod on the board, owned by its Node, that names no object. */
  | "mirror"
  /** A pod bound to the board. */
  | "bound"
  /** As `bound`; labels and resource claims untouched. */
  | "bound status"
  /** Nothing but capacity, conditions and resizing. */
  | "claim status"
  /** Bound to a pod of the board, for an audience and no longer than a volume of the pod asks. */
  | "pod token"
  /** The subject of a node's certificate is the board's. */
  | "own request";

export interface AccessRow {
  readonly subject: Subject;
  readonly group: string;
  /** `pods`, `pods/status`. */
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
  readonly relation: Relation;
  readonly body?: BodyRule;
  /** Default: all. */
  readonly namespace?: string;
  /** With `listed`. */
  readonly names?: readonly string[];
}

const READ = ["get", "list", "watch"];
const CHANGE = ["update", "patch"];
export const NODE_LEASE_NAMESPACE = "kube-node-lease";
/** The namespace of the hub's own Secrets. */
export const HUB_NAMESPACE = "picolet-system";
const CERTIFICATES = "certificates.k8s.io";

type Row = Omit<AccessRow, "subject">;

const row = (
  group: string,
  resources: readonly string[],
  verbs: readonly string[],
  relation: Relation = "any",
  more: Pick<AccessRow, "body" | "namespace" | "names"> = {},
): Row => ({ group, resources, verbs, relation, ...more });

const BOARD: readonly Row[] = [
  row("authentication.k8s.io", ["tokenreviews"], ["create"]),
  row("authorization.k8s.io", ["subjectaccessreviews", "localsubjectaccessreviews"], ["create"]),
  row("", ["nodes"], READ, "self"),
  row("", ["nodes"], ["create", ...CHANGE], "any", { body: "own node" }),
  row("", ["nodes/status"], CHANGE, "any", { body: "own node" }),
  row("", ["pods"], ["get"], "bound"),
  row("", ["pods"], ["list", "watch"], "selected"),
  row("", ["pods"], ["create"], "any", { body: "mirror" }),
  row("", ["pods"], ["delete"], "any", { body: "bound" }),
  row("", ["pods/status"], CHANGE, "any", { body: "bound status" }),
  row("", ["pods/eviction"], ["create"], "any", { body: "bound" }),
  row("", ["secrets", "configmaps"], READ, "named"),
  row("", ["persistentvolumeclaims", "persistentvolumes", "serviceaccounts"], ["get"], "named"),
  row("", ["persistentvolumeclaims/status"], CHANGE, "named", { body: "claim status" }),
  row("", ["serviceaccounts/token"], ["create"], "named", { body: "pod token" }),
  row("", ["services"], READ),
  row("", ["endpoints"], ["get"]),
  row("", ["events"], ["create", ...CHANGE]),
  row("coordination.k8s.io", ["leases"], ["get", ...CHANGE, "delete"], "self", {
    body: "self",
    namespace: NODE_LEASE_NAMESPACE,
  }),
  row("coordination.k8s.io", ["leases"], ["create"], "any", { body: "self", namespace: NODE_LEASE_NAMESPACE }),
  row("storage.k8s.io", ["csinodes"], ["get", ...CHANGE, "delete"], "self", { body: "self" }),
  row("storage.k8s.io", ["csinodes"], ["create"], "any", { body: "self" }),
  row("storage.k8s.io", ["volumeattachments"], ["get"], "attached"),
  row("storage.k8s.io", ["csidrivers"], READ),
  row("node.k8s.io", ["runtimeclasses"], READ),
  row("resource.k8s.io", ["resourceclaims"], ["get"], "named"),
  row("resource.k8s.io", ["resourceslices"], ["list", "watch", "deletecollection"], "selected"),
  row("resource.k8s.io", ["resourceslices"], ["get", "delete"], "attached"),
  row(CERTIFICATES, ["certificatesigningrequests"], READ),
  row(CERTIFICATES, ["certificatesigningrequests"], ["create"], "any", { body: "own request" }),
];

const JOIN_TOKEN: readonly Row[] = [row(CERTIFICATES, ["certificatesigningrequests"], ["create", ...READ])];

const ANYONE: readonly Row[] = [
  row("authorization.k8s.io", ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
  row("authentication.k8s.io", ["selfsubjectreviews"], ["create"]),
];

const HUB: readonly Row[] = [
  row("", ["users"], ["impersonate"], "a board"),
  row("", ["groups"], ["impersonate"], "listed", { names: ["system:nodes", "system:authenticated"] }),
  row("", ["nodes", "pods"], READ),
  // Its UID is the identity of the cluster.
  row("", ["namespaces"], ["get"], "listed", { names: ["kube-system"] }),
  // Metadata alone; contents are read as the board whose pods name them.
  row("", ["secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes"], ["list", "watch"]),
  row("node.k8s.io", ["runtimeclasses"], ["list", "watch"]),
  row("storage.k8s.io", ["csidrivers", "volumeattachments"], ["list", "watch"]),
  row("resource.k8s.io", ["resourceclaims"], ["list", "watch"]),
  row("", ["services"], ["list", "watch"]),
  row("", ["pods"], ["patch"]),
  row(CERTIFICATES, ["certificatesigningrequests"], ["create", ...READ, "delete"]),
  row(CERTIFICATES, ["certificatesigningrequests/approval"], ["update"]),
  row(CERTIFICATES, ["signers"], ["approve"], "listed", { names: ["kubernetes.io/kube-apiserver-client-kubelet"] }),
  row("authentication.k8s.io", ["tokenreviews"], ["create"]),
  row("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
  row("", ["secrets"], [...READ, "create", ...CHANGE, "delete"], "any", { namespace: HUB_NAMESPACE }),
  // Rollouts: their ConfigMaps, Events about them, the Lease of the replica that carries them out. Nodes are written as
  // themselves.
  row("", ["configmaps"], [...READ, "patch"], "any", { namespace: HUB_NAMESPACE }),
  row("", ["events"], ["create", "patch"], "any", { namespace: HUB_NAMESPACE }),
  row("coordination.k8s.io", ["leases"], ["get", "create", "update"], "any", { namespace: HUB_NAMESPACE }),
  row("", ["configmaps"], READ, "listed", {
    namespace: "kube-system",
    names: ["extension-apiserver-authentication"],
  }),
  row("", ["secrets"], ["get"], "any", { namespace: "kube-system" }),
];

const of = (subject: Subject, rows: readonly Row[]): readonly AccessRow[] => rows.map((each) => ({ subject, ...each }));

export const ACCESS_TABLE: readonly AccessRow[] = [
  ...of("board", BOARD),
  ...of("join token", JOIN_TOKEN),
  ...of("anyone", ANYONE),
  ...of("hub", HUB),
];

export const rowsOf = (subject: Subject): readonly AccessRow[] =>
  ACCESS_TABLE.filter((each) => each.subject === subject);

/**
 * Resources that a board writes as its rows say or not at all, even where a role grants it more: NodeRestriction is
 * there for the roles that are too wide. Writes of other resources without a row are the roles' affair.
 */
export const BOARD_FORBIDDEN_RESOURCES: ReadonlySet<string> = new Set([
  "pods",
  "nodes",
  "persistentvolumeclaims",
  "leases.coordination.k8s.io",
  "csinodes.storage.k8s.io",
]);

/**
 * The lifetimes of service accounts' tokens in seconds. Kubernetes takes 600 to 2^32 s and, without `--service-account-
 * max-token-expiration`, grants what is asked for. Here the issuer's cap is a year, the longest that a kube-apiserver
 * gives without being asked (`--service-account-extend-token-expiration`); more is shortened to it, with a warning.
 */
export const TOKEN_SECONDS = { shortest: 600, default: 3600, longest: 365 * 86_400, longestRequest: 2 ** 32 } as const;
