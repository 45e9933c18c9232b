import type { Container, EphemeralContainer } from "./pod.ts";

const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/**
 * Tells whether a running container was made from this spec: 8 hexadecimal digits, FNV-1a over the container's JSON
 * with sorted keys. Everything counts, fields unknown to us too, but `resources`, which change in place (KEP 1287).
 * It is kept on running containers across versions of picolet: a change of this function restarts every container.
 */
export function containerHash(container: Container | EphemeralContainer): string {
  const { resources: _, ...hashed } = container;
  let hash = FNV_OFFSET;
  for (const byte of new TextEncoder().encode(canonicalJson(hashed))) hash = Math.imul(hash ^ byte, FNV_PRIME);
  return (hash >>> 0).toString(16).padStart(8, "0");
}

/**
 * JSON with sorted keys; `undefined` fields are missing ones. As deep as `parsePod` or the tunnel lets an object be.
 */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const fields = Object.entries(value)
    .filter(([, field]) => field !== undefined)
    .sort(([left], [right]) => (left < right ? -1 : 1))
    .map(([key, field]) => `${JSON.stringify(key)}:${canonicalJson(field)}`);
  return `{${fields.join(",")}}`;
}
