/** The pods of a simulation: few names, many versions, programs that live and die in different ways. */
import { requestOf } from "@picolet/agent/plan/admission/admission-resources.ts";
import { containerHash } from "@picolet/protocol/pod/container-hash.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podOf } from "../support/unit/pods/sample-pods.ts";
import type { PodObject } from "../support/unit/tunnel/remote-hub.ts";
import type { Dice } from "./dice.ts";

export const IMAGE = "registry.example/program:1";
export const REMOTE_IMAGE = "registry.example/remote:1";
export const MISSING_IMAGE = "registry.example/missing:1";

/** The final state of a pod: it runs, it ends so, it keeps crashing, or it never starts. */
export type Fate = "runs" | "Succeeded" | "Failed" | "crashes" | "never" | "rejected";

interface Program {
  readonly fate: Fate;
  readonly restartPolicy: Pod["spec"]["restartPolicy"];
  readonly commands: readonly (readonly string[])[];
  readonly image: string;
  readonly init?: readonly { readonly command: readonly string[]; readonly sidecar?: boolean }[];
  /** Hooks of the first container. */
  readonly lifecycle?: Container["lifecycle"];
  readonly deadlineS?: number;
}

const program = (fate: Fate, restartPolicy: Program["restartPolicy"], ...commands: readonly string[][]): Program => ({
  fate,
  restartPolicy,
  commands,
  image: IMAGE,
});

/** In place of a command. */
const REJECTED = "rejected";

/** True for a rejected pod, by its content, because the agent's own copies must be recognized too. */
export const isRejected = ({ spec }: Pod): boolean => spec.containers[0]?.command?.[0] === REJECTED;

const nap = (durationS: number) => ({ sleep: { seconds: durationS } });
const exec = (command: string) => ({ exec: { command: [command] } });

const PROGRAMS: readonly Program[] = [
  program("runs", "Always", ["run"]),
  program("runs", "Always", ["run"], ["slow-end", "3000"]),
  program("runs", "OnFailure", ["deaf"]),
  program("runs", "Never", ["run"]),
  program("crashes", "Always", ["run-for", "2000", "1"]),
  program("crashes", "OnFailure", ["exit", "3"], ["run"]),
  program("Succeeded", "OnFailure", ["run-for", "1500", "0"]),
  program("Succeeded", "Never", ["exit", "0"], ["run-for", "4000", "0"]),
  program("Failed", "Never", ["run-for", "800", "2"], ["exit", "0"]),
  { ...program("runs", "Always", ["run"]), image: REMOTE_IMAGE },
  { ...program("never", "Always", ["run"]), image: MISSING_IMAGE },
  { ...program("runs", "Always", ["run"], ["slow-end", "2000"]), init: [{ command: ["run-for", "700", "0"] }] },
  {
    ...program("runs", "OnFailure", ["slow-end", "1500"]),
    init: [{ command: ["run"], sidecar: true }, { command: ["exit", "0"] }, { command: ["deaf"], sidecar: true }],
  },
  {
    ...program("Succeeded", "Never", ["run-for", "3000", "0"]),
    init: [
      { command: ["slow-end", "1000"], sidecar: true },
      { command: ["run-for", "9000", "1"], sidecar: true },
    ],
  },
  { ...program("Failed", "Never", ["run"]), init: [{ command: ["exit", "0"] }, { command: ["exit", "4"] }] },
  { ...program("runs", "Always", ["run"]), lifecycle: { postStart: nap(1), preStop: nap(3) } },
  { ...program("runs", "Always", ["deaf"]), lifecycle: { preStop: exec("hang") } },
  { ...program("crashes", "Always", ["run"]), lifecycle: { postStart: exec("fail"), preStop: exec("fail") } },
  { ...program("Failed", "Always", ["run"]), deadlineS: 20, lifecycle: { preStop: nap(2) } },
  program("rejected", "Always", [REJECTED]),
];

/** How each pod was made, by its object's own content. */
const fates = new WeakMap<Pod, Fate>();

export const fateOf = (pod: Pod): Fate => fates.get(pod) ?? "runs";

/** The API server's pods are defaulted already: what is sent of them is what is run. */
export const asObject = (pod: Pod): PodObject => pod as unknown as PodObject;
export const asPod = (object: object): Pod => object as Pod;

/** Parsing is slow; one pod parsed is the mould of all. Large enough that a small disk is full with a few of them. */
const mould = podOf(
  { containers: [{ name: "c0", image: IMAGE, imagePullPolicy: "IfNotPresent" }] },
  { annotations: { "example.com/ballast": "x".repeat(2000) } },
);

