/** Volumes of Pod v1 (Kubernetes 1.34). Reached through `pod.ts`. */
import {
  defaultedInt32,
  defaultedInt64,
  defaultedOneOf,
  defaultedText,
  object,
  opaque,
  optional,
  optionalFlag,
  optionalInt32,
  optionalList,
  optionalOneOf,
  optionalQuantities,
  optionalQuantity,
  optionalText,
  optionalTextMap,
  optionalTexts,
  requiredText,
} from "./field-schemas.ts";

export const localReferenceSchema = object({ name: requiredText });

/** One key of a ConfigMap or Secret as a file. `mode` is decimal, or octal with YAML's `0o`. */
const keyToPath = object({ key: requiredText, path: requiredText, mode: optionalInt32 });

export const objectFieldSelectorSchema = object({ apiVersion: defaultedText, fieldPath: requiredText });

export const resourceFieldSelectorSchema = object({
  containerName: optionalText,
  resource: requiredText,
  /** "0" (the unit of one) when missing. */
  divisor: optionalQuantity,
});

const downwardApiFile = object({
  path: requiredText,
  fieldRef: optional(objectFieldSelectorSchema),
  resourceFieldRef: optional(resourceFieldSelectorSchema),
  mode: optionalInt32,
});

const labelSelectorRequirement = object({ key: requiredText, operator: requiredText, values: optionalTexts });
export const labelSelectorSchema = object({
  matchLabels: optionalTextMap,
  matchExpressions: optionalList(labelSelectorRequirement),
});

const projection = object({
  secret: optional(object({ name: requiredText, items: optionalList(keyToPath), optional: optionalFlag })),
  configMap: optional(object({ name: requiredText, items: optionalList(keyToPath), optional: optionalFlag })),
  downwardAPI: optional(object({ items: optionalList(downwardApiFile) })),
  serviceAccountToken: optional(
    object({ audience: optionalText, expirationSeconds: defaultedInt64, path: requiredText }),
  ),
  clusterTrustBundle: optional(
    object({
      name: optionalText,
      signerName: optionalText,
      labelSelector: optional(labelSelectorSchema),
      optional: optionalFlag,
      path: requiredText,
    }),
  ),
  podCertificate: optional(
    object({
      signerName: requiredText,
      keyType: requiredText,
      maxExpirationSeconds: optionalInt32,
      credentialBundlePath: optionalText,
      keyPath: optionalText,
      certificateChainPath: optionalText,
      /** Fields of later versions. */
      userAnnotations: opaque,
    }),
  ),
});

export type HostPathType =
  | ""
  | "DirectoryOrCreate"
  | "Directory"
  | "FileOrCreate"
  | "File"
  | "Socket"
  | "CharDevice"
  | "BlockDevice";

export const volumeSchema = object({
  name: requiredText,
  hostPath: optional(object({ path: requiredText, type: defaultedOneOf<HostPathType>() })),
  emptyDir: optional(object({ medium: optionalText, sizeLimit: optionalQuantity })),
  secret: optional(
    object({
      secretName: requiredText,
      items: optionalList(keyToPath),
      defaultMode: defaultedInt32,
      optional: optionalFlag,
    }),
  ),
  configMap: optional(
    object({ name: requiredText, items: optionalList(keyToPath), defaultMode: defaultedInt32, optional: optionalFlag }),
  ),
  downwardAPI: optional(object({ items: optionalList(downwardApiFile), defaultMode: defaultedInt32 })),
  projected: optional(object({ sources: optionalList(projection), defaultMode: defaultedInt32 })),
  persistentVolumeClaim: optional(object({ claimName: requiredText, readOnly: optionalFlag })),
  image: optional(
    object({ reference: requiredText, pullPolicy: defaultedOneOf<"Always" | "IfNotPresent" | "Never">() }),
  ),
  ephemeral: optional(object({ volumeClaimTemplate: opaque })),
  nfs: optional(object({ server: requiredText, path: requiredText, readOnly: optionalFlag })),
  csi: optional(
    object({
      driver: requiredText,
      readOnly: optionalFlag,
      fsType: optionalText,
      volumeAttributes: optionalTextMap,
      nodePublishSecretRef: optional(localReferenceSchema),
    }),
  ),
  iscsi: opaque,
  fc: opaque,
  cephfs: opaque,
  rbd: opaque,
  gitRepo: opaque,
  flexVolume: opaque,
  glusterfs: opaque,
  cinder: opaque,
  flocker: opaque,
  gcePersistentDisk: opaque,
  awsElasticBlockStore: opaque,
  azureFile: opaque,
  azureDisk: opaque,
  vsphereVolume: opaque,
  quobyte: opaque,
  photonPersistentDisk: opaque,
  portworxVolume: opaque,
  scaleIO: opaque,
  storageos: opaque,
});

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
