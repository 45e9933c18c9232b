import assert from "node:assert/strict";
import { test } from "node:test";
import type { PodManifest } from "@picolet/protocol/pod/pod.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { type Admission, type AdmissionView, admitPod } from "./admission.ts";
import { activePressures } from "./admission-pressure.ts";
import { allocatableAmounts } from "./admission-resources.ts";
import { sysctlAllowlist } from "./sysctls.ts";

const VIEW: AdmissionView = {
  node: { name: "board", labels: { "kubernetes.io/arch": "arm64", zone: "shed", size: "8" }, taints: [] },
  allocatable: allocatableAmounts({ cpu: "2", memory: "1Gi", pods: "3", "ephemeral-storage": "10Gi", "x.io/gpu": "1" }),
  sysctls: sysctlAllowlist(["kernel.msg*", "net.core.somaxconn", "net/ipv4/conf/eth0.1/*"], "6.1.0-13-arm64"),
  apparmor: false,
  supplementalGroupsPolicy: false,
  isShuttingDown: false,
  pressures: [],
};

type Spec = NonNullable<PodManifest["spec"]>;

const api = (spec: Partial<Spec> = {}, name = "web"): DesiredPod => ({
  ...desired(podOf({ ...spec } as Spec, { name }), `uid-${name}`),
  source: "api",
  origin: "",
});
const fromFile = (spec: Partial<Spec> = {}, name = "web"): DesiredPod =>
  desired(podOf({ ...spec } as Spec, { name }), `uid-${name}`);
const requesting = (requests: Record<string, string>, limits?: Record<string, string>): Partial<Spec> => ({
  containers: [{ name: "app", image: "i", resources: { requests, ...(limits && { limits }) } }],
});

function told(admission: Admission): string {
  if (admission.kind === "admitted") return `admitted ${admission.victims.map(({ uid }) => uid).join()}`.trim();
  return `${admission.rejection.reason}: ${admission.rejection.message}`;
}

const short = (resource: string, requested: number, used: number, capacity: number): string =>
  `OutOf${resource}: Node didn't have enough resource: ${resource}, requested: ${requested}, used: ${used}, capacity: ${capacity}`;

const NODE_AFFINITY = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
const NODE_PORTS = "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";

interface Case {
  readonly pod: DesiredPod;
  readonly others?: readonly DesiredPod[];
  readonly view?: Partial<AdmissionView>;
  readonly expected: string;
}

function check(cases: Readonly<Record<string, Case>>): void {
  for (const [name, { pod, others = [], view = {}, expected }] of Object.entries(cases)) {
    test(name, () => assert.equal(told(admitPod(pod, others, { ...VIEW, ...view })), expected));
  }
}

