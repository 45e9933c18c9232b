import { PicoletError } from "@picolet/protocol/errors.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podIpsInOrder } from "../../core/pods/pod-ips.ts";
import { configError } from "./config-error.ts";

export interface FieldContext {
  readonly pod: DesiredPod;
  readonly nodeName: string;
  /** The node's addresses, the first is its main one. */
  readonly hostIPs: readonly string[];
  /** The pod's addresses: those of its sandbox, or the node's with `hostNetwork`. */
  readonly podIPs: readonly string[];
}

/** The values for files of a downwardAPI volume: none that is known only when the pod runs. */
export type VolumeFieldContext = Pick<FieldContext, "pod">;

/** `metadata.labels['app']` */
const SUBSCRIPT = /^metadata\.(labels|annotations)\['(.*)'\]$/;

/**
 * Reads the value of an environment variable's `fieldRef`.
 * @throws PicoletError with the reason `CreateContainerConfigError`
 */
export function fieldValue(fieldPath: string, context: FieldContext): string {
  const { spec } = context.pod.pod;
  const ofMetadata = metadataValue(fieldPath, context);
  if (ofMetadata !== undefined) return ofMetadata;
  switch (fieldPath) {
    case "spec.nodeName":
      return context.nodeName;
    case "spec.serviceAccountName":
      return spec.serviceAccountName ?? "";
    case "status.hostIP":
      return knownHostIPs(context)[0] ?? "";
    case "status.hostIPs":
      return knownHostIPs(context).join(",");
    case "status.podIP":
      return podIpsInOrder(context.podIPs, context.hostIPs)[0] ?? "";
    case "status.podIPs":
      return podIpsInOrder(context.podIPs, context.hostIPs).join(",");
    default:
      throw configError(`field label not supported: ${fieldPath}`);
  }
}

/**
 * Reads the value of the `fieldRef` of a file in a downwardAPI volume: as in the environment, and whole maps, a line
 * for each key.
 * @throws PicoletError `invalid` for a field that no file can have
 */
export function volumeFieldValue(fieldPath: string, context: VolumeFieldContext): string {
  const { labels, annotations } = context.pod.pod.metadata;
  if (fieldPath === "metadata.labels") return formatTexts(labels ?? {});
  if (fieldPath === "metadata.annotations") return formatTexts(annotations ?? {});
  const value = metadataValue(fieldPath, context);
  if (value !== undefined) return value;
  throw new PicoletError("invalid", `unsupported fieldPath: ${fieldPath}`);
}

/** @returns undefined when `fieldPath` is no field of the metadata with a single text */
function metadataValue(fieldPath: string, { pod }: VolumeFieldContext): string | undefined {
  const { metadata } = pod.pod;
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
      return metadata.uid ?? pod.uid;
    default:
      return undefined;
  }
}

/** `key="value"` in the order of the keys, values quoted as Go quotes them. */
function formatTexts(texts: Readonly<Record<string, string>>): string {
  const keys = Object.keys(texts).sort();
  return keys.map((key) => `${key}=${goQuoted(texts[key] ?? "")}`).join("\n");
}

const GO_ESCAPES: ReadonlyMap<string, string> = new Map([
  ["\u0007", "\\a"],
  ["\b", "\\b"],
  ["\f", "\\f"],
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"],
  ["\v", "\\v"],
  ['"', '\\"'],
  ["\\", "\\\\"],
]);

/** strconv.Quote of Go, for text: control characters by their short escape, else by number. */
function goQuoted(text: string): string {
  const escaped = text.replace(/["\\\p{Cc}]/gu, (character) => {
    const known = GO_ESCAPES.get(character);
    if (known !== undefined) return known;
    const code = character.charCodeAt(0).toString(16);
    return code.length <= 2 && character < "\u0080" ? `\\x${code.padStart(2, "0")}` : `\\u${code.padStart(4, "0")}`;
  });
  return `"${escaped}"`;
}

function knownHostIPs({ hostIPs }: FieldContext): readonly string[] {
  if (hostIPs.length > 0) return hostIPs;
  throw new PicoletError("unavailable", "the node has no address yet that status.hostIP could name", {
    reason: "CreateContainerConfigError",
    retryable: true,
  });
}
