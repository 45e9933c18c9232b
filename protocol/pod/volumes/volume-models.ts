/**
 * The volume types of Pod v1 (Kubernetes 1.34), a line each, in the order of its `VolumeSource`. The schema, the
 * defaults, the rules, what a pod references, and Pod Security are read from here. What a node does with a volume is
 * in `agent/volumes/types/volume-types.ts`.
 */

import { ephemeral, persistentVolumeClaim } from "./claims.ts";
import { downwardAPI } from "./downward-api.ts";
import { csi, foreign, nfs } from "./driver-volumes.ts";
import { emptyDir } from "./empty-dir.ts";
import { hostPath } from "./host-path.ts";
import { image } from "./image.ts";
import { configMap, secret } from "./keyed-files.ts";
import { projected } from "./projected.ts";
import type { VolumeModel } from "./volume-model.ts";

export const VOLUME_MODELS = {
  hostPath,
  emptyDir,
  gcePersistentDisk: foreign(),
  awsElasticBlockStore: foreign(),
  gitRepo: foreign(),
  secret,
  nfs,
  iscsi: foreign(["Secret", "secretRef", "name"]),
  glusterfs: foreign(["Endpoints", "endpoints"]),
  persistentVolumeClaim,
  rbd: foreign(["Secret", "secretRef", "name"]),
  flexVolume: foreign(["Secret", "secretRef", "name"]),
  cinder: foreign(["Secret", "secretRef", "name"]),
  cephfs: foreign(["Secret", "secretRef", "name"]),
  flocker: foreign(),
  downwardAPI,
  fc: foreign(),
  azureFile: foreign(["Secret", "secretName"]),
  configMap,
  vsphereVolume: foreign(),
  quobyte: foreign(),
  azureDisk: foreign(),
  photonPersistentDisk: foreign(),
  projected,
  portworxVolume: foreign(),
  scaleIO: foreign(["Secret", "secretRef", "name"]),
  storageos: foreign(["Secret", "secretRef", "name"]),
  csi,
  ephemeral,
  image,
};

export type VolumeModels = typeof VOLUME_MODELS;

/** The table for those that do not care for the types of its fields. */
export const volumeModels: readonly (readonly [kind: string, model: VolumeModel])[] = Object.entries(VOLUME_MODELS);