check({
  "a pod that asks for nothing is taken": { pod: api(), expected: "admitted" },
  "cpu is counted in thousandths beside what others have": {
    pod: api(requesting({ cpu: "1500m" })),
    others: [api(requesting({ cpu: "0.6" }), "a")],
    expected: short("cpu", 1500, 600, 2000),
  },
  "exactly what is left fits": {
    pod: api(requesting({ cpu: "1400m" })),
    others: [api(requesting({ cpu: "0.6" }), "a")],
    expected: "admitted",
  },
  "memory is counted in bytes": {
    pod: api(requesting({ memory: "2Gi" })),
    expected: short("memory", 2 ** 31, 0, 2 ** 30),
  },
  "of several that are short the first by Kubernetes' order is told": {
    pod: api(requesting({ memory: "2Gi", cpu: "3", "ephemeral-storage": "1Ti" })),
    expected: short("cpu", 3000, 0, 2000),
  },
  "ephemeral storage counts": {
    pod: api(requesting({ "ephemeral-storage": "11Gi" })),
    expected: short("ephemeral-storage", 11 * 2 ** 30, 0, 10 * 2 ** 30),
  },
  "an extended resource that is used up": {
    pod: api(requesting({ "x.io/gpu": "1" }, { "x.io/gpu": "1" })),
    others: [api(requesting({ "x.io/gpu": "1" }, { "x.io/gpu": "1" }), "a")],
    expected: short("x.io/gpu", 1, 1, 1),
  },
  "an extended resource that the node does not know is the cluster's business": {
    pod: api(requesting({ "y.io/tpu": "1" }, { "y.io/tpu": "1" })),
    expected: "admitted",
  },
  "huge pages are Kubernetes' own: a node without has none": {
    pod: api(requesting({ cpu: "1", "hugepages-2Mi": "4Mi" }, { cpu: "1", "hugepages-2Mi": "4Mi" })),
    expected: short("hugepages-2Mi", 4_194_304, 0, 0),
  },
  "no more pods than the node may have": {
    pod: api(),
    others: ["a", "b", "c"].map((name) => api({}, name)),
    expected: short("pods", 1, 3, 3),
  },
  "an init container counts as long as it needs more than all others together": {
    pod: api({
      containers: [{ name: "app", image: "i", resources: { requests: { cpu: "1" } } }],
      initContainers: [{ name: "first", image: "i", resources: { requests: { cpu: "2500m" } } }],
    }),
    expected: short("cpu", 2500, 0, 2000),
  },
  "a sidecar counts beside the others": {
    pod: api({
      containers: [{ name: "app", image: "i", resources: { requests: { cpu: "1" } } }],
      initContainers: [
        { name: "side", image: "i", restartPolicy: "Always", resources: { requests: { cpu: "1100m" } } },
      ],
    }),
    expected: short("cpu", 2100, 0, 2000),
  },
  "overhead counts": {
    pod: api({ ...requesting({ cpu: "1900m" }), overhead: { cpu: "200m" }, runtimeClassName: "kata" }),
    expected: short("cpu", 2100, 0, 2000),
  },
  "resources of the pod as a whole count instead of its containers'": {
    pod: api({ ...requesting({ cpu: "100m" }), resources: { requests: { cpu: "2100m" } } }),
    expected: short("cpu", 2100, 0, 2000),
  },
});

const affinity = (...terms: readonly object[]): Partial<Spec> =>
  ({
    affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: terms } } },
  }) as Partial<Spec>;
const expression = (key: string, operator: string, ...values: string[]): object => ({
  matchExpressions: [{ key, operator, values }],
});

check({
  "a node selector that fits": { pod: api({ nodeSelector: { zone: "shed" } }), expected: "admitted" },
  "a node selector that does not": { pod: api({ nodeSelector: { zone: "barn" } }), expected: NODE_AFFINITY },
  "a selector of a name that every object has": {
    pod: api(affinity(expression("constructor", "Exists"))),
    expected: NODE_AFFINITY,
  },
  "one of several terms is enough": {
    pod: api(affinity(expression("zone", "In", "barn"), expression("size", "Gt", "7"))),
    expected: "admitted",
  },
  "all expressions of a term have to be met": {
    pod: api(
      affinity({
        matchExpressions: [
          { key: "zone", operator: "Exists" },
          { key: "size", operator: "Lt", values: ["8"] },
        ],
      }),
    ),
    expected: NODE_AFFINITY,
  },
  "a label that is missing is not in, and not one of": {
    pod: api(affinity(expression("rack", "NotIn", "a"), expression("rack", "In", "a"))),
    expected: "admitted",
  },
  "a number in a label that is none": { pod: api(affinity(expression("zone", "Gt", "1"))), expected: NODE_AFFINITY },
  "a label that must not be there": { pod: api(affinity(expression("zone", "DoesNotExist"))), expected: NODE_AFFINITY },
  "the node's name as a field": {
    pod: api(affinity({ matchFields: [{ key: "metadata.name", operator: "In", values: ["board"] }] })),
    expected: "admitted",
  },
  "a pod of another node": {
    pod: api({ nodeName: "other" }),
    expected: "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name",
  },
  "a static pod is held to the node's labels too": {
    pod: fromFile({ nodeSelector: { zone: "barn" } }),
    expected: NODE_AFFINITY,
  },
});

