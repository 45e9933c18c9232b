import type * as z from "zod/mini";
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import type { Parsed } from "../fields/field-schemas.ts";

/** An object of the cluster that a volume names: its kind, and the fields from the source to its name. */
export type VolumeReference = readonly [
  kind: "ConfigMap" | "CSIDriver" | "Endpoints" | "PersistentVolumeClaim" | "Secret",
  ...path: string[],
];

/** The part of the pod's spec that the rules of a volume read. */
export interface VolumeRuleContext {
  readonly serviceAccountName?: string | undefined;
}

/** One volume type in the pod model: a line of `VOLUME_MODELS`. */
export interface VolumeModel<S extends z.core.SomeType = z.core.SomeType> {
  /** The type's field of a volume; `opaque` where nothing reads it. */
  readonly schema: S;
  /** True when Pod Security's level restricted refuses it, because it brings in the node or another machine. */
  readonly isRestricted?: true;
  /** True when a container can have it as a block device (`volumeDevices`). */
  readonly isDeviceSource?: true;
  /** Objects that a pod's node may read because of this volume. */
  readonly references?: readonly VolumeReference[];
  /** Fills in Kubernetes' defaults, in place. */
  applyDefaults?(source: NonNullable<z.output<S>>): void;
  /** Reports what Kubernetes refuses, in its words. @param path of the source in the pod */
  validate?(source: NonNullable<Parsed<S>>, path: string, problems: FieldProblems, context: VolumeRuleContext): void;
}

/** Infers the types of the functions from `schema`. */
export const volumeModel = <S extends z.core.SomeType>(model: VolumeModel<S>): VolumeModel<S> => model;

export const DEFAULT_FILE_MODE = 0o644;
const MAX_FILE_MODE = 0o777;
const FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive";

export function validateMode(mode: number | undefined, path: string, problems: FieldProblems): void {
  if (mode !== undefined && (mode < 0 || mode > MAX_FILE_MODE)) problems.invalid(path, mode, FILE_MODE);
}
