/** Defaults, admission and validation of each resource, as a client of the real API server meets them. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { KubeClient, KubeObject, ResourceType, WriteOptions } from "@picolet/hub-core/kube-client/kube-client.ts";
import { EmbeddedCluster } from "@picolet/test/support/unit/embedded/in-process-cluster.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { ResourceDefinition } from "../api/resource-definition.ts";
import { embeddedResources } from "../embedded-resources.ts";

const { signal } = new AbortController();
const definitions = embeddedResources({ serviceAccountTokens: true });
let cluster: EmbeddedCluster;
let serial = 0;

before(async () => {
  cluster = await EmbeddedCluster.start({ clock: new VirtualClock(), serviceAccountTokens: true });
  await cluster.stopControllers();
});
after(() => cluster[Symbol.asyncDispose]());

function typeOf(plural: string): ResourceType & Pick<ResourceDefinition, "namespaced"> {
  const found = definitions.find((each) => each.plural === plural);
  assert.ok(found, plural);
  return found;
}

interface Ask {
  readonly name?: string;
  readonly metadata?: object;
  readonly as?: KubeClient;
}

async function create(
  plural: string,
  object: object,
  { name, metadata, as = cluster.client }: Ask = {},
): Promise<KubeObject> {
  serial += 1;
  const type = typeOf(plural);
  const ref = { namespace: type.namespaced ? "default" : "", name: name ?? `x-${serial}` };
  const full = {
    apiVersion: type.group === "" ? type.version : `${type.group}/${type.version}`,
    kind: type.kind,
    ...object,
    metadata: { name: ref.name, ...(type.namespaced ? { namespace: ref.namespace } : {}), ...metadata },
  };
  return as.create(type, ref, full, {}, signal);
}

async function change(
  plural: string,
  object: KubeObject,
  patch: object,
  { as = cluster.client, ...options }: WriteOptions & { as?: KubeClient } = {},
): Promise<KubeObject> {
  const { namespace = "", name } = object.metadata;
  return as.patch(typeOf(plural), { namespace, name }, "merge", patch, options, signal);
}

const container = { name: "app", image: "app:1" };
const newPod = (spec: object = {}, ask: Ask = {}): Promise<KubeObject> =>
  create("pods", { spec: { containers: [container], ...spec } }, ask);
const specOf = (object: KubeObject): Record<string, unknown> => object.spec as Record<string, unknown>;

describe("a new pod", () => {
  test("gets what Kubernetes' defaults and admission give it", async () => {
    const pod = await newPod();
    const { status, spec, metadata } = pod as KubeObject & { spec: Record<string, unknown> };
    assert.deepEqual(status, { phase: "Pending", qosClass: "BestEffort" });
    assert.equal(metadata.generation, 1);
    assert.equal(spec.serviceAccountName, "default");
    assert.equal(spec.serviceAccount, "default");
    assert.equal(spec.priority, 0);
    assert.equal(spec.preemptionPolicy, "PreemptLowerPriority");
    assert.equal(spec.terminationGracePeriodSeconds, 30);
    assert.deepEqual(spec.tolerations, [
      { key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute", tolerationSeconds: 300 },
      { key: "node.kubernetes.io/unreachable", operator: "Exists", effect: "NoExecute", tolerationSeconds: 300 },
    ]);
  });

  test("has the token of its service account in each container, unless it does not want it", async () => {
    const { volumes, containers } = specOf(await newPod()) as {
      volumes: { name: string }[];
      containers: { volumeMounts: object[] }[];
    };
    const [volume] = volumes;
    assert.match(volume?.name ?? "", /^kube-api-access-[a-z0-9]{5}$/);
    assert.deepEqual(containers[0]?.volumeMounts, [
      { name: volume?.name, readOnly: true, mountPath: "/var/run/secrets/kubernetes.io/serviceaccount" },
    ]);
    const without = specOf(await newPod({ automountServiceAccountToken: false }));
    assert.equal(without.volumes, undefined);
  });

  test("keeps a toleration of its own", async () => {
    const own = { key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute", tolerationSeconds: 5 };
    const { tolerations } = specOf(
      await newPod({ tolerations: [own, { operator: "Exists", key: "node.kubernetes.io/unreachable" }] }),
    );
    assert.deepEqual(tolerations, [own, { operator: "Exists", key: "node.kubernetes.io/unreachable" }]);
  });

  test("has the priority of its class", async () => {
    await create("priorityclasses", { value: 1000, preemptionPolicy: "Never" }, { name: "high" });
    const { priority, preemptionPolicy } = specOf(await newPod({ priorityClassName: "high" }));
    assert.deepEqual([priority, preemptionPolicy], [1000, "Never"]);
  });

  test("has overhead, selector and tolerations of its runtime class, and its account's pull secrets", async () => {
    const scheduling = { nodeSelector: { wasm: "yes" }, tolerations: [{ key: "wasm", operator: "Exists" }] };
    await create(
      "runtimeclasses",
      { handler: "h", overhead: { podFixed: { memory: "8Mi" } }, scheduling },
      { name: "heavy" },
    );
    await create("serviceaccounts", { imagePullSecrets: [{ name: "registry" }] }, { name: "puller" });
    const spec = specOf(await newPod({ runtimeClassName: "heavy", serviceAccountName: "puller" }));
    assert.deepEqual([spec.overhead, spec.nodeSelector], [{ memory: "8Mi" }, { wasm: "yes" }]);
    assert.deepEqual((spec.tolerations as { key: string }[]).at(-1), { key: "wasm", operator: "Exists" });
    assert.deepEqual(spec.imagePullSecrets, [{ name: "registry" }]);
  });

  const refusals: readonly (readonly [string, object, string])[] = [
    ["no container", { containers: [] }, "spec.containers: Required value"],
    [
      "an unknown account",
      { serviceAccountName: "nobody" },
      'error looking up service account default/nobody: serviceaccount "nobody" not found',
    ],
    ["an unknown class", { priorityClassName: "none" }, "no PriorityClass with name none was found"],
    [
      "a priority by hand",
      { priority: 5 },
      "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name",
    ],
    ["an unknown runtime", { runtimeClassName: "none" }, 'pod rejected: RuntimeClass "none" not found'],
    [
      "overhead by hand",
      { overhead: { cpu: "1" } },
      "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
    ],
    [
      "debugging from the start",
      { ephemeralContainers: [{ name: "d", image: "d" }] },
      "spec.ephemeralContainers: Forbidden: cannot be set on create",
    ],
    ["two of one name", { containers: [container, container] }, 'spec.containers[1].name: Duplicate value: "app"'],
  ];
  for (const [name, spec, message] of refusals) {
    test(`is refused: ${name}`, () =>
      assert.rejects(newPod(spec), (error: Error) => error.message.includes(message) || assert.fail(error.message)));
  }
});

describe("placement of a pod", () => {
  const required = "requiredDuringSchedulingIgnoredDuringExecution";
  const preferred = "preferredDuringSchedulingIgnoredDuringExecution";
  const onNode = (requirement: object): object => ({
    affinity: { nodeAffinity: { [required]: { nodeSelectorTerms: [{ matchExpressions: [requirement] }] } } },
  });
  const field = (requirement: object): object => ({
    affinity: { nodeAffinity: { [required]: { nodeSelectorTerms: [{ matchFields: [requirement] }] } } },
  });
  const besidePod = (term: object): object => ({ affinity: { podAffinity: { [required]: [term] } } });
  const spread = (constraint: object): object => ({ topologySpreadConstraints: [constraint] });
  const term = `spec.affinity.nodeAffinity.${required}.nodeSelectorTerms[0].matchExpressions[0]`;
  const cases: readonly (readonly [string, object, string])[] = [
    [
      "two gates of one name",
      { schedulingGates: [{ name: "a" }, { name: "a" }] },
      'spec.schedulingGates[1]: Duplicate value: "a"',
    ],
    [
      "an unknown operator",
      onNode({ key: "a", operator: "Is" }),
      `${term}.operator: Invalid value: "Is": not a valid selector operator`,
    ],
    [
      "In without values",
      onNode({ key: "a", operator: "In" }),
      `${term}.values: Required value: must be specified when \`operator\` is 'In' or 'NotIn'`,
    ],
    [
      "Exists with values",
      onNode({ key: "a", operator: "Exists", values: ["b"] }),
      "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
    ],
    [
      "Gt with two values",
      onNode({ key: "a", operator: "Gt", values: ["1", "2"] }),
      "must be specified single value when `operator` is 'Lt' or 'Gt'",
    ],
    [
      "an unknown field",
      field({ key: "metadata.uid", operator: "In", values: ["a"] }),
      "not a valid field selector key",
    ],
    [
      "two names of one node",
      field({ key: "metadata.name", operator: "In", values: ["a", "b"] }),
      "must be only one value when `operator`",
    ],
    [
      "no topology",
      besidePod({ labelSelector: {} }),
      `spec.affinity.podAffinity.${required}[0].topologyKey: Required value: can not be empty`,
    ],
    [
      "a comparison of pods",
      besidePod({
        topologyKey: "a",
        labelSelector: { matchExpressions: [{ key: "a", operator: "Gt", values: ["1"] }] },
      }),
      "not a valid selector operator",
    ],
    [
      "too heavy",
      { affinity: { podAntiAffinity: { [preferred]: [{ weight: 101, podAffinityTerm: { topologyKey: "a" } }] } } },
      "weight: Invalid value: 101: must be in the range 1-100",
    ],
    [
      "no skew",
      spread({ maxSkew: 0, topologyKey: "a", whenUnsatisfiable: "DoNotSchedule" }),
      "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
    ],
    [
      "an unknown action",
      spread({ maxSkew: 1, topologyKey: "a", whenUnsatisfiable: "Cry" }),
      'supported values: "DoNotSchedule", "ScheduleAnyway"',
    ],
  ];
  for (const [name, spec, message] of cases) {
    test(`is refused: ${name}`, () =>
      assert.rejects(newPod(spec), (error: Error) => error.message.includes(message) || assert.fail(error.message)));
  }
});

describe("a pod that is there", () => {
  const changes: readonly (readonly [string, object, object, string | undefined])[] = [
    ["gets back the tolerations that all pods have", {}, { tolerations: [] }, undefined],
    ["may get another image", {}, { containers: [{ ...container, image: "app:2" }] }, undefined],
    [
      "may not lose a toleration",
      { tolerations: [{ key: "x", operator: "Exists" }] },
      { tolerations: [] },
      "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
    ],
    [
      "may not get another command",
      {},
      { containers: [{ ...container, command: ["x"] }] },
      'spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n+ spec.containers[0].command: ["x"]',
    ],
    [
      "may not get another container",
      {},
      { containers: [container, { ...container, name: "b" }] },
      "spec.containers: Forbidden: pod updates may not add or remove containers",
    ],
    ["may get a deadline", {}, { activeDeadlineSeconds: 60 }, undefined],
    [
      "may not get a later deadline",
      { activeDeadlineSeconds: 10 },
      { activeDeadlineSeconds: 20 },
      "spec.activeDeadlineSeconds: Invalid value: 20: must be less than or equal to previous value",
    ],
    [
      "may not lose its deadline",
      { activeDeadlineSeconds: 10 },
      { activeDeadlineSeconds: null },
      "must not update from a positive integer to nil value",
    ],
    ["may not go elsewhere", { nodeName: "a" }, { nodeName: "b" }, '- spec.nodeName: "a"\n+ spec.nodeName: "b"'],
    ["may lose a gate", { schedulingGates: [{ name: "a/b" }] }, { schedulingGates: null }, undefined],
    [
      "may not get a gate",
      {},
      { schedulingGates: [{ name: "a/b" }] },
      "only deletion is allowed, but found new scheduling gate 'a/b'",
    ],
  ];
  for (const [name, spec, patch, message] of changes) {
    test(name, async () => {
      const pod = await newPod({ automountServiceAccountToken: false, ...spec });
      const changed = change("pods", pod, { spec: patch });
      if (message === undefined) await changed;
      else
        await assert.rejects(changed, (error: Error) => error.message.includes(message) || assert.fail(error.message));
    });
  }

  test("keeps its spec and class through a status, its status through an update", async () => {
    const pod = await newPod();
    const written = await change(
      "pods",
      pod,
      { spec: { nodeName: "a" }, status: { phase: "Running", qosClass: "Guaranteed" } },
      { subresource: "status" },
    );
    assert.equal(specOf(written).nodeName, undefined);
    assert.deepEqual(written.status, { phase: "Running", qosClass: "BestEffort" });
    const updated = await change("pods", pod, { metadata: { labels: { a: "b" } }, status: { phase: "Failed" } });
    assert.deepEqual(updated.status, { phase: "Running", qosClass: "BestEffort" });
  });

  test("gets debugging containers where they belong, and keeps them", async () => {
    const pod = await newPod();
    const debug = { spec: { ephemeralContainers: [{ name: "debug", image: "d" }] } };
    const debugged = await change("pods", pod, debug, { subresource: "ephemeralcontainers" });
    assert.equal((specOf(debugged).ephemeralContainers as object[]).length, 1);
    const removed = change("pods", pod, { spec: { ephemeralContainers: [] } }, { subresource: "ephemeralcontainers" });
    await assert.rejects(removed, /existing ephemeral containers "debug" may not be removed/);
  });

  test("is resized as long as its class stays, and nothing else of it is changed by that", async () => {
    const sized = (cpu: string): object => ({ ...container, resources: { requests: { cpu, memory: "1Mi" } } });
    const pod = await newPod({ containers: [sized("100m")], automountServiceAccountToken: false });
    const resize = (spec: object): Promise<KubeObject> => change("pods", pod, { spec }, { subresource: "resize" });
    const resized = await resize({ containers: [{ ...sized("200m"), image: "x" }], hostNetwork: true });
    const [first] = specOf(resized).containers as { resources: object; image: string }[];
    assert.deepEqual([first?.resources, first?.image], [{ requests: { cpu: "200m", memory: "1Mi" } }, "app:1"]);
    assert.deepEqual([specOf(resized).hostNetwork, resized.metadata.generation], [undefined, 2]);
    const small = { cpu: "200m", memory: "1Mi" };
    for (const [wrong, why] of [
      [{ containers: [container] }, /Pod QOS Class may not change as a result of resizing/],
      [
        { containers: [{ ...container, resources: { requests: { cpu: "1" } } }] },
        /spec.containers\[0\].resources.requests: Forbidden: resource requests cannot be removed/,
      ],
      [
        { containers: [{ ...container, resources: { requests: { ...small, "ephemeral-storage": "1Gi" } } }] },
        /spec: Forbidden: only cpu and memory resources are mutable/,
      ],
      [
        { containers: [{ ...sized("200m"), name: "else" }] },
        /spec.containers\[0\].name: Forbidden: containers may not be renamed or reordered on resize/,
      ],
      [
        { containers: [sized("200m"), { ...container, name: "two" }] },
        /spec.containers: Forbidden: containers may not be added or removed on resize/,
      ],
    ] as const) {
      await assert.rejects(resize(wrong), why);
    }
    const state = { running: { startedAt: "2026-01-01T00:00:00Z" } };
    const running = { name: "app", image: "app:1", imageID: "", ready: true, restartCount: 0, state };
    await change("pods", pod, { status: { containerStatuses: [running] } }, { subresource: "status" });
    await assert.rejects(
      resize({ containers: [sized("300m")] }),
      /spec: Forbidden: Pod running on node without support for resize/,
    );
    const told = { ...running, resources: { requests: small } };
    await change("pods", pod, { status: { containerStatuses: [told] } }, { subresource: "status" });
    await resize({ containers: [sized("300m")] });
    const ofPod = await newPod({ containers: [container], resources: { requests: { cpu: "1" } } });
    await assert.rejects(
      change("pods", ofPod, { spec: { containers: [sized("1")] } }, { subresource: "resize" }),
      /pods with pod-level resources cannot be resized/,
    );
  });

  test("the resources of a sidecar are resized, those of other init containers are not", async () => {
    const sized = (name: string, cpu: string, more: object = {}): object => ({
      name,
      image: "app:1",
      resources: { requests: { cpu } },
      ...more,
    });
    const always = { restartPolicy: "Always" };
    const pod = await newPod({ initContainers: [sized("once", "1m"), sized("always", "1m", always)] });
    const resize = (once: string, side: string): Promise<KubeObject> => {
      const spec = { initContainers: [sized("once", once), sized("always", side, always)] };
      return change("pods", pod, { spec }, { subresource: "resize" });
    };
    await assert.rejects(
      resize("2m", "1m"),
      /spec: Forbidden: resources for non-sidecar init containers are immutable/,
    );
    await resize("1m", "2m");
  });
});

describe("limit ranges", () => {
  test("give new pods their defaults and hold them to their bounds", async () => {
    const limits = [
      { type: "Container", max: { memory: "100Mi" }, min: { cpu: "10m" }, defaultRequest: { memory: "5Mi" } },
    ];
    const range = await create("limitranges", { spec: { limits } });
    const [pod] = specOf(await newPod()).containers as { resources: object }[];
    assert.deepEqual(pod?.resources, { requests: { cpu: "10m", memory: "5Mi" }, limits: { memory: "100Mi" } });
    const { annotations } = (await newPod()).metadata;
    assert.equal(
      annotations?.["kubernetes.io/limit-ranger"],
      "LimitRanger plugin set: cpu, memory request for container app; memory limit for container app",
    );
    const sized = (resources: object): Promise<KubeObject> => newPod({ containers: [{ ...container, resources }] });
    await assert.rejects(
      sized({ limits: { memory: "1Gi" } }),
      /maximum memory usage per Container is 100Mi, but limit is 1Gi/,
    );
    await assert.rejects(
      sized({ requests: { cpu: "1m" } }),
      /minimum cpu usage per Container is 10m, but request is 1m/,
    );
    await cluster.client.delete(typeOf("limitranges"), { namespace: "default", name: range.metadata.name }, {}, signal);
    assert.equal((await newPod()).metadata.annotations, undefined);
  });
});

describe("a service", () => {
  const portOf = (spec: object = {}): object => ({ spec: { ports: [{ port: 80 }], ...spec } });
  const ipOf = (service: KubeObject): string => String(specOf(service).clusterIP);

  test("has an address of its own, which stays", async () => {
    const one = await create("services", portOf());
    const other = await create("services", portOf());
    for (const ip of [one, other].map(ipOf)) assert.match(ip, /^10\.96\.\d+\.\d+$/);
    assert.notEqual(ipOf(one), ipOf(other));
    assert.deepEqual(specOf(one).clusterIPs, [ipOf(one)]);
    assert.equal(ipOf(await change("services", one, { spec: { clusterIP: null, clusterIPs: null } })), ipOf(one));
    await assert.rejects(
      change("services", one, { spec: { clusterIP: "10.96.9.9" } }),
      /spec.clusterIPs\[0\]: Invalid value: .*: may not change once set/,
    );
    await assert.rejects(create("services", portOf({ clusterIP: ipOf(one) })), /provided IP is already allocated/);
    await assert.rejects(create("services", portOf({ clusterIP: "192.0.2.1" })), /is not in the valid range/);
    const ported = await create("services", portOf({ type: "NodePort" }));
    const [{ nodePort } = { nodePort: 0 }] = specOf(ported).ports as { nodePort: number }[];
    assert.ok(nodePort >= 30_000 && nodePort <= 32_767);
    const named = await change("services", ported, { spec: { type: "ExternalName", externalName: "a.example" } });
    assert.equal(specOf(named).clusterIP, undefined);
    assert.equal(ipOf(await create("services", portOf({ clusterIP: "None" }))), "None");
    await assert.rejects(
      change("services", one, { metadata: { name: "zzz" } }),
      /the name of the object \(zzz\) does not match the name on the URL/,
    );
  });
});

describe("what CSI drivers write", () => {
  test("has its defaults, and keeps what may not change", async () => {
    const driver = await create("csidrivers", { spec: {} });
    assert.deepEqual(specOf(driver), {
      attachRequired: true,
      podInfoOnMount: false,
      storageCapacity: false,
      requiresRepublish: false,
      seLinuxMount: false,
      fsGroupPolicy: "ReadWriteOnceWithFSType",
      volumeLifecycleModes: ["Persistent"],
    });
    const spec = { attacher: "x", nodeName: "n", source: { persistentVolumeName: "disk" } };
    const attachment = await create("volumeattachments", { spec });
    assert.deepEqual(attachment.status, { attached: false });
    const attached = { status: { attached: true } };
    const after = await change("volumeattachments", attachment, attached, { subresource: "status" });
    assert.deepEqual(after.status, { attached: true });
    await assert.rejects(
      change("volumeattachments", attachment, { spec: { nodeName: "m" } }),
      /spec: Invalid value: .*: field is immutable/,
    );
    await assert.rejects(create("volumeattachments", { spec: {} }), /spec.attacher: Required value/);
    await assert.rejects(
      create("csinodes", { spec: { drivers: [{ name: "x" }] } }),
      /spec.drivers\[0\].nodeID: Required value/,
    );
    const capacity = await create("csistoragecapacities", { storageClassName: "fast", capacity: "1Gi" });
    await assert.rejects(change("csistoragecapacities", capacity, { storageClassName: "slow" }), /field is immutable/);
  });
});

describe("volumes, claims and services that cannot be", () => {
  const requests = { storage: "1Gi" };
  const accessModes = ["ReadWriteOnce"];
  const disk = { accessModes, capacity: requests, hostPath: { path: "/x" } };
  for (const [plural, spec, problems] of [
    [
      "persistentvolumeclaims",
      { accessModes: ["X"], resources: { requests: { storage: "0" } }, storageClassName: "A B" },
      [
        'spec.accessModes: Unsupported value: "X": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"',
        'spec.resources[storage]: Invalid value: "0": must be greater than zero',
        'spec.storageClassName: Invalid value: "A B": a lowercase RFC 1123 subdomain',
      ],
    ],
    [
      "persistentvolumeclaims",
      { accessModes: ["ReadWriteOncePod", "ReadWriteOnce"], resources: { requests } },
      ["spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
    ],
    ["persistentvolumes", { ...disk, hostPath: undefined }, ["spec: Required value: must specify a volume type"]],
    [
      "persistentvolumes",
      { ...disk, hostPath: { path: "/../x" }, nfs: { server: "a", path: "/b" }, persistentVolumeReclaimPolicy: "X" },
      [
        'spec.persistentVolumeReclaimPolicy: Unsupported value: "X": supported values: "Delete", "Recycle", "Retain"',
        "spec.nfs: Forbidden: may not specify more than 1 volume type",
        "spec.hostPath.path: Invalid value: \"/../x\": must not contain '..'",
      ],
    ],
    [
      "persistentvolumes",
      { ...disk, hostPath: undefined, local: { path: "/x" } },
      ["spec.nodeAffinity: Required value: Local volume requires node affinity"],
    ],
    [
      "services",
      { ports: [{ port: 0 }, { port: 80, name: "A_" }], sessionAffinity: "No", type: "X" },
      [
        "spec.ports[0].name: Required value",
        "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
        'spec.ports[1].name: Invalid value: "A_": a lowercase RFC 1123 label',
        'spec.sessionAffinity: Unsupported value: "No": supported values: "ClientIP", "None"',
        'spec.type: Unsupported value: "X"',
      ],
    ],
    ["services", { type: "ExternalName" }, ["spec.externalName: Required value"]],
  ] as const) {
    test(`${plural} ${JSON.stringify(spec).slice(0, 60)}`, async () => {
      await assert.rejects(create(plural, { spec }), (error: Error) => {
        for (const problem of problems) assert.ok(error.message.includes(problem), `${problem}\n${error.message}`);
        return true;
      });
    });
  }
});

describe("a claim", () => {
  test("changes in nothing but what it asks for once it is there", async () => {
    await create(
      "storageclasses",
      { provisioner: "example.org/none" },
      {
        metadata: { annotations: { "storageclass.kubernetes.io/is-default-class": "true" } },
      },
    );
    const resources = { requests: { storage: "1Gi" } };
    const claim = await create("persistentvolumeclaims", { spec: { accessModes: ["ReadWriteOnce"], resources } });
    assert.match(String(specOf(claim).storageClassName), /^x-/);
    assert.deepEqual(claim.metadata.finalizers, ["kubernetes.io/pvc-protection"]);
    await change("persistentvolumeclaims", claim, { spec: { volumeName: "one" } });
    await assert.rejects(
      change("persistentvolumeclaims", claim, { spec: { volumeName: "two" } }),
      /spec: Forbidden: spec is immutable after creation except resources.requests/,
    );
    const larger = { spec: { resources: { requests: { storage: "2Gi" } } } };
    await assert.rejects(change("persistentvolumeclaims", claim, larger), /for bound claims/);
    await change("persistentvolumeclaims", claim, { status: { phase: "Bound" } }, { subresource: "status" });
    await change("persistentvolumeclaims", claim, larger);
  });

  test("a volume stays where its data lies", async () => {
    const spec = { accessModes: ["ReadWriteOnce"], capacity: { storage: "1Gi" }, hostPath: { path: "/x" } };
    const volume = await create("persistentvolumes", { spec });
    assert.equal((specOf(volume).hostPath as { type: string }).type, "");
    await change("persistentvolumes", volume, { spec: { capacity: { storage: "2Gi" } } });
    await assert.rejects(
      change("persistentvolumes", volume, { spec: { hostPath: { path: "/y" } } }),
      /spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation/,
    );
  });
});

describe("a node", () => {
  const nodeClient = (name: string): KubeClient => cluster.client.as(`system:node:${name}`, ["system:nodes"]);
  const mirror = (spec: object, annotations: object = { "kubernetes.io/config.mirror": "hash" }): [object, object] => [
    { spec: { containers: [container], ...spec } },
    { annotations },
  ];

  test("is tainted until it says that it is ready", async () => {
    const node = await create("nodes", {}, { name: "fresh" });
    assert.deepEqual(specOf(node).taints, [{ key: "node.kubernetes.io/not-ready", effect: "NoSchedule" }]);
  });

  test("makes mirror pods of its own alone", async () => {
    const as = nodeClient("board");
    const { uid } = (await create("nodes", {}, { name: "board" })).metadata;
    const owner = { apiVersion: "v1", kind: "Node", name: "board", uid, controller: true };
    const make = ([object, metadata]: [object, object]): Promise<KubeObject> =>
      create("pods", object, { as, metadata: { ownerReferences: [owner], ...metadata } });
    await make(mirror({ nodeName: "board" }));
    await assert.rejects(
      make(mirror({ nodeName: "other" })),
      /node "board" can only create pods with spec.nodeName set to itself/,
    );
    await assert.rejects(make(mirror({ nodeName: "board" }, {})), /node "board" can only create mirror pods/);
    await assert.rejects(
      make(mirror({ nodeName: "board", serviceAccountName: "default" })),
      /a mirror pod may not reference service accounts/,
    );
    const secret = { volumes: [{ name: "s", secret: { secretName: "s" } }] };
    await assert.rejects(make(mirror({ nodeName: "board", ...secret })), /a mirror pod may not reference secrets/);
  });

  test("writes the status of its own pods, and of itself, alone", async () => {
    const as = nodeClient("board");
    const [own, other] = [await newPod({ nodeName: "board" }), await newPod({ nodeName: "elsewhere" })];
    await change("pods", own, { status: { phase: "Running" } }, { as, subresource: "status" });
    const foreign = change("pods", other, { status: { phase: "Running" } }, { as, subresource: "status" });
    await assert.rejects(foreign, /forbidden/);
    const [board, elsewhere] = [
      await cluster.client.get(typeOf("nodes"), { namespace: "", name: "board" }, signal),
      await create("nodes", {}, { name: "elsewhere" }),
    ];
    await change("nodes", board, { status: { phase: "Running" } }, { as, subresource: "status" });
    await assert.rejects(change("nodes", elsewhere, { status: {} }, { as, subresource: "status" }), /forbidden/);
    await change("nodes", board, { metadata: { labels: { "node.kubernetes.io/x": "y" } } }, { as });
    const roled = change(
      "nodes",
      board,
      { metadata: { labels: { "node-role.kubernetes.io/control-plane": "" } } },
      { as },
    );
    await assert.rejects(roled, /is not allowed to modify labels: node-role.kubernetes.io\/control-plane/);
    await assert.rejects(change("nodes", board, { spec: { taints: null } }, { as }), /is not allowed to modify taints/);
  });
});

const set = (more: object = {}, template: object = {}): object => ({
  spec: {
    selector: { matchLabels: { app: "x" } },
    template: { metadata: { labels: { app: "x" } }, spec: { containers: [container], ...template } },
    ...more,
  },
});
const rolling = (maxUnavailable: unknown, maxSurge: unknown): object =>
  set({ updateStrategy: { type: "RollingUpdate", rollingUpdate: { maxUnavailable, maxSurge } } });

describe("what is refused", () => {
  const cases: readonly (readonly [plural: string, object: object, message: string, name?: string])[] = [
    ["daemonsets", set({ selector: { matchLabels: { app: "y" } } }), "`selector` does not match template `labels`"],
    [
      "daemonsets",
      set({}, { restartPolicy: "Never" }),
      'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
    ],
    ["daemonsets", set({}, { containers: [] }), "spec.template.spec.containers: Required value"],
    [
      "daemonsets",
      rolling(1, 1),
      "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
    ],
    [
      "daemonsets",
      rolling(0, 0),
      "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
    ],
    ["daemonsets", rolling("101%", 0), "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value"],
    ["configmaps", { data: { "a b": "" } }, "a valid config key must consist of"],
    ["configmaps", { data: { a: "" }, binaryData: { a: "" } }, "duplicate of key present in binaryData"],
    [
      "configmaps",
      { data: { a: "x".repeat(1_048_577) } },
      "is invalid: []: Too long: may not be more than 1048576 bytes",
    ],
    ["secrets", { type: "kubernetes.io/tls", data: {} }, "data[tls.crt]: Required value"],
    [
      "secrets",
      { type: "kubernetes.io/dockerconfigjson", data: { ".dockerconfigjson": "eA==" } },
      "<secret contents redacted>",
    ],
    ["priorityclasses", { value: 2_000_000_001 }, "maximum allowed value of a user defined priority is 1000000000"],
    [
      "priorityclasses",
      { value: 1 },
      "priority class names with 'system-' prefix are reserved for system use only",
      "system-mine",
    ],
    ["runtimeclasses", {}, "handler: Required value"],
    [
      "nodes",
      { spec: { taints: [{ key: "a", effect: "Never" }] } },
      'spec.taints[0].effect: Unsupported value: "Never"',
    ],
    [
      "roles",
      { rules: [{ verbs: ["get"], apiGroups: [""] }] },
      "rules[0].resources: Required value: resource rules must supply at least one resource",
    ],
    ["rolebindings", { roleRef: { kind: "Pod", name: "x" } }, 'roleRef.kind: Unsupported value: "Pod"'],
    ["services", { spec: {} }, "spec.ports: Required value"],
    [
      "poddisruptionbudgets",
      { spec: { minAvailable: 1, maxUnavailable: 1 } },
      "minAvailable and maxUnavailable cannot be both set",
    ],
    ["persistentvolumeclaims", { spec: {} }, "spec.accessModes: Required value: at least 1 access mode is required"],
    [
      "leases",
      { spec: { leaseDurationSeconds: 0 } },
      "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
    ],
    [
      "events",
      { involvedObject: { kind: "Pod", namespace: "other", name: "x" } },
      'involvedObject.namespace: Invalid value: "other": does not match event.namespace',
    ],
    [
      "certificatesigningrequests",
      { spec: { request: "AAAA", signerName: "x", usages: ["any"] } },
      "must be a fully qualified domain and path",
    ],
  ];
  for (const [plural, object, message, name] of cases) {
    test(`${plural}: ${message.slice(0, 70)}`, () =>
      assert.rejects(
        create(plural, object, name === undefined ? {} : { name }),
        (error: Error) => error.message.includes(message) || assert.fail(error.message),
      ));
  }
});

describe("what is there", () => {
  const cases: readonly (readonly [plural: string, object: object, patch: object, message: string])[] = [
    [
      "daemonsets",
      set(),
      { spec: { selector: { matchLabels: { app: "y" } }, template: { metadata: { labels: { app: "y" } } } } },
      "spec.selector: Invalid value",
    ],
    [
      "configmaps",
      { data: { a: "1" }, immutable: true },
      { data: { a: "2" } },
      "data: Forbidden: field is immutable when `immutable` is set",
    ],
    [
      "secrets",
      { immutable: true },
      { immutable: false },
      "immutable: Forbidden: field is immutable when `immutable` is set",
    ],
    ["secrets", {}, { type: "mine/type" }, 'type: Invalid value: "mine/type": field is immutable'],
    ["priorityclasses", { value: 1 }, { value: 2 }, "value: Invalid value: 2: field is immutable"],
    ["runtimeclasses", { handler: "a" }, { handler: "b" }, 'handler: Invalid value: "b": field is immutable'],
    ["storageclasses", { provisioner: "a" }, { provisioner: "b" }, "updates to provisioner are forbidden."],
    ["rolebindings", { roleRef: { kind: "Role", name: "a" } }, { roleRef: { name: "b" } }, "cannot change roleRef"],
    [
      "nodes",
      { spec: { providerID: "a" } },
      { spec: { providerID: "b" } },
      'node updates may not change providerID except from "" to valid',
    ],
  ];
  for (const [plural, object, patch, message] of cases) {
    test(`may not change: ${plural}, ${message.slice(0, 60)}`, async () => {
      const made = await create(plural, object);
      await assert.rejects(
        change(plural, made, patch),
        (error: Error) => error.message.includes(message) || assert.fail(error.message),
      );
    });
  }

  test("a secret's texts become data, a daemon set counts its templates", async () => {
    const secret = await create("secrets", { stringData: { a: "text" } });
    assert.deepEqual([secret.data, secret.stringData, secret.type], [{ a: "dGV4dA==" }, undefined, "Opaque"]);
    const made = await create("daemonsets", set());
    const relabelled = await change("daemonsets", made, { metadata: { labels: { a: "b" } } });
    const updated = await change("daemonsets", relabelled, {
      spec: { template: { spec: { containers: [{ ...container, image: "app:2" }] } } },
    });
    const generation = (object: KubeObject) =>
      object.metadata.annotations?.["deprecated.daemonset.template.generation"];
    assert.deepEqual([made, relabelled, updated].map(generation), ["1", "1", "2"]);
    assert.deepEqual(
      [made, relabelled, updated].map(({ metadata }) => metadata.generation),
      [1, 1, 2],
    );
  });

  test("a decision on a certificate stands, and an approver signs nothing", async () => {
    const { nodesRequest } = await import("@picolet/test/support/unit/identity/sample-certificate-requests.ts");
    const request = Buffer.from(nodesRequest("system:node:x")).toString("base64");
    const made = await create("certificatesigningrequests", {
      spec: { request, signerName: "a.io/b", usages: ["any"], username: "root" },
    });
    assert.equal(specOf(made).username, "kubernetes-admin");
    const approved = { type: "Approved", status: "True", reason: "Because" };
    const decided = await change(
      "certificatesigningrequests",
      made,
      { status: { conditions: [approved], certificate: "AA==" } },
      { subresource: "approval" },
    );
    const { conditions, certificate } = decided.status as {
      conditions: { lastUpdateTime: string }[];
      certificate?: string;
    };
    assert.equal(certificate, undefined);
    assert.notEqual(conditions[0]?.lastUpdateTime, undefined);
    const taken = change(
      "certificatesigningrequests",
      made,
      { status: { conditions: [] } },
      { subresource: "approval" },
    );
    await assert.rejects(taken, /updates may not remove a condition of type "Approved"/);
    const other = await create("certificatesigningrequests", {
      spec: { request, signerName: "a.io/b", usages: ["any"], username: "root", uid: "forged", extra: { a: ["b"] } },
    });
    assert.deepEqual([specOf(other).uid, specOf(other).extra], [undefined, {}]);
    const failed = { type: "Failed", status: "True", reason: "Because" };
    const forged = { username: "root", request: "AA==", signerName: "c.io/d" };
    const signed = await change(
      "certificatesigningrequests",
      other,
      { spec: forged, status: { conditions: [approved, failed], certificate: "AA==" } },
      { subresource: "status" },
    );
    const status = signed.status as { conditions: { type: string }[]; certificate: string };
    assert.deepEqual(
      status.conditions.map(({ type }) => type),
      ["Failed"],
      "a signer approves nothing",
    );
    assert.deepEqual([status.certificate, specOf(signed)], ["AA==", specOf(other)]);
    const edited = await change("certificatesigningrequests", other, { spec: forged });
    assert.deepEqual(specOf(edited), specOf(other), "what was approved is what is signed");
  });
});

describe("claims of devices", () => {
  const request = (exactly: object) => ({
    devices: { requests: [{ name: "r", exactly: { deviceClassName: "gpu", ...exactly } }] },
  });
  const claim = (spec: object, ask: Ask = {}) => create("resourceclaims", { spec }, ask);
  const cel = (...expressions: readonly string[]) => ({
    selectors: expressions.map((expression) => ({ cel: { expression } })),
  });
  const at = "spec.devices.requests[0].exactly";

  test("have defaults, and selectors that can be run", async () => {
    const made = await claim(request(cel("device.driver == 'a'")));
    const [first] = (specOf(made).devices as { requests: { exactly: object }[] }).requests;
    assert.deepEqual(first?.exactly, {
      deviceClassName: "gpu",
      ...cel("device.driver == 'a'"),
      allocationMode: "ExactCount",
      count: 1,
    });
  });

  for (const [spec, refusal] of [
    [
      request(cel("device.driver ==")),
      `${at}.selectors[0].cel.expression: Invalid value: "device.driver ==": compilation failed: Unexpected token: EOF`,
    ],
    [
      request(cel("true", "device.x")),
      `${at}.selectors[1].cel.expression: Invalid value: "device.x": compilation failed: No such key: x`,
    ],
    [
      request(cel(`["a"]${".map(x, x + x)".repeat(30)}.size() == 1`)),
      `${at}.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit by factor of`,
    ],
    [
      request(cel(`"${"x".repeat(11_000)}" == ""`)),
      `${at}.selectors[0].cel.expression: Too long: may not be more than 10240 bytes`,
    ],
    [
      request(cel(...Array.from({ length: 3 }, () => `"${"x".repeat(6_000)}" == ""`))),
      `${at}.selectors[2].cel.expression: Forbidden: the expressions of one object must have at most 16384 bytes together`,
    ],
    [request({ selectors: [{}] }), `${at}.selectors[0].cel: Required value`],
    [request({ count: 0 }), `${at}.count: Invalid value: 0: must be greater than zero`],
    [
      request({ allocationMode: "All", count: 2 }),
      `${at}.count: Invalid value: 2: must not be specified when allocationMode is 'All'`,
    ],
    [
      request({ allocationMode: "Some" }),
      `${at}.allocationMode: Unsupported value: "Some": supported values: "ExactCount", "All"`,
    ],
    [
      request({ adminAccess: true }),
      `${at}.adminAccess: Forbidden: admin access to devices requires the \`resource.kubernetes.io/admin-access: true\` label on the containing namespace`,
    ],
    [
      { devices: { requests: [...request({}).devices.requests, ...request({}).devices.requests] } },
      'spec.devices.requests[1].name: Duplicate value: "r"',
    ],
    [
      { devices: { ...request({}).devices, constraints: [{ requests: ["q"], matchAttribute: "a.com/b" }] } },
      'spec.devices.constraints[0].requests[0]: Invalid value: "q": must be the name of a request',
    ],
    [
      { devices: { ...request({}).devices, constraints: [{ matchAttribute: "b" }] } },
      'spec.devices.constraints[0].matchAttribute: Invalid value: "b": must include domain prefix',
    ],
  ] as const) {
    test(refusal.slice(0, 100), async () => {
      await assert.rejects(
        claim(spec),
        (error: Error) => error.message.includes(refusal) || assert.fail(error.message),
      );
    });
  }

  const many = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`a${index}`, { int: index }]));
  for (const [device, refusal] of [
    [
      { attributes: many(33) },
      "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must",
    ],
    [{ attributes: { a: { int: 1, bool: true } } }, "spec.devices[0].attributes[a]: Invalid value: "],
    [
      { attributes: { a: {} } },
      "spec.devices[0].attributes[a]: Invalid value: []: exactly one value must be specified",
    ],
    [
      { attributes: { a: { string: "x".repeat(65) } } },
      "spec.devices[0].attributes[a]: Too long: may not be more than 64",
    ],
    [{ capacity: { ["x".repeat(97)]: { value: "1" } } }, "a name must have at most 96 characters"],
  ] as const) {
    test(`a slice: ${refusal.slice(0, 90)}`, async () => {
      const pool = { name: "p", resourceSliceCount: 1 };
      const spec = { driver: "a.example.com", nodeName: "a", pool, devices: [{ name: "d", ...device }] };
      const made = create("resourceslices", { spec });
      await assert.rejects(made, (error: Error) => error.message.includes(refusal) || assert.fail(error.message));
    });
  }

  test("classes and templates are judged as claims are, and what is stored is not judged again", async () => {
    await assert.rejects(
      create("deviceclasses", { spec: cel("1") }),
      /spec.selectors\[0\].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int/,
    );
    await assert.rejects(
      create("resourceclaimtemplates", { spec: { spec: request(cel("device.x")) } }),
      /spec.spec.devices.requests\[0\].exactly.selectors\[0\].cel.expression: Invalid value/,
    );
    const made = await create("deviceclasses", { spec: cel("true") });
    await change("deviceclasses", made, { metadata: { labels: { a: "b" } } });
    await assert.rejects(change("deviceclasses", made, { spec: cel("x") }), /Unknown variable: x/);
  });
});
