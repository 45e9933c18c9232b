/**
 * Decides what a rollout does now: which boards get their turn, which get it taken back, and what its status is. Pure.
 *
 * A board keeps a place of the budget from its turn until it is done or has failed, unless it waits for something that
 * no rollout can end (a pod that holds it, its own link). A board can only lie about itself: each place ends after a
 * time that the hub measures, and no report prolongs it.
 */
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import type { UpdateProgress, UpdateState } from "@picolet/protocol/updates/node-updates.ts";
import { type Board, type BoardPart, wishKey } from "./board.ts";
import {
  type BoardFailure,
  type BoardState,
  boardsOf,
  healthDeadlineOf,
  MAX_SHOWN_FAILURES,
  NO_BOARDS,
  type Rollout,
  type RolloutAction,
  type RolloutPhase,
  type RolloutSpec,
} from "./rollout.ts";

const MINUTE_MS = 60_000;
/** A full image at 100 KiB/s. A board that fetches for longer goes on without a place of the budget. */
export const PREPARE_LIMIT = millis(60 * MINUTE_MS);
/** A window opens once a day; the boards that wait for it restart together, so each keeps its place until then. */
export const WINDOW_LIMIT = millis(25 * 60 * MINUTE_MS);
/** Beside the health deadline: two restarts of a slow board (there, and back if it fails) and its way to the hub. */
export const RETURN_MARGIN = millis(10 * MINUTE_MS);

/** When the hub itself first saw it, in monotonic milliseconds: a board's clock and words do not count. */
export interface TurnTimes {
  readonly turnMs: number;
  /** Time of the first report of a restart or a trial. */
  readonly trialMs: number | undefined;
}

export interface PlannedBoard {
  readonly board: Board;
  /** Undefined: this hub has not seen a turn of the board in this rollout. */
  readonly times: TurnTimes | undefined;
}

export interface Plan {
  /** Boards that get their turn, or, of an undo, are put back, in this order. */
  readonly turns: readonly string[];
  /** Boards whose turn is taken back, for they do not run the new version. */
  readonly withdrawals: readonly string[];
  /** Set when the rollout stops by itself. */
  readonly action: RolloutAction | undefined;
  readonly phase: RolloutPhase;
  readonly message: string;
  readonly selected: number;
  readonly boards: Readonly<Record<BoardState, number>>;
  readonly failures: readonly BoardFailure[];
  /** When a place of the budget ends by itself, in monotonic milliseconds. */
  readonly wakeAtMs: number | undefined;
}

interface Judged {
  readonly name: string;
  readonly state: BoardState;
  /** True when it takes a place of the budget. */
  readonly hasPlace: boolean;
  /** Why it failed. */
  readonly reason?: string;
  readonly placeEndsMs?: number;
}

/** The rollout that it waits for, and one of the boards that they share. */
export interface Blocker {
  readonly name: string;
  readonly board: string;
}

/**
 * @param boards those that are selected and not another rollout's, ordered by name
 * @param blocker set while an older rollout of the kind has some of them
 */
export function planRollout(
  rollout: Rollout & { readonly spec: RolloutSpec },
  boards: readonly PlannedBoard[],
  blocker: Blocker | undefined,
  nowMs: number,
): Plan {
  if (rollout.action === "undo") return planUndo(rollout, boards, nowMs);
  const judged = boards.map((each) => judgeForward(rollout, each, nowMs));
  const seen = summaryOf(judged);
  const { action, spec } = rollout;
  if (action === "stop") {
    const message = rollout.status.phase === "Stopped" ? rollout.status.message : "stopped by an operator";
    return { ...seen, turns: [], withdrawals: unstarted(rollout, boards), phase: "Stopped", message };
  }
  if (blocker !== undefined) {
    const message = `waits for rollout ${blocker.name}, which has board ${blocker.board} too`;
    return { ...seen, turns: [], withdrawals: [], phase: "Waiting", message };
  }
  const why = reasonToStop(rollout, seen);
  if (why !== undefined && action === "run") {
    const withdrawals = unstarted(rollout, boards);
    return { ...seen, turns: [], withdrawals, action: "stop", phase: "Stopped", message: why };
  }
  if (action === "pause") return { ...seen, turns: [], withdrawals: [], phase: "Paused", message: progressText(seen) };
  const pending = judged.filter(({ state }) => state === "pending");
  const free = Math.min(freePlaces(spec, seen), canaryPlaces(spec, seen));
  const turns = pending.slice(0, Math.max(0, free)).map(({ name }) => name);
  return { ...seen, turns, withdrawals: [], ...phaseOf(seen) };
}

type Summary = Pick<Plan, "action" | "selected" | "boards" | "failures" | "wakeAtMs"> & {
  readonly places: number;
  readonly here: number;
};

