/**
 * Sequences of requests in which Pod Security answers: the modes, updates, subresources, templates, labels of
 * namespaces, exemptions. What a real kube-apiserver 1.34 answered to each step is recorded in
 * `test/golden/pod-security/`.
 */
import { safeContainer, safeSpec } from "./pod-security-cases.ts";

type Fields = Record<string, unknown>;

/** How the API server is started. */
export type ServerVariant = "default" | "configured" | "user-namespaces";

export interface Step {
  readonly method: "POST" | "PUT" | "PATCH";
  readonly path: string;
  readonly body: unknown;
  /** Default: JSON, and a merge patch for PATCH. */
  readonly type?: string;
  readonly user?: "admin" | "exempt";
}

export interface Flow {
  readonly name: string;
  readonly server: ServerVariant;
  /** In which `steps` act; made with these labels first. */
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly steps: readonly Step[];
}

/** The argument of `--admission-control-config-file` for the variant `configured`. */
export const CONFIGURED = {
  apiVersion: "apiserver.config.k8s.io/v1",
  kind: "AdmissionConfiguration",
  plugins: [
    {
      name: "PodSecurity",
      configuration: {
        apiVersion: "pod-security.admission.config.k8s.io/v1",
        kind: "PodSecurityConfiguration",
        defaults: {
          ...{ enforce: "baseline", "enforce-version": "v1.30", warn: "restricted", "warn-version": "latest" },
          ...{ audit: "restricted", "audit-version": "latest" },
        },
        exemptions: { usernames: ["exempt"], namespaces: ["exempt"], runtimeClasses: ["trusted"] },
      },
    },
  ],
};

const label = (fields: Readonly<Record<string, string>>): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(fields).map(([key, value]) => [`pod-security.kubernetes.io/${key}`, value]));

const pods = (namespace: string, name = ""): string =>
  `/api/v1/namespaces/${namespace}/pods${name === "" ? "" : `/${name}`}`;

const pod = (name: string, spec: Fields, metadata: Fields = {}): Fields => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, ...metadata },
  spec,
});

const create = (namespace: string, name: string, spec: Fields, metadata?: Fields): Step => ({
  method: "POST",
  path: pods(namespace),
  body: pod(name, spec, metadata),
});

const plain = (): Fields => ({ containers: [{ name: "app", image: "app:1" }] });
const hostNetwork = (): Fields => ({ ...plain(), hostNetwork: true });
const privileged = (): Fields => ({
  containers: [{ name: "app", image: "app:1", securityContext: { privileged: true } }],
});

const relabel = (namespace: string, labels: Readonly<Record<string, string | null>>): Step => ({
  method: "PATCH",
  path: `/api/v1/namespaces/${namespace}`,
  body: {
    metadata: {
      labels: Object.fromEntries(
        Object.entries(labels).map(([key, value]) => [`pod-security.kubernetes.io/${key}`, value]),
      ),
    },
  },
});

const newNamespace = (name: string, labels: Readonly<Record<string, string>>): Step => ({
  method: "POST",
  path: "/api/v1/namespaces",
  body: { apiVersion: "v1", kind: "Namespace", metadata: { name, labels: label(labels) } },
});

const image = (namespace: string, name: string, to: string): Step => ({
  method: "PATCH",
  path: pods(namespace, name),
  type: "application/strategic-merge-patch+json",
  body: { spec: { containers: [{ name: "app", image: to }] } },
});

const labelled = (namespace: string, name: string): Step => ({
  method: "PATCH",
  path: pods(namespace, name),
  body: { metadata: { labels: { changed: "yes" } } },
});

const debug = (namespace: string, name: string, container: Fields): Step => ({
  method: "PATCH",
  path: `${pods(namespace, name)}/ephemeralcontainers`,
  type: "application/strategic-merge-patch+json",
  body: { spec: { ephemeralContainers: [container] } },
});

const template = (spec: Fields): Fields => ({ metadata: { labels: { app: "x" } }, spec });

const daemonSet = (namespace: string, name: string, spec: Fields): Step => ({
  method: "POST",
  path: `/apis/apps/v1/namespaces/${namespace}/daemonsets`,
  body: {
    apiVersion: "apps/v1",
    kind: "DaemonSet",
    metadata: { name },
    spec: { selector: { matchLabels: { app: "x" } }, template: template(spec) },
  },
});

const podTemplate = (namespace: string, name: string, spec: Fields): Step => ({
  method: "POST",
  path: `/api/v1/namespaces/${namespace}/podtemplates`,
  body: { apiVersion: "v1", kind: "PodTemplate", metadata: { name }, template: template(spec) },
});

const ownedBy = (name: string, uid: string): Fields => ({
  ownerReferences: [{ apiVersion: "apps/v1", kind: "ReplicaSet", name, uid, controller: true }],
});

