import { PicoletError } from "../../protocol/errors.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";
import { configError } from "./config-error.ts";

export interface FieldContext {
  readonly pod: DesiredPod;
  readonly nodeName: string;
  /** The node's addresses, the first is its main one. */
  readonly hostIPs: readonly string[];
  /** The pod's addresses: those of its sandbox, or the node's with `hostNetwork`. */
  readonly podIPs: readonly string[];
}

/** `metadata.labels['app']` */
const SUBSCRIPT = /^metadata\.(labels|annotations)\['(.*)'\]$/;

/**
 * What a `fieldRef` of an environment variable says (pkg/fieldpath and kubelet_pods.go of Kubernetes).
 * @throws PicoletError with the reason `CreateContainerConfigError`
 */
export function fieldValue(fieldPath: string, context: FieldContext): string {
  const { pod } = context;
  const { metadata, spec } = pod.pod;
  const [, map, key] = SUBSCRIPT.exec(fieldPath) ?? [];
  if (key !== undefined) {
    const texts = map === "labels" ? metadata.labels : metadata.annotations;
    return texts !== undefined && Object.hasOwn(texts, key) ? (texts[key] ?? "") : "";
  }
  switch (fieldPath) {
    case "metadata.name":
      return metadata.name;
    case "metadata.namespace":
      return metadata.namespace;
    case "metadata.uid":
      return pod.uid;
    case "spec.nodeName":
      return context.nodeName;
    case "spec.serviceAccountName":
      return spec.serviceAccountName ?? "";
    case "status.hostIP":
      return knownHostIPs(context)[0] ?? "";
    case "status.hostIPs":
      return knownHostIPs(context).join(",");
    case "status.podIP":
      return context.podIPs[0] ?? "";
    case "status.podIPs":
      return context.podIPs.join(",");
    default:
      throw configError(`field label not supported: ${fieldPath}`);
  }
}

function knownHostIPs({ hostIPs }: FieldContext): readonly string[] {
  if (hostIPs.length > 0) return hostIPs;
  throw new PicoletError("unavailable", "the node has no address yet that status.hostIP could name", {
    reason: "CreateContainerConfigError",
    retryable: true,
  });
}
