/** ConfigMaps and Secrets as what a container sees of them: bytes by key. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { objectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";

export type KeyedData = ReadonlyMap<string, Buffer>;
export type KeyedKind = "ConfigMap" | "Secret";

/**
 * Undefined: the node was not given it, or there is none. Values that are not what they should be count as missing.
 * @param only `texts`: a ConfigMap's `binaryData` is left out: no variable has it
 */
export function keyedData(
  objects: Pick<ClusterObjects, "object">,
  kind: KeyedKind,
  namespace: string,
  name: string,
  only: "texts" | "all" = "all",
): KeyedData | undefined {
  const object = objects.object(objectKey(kind, namespace, name));
  if (object === undefined) return undefined;
  const data = new Map<string, Buffer>();
  const add = (texts: unknown, encoding: BufferEncoding): void => {
    if (typeof texts !== "object" || texts === null) return;
    for (const [key, text] of Object.entries(texts)) {
      if (typeof text === "string") data.set(key, Buffer.from(text, encoding));
    }
  };
  add(object.data, kind === "Secret" ? "base64" : "utf8");
  if (kind === "ConfigMap" && only === "all") add(object.binaryData, "base64");
  return data;
}

/** @returns the kubelet's error. It is retryable, because the object may be made later. */
export const objectNotFound = (kind: KeyedKind, name: string): PicoletError =>
  new PicoletError("not_found", `${kind.toLowerCase()} ${JSON.stringify(name)} not found`, { retryable: true });