const flow = (
  name: string,
  namespace: string,
  labels: Readonly<Record<string, string>>,
  steps: readonly Step[],
  server: ServerVariant = "default",
): Flow => ({ name, server, namespace, labels: label(labels), steps });

export const FLOWS: readonly Flow[] = [
  flow("no labels restrict nothing", "open", {}, [
    create("open", "a", privileged()),
    create("open", "b", hostNetwork()),
  ]),
  flow("enforce refuses, and warns of nothing then", "enforced", { enforce: "restricted" }, [
    create("enforced", "a", privileged()),
    create("enforced", "b", safeSpec()),
    { method: "POST", path: pods("enforced"), body: pod("", plain(), { name: undefined, generateName: "made-" }) },
    create("enforced", "Wrong_Name", privileged()),
    create("enforced", "b", privileged()),
    { ...create("enforced", "c", privileged()), path: `${pods("enforced")}?dryRun=All` },
  ]),
  flow("warn lets pods through", "warned", { warn: "restricted", "warn-version": "v1.34" }, [
    create("warned", "a", privileged()),
    create("warned", "b", safeSpec()),
    labelled("warned", "a"),
    image("warned", "a", "app:2"),
  ]),
  flow("audit is for the log alone", "audited", { audit: "restricted" }, [create("audited", "a", privileged())]),
  flow(
    "all modes, each with its own level and version",
    "mixed",
    {
      ...{
        enforce: "baseline",
        "enforce-version": "v1.20",
        warn: "restricted",
        "warn-version": "v1.5",
        audit: "restricted",
      },
    },
    [create("mixed", "a", plain()), create("mixed", "b", hostNetwork()), daemonSet("mixed", "d", hostNetwork())],
  ),
  flow("enforce warns of workloads by default", "implied", { enforce: "baseline", "enforce-version": "v1.30" }, [
    daemonSet("implied", "d", hostNetwork()),
    podTemplate("implied", "t", privileged()),
    podTemplate("implied", "u", plain()),
    {
      method: "PATCH",
      path: "/apis/apps/v1/namespaces/implied/daemonsets/d",
      body: { spec: { template: { spec: { hostPID: true } } } },
    },
    create("implied", "a", hostNetwork()),
  ]),
  flow("an explicit warn level is not raised", "unwarned", { enforce: "restricted", warn: "privileged" }, [
    daemonSet("unwarned", "d", hostNetwork()),
  ]),
  flow("a warn version alone", "warn-version", { enforce: "restricted", "warn-version": "v1.0" }, [
    podTemplate("warn-version", "t", plain()),
  ]),
  flow("an enforce version alone restricts nothing", "only-version", { "enforce-version": "v1.10" }, [
    create("only-version", "a", privileged()),
  ]),
  flow("pods from before go on, but get no new image", "updated", {}, [
    create("updated", "a", { ...hostNetwork(), initContainers: [safeContainer("init")] }),
    relabel("updated", { enforce: "baseline" }),
    labelled("updated", "a"),
    image("updated", "a", "app:2"),
    {
      method: "PATCH",
      path: `${pods("updated", "a")}/status`,
      body: { status: { message: "still here" } },
    },
    {
      method: "POST",
      path: `${pods("updated", "a")}/binding`,
      body: { apiVersion: "v1", kind: "Binding", metadata: { name: "a" }, target: { kind: "Node", name: "n" } },
    },
    debug("updated", "a", safeContainer("debug", { terminationMessagePolicy: "File" })),
    relabel("updated", { enforce: null }),
    image("updated", "a", "app:2"),
  ]),
  flow("ephemeral containers are judged", "debugged", { enforce: "restricted" }, [
    create("debugged", "a", safeSpec()),
    debug("debugged", "a", safeContainer("good")),
    debug("debugged", "a", { name: "bad", image: "app:1" }),
    debug("debugged", "a", safeContainer("worse", { securityContext: { privileged: true } })),
    debug("debugged", "a", safeContainer("good")),
  ]),
  flow("resizing changes nothing that is judged", "resized", {}, [
    create("resized", "a", {
      hostNetwork: true,
      containers: [{ name: "app", image: "app:1", resources: { requests: { cpu: "100m" } } }],
    }),
    relabel("resized", { enforce: "baseline" }),
    {
      method: "PATCH",
      path: `${pods("resized", "a")}/resize`,
      type: "application/strategic-merge-patch+json",
      body: { spec: { containers: [{ name: "app", resources: { requests: { cpu: "200m" } } }] } },
    },
  ]),
  flow("mirror pods are judged as others", "mirrored", { enforce: "baseline" }, [
    create(
      "mirrored",
      "a",
      { ...hostNetwork(), nodeName: "n" },
      { annotations: { "kubernetes.io/config.mirror": "x" } },
    ),
    create("mirrored", "b", { ...plain(), nodeName: "n" }, { annotations: { "kubernetes.io/config.mirror": "x" } }),
  ]),
  flow("labels of a namespace are validated", "labels", {}, [
    newNamespace("bad-level", { enforce: "strict" }),
    newNamespace("bad-version", { enforce: "baseline", "enforce-version": "1.20" }),
    newNamespace("bad-everything", {
      ...{ enforce: "Baseline", "enforce-version": "v1", audit: "none", "audit-version": "v2.0" },
      ...{ warn: "x", "warn-version": "v1.01" },
    }),
    newNamespace("future", { enforce: "restricted", "enforce-version": "v1.1000" }),
    relabel("labels", { warn: "bad" }),
    relabel("labels", { enforce: "restricted", "enforce-version": "newest" }),
    relabel("labels", { unknown: "anything" }),
  ]),
  flow("existing pods are warned of", "filled", {}, [
    create("filled", "b", hostNetwork()),
    create("filled", "a", hostNetwork()),
    create("filled", "c", hostNetwork()),
    create("filled", "p", privileged()),
    create("filled", "q", privileged(), ownedBy("set", "11111111-1111-1111-1111-111111111111")),
    create("filled", "r", { ...privileged(), hostPID: true }, ownedBy("set", "11111111-1111-1111-1111-111111111111")),
    create("filled", "safe", safeSpec()),
    { ...relabel("filled", { enforce: "baseline" }), path: "/api/v1/namespaces/filled?dryRun=All" },
    relabel("filled", { enforce: "restricted", "enforce-version": "v1.30" }),
    relabel("filled", { enforce: "baseline" }),
    relabel("filled", { "enforce-version": "v1.29" }),
    relabel("filled", { warn: "restricted" }),
    relabel("filled", { enforce: "privileged" }),
  ]),
  flow("labels with a wrong value cannot be kept, but for those that were there", "renamed", { enforce: "baseline" }, [
    relabel("renamed", { enforce: "none" }),
    relabel("renamed", { enforce: null, audit: "restricted" }),
    create("renamed", "a", privileged()),
  ]),
  flow(
    "defaults hold where there is no label",
    "defaulted",
    {},
    [
      create("defaulted", "a", hostNetwork()),
      create("defaulted", "b", plain()),
      podTemplate("defaulted", "t", hostNetwork()),
      relabel("defaulted", { enforce: "privileged" }),
      create("defaulted", "a", hostNetwork()),
      relabel("defaulted", { warn: "privileged" }),
      create("defaulted", "c", hostNetwork()),
    ],
    "configured",
  ),
  flow(
    "exempt users, namespaces and runtime classes",
    "exempt",
    { enforce: "restricted" },
    [
      create("exempt", "a", privileged()),
      relabel("exempt", { enforce: "baseline", "enforce-version": "v1.20" }),
      relabel("exempt", { enforce: "restricted" }),
      daemonSet("exempt", "d", privileged()),
    ],
    "configured",
  ),
  flow(
    "an exempt user or runtime class elsewhere",
    "other",
    { enforce: "restricted" },
    [
      { ...create("other", "a", privileged()), user: "exempt" },
      create("other", "b", { ...privileged(), runtimeClassName: "trusted" }),
      create("other", "c", { ...privileged(), runtimeClassName: "wasm" }),
      podTemplate("other", "t", { ...privileged(), runtimeClassName: "trusted" }),
      { ...podTemplate("other", "u", privileged()), user: "exempt" },
      podTemplate("other", "v", privileged()),
      relabel("other", { enforce: "privileged" }),
      relabel("other", { enforce: "baseline" }),
    ],
    "configured",
  ),
  flow(
    "user namespaces free from checks of the user where the feature is on",
    "userns",
    { enforce: "restricted" },
    [
      create("userns", "a", {
        ...safeSpec(),
        hostUsers: false,
        securityContext: { runAsUser: 0, seccompProfile: { type: "RuntimeDefault" } },
      }),
      create("userns", "b", {
        ...safeSpec(),
        hostUsers: true,
        securityContext: { runAsUser: 0, seccompProfile: { type: "RuntimeDefault" } },
      }),
      create("userns", "c", {
        ...safeSpec(),
        hostUsers: false,
        containers: [
          safeContainer("app", {
            securityContext: {
              procMount: "Unmasked",
              allowPrivilegeEscalation: false,
              capabilities: { drop: ["ALL"] },
            },
          }),
        ],
      }),
      create("userns", "d", { ...safeSpec(), hostUsers: false, hostNetwork: true }),
      create("userns", "e", {
        ...safeSpec(),
        hostUsers: false,
        containers: [safeContainer("app", { securityContext: { allowPrivilegeEscalation: true } })],
      }),
    ],
    "user-namespaces",
  ),
];
