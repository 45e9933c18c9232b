/** The pod that a component is checked or run as: a manifest's, or one made of the command line's wishes alone. */
import { readFileSync, statSync } from "node:fs";
import { basename } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { ComponentToolRequest } from "@picolet/protocol/local-api/component-tool-messages.ts";
import type { Container, Pod, Volume } from "@picolet/protocol/pod/pod.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { DesiredPod, EnvVar, Mount } from "@picolet/runtime-contract/runtime-adapter.ts";
import { ANNOTATION_PREFIX } from "@picolet/runtime-wasm/shared/grants/annotation-prefix.ts";
import { readManifest } from "../../sources/manifests/manifest-reader.ts";
import { expandReferences } from "../../volumes/values/expand.ts";

/** As much as the agent takes. */
const MAX_MANIFEST_BYTES = MEBIBYTE;
const UID = "edgectl-wasm";

export interface ToolPod {
  readonly desired: DesiredPod;
  readonly container: Container;
  readonly env: readonly EnvVar[];
  readonly args: readonly string[];
  readonly mounts: readonly Mount[];
}

/**
 * @param image what the component is called
 * @param scratch an absolute folder in which emptyDirs are made
 * @throws `invalid` with all that is wrong with the manifest or the wishes
 */
export function toolPod(request: ComponentToolRequest, image: string, scratch: string): ToolPod {
  const written = request.manifest === undefined ? plainPod(request, image) : manifestPod(request.manifest);
  const pod = parsed(withWishes(written, request, image));
  const container = pod.spec.containers.find(({ name }) => name === containerName(pod, request.container));
  if (container === undefined) throw new PicoletError("invalid", `the pod has no container ${request.container}`);
  const env = environmentOf(container);
  const lookup = (name: string): string | undefined => env.find((each) => each.name === name)?.value;
  const args =
    request.args.length > 0 ? request.args : (container.args ?? []).map((each) => expandReferences(each, lookup));
  const desired: DesiredPod = { uid: podUid(UID), source: "push", origin: request.manifest ?? "", pod };
  return { desired, container, env, args, mounts: [...mountsOf(pod, container, scratch), ...directoriesOf(request)] };
}

const plainPod = ({ file }: ComponentToolRequest, image: string): unknown => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: nameFrom(file) },
  spec: { runtimeClassName: "wasm", containers: [{ name: "main", image }] },
});

/** `My File.wasm` → `my-file` */
export function nameFrom(file: string): string {
  const name = basename(file)
    .replace(/\.wasm$/, "")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-");
  return (
    name
      .replace(/^-+|-+$/g, "")
      .slice(0, 63)
      .replace(/-+$/, "") || "component"
  );
}

function manifestPod(path: string): unknown {
  if (statSync(path).size > MAX_MANIFEST_BYTES) {
    throw new PicoletError("invalid", `${path} is larger than ${MAX_MANIFEST_BYTES} bytes`);
  }
  const manifest = readManifest(readFileSync(path, "utf8"));
  if (!manifest.ok) {
    const problems = manifest.problems.map(({ position, message }) =>
      position === undefined ? message : `line ${position.line}: ${message}`,
    );
    throw new PicoletError("invalid", `cannot use ${path}: ${problems.join("; ")}`);
  }
  for (const { position, message } of manifest.warnings)
    process.stderr.write(`Warning: ${path}${position === undefined ? "" : `:${position.line}`}: ${message}\n`);
  const [only, another] = manifest.pods;
  if (only === undefined || another !== undefined) {
    throw new PicoletError("invalid", `${path} holds ${manifest.pods.length} pods; a component runs as one`);
  }
  return only.written;
}

type Fields = Readonly<Record<string, unknown>>;
const fields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** The manifest with what the command line adds, so that both are judged by one set of rules. */
function withWishes(written: unknown, request: ComponentToolRequest, image: string): unknown {
  const { metadata, spec, ...pod } = fields(written);
  const { annotations, ...about } = fields(metadata);
  const owner = ownerOf(request, fields(fields(spec).securityContext));
  const added = request.annotations.map(assignment).map(([name, value]) => [fullName(name), value] as const);
  const containers = list(fields(spec).containers).map(fields);
  const chosen = request.container ?? containers[0]?.name;
  return {
    ...pod,
    metadata: { ...about, annotations: { ...fields(annotations), ...Object.fromEntries(added) } },
    spec: {
      ...fields(spec),
      ...owner,
      runtimeClassName: "wasm",
      containers: containers.map((each) => (each.name === chosen ? chosenContainer(each, request, image) : each)),
    },
  };
}

/**
 * The component runs as the owner of its folders if the pod sets no user, because users want it to write to their
 * folders.
 */