function summaryOf(judged: readonly Judged[]): Summary {
  const boards: Record<BoardState, number> = { ...NO_BOARDS };
  const failures: BoardFailure[] = [];
  let [places, away, wakeAtMs] = [0, 0, Number.POSITIVE_INFINITY];
  for (const { name, state, hasPlace, reason, placeEndsMs } of judged) {
    boards[state] += 1;
    if (hasPlace) places += 1;
    if (state === "away") away += 1;
    if (placeEndsMs !== undefined) wakeAtMs = Math.min(wakeAtMs, placeEndsMs);
    if (state === "failed" && failures.length < MAX_SHOWN_FAILURES) failures.push({ node: name, reason: reason ?? "" });
  }
  return {
    action: undefined,
    selected: judged.length,
    boards,
    failures,
    wakeAtMs: wakeAtMs === Number.POSITIVE_INFINITY ? undefined : wakeAtMs,
    places,
    here: judged.length - away,
  };
}

const freePlaces = ({ maxUnavailable }: RolloutSpec, { places, here }: Summary): number =>
  boardsOf(maxUnavailable, here, "down") - places;

/** While canaries are not done, boards get their turn only up to their number. */
const canaryPlaces = ({ canary }: RolloutSpec, { boards, places }: Summary): number =>
  boards.done >= canary ? Number.POSITIVE_INFINITY : canary - boards.done - places;

function reasonToStop(
  { spec, acceptedFailures }: Rollout,
  { boards, selected, failures }: Summary,
): string | undefined {
  if (spec === undefined) return undefined;
  const failed = boards.failed - acceptedFailures;
  if (failed <= 0) return undefined;
  const last = failures.at(-1);
  const example = last === undefined ? "" : `, such as ${last.node}: ${last.reason}`;
  if (boards.done < spec.canary) return `a canary failed${example}`;
  if (boards.failed === selected)
    return `${selected === 1 ? "the only board" : `all ${selected} boards`} failed${example}`;
  const limit = boardsOf(spec.maxFailures, selected, "up");
  const word = failed === 1 ? "board" : "boards";
  return failed < limit ? undefined : `${failed} ${word} failed, at the limit of ${spec.maxFailures}${example}`;
}

function phaseOf(seen: Summary): Pick<Plan, "phase" | "message"> {
  const { boards, selected } = seen;
  const open = boards.pending + boards.updating + boards.waiting + boards.held + boards.late + boards.unavailable;
  if (open > 0) return { phase: "Progressing", message: progressText(seen) };
  if (boards.away > 0) return { phase: "Awaiting", message: progressText(seen) };
  return { phase: "Complete", message: selected === 0 ? "no board is selected" : progressText(seen) };
}

/** "3 of 10 boards done, 2 unavailable, 1 away". */
function progressText({ boards, selected }: Summary): string {
  const shown = (["updating", "waiting", "held", "late", "unavailable", "failed", "changed", "away"] as const)
    .filter((state) => boards[state] > 0)
    .map((state) => `${boards[state]} ${state}`);
  return [`${boards.done} of ${selected} boards done`, ...shown].join(", ");
}

type Specified = Rollout & { readonly spec: RolloutSpec };

function judgeForward({ uid, spec }: Specified, planned: PlannedBoard, nowMs: number): Judged {
  const { board, times } = planned;
  const part = board.parts[spec.kind];
  if (part.turn?.uid === uid && part.turn.isUndone) return { name: board.name, state: "changed", hasPlace: false };
  const turn = part.turn?.uid === uid ? part.turn : undefined;
  const key = wishKey(spec.kind, spec.target);
  const wished = part.wish === spec.target ? progressOf(part, key) : undefined;
  if (turn === undefined) {
    if (wished?.state === "good") return { name: board.name, state: "done", hasPlace: false };
    // A board may write its own Node: one that removed its turn would get another one for ever.
    if (times !== undefined) return failed(board, "its turn was removed from its Node");
    return { name: board.name, state: board.isAway ? "away" : "pending", hasPlace: false };
  }
  if (part.wish !== spec.target) return { name: board.name, state: "changed", hasPlace: false };
  return judgeTurn(planned, wished, healthDeadlineOf(spec), nowMs);
}

const progressOf = ({ progress }: BoardPart, key: string): UpdateProgress | undefined =>
  progress?.target === key ? progress : undefined;

const failed = ({ name }: Board, reason: string): Judged => ({ name, state: "failed", hasPlace: false, reason });

