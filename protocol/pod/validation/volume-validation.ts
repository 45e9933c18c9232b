/** Volumes of a pod and their mounts, as pkg/apis/core/validation of Kubernetes 1.34 judges them. */
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import { dnsLabelProblems } from "../../kubernetes/name-rules.ts";
import type { Container, Pod, Volume, VolumeMount } from "../pod.ts";
import { backstepProblems, descendingPathProblems, volumeFileProblems } from "./path-validation.ts";
import { VOLUME_FIELDS, validateFieldReference, validateResourceReference } from "./reference-validation.ts";
import { validateQuantity } from "./resource-validation.ts";

type VolumeFiles = NonNullable<NonNullable<Volume["downwardAPI"]>["items"]>;
type KeyFiles = NonNullable<NonNullable<Volume["secret"]>["items"]>;
type Projections = NonNullable<NonNullable<Volume["projected"]>["sources"]>;

const MAX_FILE_MODE = 0o777;
const FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive";
const MIN_TOKEN_SECONDS = 600;
const MAX_TOKEN_SECONDS = 2 ** 32;
const HOST_PATH_TYPES = [
  "",
  "BlockDevice",
  "CharDevice",
  "Directory",
  "DirectoryOrCreate",
  "File",
  "FileOrCreate",
  "Socket",
];
const PULL_POLICIES = ["Always", "IfNotPresent", "Never"];
const PROPAGATIONS = ["Bidirectional", "HostToContainer", "None"];
const RECURSIVE_READ_ONLY = ["Disabled", "Enabled", "IfPossible"];

const SOURCES: ReadonlySet<string> = new Set<keyof Volume>([
  "emptyDir",
  "hostPath",
  "secret",
  "configMap",
  "downwardAPI",
  "projected",
  "persistentVolumeClaim",
  "image",
  "ephemeral",
  "nfs",
  "csi",
  "iscsi",
  "fc",
  "cephfs",
  "rbd",
  "gitRepo",
  "flexVolume",
  "glusterfs",
  "cinder",
  "flocker",
  "gcePersistentDisk",
  "awsElasticBlockStore",
  "azureFile",
  "azureDisk",
  "vsphereVolume",
  "quobyte",
  "photonPersistentDisk",
  "portworxVolume",
  "scaleIO",
  "storageos",
]);

export function validateVolumes(pod: Pod, problems: FieldProblems): void {
  const names = new Set<string>();
  (pod.spec.volumes ?? []).forEach((volume, index) => {
    const path = `spec.volumes[${index}]`;
    if (volume.name === "") problems.required(`${path}.name`);
    else problems.invalidAll(`${path}.name`, volume.name, dnsLabelProblems(volume.name));
    if (names.has(volume.name)) problems.duplicate(`${path}.name`, volume.name);
    names.add(volume.name);
    validateSource(volume, path, pod, problems);
  });
}

function validateSource(volume: Volume, path: string, pod: Pod, problems: FieldProblems): void {
  const [first, ...others] = Object.keys(volume).filter((key) => SOURCES.has(key));
  if (first === undefined) problems.required(path, "must specify a volume type");
  for (const other of others) problems.forbidden(`${path}.${other}`, "may not specify more than 1 volume type");
  const { emptyDir, hostPath, secret, configMap, downwardAPI, projected, persistentVolumeClaim, nfs, csi, image } =
    volume;
  if (emptyDir?.sizeLimit !== undefined) validateQuantity(emptyDir.sizeLimit, `${path}.emptyDir.sizeLimit`, problems);
  if (hostPath) validateHostPath(hostPath, `${path}.hostPath`, problems);
  if (secret) {
    if (secret.secretName === "") problems.required(`${path}.secret.secretName`);
    validateMode(secret.defaultMode, `${path}.secret.defaultMode`, problems);
    validateKeyFiles(secret.items ?? [], `${path}.secret.items`, problems);
  }
  if (configMap) {
    if (configMap.name === "") problems.required(`${path}.configMap.name`);
    validateMode(configMap.defaultMode, `${path}.configMap.defaultMode`, problems);
    validateKeyFiles(configMap.items ?? [], `${path}.configMap.items`, problems);
  }
  if (downwardAPI) {
    validateMode(downwardAPI.defaultMode, `${path}.downwardAPI.defaultMode`, problems);
    validateFiles(downwardAPI.items ?? [], `${path}.downwardAPI.items`, problems);
  }
  if (projected) {
    validateMode(projected.defaultMode, `${path}.projected.defaultMode`, problems);
    validateProjections(projected.sources ?? [], `${path}.projected`, pod, problems);
  }
  if (persistentVolumeClaim?.claimName === "") problems.required(`${path}.persistentVolumeClaim.claimName`);
  if (nfs?.server === "") problems.required(`${path}.nfs.server`);
  if (nfs?.path === "") problems.required(`${path}.nfs.path`);
  else if (nfs?.path.startsWith("/") === false)
    problems.invalid(`${path}.nfs.path`, nfs.path, "must be an absolute path");
  if (csi?.driver === "") problems.required(`${path}.csi.driver`);
  if (image) {
    if (image.reference === "") problems.required(`${path}.image.reference`);
    problems.oneOf(`${path}.image.pullPolicy`, image.pullPolicy, PULL_POLICIES);
  }
}

