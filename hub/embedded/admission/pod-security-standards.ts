/**
 * Kubernetes' Pod Security Standards: levels, versions, what a namespace's labels ask for, and which checks a level has
 * in a version. Pure.
 */
import { KUBERNETES_VERSION } from "@picolet/protocol/version.ts";
import { type FieldError, invalidValue } from "../api/field-errors.ts";
import { baselineChecks } from "./baseline-checks.ts";
import type { CheckSettings, Evaluate, PodSecurityCheck, PodView, Violation } from "./pod-security-view.ts";
import { restrictedChecks } from "./restricted-checks.ts";

export const LEVELS = ["privileged", "baseline", "restricted"] as const;
export type Level = (typeof LEVELS)[number];
export const MODES = ["enforce", "audit", "warn"] as const;
export type Mode = (typeof MODES)[number];

/** A level in a version, as namespaces name them: `baseline` and `latest` or `v1.34`. */
export interface LevelVersion {
  readonly level: Level;
  readonly version: string;
}

export type Policy = Readonly<Record<Mode, LevelVersion>>;

export type Labels = Readonly<Record<string, string>>;

export const LABEL_PREFIX = "pod-security.kubernetes.io/";
export const LATEST = "latest";
/** The version whose checks `latest` and every later version use. */
export const LATEST_MINOR = Number(KUBERNETES_VERSION.split(".")[1]);

const VERSION = /^v1\.(0|[1-9]\d*)$/;
/** Kubernetes reads the number into 64 bits. */
const MAX_MINOR = 2n ** 63n - 1n;

const CHECKS: readonly PodSecurityCheck[] = [...byId(baselineChecks), ...byId(restrictedChecks)];

/** Prefixes of the annotations that some check judges. */
export const JUDGED_ANNOTATION_PREFIXES: readonly string[] = CHECKS.flatMap(({ annotations = [] }) => annotations);

/** Messages name violations in this order. */
function byId(checks: readonly PodSecurityCheck[]): readonly PodSecurityCheck[] {
  return [...checks].sort((a, b) => (a.id < b.id ? -1 : 1));
}

export const levelText = ({ level, version }: LevelVersion): string => `${level}:${version}`;

export const isSamePolicy = (a: LevelVersion, b: LevelVersion): boolean =>
  a.level === b.level && a.version === b.version;

/** @returns below 0 when `a` is less strict than `b` */
export const compareLevels = (a: Level, b: Level): number => LEVELS.indexOf(a) - LEVELS.indexOf(b);

export const isPrivileged = (policy: Policy): boolean => MODES.every((mode) => policy[mode].level === "privileged");

export const isLevel = (text: string): text is Level => (LEVELS as readonly string[]).includes(text);

export function isVersion(text: string): boolean {
  const minor = VERSION.exec(text)?.[1];
  return text === LATEST || (minor !== undefined && BigInt(minor) <= MAX_MINOR);
}

export const INVALID_LEVEL = `must be one of ${LEVELS.join(", ")}`;
export const INVALID_VERSION = 'must be "latest" or "v1.x"';

/**
 * The policy of a namespace's labels. Labels that cannot be read enforce `restricted` in the version `latest`, and
 * neither warn nor audit.
 */
export function policyOf(
  labels: Labels | undefined,
  defaults: Policy,
): { readonly policy: Policy; readonly errors: readonly FieldError[] } {
  if (labels === undefined) return { policy: defaults, errors: [] };
  const errors: FieldError[] = [];
  const read = (name: string, isValid: (text: string) => boolean, detail: string): string | undefined => {
    const text = labels[LABEL_PREFIX + name];
    if (text === undefined) return undefined;
    if (isValid(text)) return text;
    errors.push(invalidValue(`metadata.labels[${LABEL_PREFIX}${name}]`, text, detail));
    return "";
  };
  const modeOf = (mode: Mode): LevelVersion => {
    const level = read(mode, isLevel, INVALID_LEVEL);
    const version = read(`${mode}-version`, isVersion, INVALID_VERSION);
    const unreadable: Level = mode === "enforce" ? "restricted" : "privileged";
    return {
      level: level === undefined ? defaults[mode].level : isLevel(level) ? level : unreadable,
      version: version === undefined ? defaults[mode].version : version || LATEST,
    };
  };
  const enforce = modeOf("enforce");
  const audit = modeOf("audit");
  let warn = modeOf("warn");
  // A namespace that enforces more than it warns of by default warns of that too: workloads are not enforced.
  const isEnforced = isLevel(labels[`${LABEL_PREFIX}enforce`] ?? "");
  const isWarned = labels[`${LABEL_PREFIX}warn`] !== undefined;
  if (!isWarned && isEnforced && compareLevels(enforce.level, warn.level) > 0) {
    const hasVersion = labels[`${LABEL_PREFIX}warn-version`] !== undefined;
    warn = { level: enforce.level, version: hasVersion ? warn.version : enforce.version };
  }
  return { policy: { enforce, audit, warn }, errors };
}

/** The minor version whose checks `version` uses; later ones use those of the last known version. */
const minorOf = (version: string): number => Math.min(Number(VERSION.exec(version)?.[1] ?? LATEST_MINOR), LATEST_MINOR);

/** The checks that `level` has in a version, in the order of messages. */
function checksOf(level: Level, minor: number): readonly Evaluate[] {
  if (level === "privileged") return [];
  const current = CHECKS.filter((check) => check.level === "baseline" || level === "restricted").flatMap((check) => {
    const revision = check.revisions.findLast(({ since }) => since <= minor);
    return revision === undefined ? [] : [{ id: check.id, ...revision }];
  });
  const replaced = new Set(current.flatMap(({ replaces = [] }) => replaces));
  return current.filter(({ id }) => !replaced.has(id)).map(({ evaluate }) => evaluate);
}

/** Everything in which a pod violates a level. The checks of each level and version are picked once. */
export class PodSecurityEvaluator {
  readonly #settings: CheckSettings;
  /** At most two levels of LATEST_MINOR + 1 versions. */
  readonly #checks = new Map<string, readonly Evaluate[]>();

  constructor(settings: CheckSettings) {
    this.#settings = settings;
  }

  evaluate(pod: PodView, { level, version }: LevelVersion): readonly Violation[] {
    if (level === "privileged") return [];
    const minor = minorOf(version);
    const key = `${level}:${minor}`;
    const checks = this.#checks.get(key) ?? checksOf(level, minor);
    this.#checks.set(key, checks);
    return checks.flatMap((evaluate) => evaluate(pod, this.#settings) ?? []);
  }
}

/** `host namespaces (hostPID=true), privileged (container "a" must not …)`. */
export const describeViolations = (violations: readonly Violation[]): string =>
  violations.map(({ reason, detail }) => (detail === "" ? reason : `${reason} (${detail})`)).join(", ");
