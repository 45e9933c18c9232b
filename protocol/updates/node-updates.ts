/**
 * Updates of a board by annotations of its Node. An operator, or `picolet-hub rollout`, writes what is to run. A board
 * receives its own Node with its desired set, carries the update out by itself, and reports in one annotation. Pure.
 */
import { parseDuration } from "../kubernetes/duration.ts";
import { parseImageReference } from "../kubernetes/image-reference.ts";
import { parseQuantity, quantityValue } from "../kubernetes/quantity.ts";
import { parseWindow, type UpdateWindow } from "./update-window.ts";

/** OCI reference of the system's bundle (artifact type OS_ARTIFACT_TYPE): the whole system, into the other slot. */
export const OS_IMAGE_ANNOTATION = "picolet.io/os-image";
/** OCI reference of the agent's signed package (PACKAGE_ARTIFACT_TYPE), for boards with their vendor's system. */
export const AGENT_PACKAGE_ANNOTATION = "picolet.io/agent-package";
/** YAML: fields of the configuration that replace those of the board's file, at most MAX_CONFIGURATION_LENGTH. */
export const CONFIGURATION_ANNOTATION = "picolet.io/configuration";
/** When a board may restart for an update, `02:00-05:00` in its own time zone; absent: at any time. */
export const WINDOW_ANNOTATION = "picolet.io/update-window";
/** Bytes a second that an update may fetch, as a quantity: `256Ki`. Absent: the board's configuration. */
export const BANDWIDTH_ANNOTATION = "picolet.io/update-bandwidth";
/** Duration in which the new version must be healthy: `10m`. */
export const HEALTH_DEADLINE_ANNOTATION = "picolet.io/update-health-deadline";
/** "true": a version that is older than the one that runs may be installed. */
export const DOWNGRADE_ANNOTATION = "picolet.io/update-allow-downgrade";
/** On a pod: while it runs, no update restarts the system or the agent. Its value is the reason that is shown. */
export const UPDATE_HOLD_ANNOTATION = "picolet.io/update-hold";
/** JSON of `UpdateReport`, which the board writes to its own Node. */
export const UPDATE_STATUS_ANNOTATION = "picolet.io/update-status";

export const OS_ARTIFACT_TYPE = "application/vnd.picolet.os.v1";
export const OS_LAYER_TYPE = "application/vnd.rauc.bundle";
export const PACKAGE_ARTIFACT_TYPE = "application/vnd.picolet.package.v1";
export const PACKAGE_LAYER_TYPE = "application/vnd.debian.binary-package";
/** On a layer of a package: base64 of the Ed25519 signature of its bytes. A bundle of RAUC holds its own. */
export const SIGNATURE_ANNOTATION = "picolet.io/signature";

/** Bounds what one board's configuration adds to its Node, which every watcher of Nodes receives. */
export const MAX_CONFIGURATION_LENGTH = 16 * 1024;
/** A board that waits longer for the pods of before is no better off than after going back. */
export const DEFAULT_HEALTH_DEADLINE_MS = 10 * 60_000;

export interface UpdateDirective {
  readonly osImage: string | undefined;
  readonly agentPackage: string | undefined;
  readonly configuration: string | undefined;
  readonly window: UpdateWindow | undefined;
  /** Undefined: what the board's configuration says. */
  readonly bytesPerSecond: number | undefined;
  readonly healthDeadlineMs: number;
  readonly allowDowngrade: boolean;
}

/** The parts of a board that are updated separately. */
export type UpdateKind = "os" | "agent" | "configuration";

/**
 * `held`: a pod or `edgectl update hold` keeps it back. `waiting`: for the window. `trial`: the new version runs and is
 * not yet judged. `rolledBack`: it was tried, and the version of before runs again. `failed`: it never ran. A new
 * value of the annotation starts another update; a target that was rolled back is not tried again.
 */
export const UPDATE_STATES = [
  "fetching",
  "installing",
  "waiting",
  "held",
  "restarting",
  "trial",
  "good",
  "rolledBack",
  "failed",
] as const;
export type UpdateState = (typeof UPDATE_STATES)[number];

export interface UpdateProgress {
  readonly kind: UpdateKind;
  /** The annotation's value that this is about; for a configuration the first 16 hex digits of its SHA-256. */
  readonly target: string;
  readonly state: UpdateState;
  /** One sentence, of at most MAX_MESSAGE_LENGTH characters; "" when there is nothing to say. */
  readonly message: string;
  /** RFC 3339, of the board's clock. */
  readonly since: string;
}

export interface UpdateReport {
  /** Version of the system's image that runs; undefined on a vendor's system. */
  readonly osVersion?: string | undefined;
  /** The slot that runs, `A` or `B`; undefined on a vendor's system. */
  readonly slot?: string | undefined;
  /** At most one for each kind. */
  readonly updates: readonly UpdateProgress[];
}

