/**
 * Registry credentials as Docker writes them down: `config.json` (with `auths`) and the older `.dockercfg` (without).
 * What is in a file is secret: no message repeats any of it.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { ImageCredentials } from "@picolet/runtime-contract/runtime-adapter.ts";

export interface DockerConfigEntry {
  /** As written: `registry.example`, `https://registry.example/v1/`, `*.registry.example:5000/team`. */
  readonly location: string;
  readonly credentials: ImageCredentials;
}

export type DockerConfigFormat = "config.json" | ".dockercfg";

/** Kubernetes' own limit for a Secret, and far more than a file of credentials has. */
export const MAX_DOCKER_CONFIG_BYTES = MEBIBYTE;
/** Bounds the entries, a registry each, because each pull searches all. A larger file is refused. */
const MAX_ENTRIES = 1024;

/** @throws `invalid` with the problem, without the content */
export function parseDockerConfig(text: string, format: DockerConfigFormat): readonly DockerConfigEntry[] {
  if (text.length > MAX_DOCKER_CONFIG_BYTES) throw invalid(`it is larger than ${MAX_DOCKER_CONFIG_BYTES} bytes`);
  const document = parseJson(text);
  if (!isFields(document)) throw invalid("it is no JSON object");
  const auths = format === "config.json" ? (document.auths ?? {}) : document;
  if (!isFields(auths)) throw invalid("auths is no JSON object");
  const entries = Object.entries(auths);
  if (entries.length > MAX_ENTRIES) throw invalid(`it has more than ${MAX_ENTRIES} registries`);
  return entries.map(([location, entry], index) => ({ location, credentials: credentialsOf(entry, index) }));
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's own words quote what is in it.
    throw invalid("it is not JSON");
  }
}

function credentialsOf(entry: unknown, index: number): ImageCredentials {
  // As Go reads it: null leaves everything empty.
  if (entry === null) return { username: "", password: "", serverAddress: "" };
  if (!isFields(entry)) throw invalid(`entry ${index + 1} is no JSON object`);
  const text = (field: string): string => {
    const value = entry[field] ?? "";
    if (typeof value !== "string") throw invalid(`${field} of entry ${index + 1} is no text`);
    return value;
  };
  const plain = { username: text("username"), password: text("password") };
  const auth = text("auth");
  const [identityToken, registryToken] = [text("identitytoken"), text("registrytoken")];
  return {
    ...(auth === "" ? plain : decodeAuth(auth, index)),
    // The runtime gives them to whichever host of the image's registry asks, mirrors included, as under the kubelet.
    serverAddress: "",
    ...(identityToken === "" ? {} : { identityToken }),
    ...(registryToken === "" ? {} : { registryToken }),
  };
}

/** base64 of `user:password`, padded or not. */
function decodeAuth(auth: string, index: number): { readonly username: string; readonly password: string } {
  const bare = auth.trim().replace(/=+$/, "");
  if (!/^[A-Za-z0-9+/]*$/.test(bare) || bare.length % 4 === 1)
    throw invalid(`auth of entry ${index + 1} is not base64`);
  const decoded = Buffer.from(bare, "base64").toString("utf8");
  const colon = decoded.indexOf(":");
  if (colon < 0) throw invalid(`auth of entry ${index + 1} is not base64 of user:password`);
  return { username: decoded.slice(0, colon), password: decoded.slice(colon + 1) };
}

const invalid = (why: string): PicoletError =>
  new PicoletError("invalid", `cannot read the registry credentials: ${why}`);

const isFields = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