function validateHostPath(hostPath: NonNullable<Volume["hostPath"]>, path: string, problems: FieldProblems): void {
  if (hostPath.path === "") problems.required(`${path}.path`);
  else problems.invalidAll(`${path}.path`, hostPath.path, backstepProblems(hostPath.path));
  if (!HOST_PATH_TYPES.includes(hostPath.type)) problems.unsupported(`${path}.type`, hostPath.type, HOST_PATH_TYPES);
}

function validateMode(mode: number | undefined, path: string, problems: FieldProblems): void {
  if (mode !== undefined && (mode < 0 || mode > MAX_FILE_MODE)) problems.invalid(path, mode, FILE_MODE);
}

function validateFilePath(file: string, path: string, problems: FieldProblems): void {
  if (file === "") problems.required(path);
  else problems.invalidAll(path, file, volumeFileProblems(file));
}

function validateKeyFiles(items: KeyFiles, path: string, problems: FieldProblems): void {
  items.forEach((item, index) => {
    const each = `${path}[${index}]`;
    if (item.key === "") problems.required(`${each}.key`);
    validateFilePath(item.path, `${each}.path`, problems);
    validateMode(item.mode, `${each}.mode`, problems);
  });
}

function validateFiles(items: VolumeFiles, path: string, problems: FieldProblems): void {
  items.forEach((item, index) => {
    const each = `${path}[${index}]`;
    validateFilePath(item.path, `${each}.path`, problems);
    if (item.fieldRef && item.resourceFieldRef) {
      problems.invalid(each, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
    }
    if (item.fieldRef) validateFieldReference(item.fieldRef, VOLUME_FIELDS, `${each}.fieldRef`, problems);
    else if (item.resourceFieldRef) {
      validateResourceReference(item.resourceFieldRef, true, `${each}.resourceFieldRef`, problems);
    } else problems.required(each, "one of fieldRef and resourceFieldRef is required");
    validateMode(item.mode, `${each}.mode`, problems);
  });
}

const PROJECTIONS = [
  "secret",
  "configMap",
  "downwardAPI",
  "serviceAccountToken",
  "clusterTrustBundle",
  "podCertificate",
] as const satisfies readonly (keyof Projections[number])[];

function validateProjections(sources: Projections, path: string, pod: Pod, problems: FieldProblems): void {
  const files = new Set<string>();
  sources.forEach((source, index) => {
    const each = `${path}.sources[${index}]`;
    if (PROJECTIONS.filter((kind) => source[kind] !== undefined).length > 1) {
      problems.forbidden(each, "may not specify more than 1 volume type per source");
    }
    for (const kind of ["secret", "configMap"] as const) {
      if (source[kind]?.name === "") problems.required(`${each}.${kind}.name`);
      validateKeyFiles(source[kind]?.items ?? [], `${each}.${kind}.items`, problems);
    }
    validateFiles(source.downwardAPI?.items ?? [], `${each}.downwardAPI.items`, problems);
    if (source.serviceAccountToken) {
      validateToken(source.serviceAccountToken, `${each}.serviceAccountToken`, pod, problems);
    }
    for (const file of filesOf(source)) {
      if (files.has(file)) problems.invalid(path, file, "conflicting duplicate paths");
      files.add(file);
    }
  });
}

function filesOf({ secret, configMap, downwardAPI, clusterTrustBundle }: Projections[number]): string[] {
  const items = [...(secret?.items ?? []), ...(configMap?.items ?? []), ...(downwardAPI?.items ?? [])];
  return [...items.map((item) => item.path), clusterTrustBundle?.path ?? ""].filter((path) => path !== "");
}

function validateToken(
  token: NonNullable<Projections[number]["serviceAccountToken"]>,
  path: string,
  pod: Pod,
  problems: FieldProblems,
): void {
  const { expirationSeconds } = token;
  if (expirationSeconds < MIN_TOKEN_SECONDS) {
    problems.invalid(`${path}.expirationSeconds`, expirationSeconds, "may not specify a duration less than 10 minutes");
  }
  if (expirationSeconds > MAX_TOKEN_SECONDS) {
    const detail = "may not specify a duration larger than 2^32 seconds";
    problems.invalid(`${path}.expirationSeconds`, expirationSeconds, detail);
  }
  validateFilePath(token.path, `${path}.path`, problems);
  if ((pod.spec.serviceAccountName ?? "") === "") {
    problems.forbidden(path, "must not be specified when serviceAccountName is not set");
  }
}

/** @param volumes of the pod, by name. */
export function validateMounts(
  container: Container,
  volumes: ReadonlyMap<string, Volume>,
  path: string,
  problems: FieldProblems,
): void {
  const devices = container.volumeDevices ?? [];
  const deviceNames = new Set(devices.map(({ name }) => name));
  const devicePaths = new Set(devices.map(({ devicePath }) => devicePath));
  const paths = new Set<string>();
  (container.volumeMounts ?? []).forEach((mount, index) => {
    const each = `${path}.volumeMounts[${index}]`;
    if (mount.name === "") problems.required(`${each}.name`);
    else if (!volumes.has(mount.name)) problems.notFound(`${each}.name`, mount.name);
    if (mount.mountPath === "") problems.required(`${each}.mountPath`);
    if (paths.has(mount.mountPath)) problems.invalid(`${each}.mountPath`, mount.mountPath, "must be unique");
    paths.add(mount.mountPath);
    if (deviceNames.has(mount.name)) {
      problems.invalid(`${each}.name`, mount.name, "must not already exist in volumeDevices");
    }
    if (devicePaths.has(mount.mountPath)) {
      problems.invalid(`${each}.mountPath`, mount.mountPath, "must not already exist as a path in volumeDevices");
    }
    validateSubPath(mount, each, problems);
    validatePropagation(mount, container, each, problems);
  });
  validateDevices(devices, volumes, path, problems);
}

function validateSubPath(mount: VolumeMount, path: string, problems: FieldProblems): void {
  for (const field of ["subPath", "subPathExpr"] as const) {
    const value = mount[field] ?? "";
    if (value === "") continue;
    problems.invalidAll(`${path}.${field}`, value, descendingPathProblems(value));
  }
  if ((mount.subPath ?? "") !== "" && (mount.subPathExpr ?? "") !== "") {
    problems.invalid(`${path}.subPathExpr`, mount.subPathExpr, "subPathExpr and subPath are mutually exclusive");
  }
}

function validatePropagation(mount: VolumeMount, container: Container, path: string, problems: FieldProblems): void {
  const { mountPropagation: propagation, recursiveReadOnly } = mount;
  if (propagation !== undefined && !PROPAGATIONS.includes(propagation)) {
    problems.unsupported(`${path}.mountPropagation`, propagation, PROPAGATIONS);
  }
  if (propagation === "Bidirectional" && container.securityContext?.privileged !== true) {
    problems.forbidden(
      `${path}.mountPropagation`,
      "Bidirectional mount propagation is available only to privileged containers",
    );
  }
  if (recursiveReadOnly === undefined || recursiveReadOnly === "Disabled") return;
  const readOnlyPath = `${path}.recursiveReadOnly`;
  if (!RECURSIVE_READ_ONLY.includes(recursiveReadOnly)) {
    problems.unsupported(readOnlyPath, recursiveReadOnly, RECURSIVE_READ_ONLY);
    return;
  }
  if (mount.readOnly !== true) problems.forbidden(readOnlyPath, "may only be specified when readOnly is true");
  if (propagation !== undefined && propagation !== "None") {
    problems.forbidden(readOnlyPath, "may only be specified when mountPropagation is None or not specified");
  }
}

function validateDevices(
  devices: NonNullable<Container["volumeDevices"]>,
  volumes: ReadonlyMap<string, Volume>,
  path: string,
  problems: FieldProblems,
): void {
  const names = new Set<string>();
  const paths = new Set<string>();
  devices.forEach(({ name, devicePath }, index) => {
    const each = `${path}.volumeDevices[${index}]`;
    const volume = volumes.get(name);
    if (name === "") problems.required(`${each}.name`);
    else if (volume === undefined) problems.notFound(`${each}.name`, name);
    else if (volume.persistentVolumeClaim === undefined && volume.ephemeral === undefined) {
      const detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
      problems.invalid(`${each}.name`, name, detail);
    }
    if (names.has(name)) problems.invalid(`${each}.name`, name, "must be unique");
    if (devicePath === "") problems.required(`${each}.devicePath`);
    else if (backstepProblems(devicePath).length > 0) {
      problems.invalid(`${each}.devicePath`, devicePath, "can not contain backsteps ('..')");
    }
    if (paths.has(devicePath)) problems.invalid(`${each}.devicePath`, devicePath, "must be unique");
    names.add(name);
    paths.add(devicePath);
  });
}
