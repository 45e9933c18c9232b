/**
 * Image references as pods name them. Registry references follow the grammar of github.com/distribution/reference and
 * Docker's rules for what may be left out; `file:///path/to/component.wasm` is a component on this node's disk.
 */
export type ImageReference = RegistryReference | FileReference;

export interface RegistryReference {
  readonly kind: "registry";
  /** The domain with its port: `docker.io`, `localhost:5000`, `[::1]:5000`. */
  readonly domain: string;
  /** `library/busybox` */
  readonly repository: string;
  /** `latest` when there is neither tag nor digest; undefined when there is a digest alone. */
  readonly tag: string | undefined;
  /** `sha256:…` */
  readonly digest: string | undefined;
  /** All parts: `docker.io/library/busybox:latest`. Equal texts are the same image. */
  readonly canonical: string;
}

export interface FileReference {
  readonly kind: "file";
  /** Absolute. */
  readonly path: string;
  /** `file://` and the path. */
  readonly canonical: string;
}

export type ImageReferenceResult =
  | { readonly ok: true; readonly reference: ImageReference }
  | { readonly ok: false; readonly problem: string };

const DEFAULT_DOMAIN = "docker.io";
const LEGACY_DOMAIN = "index.docker.io";
const OFFICIAL_PREFIX = "library/";
/** Bounds domain and repository together, as distribution/reference does. */
const MAX_NAME_LENGTH = 255;
/** A name, a tag of 128, a sha512 digest of 135 and the signs between them; anything longer is none. */
const MAX_REFERENCE_LENGTH = 1024;
/** Linux' PATH_MAX. */
const MAX_PATH_LENGTH = 4096;

const DOMAIN_LABEL = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
const DOMAIN = new RegExp(`^(?:${DOMAIN_LABEL}(?:\\.${DOMAIN_LABEL})*|\\[[a-fA-F0-9:]+\\])(?::[0-9]+)?$`);
const PATH_COMPONENT = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/;
const TAG = /^\w[\w.-]{0,127}$/;
const DIGEST = /^[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}$/;
/** Digests whose length is known. */
const DIGEST_HEX_LENGTHS: Readonly<Record<string, number>> = { sha256: 64, sha384: 96, sha512: 128 };
const FILE_SCHEME = "file://";

const invalid = (problem: string): ImageReferenceResult => ({ ok: false, problem });

/** Never throws. */
export function parseImageReference(text: string): ImageReferenceResult {
  if (text === "") return invalid("invalid reference format: it is empty");
  if (text.startsWith(FILE_SCHEME)) return parseFile(text);
  if (text.length > MAX_REFERENCE_LENGTH) {
    return invalid(`invalid reference format: more than ${MAX_REFERENCE_LENGTH} characters`);
  }
  if (text.includes("://"))
    return invalid("invalid reference format: a reference has no scheme (only file:// is known)");
  if (/^[a-f0-9]{64}$/.test(text)) {
    return invalid("invalid repository name: 64 hexadecimal digits are an image ID, not a name");
  }
  const { name, tag, digest } = splitReference(text);
  if (digest !== undefined) {
    const problem = digestProblem(digest);
    if (problem !== undefined) return invalid(problem);
  }
  if (tag !== undefined && !TAG.test(tag)) return invalid(`invalid tag format: ${JSON.stringify(tag)}`);
  const { domain, repository } = splitName(name);
  const problem = nameProblem(domain, repository);
  if (problem !== undefined) return invalid(problem);
  const actualTag = tag ?? (digest === undefined ? "latest" : undefined);
  const canonical = `${domain}/${repository}${actualTag === undefined ? "" : `:${actualTag}`}${digest === undefined ? "" : `@${digest}`}`;
  return { ok: true, reference: { kind: "registry", domain, repository, tag: actualTag, digest, canonical } };
}

function splitReference(text: string): { name: string; tag: string | undefined; digest: string | undefined } {
  const at = text.indexOf("@");
  const beforeDigest = at < 0 ? text : text.slice(0, at);
  const digest = at < 0 ? undefined : text.slice(at + 1);
  const colon = beforeDigest.lastIndexOf(":");
  // A colon before the last slash belongs to the domain's port.
  if (colon <= beforeDigest.lastIndexOf("/")) return { name: beforeDigest, tag: undefined, digest };
  return { name: beforeDigest.slice(0, colon), tag: beforeDigest.slice(colon + 1), digest };
}

function splitName(name: string): { domain: string; repository: string } {
  const slash = name.indexOf("/");
  const first = name.slice(0, Math.max(slash, 0));
  const hasDomain = slash > 0 && (/[.:]/.test(first) || first === "localhost" || first !== first.toLowerCase());
  const domain = !hasDomain || first === LEGACY_DOMAIN ? DEFAULT_DOMAIN : first;
  const rest = hasDomain ? name.slice(slash + 1) : name;
  return { domain, repository: domain === DEFAULT_DOMAIN && !rest.includes("/") ? OFFICIAL_PREFIX + rest : rest };
}

function nameProblem(domain: string, repository: string): string | undefined {
  if (domain.length + 1 + repository.length > MAX_NAME_LENGTH) {
    return `repository name must not be more than ${MAX_NAME_LENGTH} characters`;
  }
  if (repository !== repository.toLowerCase()) {
    return `invalid reference format: repository name (${repository}) must be lowercase`;
  }
  if (!DOMAIN.test(domain)) return `invalid reference format: bad registry name ${JSON.stringify(domain)}`;
  if (!repository.split("/").every((component) => PATH_COMPONENT.test(component))) {
    return `invalid reference format: bad repository name ${JSON.stringify(repository)}`;
  }
  return undefined;
}

function digestProblem(digest: string): string | undefined {
  if (!DIGEST.test(digest)) return `invalid checksum digest format: ${JSON.stringify(digest)}`;
  const [algorithm = "", hex = ""] = digest.split(":");
  const length = Object.hasOwn(DIGEST_HEX_LENGTHS, algorithm) ? DIGEST_HEX_LENGTHS[algorithm] : undefined;
  if (length === undefined) return `unsupported digest algorithm ${JSON.stringify(algorithm)}`;
  if (hex.length !== length) return `invalid checksum digest length: ${algorithm} has ${length} hexadecimal digits`;
  if (hex !== hex.toLowerCase()) return `invalid checksum digest format: ${JSON.stringify(digest)}`;
  return undefined;
}

/** `file:///srv/app.wasm`; percent signs stand for themselves, as in a path typed at a shell. */
function parseFile(text: string): ImageReferenceResult {
  const path = text.slice(FILE_SCHEME.length);
  if (!path.startsWith("/"))
    return invalid("invalid file reference: three slashes and an absolute path, file:///srv/app.wasm");
  if (path.length > MAX_PATH_LENGTH)
    return invalid(`invalid file reference: the path has more than ${MAX_PATH_LENGTH} characters`);
  if (path.includes("\0")) return invalid("invalid file reference: the path holds a NUL character");
  if (!path.endsWith(".wasm")) return invalid("invalid file reference: the path must end in .wasm");
  if (path.split("/").includes("..")) return invalid("invalid file reference: the path must not contain '..'");
  return { ok: true, reference: { kind: "file", path, canonical: FILE_SCHEME + path } };
}
