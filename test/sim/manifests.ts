/** The pods of a simulation: few names, many versions, programs that live and die in different ways. */
import { containerHash } from "../../protocol/container-hash.ts";
import type { Pod } from "../../protocol/pod.ts";
import { podUid } from "../../protocol/ports.ts";
import type { DesiredPod, SourceId } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { podOf } from "../support/pods.ts";
import type { Dice } from "./dice.ts";

export const IMAGE = "registry.example/program:1";
export const REMOTE_IMAGE = "registry.example/remote:1";
export const MISSING_IMAGE = "registry.example/missing:1";

/** What becomes of a pod in the end: it runs, it ends so, it keeps crashing, or it never starts. */
export type Fate = "runs" | "Succeeded" | "Failed" | "crashes" | "never";

interface Program {
  readonly fate: Fate;
  readonly restartPolicy: Pod["spec"]["restartPolicy"];
  readonly commands: readonly (readonly string[])[];
  readonly image: string;
}

const program = (fate: Fate, restartPolicy: Program["restartPolicy"], ...commands: readonly string[][]): Program => ({
  fate,
  restartPolicy,
  commands,
  image: IMAGE,
});

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
];

/** How each pod was made, by its object's own content. */
const fates = new WeakMap<Pod, Fate>();

export const fateOf = ({ pod }: DesiredPod): Fate => fates.get(pod) ?? "runs";

/** Parsing is slow; one pod parsed is the mould of all. Large enough that a small disk is full with a few of them. */
const mould = podOf(
  { containers: [{ name: "c0", image: IMAGE, imagePullPolicy: "IfNotPresent" }] },
  { annotations: { "example.com/ballast": "x".repeat(2000) } },
);

export function makePod(dice: Dice, source: SourceId, name: string, uid?: string): DesiredPod {
  const { fate, restartPolicy, commands, image } = dice.pick(PROGRAMS);
  const [container] = mould.spec.containers;
  if (container === undefined) throw new Error("the mould has a container");
  const version = String(dice.between(0, 2));
  const containers = commands.map((command, index) => ({
    ...container,
    name: `c${index}`,
    image,
    command: [...command, `v${version}`],
  }));
  const runtimeClassName = name.endsWith("w") ? "wasm" : undefined;
  const terminationGracePeriodSeconds = dice.pick([0, 1, 5, 30]);
  const content = containers.map(containerHash).join("") + restartPolicy + terminationGracePeriodSeconds;
  const own = podUid(uid ?? `${source}-${name}-${content}`);
  const pod: Pod = {
    ...mould,
    metadata: { ...mould.metadata, name, uid: own },
    spec: {
      ...mould.spec,
      restartPolicy,
      terminationGracePeriodSeconds,
      containers,
      ...(runtimeClassName === undefined ? {} : { runtimeClassName }),
    },
  };
  fates.set(pod, fate);
  return { uid: own, source, origin: `/manifests/${name}.yaml`, pod };
}

/** The same pod with its containers' commands changed, as the API server lets images be changed. */
export function redefine(dice: Dice, known: DesiredPod): DesiredPod {
  const version = `v${dice.between(0, 2)}`;
  const containers = known.pod.spec.containers.map((container) => ({
    ...container,
    command: [...(container.command ?? []).slice(0, -1), version],
  }));
  const pod = { ...known.pod, spec: { ...known.pod.spec, containers } };
  fates.set(pod, fateOf(known));
  return { ...known, pod };
}
