import assert from "node:assert/strict";
import { test } from "node:test";
import { UPDATE_STATES, type UpdateState } from "@picolet/protocol/updates/node-updates.ts";
import fc from "fast-check";
import type { Board, Turn } from "./board.ts";
import {
  type Plan,
  type PlannedBoard,
  PREPARE_LIMIT,
  planRollout,
  RETURN_MARGIN,
  WINDOW_LIMIT,
} from "./plan-rollout.ts";
import { boardsOf, EMPTY_STATUS, healthDeadlineOf, type Rollout, type RolloutSpec } from "./rollout.ts";

const TARGET = "registry.example/os:2";
const BEFORE = "registry.example/os:1";
const NO_PART = { wish: undefined, turn: undefined, progress: undefined };
const SPEC: RolloutSpec = {
  kind: "os",
  target: TARGET,
  selector: "",
  hub: "picolet",
  maxUnavailable: 2,
  maxFailures: 2,
  canary: 0,
  window: undefined,
  bandwidth: undefined,
  healthDeadline: undefined,
  allowDowngrade: false,
};
const DEADLINE = healthDeadlineOf(SPEC) + RETURN_MARGIN;

const rolloutOf = (spec: Partial<RolloutSpec> = {}, more: Partial<Rollout> = {}): Rollout & { spec: RolloutSpec } => ({
  name: "r",
  uid: "r-uid",
  resourceVersion: "1",
  order: "2026-01-01T00:00:00Z r",
  problem: "",
  action: "run",
  acceptedFailures: 0,
  status: EMPTY_STATUS,
  ...more,
  spec: { ...SPEC, ...spec },
});

const TURN: Turn = {
  name: "r",
  uid: "r-uid",
  order: "2026-01-01T00:00:00Z r",
  key: TARGET,
  before: BEFORE,
  isUndone: false,
};

interface Sample {
  readonly turn?: Partial<Turn> | undefined;
  readonly wish?: string | undefined;
  readonly state?: UpdateState;
  readonly target?: string;
  readonly message?: string;
  readonly isAway?: boolean;
  readonly hasWindow?: boolean;
  readonly turnMs?: number;
  readonly trialMs?: number;
}

/** One in its turn wishes the target and has been seen at 0, unless it says otherwise. */
function board(name: string, sample: Sample = {}): PlannedBoard {
  const { turn, state, target = TARGET, message = "", isAway = false, hasWindow = false, trialMs } = sample;
  const wish = "wish" in sample ? sample.wish : turn === undefined ? BEFORE : TARGET;
  const progress =
    state === undefined ? undefined : ({ kind: "os", target, state, message, since: "2026-01-01T00:00:00Z" } as const);
  const os = { wish, turn: turn === undefined ? undefined : { ...TURN, ...turn }, progress };
  const parts = { os, agent: NO_PART, configuration: NO_PART };
  const whole: Board = { name, uid: `${name}-uid`, labels: {}, isAway, hasWindow, parts };
  const isSeen = turn !== undefined || sample.turnMs !== undefined;
  return { board: whole, times: isSeen ? { turnMs: sample.turnMs ?? 0, trialMs } : undefined };
}

const fresh = (count: number): PlannedBoard[] => Array.from({ length: count }, (_, index) => board(`b${index}`));
const inTurn = (name: string, state?: UpdateState, more: Sample = {}): PlannedBoard =>
  board(name, { turn: {}, ...(state === undefined ? {} : { state }), ...more });

interface Case {
  readonly name: string;
  readonly spec?: Partial<RolloutSpec>;
  readonly rollout?: Partial<Rollout>;
  readonly boards: readonly PlannedBoard[];
  readonly nowMs?: number;
  readonly expected: Partial<Plan>;
  /** Counts that are not 0. */
  readonly counts: Readonly<Record<string, number>>;
}