/** Bounds the message of one update: it is in the Node object. */
export const MAX_MESSAGE_LENGTH = 512;
/** Bounds the annotation that a hub reads: three updates with messages and references of full length fit. */
export const MAX_REPORT_LENGTH = 8 * 1024;

export type DirectiveResult =
  | { readonly ok: true; readonly directive: UpdateDirective }
  | { readonly ok: false; readonly problems: readonly string[] };

/** @returns every problem, each with the annotation's name and how to mend it; a wrong directive changes nothing. */
export function parseDirective(annotations: Readonly<Record<string, string>>): DirectiveResult {
  const problems: string[] = [];
  const image = (name: string): string | undefined => {
    const text = annotations[name];
    if (text === undefined || text === "") return undefined;
    const parsed = parseImageReference(text);
    if (!parsed.ok) problems.push(`${name}: ${parsed.problem}`);
    else if (parsed.reference.kind === "file") problems.push(`${name}: must be in a registry, not a file`);
    return text;
  };
  const configuration = annotations[CONFIGURATION_ANNOTATION];
  if ((configuration?.length ?? 0) > MAX_CONFIGURATION_LENGTH)
    problems.push(`${CONFIGURATION_ANNOTATION}: has more than ${MAX_CONFIGURATION_LENGTH} characters`);
  const windowText = annotations[WINDOW_ANNOTATION];
  const window = windowText === undefined ? undefined : parseWindow(windowText);
  if (windowText !== undefined && window === undefined)
    problems.push(`${WINDOW_ANNOTATION}: "${windowText.slice(0, 64)}" is no window such as "02:00-05:00"`);
  const directive: UpdateDirective = {
    osImage: image(OS_IMAGE_ANNOTATION),
    agentPackage: image(AGENT_PACKAGE_ANNOTATION),
    configuration,
    window,
    bytesPerSecond: bandwidthOf(annotations[BANDWIDTH_ANNOTATION], problems),
    healthDeadlineMs: deadlineOf(annotations[HEALTH_DEADLINE_ANNOTATION], problems),
    allowDowngrade: annotations[DOWNGRADE_ANNOTATION] === "true",
  };
  return problems.length === 0 ? { ok: true, directive } : { ok: false, problems };
}

function bandwidthOf(text: string | undefined, problems: string[]): number | undefined {
  if (text === undefined) return undefined;
  const parsed = parseQuantity(text);
  const bytes = parsed.ok ? Number(quantityValue(parsed.quantity)) : 0;
  if (bytes >= 1) return bytes;
  problems.push(`${BANDWIDTH_ANNOTATION}: "${text.slice(0, 64)}" is no number of bytes a second such as "256Ki"`);
  return undefined;
}

function deadlineOf(text: string | undefined, problems: string[]): number {
  if (text === undefined) return DEFAULT_HEALTH_DEADLINE_MS;
  const parsed = parseDuration(text);
  if (parsed !== undefined && parsed > 0) return parsed;
  problems.push(`${HEALTH_DEADLINE_ANNOTATION}: "${text.slice(0, 64)}" is no duration such as "10m"`);
  return DEFAULT_HEALTH_DEADLINE_MS;
}

/** @returns undefined for what is no report: any client that may write a Node may write the annotation. */
export function parseReport(text: string): UpdateReport | undefined {
  if (text.length > MAX_REPORT_LENGTH) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  return isReport(value) ? value : undefined;
}

const isText = (value: unknown, limit: number): value is string => typeof value === "string" && value.length <= limit;
const MAX_SHORT_TEXT = 256;
/** Bounds `target`, as image references are bounded. */
const MAX_TARGET_LENGTH = 1024;

function isReport(value: unknown): value is UpdateReport {
  if (typeof value !== "object" || value === null || !("updates" in value) || !Array.isArray(value.updates))
    return false;
  const { osVersion, slot } = value as { readonly osVersion?: unknown; readonly slot?: unknown };
  return (
    (osVersion === undefined || isText(osVersion, MAX_SHORT_TEXT)) &&
    (slot === undefined || isText(slot, MAX_SHORT_TEXT)) &&
    value.updates.length <= UPDATE_KINDS.length &&
    value.updates.every(isProgress)
  );
}

const UPDATE_KINDS: readonly UpdateKind[] = ["os", "agent", "configuration"];

function isProgress(value: unknown): value is UpdateProgress {
  if (typeof value !== "object" || value === null) return false;
  const { kind, target, state, message, since } = value as Readonly<Record<string, unknown>>;
  return (
    UPDATE_KINDS.some((each) => each === kind) &&
    UPDATE_STATES.some((each) => each === state) &&
    isText(target, MAX_TARGET_LENGTH) &&
    isText(message, MAX_MESSAGE_LENGTH) &&
    isText(since, MAX_SHORT_TEXT)
  );
}
