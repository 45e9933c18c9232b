/** From what a pod says to what a runner is told. Pure: everything that can be wrong is found here, before anything starts. */

import { PicoletError } from "../../protocol/errors.ts";
import { parseImageReference } from "../../protocol/image-reference.ts";
import type { Container, EphemeralContainer, Pod } from "../../protocol/pod.ts";
import { parseQuantity, quantityValue } from "../../protocol/quantity.ts";
import type { ContainerLaunch, DesiredPod } from "../contract/runtime-adapter.ts";
import type { ComponentShape } from "./binary/component-shape.ts";
import { exportsRun, ungrantedImports } from "./binary/grants.ts";
import type { Identity } from "./launch.ts";

/** A runner alone needs some 14 MiB; with less it would be killed before the component says a word. */
export const MIN_MEMORY_LIMIT_BYTES = 16 * 1024 * 1024;

const CONFIG_ERROR = "CreateContainerConfigError";
const MAX_UID = 0xffff_fffe;

/** `spec` of any of the pod's containers. */
export type ContainerSpec = Pick<Container, "name" | "resources" | "securityContext" | "restartPolicy">;

/** Of any kind. */
export function findContainer({ spec }: Pod, name: string): Container | EphemeralContainer | undefined {
  const { containers, initContainers = [], ephemeralContainers = [] } = spec;
  return [...containers, ...initContainers, ...ephemeralContainers].find((each) => each.name === name);
}

export function containerSpec(pod: Pod, name: string): ContainerSpec {
  const spec = findContainer(pod, name);
  if (spec !== undefined) return { ...spec, resources: spec.resources ?? {} };
  throw new PicoletError("invalid", `the pod has no container ${name}`, { reason: CONFIG_ERROR });
}

/** @throws `invalid` with all that the component wants and nobody grants. */
export function checkShape({ imports, exports }: ComponentShape, image: string): void {
  const ungranted = ungrantedImports(imports);
  if (ungranted.length > 0) {
    throw new PicoletError(
      "invalid",
      `the component ${image} imports what nobody grants it: ${ungranted.join(", ")}; build it for the world wasi:cli/command@0.2, or without these interfaces`,
      { reason: CONFIG_ERROR },
    );
  }
  if (!exportsRun(exports)) {
    throw new PicoletError(
      "invalid",
      `the component ${image} exports no wasi:cli/run, only ${exports.join(", ") || "nothing"}; build it for the world wasi:cli/command@0.2`,
      { reason: CONFIG_ERROR },
    );
  }
}

/** The container's, else the pod's. Bytes; undefined: no limit. */
export function memoryLimitOf(pod: Pod, spec: ContainerSpec): number | undefined {
  const text = spec.resources.limits?.memory ?? pod.spec.resources?.limits?.memory;
  const parsed = text === undefined ? undefined : parseQuantity(text);
  if (parsed?.ok !== true) return undefined;
  const bytes = Number(quantityValue(parsed.quantity));
  if (bytes <= 0) return undefined;
  if (bytes >= MIN_MEMORY_LIMIT_BYTES) return bytes;
  throw new PicoletError(
    "invalid",
    `the memory limit ${text} is too small to run a component: it takes at least ${MIN_MEMORY_LIMIT_BYTES / 1_048_576}Mi`,
    { reason: CONFIG_ERROR },
  );
}

/** `command` takes the place of the component's own name; there is nothing else in an image that could run. */
export function argumentsOf(launch: ContainerLaunch): string[] {
  const command = launch.command.length > 0 ? launch.command : [programName(launch.image.requested)];
  return [...command, ...launch.args];
}

/** `picolet.example/hello:1` → `hello.wasm`, as if it were run by a path. */
function programName(image: string): string {
  const parsed = parseImageReference(image);
  if (!parsed.ok) return "component.wasm";
  const { reference } = parsed;
  const path = reference.kind === "file" ? reference.path : `${reference.repository}.wasm`;
  return path.slice(path.lastIndexOf("/") + 1);
}

/**
 * Whose rights the runner has: those of `securityContext`, as for a container; with nothing said the agent's own.
 * @param ownUid of the agent.
 */
export function identityOf(
  { pod, uid: ownPod }: DesiredPod,
  spec: ContainerSpec,
  ownUid: number,
): Identity | undefined {
  const ofPod = pod.spec.securityContext;
  const uid = spec.securityContext?.runAsUser ?? ofPod?.runAsUser;
  const gid = spec.securityContext?.runAsGroup ?? ofPod?.runAsGroup;
  const groups = [...(ofPod?.supplementalGroups ?? []), ...(ofPod?.fsGroup === undefined ? [] : [ofPod.fsGroup])];
  const nonRoot = spec.securityContext?.runAsNonRoot ?? ofPod?.runAsNonRoot ?? false;
  if (nonRoot && (uid ?? ownUid) === 0) {
    // The kubelet's words; the component's image has no user, so that the agent's own counts.
    const problem =
      uid === 0
        ? "container's runAsUser breaks non-root policy"
        : "container has runAsNonRoot and image will run as root";
    const { name, namespace, uid: apiUid = ownPod } = pod.metadata;
    const whose = `(pod: "${name}_${namespace}(${apiUid})", container: ${spec.name})`;
    throw new PicoletError("invalid", `${problem} ${whose}`, { reason: CONFIG_ERROR });
  }
  if (uid === undefined && gid === undefined && groups.length === 0) return undefined;
  const identity = { uid: uid ?? ownUid, gid: gid ?? 0, groups };
  if ([identity.uid, identity.gid, ...groups].some((each) => each < 0 || each > MAX_UID)) {
    throw new PicoletError("invalid", "a user or group of the securityContext is out of range", {
      reason: CONFIG_ERROR,
    });
  }
  if (ownUid === 0) return identity;
  if (uid === ownUid) return undefined;
  throw new PicoletError("permission_denied", "cannot run as another user or group: picolet does not run as root", {
    reason: CONFIG_ERROR,
  });
}