const CASES: readonly Case[] = [
  {
    name: "the first boards by name get their turn, up to the budget",
    boards: fresh(5),
    expected: { turns: ["b0", "b1"], phase: "Progressing", message: "0 of 5 boards done" },
    counts: { pending: 5 },
  },
  {
    name: "a share of the budget is rounded down, as a Deployment's",
    spec: { maxUnavailable: "30%" },
    boards: fresh(9),
    expected: { turns: ["b0", "b1"] },
    counts: { pending: 9 },
  },
  {
    name: "a share never comes to nothing",
    spec: { maxUnavailable: "1%" },
    boards: fresh(9),
    expected: { turns: ["b0"] },
    counts: { pending: 9 },
  },
  {
    name: "boards that fetch, install, restart or try the version keep their places",
    boards: [inTurn("b0", "installing"), inTurn("b1", "trial", { trialMs: 0 }), board("b2")],
    expected: { turns: [] },
    counts: { updating: 1, unavailable: 1, pending: 1 },
  },
  {
    name: "a board that is done makes room",
    boards: [inTurn("b0", "good"), inTurn("b1"), board("b2")],
    expected: { turns: ["b2"], message: "1 of 3 boards done, 1 updating" },
    counts: { done: 1, updating: 1, pending: 1 },
  },
  {
    name: "a board that is away has no turn and no share of the budget, and is shown",
    spec: { maxUnavailable: "50%" },
    boards: [board("b0", { isAway: true }), board("b1", { isAway: true }), board("b2"), board("b3")],
    expected: { turns: ["b2"], message: "0 of 4 boards done, 2 away" },
    counts: { away: 2, pending: 2 },
  },
  {
    name: "when only boards that are away are left, it awaits them",
    boards: [board("b0", { isAway: true }), inTurn("b1", "good"), inTurn("b2", "installing", { isAway: true })],
    expected: { turns: [], phase: "Awaiting", message: "1 of 3 boards done, 2 away" },
    counts: { away: 2, done: 1 },
  },
  {
    name: "a board that restarts is away for a while, and keeps its place",
    boards: [inTurn("b0", "restarting", { isAway: true, trialMs: 0 }), inTurn("b1"), board("b2")],
    nowMs: DEADLINE - 1,
    expected: { turns: [], wakeAtMs: DEADLINE },
    counts: { unavailable: 1, updating: 1, pending: 1 },
  },
  {
    name: "a board that reports a trial for ever has failed after the deadline, and holds up no other",
    boards: [inTurn("b0", "trial", { trialMs: 0 }), inTurn("b1"), board("b2")],
    nowMs: DEADLINE,
    expected: {
      turns: ["b2"],
      failures: [{ node: "b0", reason: "did not report an end of its trial within 20 minutes" }],
    },
    counts: { failed: 1, updating: 1, pending: 1 },
  },
  {
    name: "one that changes its words after a trial has failed just so",
    boards: [inTurn("b0", "installing", { trialMs: 0 }), inTurn("b1", "held", { trialMs: 0 }), board("b2")],
    nowMs: DEADLINE,
    expected: { turns: [], phase: "Stopped", action: "stop" },
    counts: { failed: 2, pending: 1 },
  },
  {
    name: "one that is good after all is done",
    boards: [inTurn("b0", "good", { trialMs: 0 })],
    nowMs: 10 * DEADLINE,
    expected: { phase: "Complete" },
    counts: { done: 1 },
  },
  {
    name: "boards that a pod holds, and those without an end of their fetching, hold up no other",
    boards: [inTurn("b0", "held"), inTurn("b1", "fetching"), board("b2"), board("b3"), board("b4")],
    nowMs: PREPARE_LIMIT,
    expected: { turns: ["b2", "b3"], message: "0 of 5 boards done, 1 held, 1 late" },
    counts: { held: 1, late: 1, pending: 3 },
  },
  {
    name: "boards that wait for a window restart together, so they keep their places for a day",
    boards: [inTurn("b0", "waiting", { hasWindow: true }), inTurn("b1", "waiting", { hasWindow: true }), board("b2")],
    nowMs: WINDOW_LIMIT - 1,
    expected: { turns: [], wakeAtMs: WINDOW_LIMIT },
    counts: { waiting: 2, pending: 1 },
  },
  {
    name: "a board that waits longer than a day, or without a window, has no place",
    boards: [
      inTurn("b0", "waiting", { hasWindow: true }),
      inTurn("b1", "waiting", { turnMs: WINDOW_LIMIT }),
      board("b2"),
    ],
    nowMs: WINDOW_LIMIT,
    expected: { turns: ["b2"] },
    counts: { waiting: 2, pending: 1 },
  },
  {
    name: "a board that went back is not tried again",
    spec: { maxFailures: 3 },
    boards: [inTurn("b0", "rolledBack", { message: "the tunnel stayed down" }), board("b1")],
    expected: {
      turns: ["b1"],
      failures: [{ node: "b0", reason: "went back to the version of before: the tunnel stayed down" }],
    },
    counts: { failed: 1, pending: 1 },
  },
  {
    name: "at the limit of failures it stops, says why, and takes back what has not been tried",
    boards: [
      inTurn("b0", "rolledBack"),
      inTurn("b1", "failed", { message: "no such image" }),
      inTurn("b2", "installing"),
      inTurn("b3", "held", { isAway: true }),
      inTurn("b4", "trial", { trialMs: 0 }),
      inTurn("b5", "installing", { trialMs: 0 }),
      board("b6"),
    ],
    expected: {
      turns: [],
      withdrawals: ["b2", "b3"],
      action: "stop",
      phase: "Stopped",
      message: "2 boards failed, at the limit of 2, such as b1: failed: no such image",
    },
    counts: { failed: 2, updating: 2, away: 1, unavailable: 1, pending: 1 },
  },
  {
    name: "a rollout that fails on every board is no success, however high its limit is",
    spec: { maxFailures: 3 },
    boards: [inTurn("b0", "failed"), inTurn("b1", "rolledBack", { message: "no hub" })],
    expected: {
      action: "stop",
      phase: "Stopped",
      message: "all 2 boards failed, such as b1: went back to the version of before: no hub",
    },
    counts: { failed: 2 },
  },
  {
    name: "a share of the limit is rounded up, and counts boards that are away",
    spec: { maxFailures: "20%" },
    boards: [inTurn("b0", "failed"), board("b1", { isAway: true }), ...fresh(9).slice(2)],
    expected: { phase: "Progressing" },
    counts: { failed: 1, away: 1, pending: 7 },
  },
  {
    name: "failures that were accepted do not stop it again",
    rollout: { acceptedFailures: 2 },
    boards: [inTurn("b0", "failed"), inTurn("b1", "failed"), inTurn("b2", "failed"), board("b3")],
    expected: { turns: ["b3"], phase: "Progressing" },
    counts: { failed: 3, pending: 1 },
  },
  {
    name: "canaries come first, and the others wait until they are good",
    spec: { canary: 1, maxUnavailable: 3 },
    boards: [inTurn("b0", "trial", { trialMs: 0 }), ...fresh(4).slice(1)],
    expected: { turns: [] },
    counts: { unavailable: 1, pending: 3 },
  },
  {
    name: "after the canary all of the budget is used",
    spec: { canary: 1, maxUnavailable: 3 },
    boards: [inTurn("b0", "good"), ...fresh(5).slice(1)],
    expected: { turns: ["b1", "b2", "b3"] },
    counts: { done: 1, pending: 4 },
  },
  {
    name: "a canary that fails stops it",
    spec: { canary: 2, maxFailures: 10 },
    boards: [inTurn("b0", "good"), inTurn("b1", "rolledBack"), board("b2")],
    expected: {
      action: "stop",
      phase: "Stopped",
      message: "a canary failed, such as b1: went back to the version of before",
    },
    counts: { done: 1, failed: 1, pending: 1 },
  },
  {
    name: "a paused one gives no turns and takes none back",
    rollout: { action: "pause" },
    boards: [inTurn("b0", "installing"), board("b1")],
    expected: { turns: [], withdrawals: [], phase: "Paused" },
    counts: { updating: 1, pending: 1 },
  },
  {
    name: "a stopped one keeps its reason",
    rollout: { action: "stop", status: { ...EMPTY_STATUS, phase: "Stopped", message: "because" } },
    boards: [inTurn("b0"), board("b1")],
    expected: { turns: [], withdrawals: ["b0"], phase: "Stopped", message: "because" },
    counts: { updating: 1, pending: 1 },
  },
  {
    name: "a board that was changed by hand after its turn is left as it is",
    boards: [inTurn("b0", "installing", { wish: "registry.example/os:3" })],
    expected: { turns: [], withdrawals: [], phase: "Complete" },
    counts: { changed: 1 },
  },
  {
    name: "a board that runs the version already is done without a turn",
    boards: [board("b0", { wish: TARGET, state: "good" })],
    expected: { turns: [], phase: "Complete" },
    counts: { done: 1 },
  },
  {
    name: "a report of another version counts for nothing",
    boards: [inTurn("b0", "good", { target: BEFORE }), board("b1", { state: "rolledBack", target: BEFORE })],
    expected: { turns: ["b1"] },
    counts: { updating: 1, pending: 1 },
  },
  {
    name: "a board that removes its own turn does not get another one",
    boards: [board("b0", { turnMs: 0 }), board("b1")],
    expected: { turns: ["b1"], failures: [{ node: "b0", reason: "its turn was removed from its Node" }] },
    counts: { failed: 1, pending: 1 },
  },
  {
    name: "an undo puts back those that run the version within the budget, and takes back the other turns at once",
    rollout: { action: "undo" },
    boards: [
      ...["b0", "b1", "b2"].map((name) => inTurn(name, "good")),
      inTurn("b3", "rolledBack"),
      inTurn("b4", "installing"),
      inTurn("b5", "good", { turn: { before: undefined } }),
      board("b6"),
    ],
    expected: { turns: ["b0", "b1"], withdrawals: ["b3", "b4", "b5"], phase: "Undoing" },
    counts: { pending: 3 },
  },
  {
    name: "an undo ends when all of them run the version of before",
    rollout: { action: "undo" },
    boards: [board("b0", { turn: { isUndone: true }, wish: BEFORE, state: "good", target: BEFORE }), board("b1")],
    expected: { turns: [], withdrawals: [], phase: "Undone", message: "going back: 1 of 1 boards done" },
    counts: { done: 1 },
  },
];