const onPort = (hostPort: number, more: object = {}): Partial<Spec> => ({
  containers: [{ name: "app", image: "i", ports: [{ containerPort: 80, hostPort, ...more }] }],
});

check({
  "a port of the host that another pod has": {
    pod: api(onPort(8080)),
    others: [api(onPort(8080), "a")],
    expected: NODE_PORTS,
  },
  "the same port of another protocol": {
    pod: api(onPort(8080, { protocol: "UDP" })),
    others: [api(onPort(8080), "a")],
    expected: "admitted",
  },
  "the same port of another address": {
    pod: api(onPort(8080, { hostIP: "10.0.0.1" })),
    others: [api(onPort(8080, { hostIP: "10.0.0.2" }), "a")],
    expected: "admitted",
  },
  "every address is that one too": {
    pod: api(onPort(8080, { hostIP: "10.0.0.1" })),
    others: [api(onPort(8080), "a")],
    expected: NODE_PORTS,
  },
  "a port on the host's network is the host's": {
    pod: api({ hostNetwork: true, containers: [{ name: "app", image: "i", ports: [{ containerPort: 8080 }] }] }),
    others: [api(onPort(8080), "a")],
    expected: NODE_PORTS,
  },
  "an init container's port is taken for a moment only": {
    pod: api({ initContainers: [{ name: "first", image: "i", ports: [{ containerPort: 80, hostPort: 8080 }] }] }),
    others: [api(onPort(8080), "a")],
    expected: "admitted",
  },
});

const TAINTED = { node: { ...VIEW.node, taints: [{ key: "dry", value: "yes", effect: "NoExecute" }] } };
const UNTOLERATED =
  "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";

check({
  "a taint NoExecute keeps a pod away": { pod: api(), view: TAINTED, expected: UNTOLERATED },
  "a taint that is tolerated": {
    pod: api({ tolerations: [{ key: "dry", operator: "Equal", value: "yes", effect: "NoExecute" }] }),
    view: TAINTED,
    expected: "admitted",
  },
  "another value is not tolerated": {
    pod: api({ tolerations: [{ key: "dry", value: "no" }] }),
    view: TAINTED,
    expected: UNTOLERATED,
  },
  "a toleration of everything": {
    pod: api({ tolerations: [{ operator: "Exists" }] }),
    view: TAINTED,
    expected: "admitted",
  },
  "a taint NoSchedule was the scheduler's business": {
    pod: api(),
    view: { node: { ...VIEW.node, taints: [{ key: "dry", effect: "NoSchedule" }] } },
    expected: "admitted",
  },
  "no taint keeps a static pod away": { pod: fromFile(), view: TAINTED, expected: "admitted" },
});

const sysctl = (name: string, more: Partial<Spec> = {}): DesiredPod =>
  api({ securityContext: { sysctls: [{ name, value: "1" }] }, ...more });

/** Makes a pod that validation would refuse. */
const withSpec = (pod: DesiredPod, more: Partial<DesiredPod["pod"]["spec"]>): DesiredPod => ({
  ...pod,
  pod: { ...pod.pod, spec: { ...pod.pod.spec, ...more } },
});

check({
  "a safe sysctl": { pod: sysctl("kernel.shm_rmid_forced"), expected: "admitted" },
  "a safe sysctl with slashes": { pod: sysctl("net/ipv4/tcp_syncookies"), expected: "admitted" },
  "a sysctl that is not allowed": {
    pod: sysctl("kernel.sem"),
    expected: 'SysctlForbidden: forbidden sysctl: "kernel.sem" not allowlisted',
  },
  "an unsafe one that is allowed by its beginning": { pod: sysctl("kernel.msgmax"), expected: "admitted" },
  "an unsafe one that is allowed by name": { pod: sysctl("net.core.somaxconn"), expected: "admitted" },
  "a name with a dot in it": { pod: sysctl("net.ipv4.conf.eth0/1.rp_filter"), expected: "admitted" },
  "one that the kernel does not have in namespaces": {
    pod: sysctl("net.ipv4.tcp_rmem"),
    view: { sysctls: sysctlAllowlist([], "4.14.99") },
    expected: 'SysctlForbidden: forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted',
  },
  "one of the host's network": {
    pod: sysctl("net.core.somaxconn", { hostNetwork: false, hostIPC: true }),
    expected: "admitted",
  },
  "one of the host's IPC": {
    pod: withSpec(sysctl("kernel.msgmax"), { hostIPC: true }),
    expected: 'SysctlForbidden: forbidden sysctl: "kernel.msgmax" not allowed with host IPC enabled',
  },
});

