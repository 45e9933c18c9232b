/** Decides whether a pod under another UID may take over the running containers of its predecessor. Pure. */
import { canonicalJson } from "@picolet/protocol/pod/container-hash.ts";
import type { Container, Pod } from "@picolet/protocol/pod/pod.ts";

/** The admission plugin ServiceAccount ends the name of the volume it adds with five characters drawn at random. */
const RANDOM_VOLUME = /^kube-api-access-[a-z0-9]{5}$/;
const NAMED_METADATA = /^metadata\.(labels|annotations)\['(.*)'\]$/;
/** An environment that holds it is not that of the other pod. */
const UID_FIELD = "metadata.uid";

/** Both defaulted; of one namespace and name. Nothing that a container can see or is made of may differ. */
export function canAdoptPod(running: Pod, arriving: Pod): boolean {
  const seen = seenBy(running);
  return seen !== undefined && seen === seenBy(arriving);
}

/** `undefined`: its containers know the pod's UID. */
function seenBy(pod: Pod): string | undefined {
  const fields = containersOf(pod).flatMap(({ env = [] }) =>
    env.flatMap(({ valueFrom }) => valueFrom?.fieldRef?.fieldPath ?? []),
  );
  if (fields.includes(UID_FIELD)) return undefined;
  // Ephemeral containers are added to a running pod, so a new pod never has them.
  const {
    nodeName: _,
    ephemeralContainers: __,
    ...spec
  } = renamed(pod, (_name, index) => `kube-api-access-${index}`).spec;
  return canonicalJson([spec, fields.map((field) => metadataValue(pod, field))]);
}

function metadataValue({ metadata }: Pod, field: string): string | undefined {
  const [, map, key = ""] = NAMED_METADATA.exec(field) ?? [];
  if (map === undefined) return undefined;
  return (map === "labels" ? metadata.labels : metadata.annotations)?.[key];
}

/**
 * `pod` with those names that were drawn at random as they are in `known`: containers that mount the volume have them.
 */
export function copyRandomNames(pod: Pod, known: Pod): Pod {
  const names = randomVolumes(known);
  return renamed(pod, (name, index) => names[index] ?? name);
}

function renamed(pod: Pod, nameOf: (name: string, index: number) => string): Pod {
  const names = new Map(randomVolumes(pod).map((name, index) => [name, nameOf(name, index)]));
  if ([...names].every(([from, to]) => from === to)) return pod;
  const nameFor = (name: string): string => names.get(name) ?? name;
  const mounted = <T extends Pick<Container, "volumeMounts">>(container: T): T => {
    const { volumeMounts } = container;
    if (volumeMounts === undefined) return container;
    return { ...container, volumeMounts: volumeMounts.map((each) => ({ ...each, name: nameFor(each.name) })) };
  };
  const { volumes, containers, initContainers, ephemeralContainers } = pod.spec;
  const spec = {
    ...pod.spec,
    ...(volumes === undefined ? {} : { volumes: volumes.map((each) => ({ ...each, name: nameFor(each.name) })) }),
    containers: containers.map(mounted),
    ...(initContainers === undefined ? {} : { initContainers: initContainers.map(mounted) }),
    ...(ephemeralContainers === undefined ? {} : { ephemeralContainers: ephemeralContainers.map(mounted) }),
  };
  return { ...pod, spec };
}

const randomVolumes = ({ spec }: Pod): string[] =>
  (spec.volumes ?? []).map(({ name }) => name).filter((name) => RANDOM_VOLUME.test(name));

const containersOf = ({ spec }: Pod): readonly Container[] => [...(spec.initContainers ?? []), ...spec.containers];