for (const { name, spec, rollout, boards, nowMs = 0, expected, counts } of CASES) {
  test(name, () => {
    const plan = planRollout(rolloutOf(spec, rollout), boards, undefined, nowMs);
    for (const [key, value] of Object.entries(expected)) assert.deepEqual(plan[key as keyof Plan], value, key);
    assert.deepEqual(Object.fromEntries(Object.entries(plan.boards).filter(([, count]) => count > 0)), counts);
  });
}

test("one that waits for another rollout gives no turns and names it", () => {
  const plan = planRollout(rolloutOf(), fresh(3), { name: "older", board: "b1" }, 0);
  assert.deepEqual([plan.turns, plan.phase], [[], "Waiting"]);
  assert.equal(plan.message, "waits for rollout older, which has board b1 too");
});

/** A board of the simulation: what it does at each step of 5 minutes, and whether it keeps the rules. */
interface Actor {
  state: UpdateState | undefined;
  turn: boolean;
  isAway: boolean;
  turnMs: number | undefined;
  trialMs: number | undefined;
  turns: number;
}

const STEP_MS = 5 * 60_000;
const NEXT: Readonly<Partial<Record<UpdateState, readonly UpdateState[]>>> = {
  fetching: ["fetching", "installing", "failed"],
  installing: ["installing", "restarting"],
  restarting: ["trial"],
  trial: ["good", "rolledBack"],
};
const isOff = ({ state }: Actor): boolean => state === "restarting" || state === "trial";

