/** Several sources in one folder. `hub/core/pod-references.ts` has the objects that each kind of source names. */
import type { FieldProblems } from "../../kubernetes/field-problems.ts";
import {
  defaultedInt32,
  defaultedInt64,
  object,
  opaque,
  optional,
  optionalFlag,
  optionalInt32,
  optionalList,
  optionalText,
  type Parsed,
  requiredText,
} from "../fields/field-schemas.ts";
import { validateVolumeFile } from "../fields/path-validation.ts";
import { labelSelectorSchema } from "../fields/reference-schemas.ts";
import { applyDownwardDefaults, downwardFiles, validateDownwardFiles } from "./downward-api.ts";
import { keysToPaths, validateKeysToPaths } from "./keyed-files.ts";
import { DEFAULT_FILE_MODE, type VolumeRuleContext, validateMode, volumeModel } from "./volume-model.ts";

const keyed = optional(object({ name: requiredText, items: keysToPaths, optional: optionalFlag }));

const projection = object({
  secret: keyed,
  configMap: keyed,
  downwardAPI: optional(object({ items: downwardFiles })),
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
      /** A field of Kubernetes after 1.34. */
      userAnnotations: opaque,
    }),
  ),
});

type Projection = Parsed<typeof projection>;

const DEFAULT_TOKEN_SECONDS = 3600;
const MIN_TOKEN_SECONDS = 600;
const MAX_TOKEN_SECONDS = 2 ** 32;

const PROJECTIONS = [
  "secret",
  "configMap",
  "downwardAPI",
  "serviceAccountToken",
  "clusterTrustBundle",
  "podCertificate",
] as const satisfies readonly (keyof Projection)[];

export const projected = volumeModel({
  schema: optional(object({ sources: optionalList(projection), defaultMode: defaultedInt32 })),
  applyDefaults(source) {
    source.defaultMode ??= DEFAULT_FILE_MODE;
    for (const { downwardAPI, serviceAccountToken } of source.sources ?? []) {
      applyDownwardDefaults(downwardAPI?.items);
      if (serviceAccountToken !== undefined) serviceAccountToken.expirationSeconds ??= DEFAULT_TOKEN_SECONDS;
    }
  },
  validate({ defaultMode, sources = [] }, path, problems, context) {
    validateMode(defaultMode, `${path}.defaultMode`, problems);
    const files = new Set<string>();
    sources.forEach((source, index) => {
      validateProjection(source, `${path}.sources[${index}]`, problems, context);
      for (const file of filesOf(source)) {
        if (files.has(file)) problems.invalid(path, file, "conflicting duplicate paths");
        files.add(file);
      }
    });
  },
});

function validateProjection(
  source: Projection,
  path: string,
  problems: FieldProblems,
  context: VolumeRuleContext,
): void {
  if (PROJECTIONS.filter((kind) => source[kind] !== undefined).length > 1) {
    problems.forbidden(path, "may not specify more than 1 volume type per source");
  }
  for (const kind of ["secret", "configMap"] as const) {
    if (source[kind]?.name === "") problems.required(`${path}.${kind}.name`);
    validateKeysToPaths(source[kind]?.items, `${path}.${kind}.items`, problems);
  }
  validateDownwardFiles(source.downwardAPI?.items, `${path}.downwardAPI.items`, problems);
  if (source.serviceAccountToken) {
    validateToken(source.serviceAccountToken, `${path}.serviceAccountToken`, problems, context);
  }
}

function filesOf({ secret, configMap, downwardAPI, clusterTrustBundle }: Projection): string[] {
  const items = [...(secret?.items ?? []), ...(configMap?.items ?? []), ...(downwardAPI?.items ?? [])];
  return [...items.map((item) => item.path), clusterTrustBundle?.path ?? ""].filter((path) => path !== "");
}

function validateToken(
  { expirationSeconds, path: file }: NonNullable<Projection["serviceAccountToken"]>,
  path: string,
  problems: FieldProblems,
  { serviceAccountName = "" }: VolumeRuleContext,
): void {
  if (expirationSeconds < MIN_TOKEN_SECONDS) {
    problems.invalid(`${path}.expirationSeconds`, expirationSeconds, "may not specify a duration less than 10 minutes");
  }
  if (expirationSeconds > MAX_TOKEN_SECONDS) {
    const detail = "may not specify a duration larger than 2^32 seconds";
    problems.invalid(`${path}.expirationSeconds`, expirationSeconds, detail);
  }
  validateVolumeFile(file, `${path}.path`, problems);
  if (serviceAccountName === "") problems.forbidden(path, "must not be specified when serviceAccountName is not set");
}
