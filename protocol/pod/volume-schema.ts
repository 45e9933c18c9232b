/** Volumes of a pod and how containers mount them (Kubernetes 1.34). Reached through `pod.ts`. */
import {
  object,
  optionalFlag,
  optionalList,
  optionalOneOf,
  optionalQuantities,
  optionalText,
  requiredText,
} from "./fields/field-schemas.ts";
import { type VolumeModels, volumeModels } from "./volumes/volume-models.ts";

type SourceFields = { readonly [Kind in keyof VolumeModels]: VolumeModels[Kind]["schema"] };

const sourceFields = Object.fromEntries(volumeModels.map(([kind, { schema }]) => [kind, schema]));

export const volumeSchema = object({ name: requiredText, ...(sourceFields as unknown as SourceFields) });

export const volumeMountSchema = object({
  name: requiredText,
  mountPath: requiredText,
  readOnly: optionalFlag,
  recursiveReadOnly: optionalOneOf<"Disabled" | "IfPossible" | "Enabled">(),
  subPath: optionalText,
  subPathExpr: optionalText,
  mountPropagation: optionalOneOf<"None" | "HostToContainer" | "Bidirectional">(),
});

export const volumeDeviceSchema = object({ name: requiredText, devicePath: requiredText });

/** `spec.resources` of a pod and `resources` of a container. */
export const resourceRequirementsSchema = object({
  limits: optionalQuantities,
  requests: optionalQuantities,
  claims: optionalList(object({ name: requiredText, request: optionalText })),
});
