/**
 * Tokens of its service account that a pod asks for by its volumes: in projections, and for the drivers of its CSI
 * volumes.
 */
import { TOKEN_SECONDS } from "@picolet/hub-core/access-table.ts";
import { podReferences } from "@picolet/hub-core/pod-references.ts";
import { fieldAt, listAt, textAt } from "../api/object-fields.ts";
import type { ApiObject, ObjectLookup } from "../api/resource-definition.ts";

export interface TokenSource {
  /** "" for the API's own. */
  readonly audience: string;
  readonly expirationSeconds: number;
}

export function tokenSourcesOf(pod: ApiObject, lookup: ObjectLookup): readonly TokenSource[] {
  const projections = listAt(pod, "spec", "volumes")
    .flatMap((volume) => listAt(volume, "projected", "sources"))
    .map((source) => fieldAt(source, "serviceAccountToken"));
  const requests = driversOf(pod, lookup).flatMap((name) =>
    listAt(lookup.get("csidrivers.storage.k8s.io", "", name), "spec", "tokenRequests"),
  );
  return [...projections, ...requests]
    .filter((each) => each !== undefined && each !== null)
    .map((each) => {
      const seconds = fieldAt(each, "expirationSeconds");
      const expirationSeconds = typeof seconds === "number" ? seconds : TOKEN_SECONDS.default;
      return { audience: textAt(each, "audience"), expirationSeconds };
    });
}

/** Drivers of the pod's own CSI volumes, and of the volumes that its claims are bound to. */
function driversOf(pod: ApiObject, lookup: ObjectLookup): readonly string[] {
  return podReferences(pod).flatMap(({ kind, name }) => {
    if (kind === "CSIDriver") return [name];
    if (kind !== "PersistentVolumeClaim") return [];
    const claim = lookup.get("persistentvolumeclaims", pod.metadata.namespace ?? "", name);
    const volume = lookup.get("persistentvolumes", "", textAt(claim, "spec", "volumeName"));
    return [textAt(volume, "spec", "csi", "driver")].filter((driver) => driver !== "");
  });
}
