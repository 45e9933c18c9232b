import type { FieldProblems } from "../../protocol/field-problems.ts";
import { parseImageReference } from "../../protocol/image-reference.ts";
import type { Configuration } from "./configuration.ts";

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
