/** Makes a runner's launch from a pod. Pure: all errors are found here, before anything starts. */

import { PicoletError } from "@picolet/protocol/errors.ts";
import { parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { Container, EphemeralContainer, Pod } from "@picolet/protocol/pod/pod.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { BoardInterface, ServicePeer } from "@picolet/runtime-contract/board-services.ts";
import type { ContainerLaunch, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { asyncNames, type ComponentShape } from "../../shared/binary/component-shape.ts";
import { ANNOTATION_PREFIX } from "../../shared/grants/annotation-prefix.ts";
import { boardInterfaceOf, importsBoard } from "../../shared/grants/board-grants.ts";
import { type HttpOptions, type ServeOptions, serveOptions } from "../../shared/grants/http-options.ts";
import {
  exportsHandler,
  exportsRun,
  importsHttp,
  isHttp02,
  ungrantedImports,
} from "../../shared/grants/import-grants.ts";
import type { PodGrants } from "../../shared/grants/pod-grants.ts";
import type { BoardLaunch, Identity } from "../../shared/messages/launch.ts";

/** A runner alone needs some 14 MiB; with less it would be killed before the component says a word. */
export const MIN_MEMORY_LIMIT_BYTES = 16 * MEBIBYTE;

/**
 * The least limit of a container that shares its process, where only its linear memory counts; hardly any component is
 * smaller.
 */
const MIN_DENSE_LIMIT_BYTES = MEBIBYTE;

/**
 * To serve HTTP. A flood of clients that send all they can and take nothing came to 29 MiB anonymous and 33 in all in a
 * cgroup of 40; 30 were not enough (`shared/serving/serve-memory.ts`, `test/wasm/http-flood.long.test.ts`).
 */
export const MIN_SERVED_MEMORY_LIMIT_BYTES = 40 * MEBIBYTE;
/** The library that computes models takes 90 MiB before it has one. */
export const MIN_INFERRING_MEMORY_LIMIT_BYTES = 128 * MEBIBYTE;

const CONFIG_ERROR = "CreateContainerConfigError";
const NETWORK_ANNOTATION = `${ANNOTATION_PREFIX}network`;
const INTERFACES_ANNOTATION = `${ANNOTATION_PREFIX}interfaces`;
const MAX_UID = 0xffff_fffe;

/** `spec` of any of the pod's containers. */
export type ContainerSpec = Pick<Container, "name" | "resources" | "securityContext" | "restartPolicy">;

/** Finds a container of any kind. */
export function findContainer({ spec }: Pod, name: string): Container | EphemeralContainer | undefined {
  const { containers, initContainers = [], ephemeralContainers = [] } = spec;
  return [...containers, ...initContainers, ...ephemeralContainers].find((each) => each.name === name);
}

export function containerSpec(pod: Pod, name: string): ContainerSpec {
  const spec = findContainer(pod, name);
  if (spec !== undefined) return { ...spec, resources: spec.resources ?? {} };
  throw new PicoletError("invalid", `the pod has no container ${name}`, { reason: CONFIG_ERROR });
}

/**
 * @param interfaces of the board that the pod names
 * @param http whether it is served, or the pod has a network
 * @throws `invalid` with all imports of the component that are not granted
 */
export function checkShape(
  { imports, exports }: ComponentShape,
  image: string,
  interfaces: readonly BoardInterface[] = [],
  http = false,
): void {
  const ungranted = ungrantedImports(imports, interfaces, http);
  const unnamed = new Set(ungranted.flatMap((name) => boardInterfaceOf(name) ?? []));
  const foreign = ungranted.filter((name) => boardInterfaceOf(name) === undefined);
  const others = foreign.filter((name) => !importsHttp([name]));
  const remedies = [
    unnamed.size > 0 && `name ${[...unnamed].join(", ")} in the pod's annotation ${INTERFACES_ANNOTATION}`,
    others.length < foreign.length && `name whom it may ask in the pod's annotation ${NETWORK_ANNOTATION}`,
    others.length > 0 &&
      `build it for the world wasi:cli/command@0.2, or without ${others.length < ungranted.length ? others.join(", ") : "these interfaces"}`,
  ].filter((each) => each !== false);
  if (ungranted.length > 0) {
    throw new PicoletError(
      "invalid",
      `the component ${image} imports what its pod does not grant: ${ungranted.join(", ")}; ${remedies.join("; ")}`,
      { reason: CONFIG_ERROR },
    );
  }
  refuseBesideAsync({ imports, exports }, image);
  if (!exportsRun(exports) && !exportsHandler(exports)) {
    throw new PicoletError(
      "invalid",
      `the component ${image} exports ${exports.length === 0 ? "nothing" : `no wasi:cli/run, only ${exports.join(", ")}`}; build it for the world wasi:cli/command@0.2`,
      { reason: CONFIG_ERROR },
    );
  }
}

/**
 * Refuses interfaces that wait on the event loop in a way of their own, which does not work with WASI 0.3 yet. @throws
 * `invalid`
 */
function refuseBesideAsync(shape: ComponentShape, image: string): void {
  if (asyncNames(shape).length === 0) return;
  const unmet = shape.imports.filter(isHttp02);
  if (unmet.length === 0) return;
  throw new PicoletError(
    "invalid",
    `the component ${image} is for WASI 0.3, where this is not there yet: ${unmet.join(", ")}; build it for WASI 0.2`,
    { reason: CONFIG_ERROR },
  );
}

/**
 * A component that can be run or served is run, unless the pod says how to serve it.
 * @returns how it is served; undefined: it is run. @throws `invalid` when nothing names its port
 */
export function serveOptionsOf(
  { exports }: ComponentShape,
  image: string,
  options: HttpOptions | undefined,
  container: Pick<Container | EphemeralContainer, "ports">,
): ServeOptions | undefined {
  if (!exportsHandler(exports) || (exportsRun(exports) && options === undefined)) return undefined;
  const serve = serveOptions(options, container);
  if (serve !== undefined) return serve;
  throw new PicoletError(
    "invalid",
    `the component ${image} serves HTTP, and nothing says on which port: give the container a containerPort, or the pod the annotation wasm.picolet.io/http: port=8080`,
    { reason: CONFIG_ERROR },
  );
}

/** The least memory limit of a container that shares its process or not. Undefined: the usual one. */
export const leastMemory = (dense: boolean): number | undefined => (dense ? MIN_DENSE_LIMIT_BYTES : undefined);

/**
 * The container's, else the pod's. Bytes; undefined: no limit.
 * @param least that makes sense: `MIN_MEMORY_LIMIT_BYTES`, or `MIN_DENSE_LIMIT_BYTES`
 */
export function memoryLimitOf(
  pod: Pod,
  spec: ContainerSpec,
  least = MIN_MEMORY_LIMIT_BYTES,
  what = "to run a component",
): number | undefined {
  const text = spec.resources.limits?.memory ?? pod.spec.resources?.limits?.memory;
  const parsed = text === undefined ? undefined : parseQuantity(text);
  if (parsed?.ok !== true) return undefined;
  const bytes = Number(quantityValue(parsed.quantity));
  if (bytes <= 0) return undefined;
  if (bytes >= least) return bytes;
  throw new PicoletError(
    "invalid",
    `the memory limit ${text} is too small ${what}: it takes at least ${least / MEBIBYTE}Mi`,
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
 * The user of a component whose pod names none, as in images that are built to run without root. All such components
 * share it: files in a volume are owned by the next pod that gets the volume, as with such an image.
 */
export const UNPRIVILEGED_ID = 65_532;

/**
 * Whose rights the runner has: those of `securityContext`, as for a container whose image names `UNPRIVILEGED_ID` as
 * its user.
 * @param init `ownUid`, of the agent: without root it can give no others than its own; `extraGroups`, of the launch.
 * @returns undefined: the agent's own
 */
export function identityOf(
  { pod, uid: ownPod }: DesiredPod,
  spec: ContainerSpec,
  { ownUid, extraGroups = [] }: { readonly ownUid: number; readonly extraGroups?: readonly number[] | undefined },
): Identity | undefined {
  const ofPod = pod.spec.securityContext;
  const uid = spec.securityContext?.runAsUser ?? ofPod?.runAsUser;
  const gid = spec.securityContext?.runAsGroup ?? ofPod?.runAsGroup;
  const groups = [
    ...(ofPod?.supplementalGroups ?? []),
    ...(ofPod?.fsGroup === undefined ? [] : [ofPod.fsGroup]),
    ...extraGroups,
  ];
  const nonRoot = spec.securityContext?.runAsNonRoot ?? ofPod?.runAsNonRoot ?? false;
  if (nonRoot && uid === 0) {
    // The kubelet's words.
    const { name, namespace, uid: apiUid = ownPod } = pod.metadata;
    const whose = `(pod: "${name}_${namespace}(${apiUid})", container: ${spec.name})`;
    throw new PicoletError("invalid", `container's runAsUser breaks non-root policy ${whose}`, {
      reason: CONFIG_ERROR,
    });
  }
  if ([uid ?? 0, gid ?? 0, ...groups].some((each) => each < 0 || each > MAX_UID)) {
    throw new PicoletError("invalid", "a user or group of the securityContext is out of range", {
      reason: CONFIG_ERROR,
    });
  }
  // As for a container: a user that is named without a group has the group of root.
  if (ownUid === 0)
    return { uid: uid ?? UNPRIVILEGED_ID, gid: gid ?? (uid === undefined ? UNPRIVILEGED_ID : 0), groups };
  const wantsNothing = uid === undefined && gid === undefined && groups.length === 0;
  if (wantsNothing || uid === ownUid) return undefined;
  throw new PicoletError("permission_denied", "cannot run as another user or group: picolet does not run as root", {
    reason: CONFIG_ERROR,
  });
}

/** @returns whether its runner asks the agent for something */
export const needsAgent = ({ imports }: Pick<ComponentShape, "imports">): boolean =>
  importsBoard(imports, ({ asksAgent }) => asksAgent);

/** @returns whether it opens devices. Its runner then makes system calls that Node does not have */
export const needsDevices = ({ imports }: Pick<ComponentShape, "imports">): boolean =>
  importsBoard(imports, ({ device }) => device !== undefined);

/** @returns whether it has models computed. Its runner then loads the library that does */
export const infers = ({ imports }: Pick<ComponentShape, "imports">): boolean =>
  importsBoard(imports, (grant) => grant.infers === true);

/** Identifies a container to the agent's services. */
export function peerOf({ pod, uid }: DesiredPod, container: string, { interfaces, buckets, devices }: PodGrants) {
  const { name, namespace, uid: apiUid = uid } = pod.metadata;
  return { container, pod: { name, namespace, uid: apiUid }, interfaces, buckets, devices } satisfies Omit<
    ServicePeer,
    "containerId"
  >;
}

/**
 * Makes the board's part of a runner's launch. @param token undefined: it needs none of the agent's services
 * @throws `invalid` when the volume of the configuration is not mounted
 */
export function boardLaunchOf(
  desired: DesiredPod,
  container: string,
  grants: PodGrants,
  token: string | undefined,
): BoardLaunch | undefined {
  if (grants.interfaces.length === 0) return undefined;
  const { pod } = peerOf(desired, container, grants);
  const path = (name: "config" | "nn", volume: string | undefined, what: string): string | undefined =>
    grants.interfaces.includes(name)
      ? mountPath(findContainer(desired.pod, container), { name, volume, what })
      : undefined;
  return {
    interfaces: grants.interfaces,
    pod: { ...pod, container },
    configPath: path("config", grants.configVolume, "its configuration"),
    modelPath: path("nn", grants.modelVolume, "models"),
    logLevel: grants.logLevel,
    token,
  };
}

/**
 * Where the container has the volume mounted that the annotation `name` names.
 * @throws `invalid` when it does not mount it
 */
function mountPath(
  container: Container | EphemeralContainer | undefined,
  { name, volume, what }: { readonly name: string; readonly volume: string | undefined; readonly what: string },
): string | undefined {
  if (volume === undefined) return undefined;
  const mount = container?.volumeMounts?.find((each) => each.name === volume && (each.subPath ?? "") === "");
  if (mount !== undefined) return mount.mountPath;
  throw new PicoletError(
    "invalid",
    `cannot give the component ${what}: the container ${container?.name} does not mount the volume ${volume}, which the pod's annotation ${ANNOTATION_PREFIX}${name} names; add it to volumeMounts, without subPath`,
    { reason: CONFIG_ERROR },
  );
}