const confined = (type: "Localhost" | "RuntimeDefault" | "Unconfined"): Partial<Spec> => ({
  securityContext: {
    appArmorProfile: { type, ...(type === "Localhost" ? { localhostProfile: "mine" } : {}) },
  },
});
const annotated = (value: string): DesiredPod => {
  const key = "container.apparmor.security.beta.kubernetes.io/app";
  return { ...desired(podOf({}, { name: "web", annotations: { [key]: value } })), source: "api" };
};

check({
  "AppArmor on a kernel without": {
    pod: api(confined("RuntimeDefault")),
    expected: "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host",
  },
  "AppArmor on a kernel with it": { pod: api(confined("Localhost")), view: { apparmor: true }, expected: "admitted" },
  "unconfined asks for nothing": { pod: api(confined("Unconfined")), expected: "admitted" },
  "an annotation asks for AppArmor too": {
    pod: annotated("runtime/default"),
    expected: "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host",
  },
  "an annotation that names no profile": {
    pod: annotated("localhost/"),
    view: { apparmor: true },
    expected: 'AppArmor: Cannot enforce AppArmor: invalid empty AppArmor profile name: ""',
  },
  "a pod for Windows": {
    pod: withSpec(api(), { os: { name: "windows" } }),
    expected: "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
  },
  "a pod labelled for another system": {
    pod: { ...desired(podOf({}, { labels: { "kubernetes.io/os": "windows" } })), source: "api" },
    expected:
      "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
  },
  "strict supplemental groups where the runtime does not know them": {
    pod: api({ securityContext: { supplementalGroupsPolicy: "Strict" } }),
    expected: "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node",
  },
  "strict supplemental groups where it does": {
    pod: api({ securityContext: { supplementalGroupsPolicy: "Strict" } }),
    view: { supplementalGroupsPolicy: true },
    expected: "admitted",
  },
  "nothing comes while the node goes down": {
    pod: fromFile(),
    view: { isShuttingDown: true },
    expected: "NodeShutdown: Pod was rejected as the node is shutting down.",
  },
});

const equal = (cpu: string, memory: string): Partial<Spec> => requesting({ cpu, memory }, { cpu, memory });

check({
  "a static pod displaces one of the API server": {
    pod: fromFile(requesting({ cpu: "1" })),
    others: [api(requesting({ cpu: "1500m" }), "a")],
    expected: "admitted uid-a",
  },
  "a critical pod displaces too": {
    pod: api({ ...requesting({ cpu: "1" }), priority: 2_000_000_000 }),
    others: [api(requesting({ cpu: "1500m" }), "a")],
    expected: "admitted uid-a",
  },
  "the least guaranteed goes first, and no more than have to": {
    pod: fromFile(requesting({ cpu: "1" })),
    others: [api(equal("1", "64Mi"), "guaranteed"), api(requesting({ cpu: "1" }), "burstable")],
    expected: "admitted uid-burstable",
  },
  "one large pod goes rather than two small ones": {
    pod: fromFile(requesting({ cpu: "1" })),
    others: [
      api(requesting({ cpu: "500m" }), "small"),
      api(requesting({ cpu: "500m" }), "little"),
      api(requesting({ cpu: "1" }), "large"),
    ],
    view: { allocatable: allocatableAmounts({ cpu: "2", memory: "1Gi", pods: "10" }) },
    expected: "admitted uid-large",
  },
  "for a place among the pods one that requests nothing will do": {
    pod: fromFile(),
    others: [api(requesting({ cpu: "1" }), "a"), api({}, "b"), api(equal("1", "64Mi"), "c")],
    expected: "admitted uid-b",
  },
  "what is as critical stays": {
    pod: fromFile(requesting({ cpu: "1" })),
    others: [fromFile(requesting({ cpu: "1500m" }), "a")],
    expected:
      "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preemption: " +
      "error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 500), ]",
  },
  "of two static pods the one with the higher priority has the right": {
    pod: fromFile({ ...requesting({ cpu: "1" }), priority: 10 }),
    others: [fromFile({ ...requesting({ cpu: "1500m" }), priority: 1 }, "a")],
    expected: "admitted uid-a",
  },
  "nobody is displaced for one that could not be here anyway": {
    pod: fromFile({ ...requesting({ cpu: "1" }), nodeSelector: { zone: "barn" } }),
    others: [api(requesting({ cpu: "1500m" }), "a")],
    expected: NODE_AFFINITY,
  },
});

