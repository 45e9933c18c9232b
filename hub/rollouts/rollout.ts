/**
 * A rollout as it is stored: a ConfigMap of `ROLLOUT_NAMESPACE` with the label `ROLLOUT_LABEL`, whose keys are below.
 * Operators write `spec`, `action` and `accepted-failures`, by `picolet-hub rollout` or kubectl; the hub writes `status`
 * and, when it stops a rollout, `action`.
 */
import { HUB_NAMESPACE } from "@picolet/hub-core/access-table.ts";
import { CONFIG_MAPS, type KubeClient, type KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isRecord } from "@picolet/protocol/guards.ts";
import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import {
  AGENT_PACKAGE_ANNOTATION,
  BANDWIDTH_ANNOTATION,
  CONFIGURATION_ANNOTATION,
  DEFAULT_HEALTH_DEADLINE_MS,
  HEALTH_DEADLINE_ANNOTATION,
  OS_IMAGE_ANNOTATION,
  parseDirective,
  type UpdateKind,
  WINDOW_ANNOTATION,
} from "@picolet/protocol/updates/node-updates.ts";

export const ROLLOUT_NAMESPACE = HUB_NAMESPACE;
/** Its value is the kind: os, agent or configuration. */
export const ROLLOUT_LABEL = "picolet.io/rollout";

export const ROLLOUT_KINDS = ["os", "agent", "configuration"] as const satisfies readonly UpdateKind[];
/** The annotation of a Node that a rollout of the kind writes. */
export const WISH_ANNOTATIONS: Readonly<Record<UpdateKind, string>> = {
  os: OS_IMAGE_ANNOTATION,
  agent: AGENT_PACKAGE_ANNOTATION,
  configuration: CONFIGURATION_ANNOTATION,
};

/** `run` while it proceeds; the others are what an operator, or the hub itself, made of it. */
export const ROLLOUT_ACTIONS = ["run", "pause", "stop", "undo"] as const;
export type RolloutAction = (typeof ROLLOUT_ACTIONS)[number];

/** A number of boards, or a share of them such as `10%`. */
export type BoardCount = number | `${number}%`;

export interface RolloutSpec {
  readonly kind: UpdateKind;
  /** The value of the annotation: an image, or the text of a configuration. */
  readonly target: string;
  /** A label selector; "" selects every board of the hub. */
  readonly selector: string;
  /** Value of the label picolet.io/hub of its boards. */
  readonly hub: string;
  /** Boards that may be in their turn at the same time; a share counts those that are here. */
  readonly maxUnavailable: BoardCount;
  /** Failed boards at which it stops; a share counts all that are selected. */
  readonly maxFailures: BoardCount;
  /** Boards that must be done before the others begin; 0: none. */
  readonly canary: number;
  /** As the annotations have them; undefined leaves a board's own window and bandwidth. */
  readonly window: string | undefined;
  readonly bandwidth: string | undefined;
  readonly healthDeadline: string | undefined;
  readonly allowDowngrade: boolean;
}

export const ROLLOUT_PHASES = [
  "Pending",
  "Waiting",
  "Progressing",
  "Awaiting",
  "Paused",
  "Stopped",
  "Complete",
  "Undoing",
  "Undone",
  "Invalid",
] as const;
/**
 * `Pending`: no hub has seen it yet. `Waiting`: for another rollout of the same boards. `Awaiting`: only boards that
 * are away are left. `Invalid`: its ConfigMap cannot be understood.
 */
export type RolloutPhase = (typeof ROLLOUT_PHASES)[number];
const FINISHED: ReadonlySet<RolloutPhase> = new Set(["Complete", "Undone", "Invalid"]);

/** The states of the selected boards; each board is in one. */
export const BOARD_STATES = [
  "pending",
  "updating",
  "waiting",
  "held",
  "late",
  "unavailable",
  "done",
  "failed",
  "away",
  "changed",
] as const;
/**
 * `updating`: it fetches or installs. `waiting`: for its window. `late`: it has been updating for longer than an hour.
 * `unavailable`: it restarts or tries the new version. `away`: not connected, and not done. `changed`: another writer
 * has changed the annotation since its turn, so it is left as it is.
 */
export type BoardState = (typeof BOARD_STATES)[number];
export type BoardCounts = Readonly<Record<BoardState, number>>;

export interface BoardFailure {
  readonly node: string;
  readonly reason: string;
}

/** As Kubernetes' conditions. */
export interface RolloutCondition {
  readonly type: "Progressing" | "Complete";
  readonly status: "True" | "False";
  /** The phase. */
  readonly reason: string;
  readonly message: string;
  readonly lastTransitionTime: string;
}

