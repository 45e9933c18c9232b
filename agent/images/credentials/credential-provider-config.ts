/**
 * CredentialProviderConfig of kubelet.config.k8s.io: which programs give credentials for which images. Read strictly.
 */

import { PicoletError } from "@picolet/protocol/errors.ts";
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { FieldProblems, formatProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import { KUBERNETES_YAML } from "@picolet/protocol/kubernetes/kubernetes-yaml.ts";
import { childPath } from "@picolet/protocol/kubernetes/plain-data.ts";
import { schemaProblem } from "@picolet/protocol/kubernetes/schema-problems.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import { LineCounter, parseDocument } from "yaml";
import * as z from "zod/mini";

export interface CredentialProvider {
  /** The name of the program in the plugins' folder. */
  readonly name: string;
  readonly matchImages: readonly string[];
  readonly defaultCacheDuration: Millis;
  readonly apiVersion: string;
  readonly args: readonly string[];
  readonly env: readonly { readonly name: string; readonly value: string }[];
  readonly tokenAttributes: TokenAttributes | undefined;
}

export interface TokenAttributes {
  readonly serviceAccountTokenAudience: string;
  readonly cacheType: "Token" | "ServiceAccount";
  readonly requireServiceAccount: boolean;
}

const CONFIG_VERSIONS = ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
const V1 = "credentialprovider.kubelet.k8s.io/v1";
const PLUGIN_VERSIONS = [V1, `${V1}beta1`, `${V1}alpha1`];
const CACHE_TYPES = ["Token", "ServiceAccount"] as const;
/** Far more than real files have; a longer file is refused. */
const MAX_CHARACTERS = 262_144;

/** Made for each use, because the schema would stay in memory between two reads of the file. */
const makeSchema = () =>
  z.strictObject({
    apiVersion: z.enum(CONFIG_VERSIONS),
    kind: z.literal("CredentialProviderConfig"),
    providers: z.array(
      z.strictObject({
        name: z.string(),
        matchImages: z.optional(z.array(z.string())),
        defaultCacheDuration: z.optional(z.string()),
        apiVersion: z.optional(z.string()),
        args: z.optional(z.nullable(z.array(z.string()))),
        env: z.optional(z.nullable(z.array(z.strictObject({ name: z.string(), value: z.string() })))),
        tokenAttributes: z.optional(
          z.strictObject({
            serviceAccountTokenAudience: z.optional(z.string()),
            cacheType: z.optional(z.string()),
            requireServiceAccount: z.optional(z.boolean()),
            requiredServiceAccountAnnotationKeys: z.optional(z.array(z.string())),
            optionalServiceAccountAnnotationKeys: z.optional(z.array(z.string())),
          }),
        ),
      }),
    ),
  });

type ProviderInput = z.output<ReturnType<typeof makeSchema>>["providers"][number];

/**
 * @param files each with its text, in the order of their names
 * @throws `invalid` with everything that is wrong
 */
export function parseCredentialProviders(
  files: readonly { readonly path: string; readonly text: string }[],
): readonly CredentialProvider[] {
  const names = new Set<string>();
  return files.flatMap(({ path, text }) => {
    const problems = new FieldProblems();
    const providers = readFile(text, problems);
    const checked = providers.flatMap((provider, index) =>
      checkProvider(provider, `providers[${index}]`, names, problems),
    );
    if (problems.found.length === 0) return checked;
    throw new PicoletError("invalid", `cannot use ${path}: ${formatProblems(problems.found)}`);
  });
}

function readFile(text: string, problems: FieldProblems): readonly ProviderInput[] {
  if (text.length > MAX_CHARACTERS) {
    problems.add("", `Too long: may not be more than ${MAX_CHARACTERS} characters`);
    return [];
  }
  const document = parseDocument(text, { ...KUBERNETES_YAML, lineCounter: new LineCounter() });
  for (const { message } of document.errors) problems.add("", message);
  if (document.errors.length > 0) return [];
  const result = z.safeParse(makeSchema(), plainOf(document, problems), { jitless: true, reportInput: true });
  if (result.success) {
    if (result.data.providers.length === 0) problems.required("providers", "at least 1 item in plugins is required");
    return result.data.providers;
  }
  for (const issue of result.error.issues) {
    const { path, message } = schemaProblem(issue);
    if (issue.code !== "unrecognized_keys") problems.add(path, message);
    else for (const key of issue.keys) problems.add(childPath(path, key), "Unknown field");
  }
  return [];
}

function plainOf(document: ReturnType<typeof parseDocument>, problems: FieldProblems): unknown {
  try {
    return document.toJS();
  } catch {
    problems.add("", "aliases that multiply, or name nothing");
    return undefined;
  }
}

function checkProvider(
  provider: ProviderInput,
  path: string,
  names: Set<string>,
  problems: FieldProblems,
): CredentialProvider[] {
  const { name, matchImages = [], apiVersion = "", args, env } = provider;
  if (name === "" || /[/ ]/.test(name) || name === "." || name === "..") {
    problems.invalid(`${path}.name`, name, "must be the name of a file: without '/' and spaces, not '.' or '..'");
  }
  if (names.has(name)) problems.add(`${path}.name`, `Duplicate value: ${JSON.stringify(name)}`);
  names.add(name);
  if (apiVersion === "") problems.required(`${path}.apiVersion`);
  else if (!PLUGIN_VERSIONS.includes(apiVersion))
    problems.unsupported(`${path}.apiVersion`, apiVersion, PLUGIN_VERSIONS);
  if (matchImages.length === 0) problems.required(`${path}.matchImages`, "at least 1 item in matchImages is required");
  const durationPath = `${path}.defaultCacheDuration`;
  if (provider.defaultCacheDuration === undefined) problems.required(durationPath);
  const duration = parseDuration(provider.defaultCacheDuration ?? "0");
  if (duration === undefined) problems.invalid(durationPath, provider.defaultCacheDuration, "must be a duration");
  else if (duration < 0)
    problems.invalid(durationPath, provider.defaultCacheDuration, "must be greater than or equal to 0");
  const tokenAttributes = checkToken(provider, `${path}.tokenAttributes`, problems);
  if (duration === undefined) return [];
  const plain = { name, matchImages, apiVersion, args: args ?? [], env: env ?? [] };
  return [{ ...plain, defaultCacheDuration: duration, tokenAttributes }];
}

function checkToken(
  { tokenAttributes: given, apiVersion }: ProviderInput,
  path: string,
  problems: FieldProblems,
): TokenAttributes | undefined {
  if (given === undefined) return undefined;
  const { serviceAccountTokenAudience = "", requireServiceAccount, cacheType = "" } = given;
  if (serviceAccountTokenAudience === "") problems.required(`${path}.serviceAccountTokenAudience`);
  if (requireServiceAccount === undefined) problems.required(`${path}.requireServiceAccount`);
  if (apiVersion !== V1) problems.forbidden(path, `tokenAttributes is only supported for ${V1} API version`);
  const type = CACHE_TYPES.find((each) => each === cacheType);
  if (cacheType === "") problems.required(`${path}.cacheType`, `one of ${CACHE_TYPES.join(", ")}`);
  else if (type === undefined) problems.unsupported(`${path}.cacheType`, cacheType, CACHE_TYPES);
  for (const field of ["requiredServiceAccountAnnotationKeys", "optionalServiceAccountAnnotationKeys"] as const) {
    // Service accounts are no objects that a node is sent.
    if ((given[field] ?? []).length > 0) problems.forbidden(`${path}.${field}`, "is not supported by picolet");
  }
  if (type === undefined) return undefined;
  return { serviceAccountTokenAudience, cacheType: type, requireServiceAccount: requireServiceAccount ?? true };
}