/** @param isHonest false: a board reports any state at any time, and comes and goes */
function simulate(
  spec: Partial<RolloutSpec>,
  count: number,
  steps: number,
  isHonest: boolean,
  pick: () => number,
): void {
  const rollout = rolloutOf(spec);
  const actors = Array.from(
    { length: count },
    (): Actor => ({ state: undefined, turn: false, isAway: false, turnMs: undefined, trialMs: undefined, turns: 0 }),
  );
  let ended: Plan | undefined;
  for (let step = 0; step < steps; step += 1) {
    const nowMs = step * STEP_MS;
    for (const each of actors) move(each, { isHonest, nowMs }, pick);
    const boards = actors.map((each, index) => observed(`b${index}`, each, nowMs));
    const plan = planRollout(rollout, boards, undefined, nowMs);
    const here = boards.length - plan.boards.away;
    const budget = boardsOf(rollout.spec.maxUnavailable, here, "down");
    for (const name of plan.turns) {
      const actor = actors[Number(name.slice(1))];
      assert.ok(actor !== undefined && !actor.isAway, "only a board that is here gets its turn");
      actor.turn = true;
      actor.turns += 1;
      actor.state = isHonest ? "fetching" : actor.state;
      assert.equal(actor.turns, 1, "no board has two turns");
    }
    if (plan.turns.length > 0) {
      const after = actors.map((each, index) => observed(`b${index}`, each, nowMs));
      const { boards: counts } = planRollout(rollout, after, undefined, nowMs);
      assert.ok(counts.unavailable + counts.updating <= budget, "turns stay within the budget");
    }
    const failures = actors.filter(({ state }) => state === "rolledBack" || state === "failed").length;
    if (isHonest) {
      assert.ok(actors.filter(isOff).length <= boardsOf(rollout.spec.maxUnavailable, count, "down"), "never more");
      const limit = Math.min(count, boardsOf(rollout.spec.maxFailures, count, "up"));
      assert.equal(
        plan.phase === "Stopped",
        failures >= limit || (failures > 0 && plan.boards.done < rollout.spec.canary),
      );
    }
    ended = plan;
    if (plan.phase !== "Progressing") break;
  }
  if (isHonest && steps > 40 * count) assert.notEqual(ended?.phase, "Progressing", "it comes to an end");
}

