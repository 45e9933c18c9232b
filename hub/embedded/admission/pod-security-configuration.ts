/**
 * How Pod Security is configured for the whole API server: Kubernetes' PodSecurityConfiguration, by itself or inside an
 * AdmissionConfiguration, as `kube-apiserver --admission-control-config-file` takes it. Local files are read strictly.
 */

import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { dnsLabelProblems, dnsSubdomainProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { parse } from "yaml";
import {
  INVALID_LEVEL,
  INVALID_VERSION,
  isLevel,
  isVersion,
  LATEST,
  type LevelVersion,
  MODES,
  type Mode,
  type Policy,
} from "./pod-security-standards.ts";
import type { CheckSettings } from "./pod-security-view.ts";

/** Users, RuntimeClasses and namespaces that are never checked. */
export interface PodSecurityExemptions {
  readonly usernames: readonly string[];
  readonly namespaces: readonly string[];
  readonly runtimeClasses: readonly string[];
}

export interface PodSecurityConfiguration extends CheckSettings {
  /** The policy of a namespace without labels. */
  readonly defaults: Policy;
  readonly exemptions: PodSecurityExemptions;
}

const PRIVILEGED: LevelVersion = { level: "privileged", version: LATEST };

/** As Kubernetes: what no label restricts is allowed, and nothing is exempt. */
export const DEFAULT_POD_SECURITY: PodSecurityConfiguration = {
  relaxesUserNamespaces: false,
  defaults: { enforce: PRIVILEGED, audit: PRIVILEGED, warn: PRIVILEGED },
  exemptions: { usernames: [], namespaces: [], runtimeClasses: [] },
};

const PLUGIN = "PodSecurity";
const ADMISSION_VERSIONS = ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1"];
const POD_SECURITY_VERSIONS = ["v1", "v1beta1", "v1alpha1"].map(
  (version) => `pod-security.admission.config.k8s.io/${version}`,
);
type Fields = Readonly<Record<string, unknown>>;

/**
 * @param readFile text of the file that an AdmissionConfiguration names in `path`
 * @throws `invalid` with every problem and its path
 */
export function parsePodSecurity(
  text: string,
  readFile: (path: string) => string,
): Pick<PodSecurityConfiguration, "defaults" | "exemptions"> {
  const reader = new ConfigurationReader(readFile);
  const configuration = reader.read(text);
  if (reader.problems.length === 0) return configuration;
  throw new PicoletError("invalid", `${reader.problems.join("; ")}`);
}

class ConfigurationReader {
  readonly problems: string[] = [];
  readonly #readFile: (path: string) => string;

  constructor(readFile: (path: string) => string) {
    this.#readFile = readFile;
  }

  read(text: string): Pick<PodSecurityConfiguration, "defaults" | "exemptions"> {
    const document = this.#fields(this.#parse(text), "the file");
    const inner = document.kind === "AdmissionConfiguration" ? this.#pluginOf(document) : document;
    if (inner === undefined) return DEFAULT_POD_SECURITY;
    this.#type(inner, "PodSecurityConfiguration", POD_SECURITY_VERSIONS);
    this.#onlyKnown(inner, "", ["apiVersion", "kind", "defaults", "exemptions"]);
    return { defaults: this.#defaults(inner.defaults), exemptions: this.#exemptions(inner.exemptions) };
  }

  #parse(text: string): unknown {
    try {
      return parse(text);
    } catch (error) {
      this.problems.push(describeError(error));
      return {};
    }
  }

  /** The configuration of this plugin; undefined when the file is about others alone. */
  #pluginOf(document: Fields): Fields | undefined {
    this.#type(document, "AdmissionConfiguration", ADMISSION_VERSIONS);
    this.#onlyKnown(document, "", ["apiVersion", "kind", "plugins"]);
    const plugins = Array.isArray(document.plugins) ? (document.plugins as readonly unknown[]) : [];
    const at = plugins.findIndex((each) => this.#fields(each, "plugins[]").name === PLUGIN);
    if (at < 0) return undefined;
    const path = `plugins[${at}]`;
    const plugin = this.#fields(plugins[at], path);
    this.#onlyKnown(plugin, `${path}.`, ["name", "path", "configuration"]);
    if (plugin.configuration !== undefined) return this.#fields(plugin.configuration, `${path}.configuration`);
    if (typeof plugin.path !== "string") {
      this.problems.push(`${path}: Required value: set configuration or path`);
      return undefined;
    }
    return this.#fields(this.#parse(this.#readFile(plugin.path)), plugin.path);
  }

  #defaults(value: unknown): Policy {
    const fields = this.#fields(value ?? {}, "defaults");
    this.#onlyKnown(fields, "defaults.", [...MODES, ...MODES.map((mode) => `${mode}-version`)]);
    const modeOf = (mode: Mode): LevelVersion => {
      const level = this.#text(fields[mode], `defaults.${mode}`, "privileged");
      const version = this.#text(fields[`${mode}-version`], `defaults.${mode}-version`, LATEST);
      if (!isVersion(version)) this.#invalid(`defaults.${mode}-version`, version, INVALID_VERSION);
      if (isLevel(level)) return { level, version };
      this.#invalid(`defaults.${mode}`, level, INVALID_LEVEL);
      return PRIVILEGED;
    };
    return { enforce: modeOf("enforce"), audit: modeOf("audit"), warn: modeOf("warn") };
  }

  #exemptions(value: unknown): PodSecurityExemptions {
    const fields = this.#fields(value ?? {}, "exemptions");
    this.#onlyKnown(fields, "exemptions.", ["usernames", "namespaces", "runtimeClasses"]);
    const noName = (name: string): string[] => (name === "" ? ["username must not be empty"] : []);
    return {
      usernames: this.#names(fields.usernames, "exemptions.usernames", noName),
      namespaces: this.#names(fields.namespaces, "exemptions.namespaces", dnsLabelProblems),
      runtimeClasses: this.#names(fields.runtimeClasses, "exemptions.runtimeClasses", dnsSubdomainProblems),
    };
  }

  #names(value: unknown, path: string, problemsOf: (name: string) => string[]): readonly string[] {
    const names = Array.isArray(value) ? value.map(String) : [];
    if (!Array.isArray(value ?? [])) this.problems.push(`${path}: Invalid value: must be a list`);
    for (const [index, name] of names.entries()) {
      const problems = problemsOf(name);
      if (problems.length > 0) this.#invalid(`${path}[${index}]`, name, problems.join(", "));
      else if (names.indexOf(name) < index) {
        this.problems.push(`${path}[${index}]: Duplicate value: ${JSON.stringify(name)}`);
      }
    }
    return names;
  }

  #text(value: unknown, path: string, byDefault: string): string {
    if (value === undefined || value === null || value === "") return byDefault;
    if (typeof value === "string") return value;
    this.#invalid(path, value, "must be a string");
    return byDefault;
  }

  #fields(value: unknown, path: string): Fields {
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Fields;
    this.problems.push(`${path}: Invalid value: must be an object`);
    return {};
  }

  #type({ apiVersion, kind }: Fields, expected: string, versions: readonly string[]): void {
    if (kind === expected && versions.includes(String(apiVersion))) return;
    const given = `${String(apiVersion)}, Kind=${String(kind)}`;
    this.problems.push(`there is no kind "${given}"; known are ${versions.join(", ")} with Kind=${expected}`);
  }

  #onlyKnown(fields: Fields, path: string, known: readonly string[]): void {
    for (const name of Object.keys(fields)) {
      if (!known.includes(name)) this.problems.push(`${path}${name}: unknown field; known are ${known.join(", ")}`);
    }
  }

  #invalid(path: string, value: unknown, detail: string): void {
    this.problems.push(`${path}: Invalid value: ${JSON.stringify(value)}: ${detail}`);
  }
}