test("a pod never counts among the others it is held against", () => {
  const pod = api(requesting({ cpu: "2" }));
  assert.equal(told(admitPod({ ...pod, uid: podUid("new") }, [], VIEW)), "admitted");
});

const MEMORY_TOLERATION = {
  key: "node.kubernetes.io/memory-pressure",
  operator: "Exists",
  effect: "NoSchedule",
} as const;
const asksMemory = requesting({ memory: "1Mi" });
const evicted = (conditions: string): string => `Evicted: The node had condition: [${conditions}]. `;

check({
  "short of memory, the node refuses what has asked for none": {
    pod: api(),
    view: { pressures: ["MemoryPressure"] },
    expected: evicted("MemoryPressure"),
  },
  "and takes what has asked for some": {
    pod: api(asksMemory),
    view: { pressures: ["MemoryPressure"] },
    expected: "admitted",
  },
  "or what tolerates the taint": {
    pod: api({ tolerations: [MEMORY_TOLERATION] }),
    view: { pressures: ["MemoryPressure"] },
    expected: "admitted",
  },
  "but not what tolerates another one": {
    pod: api({ tolerations: [{ ...MEMORY_TOLERATION, key: "node.kubernetes.io/disk-pressure" }] }),
    view: { pressures: ["MemoryPressure"] },
    expected: evicted("MemoryPressure"),
  },
  "short of disk, it refuses what tolerates that too": {
    pod: api({ tolerations: [{ operator: "Exists" }] }),
    view: { pressures: ["DiskPressure"] },
    expected: evicted("DiskPressure"),
  },
  "short of processes, it refuses what has asked for memory": {
    pod: api(asksMemory),
    view: { pressures: ["PIDPressure"] },
    expected: evicted("PIDPressure"),
  },
  "short of two, neither memory asked for nor a toleration helps": {
    pod: api({ ...asksMemory, tolerations: [MEMORY_TOLERATION] }),
    view: { pressures: ["MemoryPressure", "DiskPressure"] },
    expected: evicted("MemoryPressure DiskPressure"),
  },
  "a static pod is taken whatever is short": {
    pod: fromFile(),
    view: { pressures: ["MemoryPressure", "DiskPressure", "PIDPressure"] },
    expected: "admitted",
  },
  "and so is a critical one": {
    pod: api({ priority: 2_000_000_000 }),
    view: { pressures: ["DiskPressure"] },
    expected: "admitted",
  },
  "the pressure is told before anything else that is wrong": {
    pod: api({ ...requesting({ cpu: "9" }), nodeSelector: { zone: "sea" } }),
    view: { pressures: ["PIDPressure"] },
    expected: evicted("PIDPressure"),
  },
});

test("flash that wears out and pressures that are over refuse no pod", () => {
  const condition = { reason: "r", message: "m" };
  assert.deepEqual(
    activePressures([
      { ...condition, type: "FlashWearPressure", status: "True" },
      { ...condition, type: "PIDPressure", status: "True" },
      { ...condition, type: "DiskPressure", status: "False" },
      { ...condition, type: "MemoryPressure", status: "True" },
    ]),
    ["MemoryPressure", "PIDPressure"],
  );
});