export interface RolloutStatus {
  readonly phase: RolloutPhase;
  readonly message: string;
  /** Boards that are selected and not another rollout's. */
  readonly selected: number;
  readonly boards: BoardCounts;
  /** At most MAX_SHOWN_FAILURES, by name. */
  readonly failures: readonly BoardFailure[];
  readonly conditions: readonly RolloutCondition[];
}

export interface Rollout {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** Orders rollouts: the creation's time, then the name. */
  readonly order: string;
  /** Undefined: its ConfigMap is wrong, as `problem` says. */
  readonly spec: RolloutSpec | undefined;
  readonly problem: string;
  readonly action: RolloutAction;
  /** Failures that `resume` has accepted: they do not count again. */
  readonly acceptedFailures: number;
  readonly status: RolloutStatus;
}

/** Bounds the status in the ConfigMap, which has 1 MiB: names and reasons of this many boards take 16 KiB. */
export const MAX_SHOWN_FAILURES = 20;

export const NO_BOARDS: BoardCounts = Object.fromEntries(BOARD_STATES.map((state) => [state, 0])) as Record<
  BoardState,
  number
>;

export const EMPTY_STATUS: RolloutStatus = {
  phase: "Pending",
  message: "no hub has seen it yet",
  selected: 0,
  boards: NO_BOARDS,
  failures: [],
  conditions: [],
};

export const isFinished = ({ status }: Pick<Rollout, "status">): boolean => FINISHED.has(status.phase);

/** Time for which a new version may be unjudged on the board. */
export const healthDeadlineOf = ({ healthDeadline }: RolloutSpec): Millis =>
  parseDuration(healthDeadline ?? "") ?? millis(DEFAULT_HEALTH_DEADLINE_MS);

const COUNT = /^(\d{1,6})(%?)$/;

/** `3` or `10%`; undefined for another text, for 0 and for more than 100 %. */
export function parseBoardCount(text: string): BoardCount | undefined {
  const [, digits = "", percent] = COUNT.exec(text) ?? [];
  const amount = Number(digits);
  if (amount < 1 || (percent === "%" && amount > 100)) return undefined;
  return percent === "%" ? `${amount}%` : amount;
}

/**
 * The boards that `count` means among `total`. `down` is a Deployment's maxUnavailable, which never comes to nothing.
 */
export function boardsOf(count: BoardCount, total: number, rounding: "up" | "down"): number {
  if (typeof count === "number") return count;
  const share = (Number.parseInt(count, 10) * total) / 100;
  return Math.max(1, rounding === "down" ? Math.floor(share) : Math.ceil(share));
}

/** The data of a new rollout's ConfigMap. A configuration has a key of its own, so that people can read it. */
export function rolloutData(spec: RolloutSpec): Readonly<Record<string, string>> {
  const { target, ...rest } = spec;
  const stored = spec.kind === "configuration" ? rest : spec;
  return {
    spec: JSON.stringify(stored),
    ...(spec.kind === "configuration" ? { configuration: target } : {}),
    action: "run",
  };
}

/** Never throws: a ConfigMap that is wrong becomes a rollout with a problem. */
export function parseRollout({ metadata, data }: KubeObject): Rollout {
  const fields = isRecord(data) ? data : {};
  const spec = parseSpec(fields, metadata.labels?.[ROLLOUT_LABEL]);
  const action = ROLLOUT_ACTIONS.find((each) => each === fields.action);
  const problems = [
    ...(typeof spec === "string" ? [spec] : []),
    ...(action === undefined ? [`action must be one of ${ROLLOUT_ACTIONS.join(", ")}`] : []),
  ];
  const accepted = Number(fields["accepted-failures"] ?? 0);
  return {
    name: metadata.name,
    uid: metadata.uid ?? "",
    resourceVersion: metadata.resourceVersion ?? "",
    order: `${metadata.creationTimestamp ?? ""} ${metadata.name}`,
    spec: typeof spec === "string" || action === undefined ? undefined : spec,
    problem: problems.join("; "),
    action: action ?? "pause",
    acceptedFailures: Number.isSafeInteger(accepted) && accepted > 0 ? accepted : 0,
    status: parseStatus(fields.status),
  };
}