function ownerOf({ directories }: ComponentToolRequest, context: Fields): Fields {
  const [first] = directories;
  const stats =
    first === undefined ? undefined : statSync(first.slice(0, first.indexOf(":")), { throwIfNoEntry: false });
  if (stats === undefined || context.runAsUser !== undefined) return {};
  return { securityContext: { runAsGroup: stats.gid, ...context, runAsUser: stats.uid } };
}

function chosenContainer(container: Fields, request: ComponentToolRequest, image: string): Fields {
  const { limits, ...resources } = fields(container.resources);
  const wished = {
    ...(request.memory === undefined ? {} : { memory: request.memory }),
    ...(request.cpu === undefined ? {} : { cpu: request.cpu }),
  };
  const given = new Map(request.env.map(assignment));
  // In their places, for others may refer to them.
  const env = list(container.env)
    .map(fields)
    .map((each) => (given.has(String(each.name)) ? { name: each.name, value: given.get(String(each.name)) } : each));
  const known = new Set(env.map(({ name }) => name));
  for (const [name, value] of given) if (!known.has(name)) env.push({ name, value });
  return {
    ...container,
    image,
    env,
    resources: { ...resources, limits: { ...fields(limits), ...wished } },
  };
}

function assignment(text: string): readonly [name: string, value: string] {
  const equals = text.indexOf("=");
  if (equals <= 0) throw new PicoletError("invalid", `"${text}" has to be NAME=VALUE`);
  return [text.slice(0, equals), text.slice(equals + 1)];
}

const fullName = (name: string): string => (name.includes("/") ? name : ANNOTATION_PREFIX + name);

function parsed(written: unknown): Pod {
  const result = parsePod(written);
  if (result.ok) return result.pod;
  const problems = result.problems.map(({ path, message }) => `${path}: ${message}`);
  throw new PicoletError("invalid", `the pod is not right: ${problems.join("; ")}`);
}

function containerName({ spec }: Pod, wanted: string | undefined): string | undefined {
  if (wanted !== undefined || spec.containers.length === 1) return wanted ?? spec.containers[0]?.name;
  const names = spec.containers.map(({ name }) => name).join(", ");
  throw new PicoletError("invalid", `the pod has the containers ${names}: say which with --container`);
}

/** Values that a cluster or a node would fill in do not exist here. */
function environmentOf({ name, env = [], envFrom = [] }: Container): readonly EnvVar[] {
  const [foreign] = [
    ...envFrom.map(() => "envFrom"),
    ...env.filter((each) => each.valueFrom !== undefined).map((each) => `env ${each.name}`),
  ];
  if (foreign !== undefined) {
    throw new PicoletError(
      "invalid",
      `container ${name}: ${foreign} takes its values from elsewhere, which only an agent can: give them with --env`,
    );
  }
  const known = new Map<string, string>();
  for (const each of env)
    known.set(
      each.name,
      expandReferences(each.value ?? "", (other) => known.get(other)),
    );
  return [...known].map(([each, value]) => ({ name: each, value }));
}

function mountsOf({ spec }: Pod, { name, volumeMounts = [] }: Container, scratch: string): readonly Mount[] {
  return volumeMounts.map((mount) => {
    const volume = spec.volumes?.find((each) => each.name === mount.name);
    const folder = volume === undefined ? undefined : folderOf(volume, scratch);
    if (folder === undefined || mount.subPath || mount.subPathExpr) {
      throw new PicoletError(
        "invalid",
        `container ${name}: the volume ${mount.name} is neither an emptyDir nor a hostPath, which only an agent has: give a folder with --dir`,
      );
    }
    return {
      containerPath: mount.mountPath,
      hostPath: folder,
      readOnly: mount.readOnly ?? false,
      propagation: "private",
    };
  });
}

function folderOf({ name, emptyDir, hostPath }: Volume, scratch: string): string | undefined {
  return emptyDir === undefined ? hostPath?.path : `${scratch}/${name}`;
}

function directoriesOf({ directories }: ComponentToolRequest): readonly Mount[] {
  return directories.map((text) => {
    const [hostPath = "", containerPath = "", mode, ...rest] = text.split(":");
    const isRight = hostPath.startsWith("/") && containerPath.startsWith("/") && rest.length === 0;
    if (!isRight || (mode !== undefined && mode !== "ro" && mode !== "rw")) {
      throw new PicoletError("invalid", `"${text}" has to be HOST:CONTAINER or HOST:CONTAINER:ro, with absolute paths`);
    }
    return { hostPath, containerPath, readOnly: mode === "ro", propagation: "private" };
  });
}