export function makePod(dice: Dice, source: SourceId, name: string, uid?: string): DesiredPod {
  const { fate, restartPolicy, commands, image, init = [], lifecycle, deadlineS } = dice.pick(PROGRAMS);
  const [container] = mould.spec.containers;
  if (container === undefined) throw new Error("the mould has a container");
  const version = String(dice.between(0, 2));
  const containers = commands.map((command, index) => ({
    ...container,
    name: `c${index}`,
    image,
    command: [...command, `v${version}`],
    ...(index > 0 || lifecycle === undefined ? {} : { lifecycle }),
  }));
  const initContainers = init.map(({ command, sidecar }, index) => ({
    ...container,
    name: `i${index}`,
    command: [...command, `v${version}`],
    ...(sidecar === true ? ({ restartPolicy: "Always" } as const) : {}),
  }));
  const runtimeClassName = name.endsWith("w") ? "wasm" : undefined;
  const terminationGracePeriodSeconds = dice.pick([0, 1, 5, 30]);
  const all = [...initContainers, ...containers];
  const content = `${all.map(containerHash).join("")}${restartPolicy}${terminationGracePeriodSeconds}${deadlineS}${fate}`;
  const own = podUid(uid ?? `${source}-${name}-${content}`);
  const pod: Pod = {
    ...mould,
    metadata: { ...mould.metadata, name, uid: own },
    spec: {
      ...mould.spec,
      restartPolicy,
      terminationGracePeriodSeconds,
      containers,
      ...(initContainers.length === 0 ? {} : { initContainers }),
      ...(deadlineS === undefined ? {} : { activeDeadlineSeconds: deadlineS }),
      ...(runtimeClassName === undefined ? {} : { runtimeClassName }),
    },
  };
  fates.set(pod, fate);
  return { uid: own, source, origin: `/manifests/${name}.yaml`, pod };
}

/** A pod as the API server makes it: under a UID of its own, with a volume whose name is random. */
export function makeApiPod(dice: Dice, name: string): Pod {
  const { pod } = makePod(dice, "api", name, uidOf(dice));
  return withTokenVolume(dice, pod, fateOf(pod));
}

/** The same pod with a debug container, unless it has one already. */
export function debugged(known: DesiredPod): DesiredPod {
  const [container] = known.pod.spec.containers;
  if (container === undefined || known.pod.spec.ephemeralContainers !== undefined) return known;
  const { lifecycle: _, ...own } = container;
  const command = ["run-for", "5000", "1"];
  const ephemeralContainers = [{ ...own, name: "e0", image: IMAGE, command, targetContainerName: container.name }];
  const pod = { ...known.pod, spec: { ...known.pod.spec, ephemeralContainers } };
  fates.set(pod, fateOf(known.pod));
  return { ...known, pod };
}

/** The same pod with new random draws. */
export function remade(dice: Dice, pod: Pod): Pod {
  const { deletionTimestamp: _, deletionGracePeriodSeconds: __, ...metadata } = pod.metadata;
  return withTokenVolume(dice, { ...pod, metadata: { ...metadata, uid: uidOf(dice) } }, fateOf(pod));
}

/** The same pod once its deletion was asked for. */
export function deleted(known: Pod, deletionGracePeriodSeconds: number): Pod {
  const metadata = { ...known.metadata, deletionTimestamp: "2026-01-31T12:00:00Z", deletionGracePeriodSeconds };
  const pod = { ...known, metadata };
  fates.set(pod, fateOf(known));
  return pod;
}

/** The same pod with its containers' commands changed, as the API server lets images be changed. */
export function redefine(dice: Dice, known: Pod): Pod {
  const version = `v${dice.between(0, 2)}`;
  const containers = known.spec.containers.map((container) => ({
    ...container,
    command: [...(container.command ?? []).slice(0, -1), version],
  }));
  const pod = { ...known, spec: { ...known.spec, containers } };
  fates.set(pod, fateOf(known));
  return pod;
}

/** Bounds the resizes of a simulation together, in thousandths of a CPU. No pod requests any when it is made. */
const SIM_CPU = 1000n;

export const hasRoom = (pods: readonly Pod[]): boolean =>
  pods.reduce((sum, pod) => sum + requestOf(pod, "cpu"), 0n) <= SIM_CPU;

/** The same pod with another request of CPU: what fits, what may fit later, and what never will. */
export function resized(dice: Dice, known: Pod): Pod {
  const cpu = dice.pick(["100m", "300m", "600m", "900m", "1200m"]);
  const [first, ...others] = known.spec.containers;
  if (first === undefined) return known;
  const containers = [{ ...first, resources: { requests: { cpu } } }, ...others];
  const metadata = { ...known.metadata, generation: (known.metadata.generation ?? 1) + 1 };
  const pod = { ...known, metadata, spec: { ...known.spec, containers } };
  fates.set(pod, fateOf(known));
  return pod;
}

/** True when both pods do the same work, by all that is drawn for them. */
export const isSameWork = (one: Pod, other: Pod): boolean => workOf(one) === workOf(other);

const workOf = ({ spec }: Pod): string => {
  const { restartPolicy, terminationGracePeriodSeconds, activeDeadlineSeconds, containers, initContainers = [] } = spec;
  const all = [...initContainers, ...containers];
  const programs = all.map(({ name, image, command, lifecycle, resources }) => [
    ...[name, image, command, lifecycle],
    resources,
  ]);
  return JSON.stringify([restartPolicy, terminationGracePeriodSeconds, activeDeadlineSeconds, programs]);
};

const uidOf = (dice: Dice): string => `api-${dice.between(0, 1_000_000_000)}`;

function withTokenVolume(dice: Dice, pod: Pod, fate: Fate): Pod {
  const name = `kube-api-access-${String(dice.between(10_000, 99_999))}`;
  const volumeMounts = [{ name, mountPath: "/var/run/secrets/kubernetes.io/serviceaccount" }];
  const containers = pod.spec.containers.map((container) => ({ ...container, volumeMounts }));
  const made = { ...pod, spec: { ...pod.spec, volumes: [{ name, emptyDir: {} }], containers } };
  fates.set(made, fate);
  return made;
}
