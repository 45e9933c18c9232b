/** A Node as rollouts see it, and the annotations that give it its turn. Pure. */
import { hash } from "node:crypto";
import { type FleetNode, TURN_ANNOTATION_PREFIX } from "@picolet/hub-core/fleet.ts";
import { isRecord } from "@picolet/protocol/guards.ts";
import {
  BANDWIDTH_ANNOTATION,
  DOWNGRADE_ANNOTATION,
  HEALTH_DEADLINE_ANNOTATION,
  MAX_CONFIGURATION_LENGTH,
  parseReport,
  type UpdateKind,
  type UpdateProgress,
  WINDOW_ANNOTATION,
} from "@picolet/protocol/updates/node-updates.ts";
import { ROLLOUT_KINDS, type RolloutSpec, WISH_ANNOTATIONS } from "./rollout.ts";

/** On a Node, by kind: JSON of `Turn`. It is written together with the wish, and is not sent to the board. */
export const TURN_ANNOTATIONS: Readonly<Record<UpdateKind, string>> = {
  os: `${TURN_ANNOTATION_PREFIX}os`,
  agent: `${TURN_ANNOTATION_PREFIX}agent`,
  configuration: `${TURN_ANNOTATION_PREFIX}configuration`,
};

/** That a board had its turn in a rollout, and what it had before. */
export interface Turn {
  readonly name: string;
  readonly uid: string;
  /** `Rollout.order`: of two rollouts the newer one has the board. */
  readonly order: string;
  /** The key of the wish that was written with it. */
  readonly key: string;
  /** The wish of before; undefined: none. */
  readonly before: string | undefined;
  /** True when the rollout has put the board back. */
  readonly isUndone: boolean;
}

/** Bounds what is parsed: a turn holds at most one configuration, with each character escaped. */
const MAX_TURN_LENGTH = 6 * MAX_CONFIGURATION_LENGTH + 4096;

/** The part of a board that one kind of update is about. */
export interface BoardPart {
  readonly wish: string | undefined;
  readonly turn: Turn | undefined;
  readonly progress: UpdateProgress | undefined;
}

export interface Board {
  readonly name: string;
  readonly uid: string;
  readonly labels: Readonly<Record<string, string>>;
  /** True when its Node's Ready is Unknown or missing: no session with any hub. */
  readonly isAway: boolean;
  readonly hasWindow: boolean;
  readonly parts: Readonly<Record<UpdateKind, BoardPart>>;
}

export function boardOf(node: FleetNode): Board {
  const { name, uid, labels, annotations } = node;
  const updates = parseReport(node.updateReport ?? "")?.updates ?? [];
  const part = (kind: UpdateKind): BoardPart => ({
    wish: annotations[WISH_ANNOTATIONS[kind]],
    turn: parseTurn(annotations[TURN_ANNOTATIONS[kind]]),
    progress: updates.find((each) => each.kind === kind),
  });
  return {
    name,
    uid,
    labels,
    isAway: node.ready !== "True" && node.ready !== "False",
    hasWindow: annotations[WINDOW_ANNOTATION] !== undefined,
    parts: Object.fromEntries(ROLLOUT_KINDS.map((kind) => [kind, part(kind)])) as Record<UpdateKind, BoardPart>,
  };
}

/** @returns undefined for what no hub has written: a board may write annotations of its own Node */
export function parseTurn(text: string | undefined): Turn | undefined {
  if (text === undefined || text.length > MAX_TURN_LENGTH) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isRecord(value)) return undefined;
  const { name, uid, order, key, before, undone = false } = value;
  if (typeof name !== "string" || typeof uid !== "string" || typeof order !== "string") return undefined;
  if (typeof key !== "string" || typeof undone !== "boolean") return undefined;
  if (before !== undefined && typeof before !== "string") return undefined;
  return { name, uid, order, key, before, isUndone: undone };
}

type Annotations = Readonly<Record<string, string | null>>;

const turnText = ({ isUndone, ...turn }: Turn): string =>
  JSON.stringify({ ...turn, ...(isUndone ? { undone: true } : {}) });

/** Gives a board its turn. Its own window and bandwidth stay unless the rollout has some. */
export function turnAnnotations(spec: RolloutSpec, turn: Turn): Annotations {
  const { kind, target, window, bandwidth, healthDeadline, allowDowngrade } = spec;
  return {
    [WISH_ANNOTATIONS[kind]]: target,
    [TURN_ANNOTATIONS[kind]]: turnText(turn),
    ...(window === undefined ? {} : { [WINDOW_ANNOTATION]: window }),
    ...(bandwidth === undefined ? {} : { [BANDWIDTH_ANNOTATION]: bandwidth }),
    [HEALTH_DEADLINE_ANNOTATION]: healthDeadline ?? null,
    [DOWNGRADE_ANNOTATION]: allowDowngrade ? "true" : null,
  };
}

/** Puts a board back that runs the new version: the version of before is mostly older. */
export function undoAnnotations({ kind }: RolloutSpec, turn: Turn): Annotations {
  return {
    [WISH_ANNOTATIONS[kind]]: turn.before ?? null,
    [TURN_ANNOTATIONS[kind]]: turnText(turn),
    [DOWNGRADE_ANNOTATION]: "true",
  };
}

/** Takes back the turn of a board that does not run the new version. */
export const withdrawAnnotations = ({ kind }: RolloutSpec, turn: Turn): Annotations => ({
  [WISH_ANNOTATIONS[kind]]: turn.before ?? null,
  [TURN_ANNOTATIONS[kind]]: null,
});

/** The name that a board gives the wish in its report: `UpdateProgress.target`. */
export const wishKey = (kind: UpdateKind, wish: string): string =>
  kind === "configuration" ? hash("sha256", wish, "hex").slice(0, KEY_LENGTH) : wish;
/** Hex digits, as `UpdateProgress.target` has them. */
const KEY_LENGTH = 16;
