/**
 * Kubernetes' admission plugins for a new pod: LimitRanger, ServiceAccount, Priority, DefaultTolerationSeconds,
 * RuntimeClass. In place; refusals in the plugins' words.
 */

import { isMirrorPod, podReferences } from "@picolet/hub-core/pod-references.ts";
import type { Toleration } from "@picolet/protocol/pod/pod.ts";
import { fieldAt, listAt, mappingAt, sameValue, section, textAt } from "../../api/object-fields.ts";
import type { ApiObject, StrategyContext } from "../../api/resource-definition.ts";
import { forbidden } from "../../api/status-error.ts";
import { admitLimits } from "./limit-ranges.ts";

export interface PodAdmissionInit {
  /** True when pods get the projected volume `kube-api-access-*` with a token of their service account. */
  readonly serviceAccountTokens: boolean;
  /** The tolerations of a pod on that node, where they are not its own; undefined: they stay as they are. */
  readonly tolerationsOn?: (pod: ApiObject, node: ApiObject) => readonly object[] | undefined;
}

type Refuse = (why: string) => never;
type Spec = Record<string, unknown>;

const DEFAULT_ACCOUNT = "default";
/** Kubernetes' own default of `--default-not-ready-toleration-seconds` and its sibling. */
const DEFAULT_TOLERATION_SECONDS = 300;

export function admitPod(pod: ApiObject, context: StrategyContext, init: PodAdmissionInit): void {
  const spec = section(pod, "spec");
  const refuse: Refuse = (why) => {
    throw forbidden({ group: "", plural: "pods" }, pod.metadata.name, why);
  };
  admitLimits(pod, context, refuse);
  admitServiceAccount(pod, spec, context, init, refuse);
  admitPriority(spec, context, refuse);
  admitTolerations(spec);
  admitRuntimeClass(spec, context, refuse);
  admitPlacement(pod, context, init);
}

/** Called whenever a pod has got its node or its tolerations. */
export function admitPlacement(
  pod: ApiObject,
  { lookup }: Pick<StrategyContext, "lookup">,
  { tolerationsOn }: PodAdmissionInit,
): void {
  const name = textAt(pod, "spec", "nodeName");
  const node = name === "" || tolerationsOn === undefined ? undefined : lookup.get("nodes", "", name);
  const tolerations = node === undefined ? undefined : tolerationsOn?.(pod, node);
  if (tolerations !== undefined) section(pod, "spec").tolerations = tolerations;
}

function admitServiceAccount(
  pod: ApiObject,
  spec: Spec,
  context: StrategyContext,
  init: PodAdmissionInit,
  refuse: Refuse,
): void {
  if (isMirrorPod(pod)) {
    refuseMirrorReferences(pod, refuse);
    return;
  }
  const name = textAt(spec, "serviceAccountName") || DEFAULT_ACCOUNT;
  spec.serviceAccountName = name;
  spec.serviceAccount = name;
  const namespace = pod.metadata.namespace ?? "";
  const account = context.lookup.get("serviceaccounts", namespace, name);
  // The account `default` is made with its namespace, a moment later.
  if (account === undefined && name !== DEFAULT_ACCOUNT) {
    refuse(`error looking up service account ${namespace}/${name}: serviceaccount "${name}" not found`);
  }
  if (listAt(spec, "imagePullSecrets").length === 0) {
    const secrets = listAt(account, "imagePullSecrets");
    if (secrets.length > 0) spec.imagePullSecrets = structuredClone(secrets);
  }
  injectToken(spec, account, init, context);
}

/** A mirror pod of any client shows what a node runs by itself, and must give no access to a credential. */
function refuseMirrorReferences(pod: ApiObject, refuse: Refuse): void {
  const kinds = new Set(podReferences(pod).map(({ kind }) => kind));
  if (kinds.has("ServiceAccount")) {
    refuse(
      textAt(pod, "spec", "serviceAccountName") === ""
        ? "a mirror pod may not use ServiceAccountToken volume projections"
        : "a mirror pod may not reference service accounts",
    );
  }
  if (kinds.has("Secret")) refuse("a mirror pod may not reference secrets");
}

const TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount";
/** An hour and seven seconds, by which Kubernetes tells its own tokens from those asked for. */
const TOKEN_SECONDS = 3607;
const FILE_MODE = 0o644;
const NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789";