/** @returns every problem of the values, in a sentence; undefined when there is none */
export function specProblems(spec: RolloutSpec): string | undefined {
  const { window, bandwidth, healthDeadline } = spec;
  const annotations = {
    [WISH_ANNOTATIONS[spec.kind]]: spec.target,
    ...(window === undefined ? {} : { [WINDOW_ANNOTATION]: window }),
    ...(bandwidth === undefined ? {} : { [BANDWIDTH_ANNOTATION]: bandwidth }),
    ...(healthDeadline === undefined ? {} : { [HEALTH_DEADLINE_ANNOTATION]: healthDeadline }),
  };
  const result = parseDirective(annotations);
  const problems = result.ok ? [] : result.problems;
  return [...(spec.target === "" ? ["there is nothing to roll out"] : []), ...problems].join("; ") || undefined;
}

/** @returns what is wrong, as a sentence */
function parseSpec(data: Fields, label: string | undefined): RolloutSpec | string {
  const fields = parseJson(data.spec);
  if (!isRecord(fields)) return "spec is no JSON object";
  const kind = ROLLOUT_KINDS.find((each) => each === fields.kind);
  if (kind === undefined) return `spec.kind must be one of ${ROLLOUT_KINDS.join(", ")}`;
  if (label !== kind) return `the label ${ROLLOUT_LABEL} must be ${kind}, as spec.kind`;
  const target = kind === "configuration" ? data.configuration : fields.target;
  const { selector, hub, canary = 0, window, bandwidth, healthDeadline, allowDowngrade = false } = fields;
  const [maxUnavailable, maxFailures] = [countIn(fields.maxUnavailable), countIn(fields.maxFailures)];
  if (typeof target !== "string")
    return kind === "configuration" ? "configuration is missing" : "spec.target is missing";
  if (typeof selector !== "string" || typeof hub !== "string") return "spec.selector and spec.hub must be texts";
  if (maxUnavailable === undefined || maxFailures === undefined)
    return "spec.maxUnavailable and spec.maxFailures must be numbers above 0, or shares such as 10%";
  if (typeof canary !== "number" || !Number.isSafeInteger(canary) || canary < 0) return "spec.canary must be a number";
  if (![window, bandwidth, healthDeadline].every((each) => each === undefined || typeof each === "string"))
    return "spec.window, spec.bandwidth and spec.healthDeadline must be texts";
  const spec: RolloutSpec = {
    kind,
    target,
    selector,
    hub,
    maxUnavailable,
    maxFailures,
    canary,
    window: window as string | undefined,
    bandwidth: bandwidth as string | undefined,
    healthDeadline: healthDeadline as string | undefined,
    allowDowngrade: allowDowngrade === true,
  };
  return specProblems(spec) ?? spec;
}

const countIn = (value: unknown): BoardCount | undefined =>
  typeof value === "number" || typeof value === "string" ? parseBoardCount(String(value)) : undefined;

/** Reads what the hub wrote; all else that is there counts as nothing. */
function parseStatus(text: unknown): RolloutStatus {
  const fields = parseJson(text);
  if (!isRecord(fields)) return EMPTY_STATUS;
  const phase = ROLLOUT_PHASES.find((each) => each === fields.phase) ?? "Pending";
  const boards = isRecord(fields.boards) ? fields.boards : {};
  const counts = BOARD_STATES.map((state) => [state, countOf(boards[state])] as const);
  const failures = Array.isArray(fields.failures) ? fields.failures : [];
  const conditions = Array.isArray(fields.conditions) ? fields.conditions : [];
  return {
    phase,
    message: textOf(fields.message),
    selected: countOf(fields.selected),
    boards: Object.fromEntries(counts) as Record<BoardState, number>,
    failures: failures
      .filter(isRecord)
      .slice(0, MAX_SHOWN_FAILURES)
      .map(({ node, reason }) => ({ node: textOf(node), reason: textOf(reason) })),
    conditions: conditions.filter(isCondition),
  };
}

const isCondition = (value: unknown): value is RolloutCondition =>
  isRecord(value) &&
  (value.type === "Progressing" || value.type === "Complete") &&
  (value.status === "True" || value.status === "False") &&
  [value.reason, value.message, value.lastTransitionTime].every((each) => typeof each === "string");

type Fields = Readonly<Record<string, unknown>>;

const countOf = (value: unknown): number => (Number.isSafeInteger(value) ? Number(value) : 0);
const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

function parseJson(text: unknown): unknown {
  if (typeof text !== "string") return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** In the order in which they were made. */
export async function listRollouts(client: KubeClient, signal: AbortSignal): Promise<readonly Rollout[]> {
  const options = { namespace: ROLLOUT_NAMESPACE, labelSelector: ROLLOUT_LABEL };
  const { items } = await client.list(CONFIG_MAPS, options, signal);
  return items.map(parseRollout).sort((a, b) => (a.order < b.order ? -1 : 1));
}