/** Judges a board in its turn by what it reports of its wish. */
function judgeTurn(
  { board, times }: PlannedBoard,
  progress: UpdateProgress | undefined,
  healthDeadline: Millis,
  nowMs: number,
): Judged {
  const { name } = board;
  const { turnMs, trialMs } = times ?? { turnMs: nowMs, trialMs: undefined };
  const state: UpdateState = progress?.state ?? "fetching";
  if (state === "good") return { name, state: "done", hasPlace: false };
  if (state === "rolledBack" || state === "failed") {
    const what = state === "failed" ? "failed" : "went back to the version of before";
    return failed(board, progress?.message === "" ? what : `${what}: ${progress?.message}`);
  }
  const trialEndsMs = trialMs === undefined ? undefined : trialMs + healthDeadline + RETURN_MARGIN;
  if (trialEndsMs !== undefined && nowMs >= trialEndsMs)
    return failed(
      board,
      `did not report an end of its trial within ${minutes(healthDeadline + RETURN_MARGIN)} minutes`,
    );
  // Its session ends with the restart: being away then is part of it.
  if (state === "restarting" || state === "trial") {
    const placeEndsMs = trialEndsMs ?? nowMs + healthDeadline + RETURN_MARGIN;
    return { name, state: "unavailable", hasPlace: true, placeEndsMs };
  }
  if (board.isAway) return { name, state: "away", hasPlace: false };
  if (state === "held") return { name, state: "held", hasPlace: false };
  if (state === "waiting")
    return withPlaceUntil(name, "waiting", "waiting", board.hasWindow ? turnMs + WINDOW_LIMIT : 0, nowMs);
  return withPlaceUntil(name, "updating", "late", turnMs + PREPARE_LIMIT, nowMs);
}

function withPlaceUntil(name: string, state: BoardState, then: BoardState, endsMs: number, nowMs: number): Judged {
  if (nowMs >= endsMs) return { name, state: then, hasPlace: false };
  return { name, state, hasPlace: true, placeEndsMs: endsMs };
}

const minutes = (duration: number): number => Math.ceil(duration / MINUTE_MS);

/** Boards in their turn that have not tried the new version: they get their wish of before again. */
function unstarted({ uid, spec }: Specified, boards: readonly PlannedBoard[]): readonly string[] {
  return boards
    .filter(({ board, times }) => {
      const part = board.parts[spec.kind];
      if (part.turn?.uid !== uid || part.turn.isUndone || part.wish !== spec.target) return false;
      const state = progressOf(part, wishKey(spec.kind, spec.target))?.state;
      return times?.trialMs === undefined && !STARTED.has(state ?? "fetching");
    })
    .map(({ board }) => board.name);
}

/** A board that failed keeps its turn, so that this rollout does not try it again. */
const STARTED: ReadonlySet<UpdateState> = new Set(["restarting", "trial", "good", "rolledBack", "failed"]);

/** Never stops by itself: a board that cannot go back keeps the version that it runs. */
function planUndo(rollout: Specified, boards: readonly PlannedBoard[], nowMs: number): Plan {
  const { uid, spec } = rollout;
  const mine = boards.filter(({ board }) => board.parts[spec.kind].turn?.uid === uid);
  const withdrawals: string[] = [];
  const judged = mine.flatMap((planned): readonly Judged[] => {
    const { board } = planned;
    const part = board.parts[spec.kind];
    if (part.turn === undefined) return [];
    if (part.turn.isUndone) return [judgeUndone(spec, planned, nowMs)];
    if (part.wish !== spec.target) return [{ name: board.name, state: "changed", hasPlace: false }];
    const state = progressOf(part, wishKey(spec.kind, spec.target))?.state;
    // A system without a named version of before stays; the annotation alone goes.
    const isBack = state !== "good" && state !== "restarting" && state !== "trial";
    if (isBack || (part.turn.before === undefined && spec.kind !== "configuration")) {
      withdrawals.push(board.name);
      return [];
    }
    return [{ name: board.name, state: board.isAway ? "away" : "pending", hasPlace: false }];
  });
  const seen = summaryOf(judged);
  const { phase, message } = phaseOf(seen);
  const free = Math.max(0, freePlaces(spec, seen));
  const turns = judged.filter(({ state }) => state === "pending").map(({ name }) => name);
  const isOver = phase === "Complete" && withdrawals.length === 0;
  return {
    ...seen,
    turns: turns.slice(0, free),
    withdrawals,
    phase: isOver ? "Undone" : "Undoing",
    message: seen.selected === 0 ? "no board had to go back" : `going back: ${message}`,
  };
}

/** A configuration without one of before is the board's own file, of which it reports nothing. */
function judgeUndone(spec: RolloutSpec, planned: PlannedBoard, nowMs: number): Judged {
  const { board } = planned;
  const part = board.parts[spec.kind];
  const { before } = part.turn ?? {};
  if (part.wish !== before) return { name: board.name, state: "changed", hasPlace: false };
  if (before === undefined) {
    if (part.progress?.target !== wishKey(spec.kind, spec.target))
      return { name: board.name, state: "done", hasPlace: false };
    return judgeTurn(planned, { ...part.progress, state: "installing" }, healthDeadlineOf(spec), nowMs);
  }
  return judgeTurn(planned, progressOf(part, wishKey(spec.kind, before)), healthDeadlineOf(spec), nowMs);
}