/** The volume `kube-api-access-*` in every container that has nothing at its path. */
function injectToken(
  spec: Spec,
  account: ApiObject | undefined,
  init: PodAdmissionInit,
  { random }: StrategyContext,
): void {
  const wanted = fieldAt(spec, "automountServiceAccountToken") ?? fieldAt(account, "automountServiceAccountToken");
  if (!init.serviceAccountTokens || wanted === false) return;
  const volumes = listAt(spec, "volumes");
  const existing = volumes.find((volume) => textAt(volume, "name").startsWith("kube-api-access-"));
  const suffix = Array.from({ length: 5 }, () => NAME_ALPHABET[Math.floor(random.next() * NAME_ALPHABET.length)]);
  const name = textAt(existing, "name") || `kube-api-access-${suffix.join("")}`;
  const mount = { name, readOnly: true, mountPath: TOKEN_PATH };
  let mounted = false;
  for (const container of [...listAt(spec, "initContainers"), ...listAt(spec, "containers")]) {
    const mounts = listAt(container, "volumeMounts");
    if (mounts.some((each) => textAt(each, "mountPath") === TOKEN_PATH)) continue;
    (container as Spec).volumeMounts = [...mounts, mount];
    mounted = true;
  }
  if (!mounted || existing !== undefined) return;
  spec.volumes = [...volumes, tokenVolume(name)];
}

const tokenVolume = (name: string): object => ({
  name,
  projected: {
    defaultMode: FILE_MODE,
    sources: [
      { serviceAccountToken: { expirationSeconds: TOKEN_SECONDS, path: "token" } },
      { configMap: { name: "kube-root-ca.crt", items: [{ key: "ca.crt", path: "ca.crt" }] } },
      {
        downwardAPI: {
          items: [{ path: "namespace", fieldRef: { apiVersion: "v1", fieldPath: "metadata.namespace" } }],
        },
      },
    ],
  },
});

function admitPriority(spec: Spec, { lookup }: StrategyContext, refuse: Refuse): void {
  const name = textAt(spec, "priorityClassName");
  const found =
    name === ""
      ? lookup.list("priorityclasses.scheduling.k8s.io", "").find((each) => each.globalDefault === true)
      : lookup.get("priorityclasses.scheduling.k8s.io", "", name);
  if (name !== "" && found === undefined) refuse(`no PriorityClass with name ${name} was found`);
  if (name === "" && found !== undefined) spec.priorityClassName = found.metadata.name;
  const priority = Number(fieldAt(found, "value") ?? 0);
  const given = spec.priority;
  if (given !== undefined && given !== priority) {
    refuse(
      `the integer value of priority (${String(given)}) must not be provided in pod spec; priority admission controller computed ${priority} from the given PriorityClass name`,
    );
  }
  spec.priority = priority;
  const policy = textAt(found, "preemptionPolicy") || "PreemptLowerPriority";
  const givenPolicy = textAt(spec, "preemptionPolicy");
  if (givenPolicy !== "" && givenPolicy !== policy) {
    refuse(
      `the string value of PreemptionPolicy (${givenPolicy}) must not be provided in pod spec; priority admission controller computed ${policy} from the given PriorityClass name`,
    );
  }
  spec.preemptionPolicy = policy;
}

/** A pod that says nothing of it leaves a node that has been away for five minutes. Also of a pod that is changed. */
export function admitTolerations(spec: Spec): void {
  const tolerations = listAt(spec, "tolerations") as readonly Toleration[];
  const added = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].filter(
    (taint) =>
      !tolerations.some(
        ({ key = "", effect = "" }) => (key === taint || key === "") && (effect === "NoExecute" || effect === ""),
      ),
  );
  if (added.length === 0) return;
  const seconds = DEFAULT_TOLERATION_SECONDS;
  spec.tolerations = [
    ...tolerations,
    ...added.map((key) => ({ key, operator: "Exists", effect: "NoExecute", tolerationSeconds: seconds })),
  ];
}

function admitRuntimeClass(spec: Spec, { lookup }: StrategyContext, refuse: Refuse): void {
  const name = textAt(spec, "runtimeClassName");
  const given = spec.overhead;
  if (name === "") {
    if (given !== undefined)
      refuse("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead");
    return;
  }
  const found = lookup.get("runtimeclasses.node.k8s.io", "", name);
  if (found === undefined) refuse(`pod rejected: RuntimeClass "${name}" not found`);
  const overhead = fieldAt(found, "overhead", "podFixed");
  if (given !== undefined && !sameValue(given, overhead)) {
    refuse("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead");
  }
  if (overhead !== undefined) spec.overhead = structuredClone(overhead);
  const selector = mappingAt(found, "scheduling", "nodeSelector");
  if (Object.keys(selector).length > 0) {
    const own = section(spec, "nodeSelector");
    for (const [key, value] of Object.entries(selector)) {
      if (own[key] !== undefined && own[key] !== value) {
        refuse(
          `conflict: runtimeClass.scheduling.nodeSelector[${key}] = ${String(value)}; pod.spec.nodeSelector[${key}] = ${String(own[key])}`,
        );
      }
      own[key] = value;
    }
  }
  const tolerations = listAt(found, "scheduling", "tolerations");
  const existing = listAt(spec, "tolerations");
  const added = tolerations.filter((each) => !existing.some((own) => sameValue(own, each)));
  if (added.length > 0) spec.tolerations = [...existing, ...structuredClone(added)];
}