function move(actor: Actor, { isHonest, nowMs }: { isHonest: boolean; nowMs: number }, pick: () => number): void {
  if (!isHonest) {
    actor.isAway = pick() % 4 === 0;
    if (pick() % 2 === 0) actor.state = UPDATE_STATES[pick() % UPDATE_STATES.length];
    return;
  }
  // One that prepares for longer than the limit loses its place and may restart beside another.
  const isDue = nowMs - (actor.turnMs ?? nowMs) >= PREPARE_LIMIT - 3 * STEP_MS;
  const all = actor.state === undefined ? [] : (NEXT[actor.state] ?? []);
  const next = isDue ? all.filter((state) => state !== actor.state) : all;
  if (actor.turn && next.length > 0) actor.state = next[pick() % next.length];
}

function observed(name: string, actor: Actor, nowMs: number): PlannedBoard {
  if (!actor.turn) return board(name, { isAway: actor.isAway });
  actor.turnMs ??= nowMs;
  if (isOff(actor)) actor.trialMs ??= nowMs;
  const { state, isAway, turnMs, trialMs } = actor;
  return inTurn(name, state, { isAway, turnMs, ...(trialMs === undefined ? {} : { trialMs }) });
}

const COUNTS = fc.oneof(
  fc.integer({ min: 1, max: 5 }),
  fc.integer({ min: 1, max: 100 }).map((share) => `${share}%` as const),
);
const SPECS = fc.record({ maxUnavailable: COUNTS, maxFailures: COUNTS, canary: fc.integer({ min: 0, max: 3 }) });
const PICKS = fc.infiniteStream(fc.nat({ max: 1_000_000 }));
const picker = (picks: Iterable<number>): (() => number) => {
  const iterator = picks[Symbol.iterator]();
  return () => Number(iterator.next().value);
};

test("boards that keep the rules are never unavailable in greater number, and the rollout ends", () => {
  fc.assert(
    fc.property(SPECS, fc.integer({ min: 1, max: 12 }), PICKS, (spec, count, picks) =>
      simulate(spec, count, 41 * count, true, picker(picks)),
    ),
    { numRuns: 200 },
  );
});

test("with boards that report anything at all, no turn exceeds the budget and none is given twice", () => {
  fc.assert(
    fc.property(SPECS, fc.integer({ min: 1, max: 12 }), PICKS, (spec, count, picks) =>
      simulate(spec, count, 60, false, picker(picks)),
    ),
    { numRuns: 200 },
  );
});

test("N boards that report one state for ever delay the others by no more than their places", () => {
  const rollout = rolloutOf({ maxUnavailable: 2, maxFailures: 100 });
  for (const state of UPDATE_STATES.filter((each) => each !== "good")) {
    const nowMs = Math.max(PREPARE_LIMIT, WINDOW_LIMIT, DEADLINE);
    const isTrial = state === "trial" || state === "restarting";
    const liar = (name: string): PlannedBoard =>
      inTurn(name, state, { hasWindow: true, ...(isTrial ? { trialMs: 0 } : {}) });
    const plan = planRollout(rollout, [liar("a"), liar("b"), board("c"), board("d")], undefined, nowMs);
    assert.deepEqual(plan.turns, ["c", "d"], state);
  }
});
