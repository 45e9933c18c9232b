import type { FieldProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type { Configuration } from "./configuration-defaults.ts";

export function validateImageCredentials(configuration: Configuration, problems: FieldProblems): void {
  const { preloadedImagesVerificationAllowlist: allowlist, imagePullCredentialsVerificationPolicy: policy } =
    configuration;
  const path = "preloadedImagesVerificationAllowlist";
  if (allowlist.length > 0 && policy !== "NeverVerifyAllowlistedImages") {
    problems.forbidden(
      path,
      "may be set only if imagePullCredentialsVerificationPolicy is NeverVerifyAllowlistedImages",
    );
  }
  allowlist.forEach((pattern, index) => {
    const problem = allowlistProblem(pattern);
    if (problem !== undefined) problems.invalid(`${path}[${index}]`, pattern, problem);
  });
  const fields = ["imageCredentialProviderConfig", "imageCredentialProviderBinDir"] as const;
  for (const [index, field] of fields.entries()) {
    const other = fields[1 - index] ?? field;
    const place = configuration[field];
    if (place === "" && configuration[other] !== "") problems.required(field, `${other} is set`);
    if (place !== "" && !place.startsWith("/")) problems.invalid(field, place, "must be an absolute path");
  }
}

const MAX_SIGNATURE_RULES = 64;
const MAX_KEYS = 16;

/** Keys in files are read when the agent starts. */
export function validateImageSignatures({ imageSignatures }: Configuration, problems: FieldProblems): void {
  const path = "imageSignatures";
  if (imageSignatures.length > MAX_SIGNATURE_RULES) problems.tooMany(path, imageSignatures.length, MAX_SIGNATURE_RULES);
  const repositories = imageSignatures.map(({ repository }) => repository);
  imageSignatures.forEach(({ repository, require = "signature", keys = [], keyFiles = [] }, index) => {
    const at = `${path}[${index}]`;
    const problem = repository === "*" ? undefined : allowlistProblem(repository);
    if (problem !== undefined) problems.invalid(`${at}.repository`, repository, problem);
    else if (repositories.indexOf(repository) < index) problems.duplicate(`${at}.repository`, repository);
    const count = keys.length + keyFiles.length;
    if (require === "signature" && count === 0) problems.required(`${at}.keys`, "or keyFiles: whose signature counts");
    if (require !== "signature" && count > 0)
      problems.forbidden(`${at}.keys`, `may not be specified with require: ${require}`);
    if (count > MAX_KEYS) problems.tooMany(`${at}.keys`, count, MAX_KEYS);
    keys.forEach((key, number) => {
      if (!/^-----BEGIN PUBLIC KEY-----\n/.test(key)) {
        problems.invalid(
          `${at}.keys[${number}]`,
          key.slice(0, 40),
          'must be a public key in PEM ("-----BEGIN PUBLIC KEY-----")',
        );
      }
    });
    keyFiles.forEach((file, number) => {
      if (!file.startsWith("/")) problems.invalid(`${at}.keyFiles[${number}]`, file, "must be an absolute path");
    });
  });
}

/** An image's name without tag and digest, or such names' beginning and `/*`. */
function allowlistProblem(pattern: string): string | undefined {
  if (pattern !== pattern.trim()) return "leading/trailing spaces are not allowed";
  const isWildcard = pattern.endsWith("/*");
  const name = isWildcard ? pattern.slice(0, -1) : pattern;
  if (name.includes("*")) return "not a valid wildcard pattern, only patterns ending with '/*' are allowed";
  if (isWildcard) return name === "/" ? "at least registry hostname is required" : undefined;
  const parsed = parseImageReference(name);
  if (!parsed.ok) return `failed to parse as an image name: ${parsed.problem}`;
  const { reference } = parsed;
  const isName = reference.kind === "registry" && `${reference.domain}/${reference.repository}` === name;
  return isName
    ? undefined
    : "must be a full name with its registry: neither tag nor digest is accepted in an image reference";
}
