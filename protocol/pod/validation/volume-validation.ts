/** Volumes of a pod and their mounts, as pkg/apis/core/validation of Kubernetes 1.34 judges them. */
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import { dnsLabelProblems } from "../../kubernetes/name-rules.ts";
import { backstepProblems, descendingPathProblems } from "../fields/path-validation.ts";
import type { Container, Pod, Volume, VolumeMount } from "../pod.ts";
import type { VolumeModel } from "../volumes/volume-model.ts";
import { volumeModels } from "../volumes/volume-models.ts";

const PROPAGATIONS = ["Bidirectional", "HostToContainer", "None"];
const RECURSIVE_READ_ONLY = ["Disabled", "Enabled", "IfPossible"];

const SOURCES: ReadonlyMap<string, VolumeModel> = new Map(volumeModels);

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
  for (const [kind, model] of volumeModels) {
    const source = volume[kind as keyof Volume];
    if (source !== undefined && source !== null) model.validate?.(source, `${path}.${kind}`, problems, pod.spec);
  }
}

/** @param volumes the pod's, by name */
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
    else if (!Object.keys(volume).some((kind) => SOURCES.get(kind)?.isDeviceSource === true)) {
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
