/**
 * Where the tunnel stands: one value, changed by `transition` alone. Pure: times and chance come in with the events.
 *
 * ```
 * waitingForIdentity -> dialing -> greeting -> live <-> moving
 *         ^                ^  \________|_________|________/
 *         |                |           v
 *         '----------------'------ backingOff
 * ```
 */
import { backoffDelay, FULL_JITTER } from "@picolet/protocol/async/backoff.ts";
import { type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";

/** Since when there is no session, and what the last attempt failed with; "" while none has failed. */
export interface Outage {
  readonly since: MonotonicMs;
  readonly problem: string;
  /** The problem stays until the configuration, the token or the hub is changed. */
  readonly isRefused: boolean;
}

/** The next hub, and the number of failed rounds through all hubs. */
export interface Attempt {
  /** Rounds through all hubs that failed since the last session that lived. */
  readonly rounds: number;
  /** Index in the list of hubs. */
  readonly hub: number;
  /** Hubs tried in this round, without `hub`. */
  readonly tried: number;
}

export type TunnelState =
  | { readonly kind: "waitingForIdentity"; readonly outage: Outage; readonly attempt: Attempt }
  /** `mayHurry`: a change of the network ends the wait; not so when the hub has said how long to stay away. */
  | {
      readonly kind: "backingOff";
      readonly outage: Outage;
      readonly attempt: Attempt;
      readonly until: MonotonicMs;
      readonly mayHurry: boolean;
    }
  | { readonly kind: "dialing"; readonly outage: Outage; readonly attempt: Attempt }
  /** Connected; the hello is under way. */
  | { readonly kind: "greeting"; readonly outage: Outage; readonly attempt: Attempt }
  | { readonly kind: "live"; readonly session: LiveSession; readonly attempt: Attempt }
  /** Live, and to be replaced by a new session at `until`: the hub drains, or the node has a new certificate. */
  | {
      readonly kind: "moving";
      readonly session: LiveSession;
      readonly attempt: Attempt;
      readonly until: MonotonicMs;
      /** In a row, since the move was asked for. */
      readonly failures: number;
    };

export interface LiveSession {
  readonly hub: number;
  readonly since: MonotonicMs;
  readonly rttMs: number;
}

export type TunnelEvent =
  | { readonly kind: "identityMissing"; readonly problem: string; readonly isRefused: boolean }
  | { readonly kind: "identityReady" }
  | { readonly kind: "connected" }
  | { readonly kind: "welcomed"; readonly now: MonotonicMs; readonly rttMs: number }
  | { readonly kind: "measured"; readonly rttMs: number }
  /** The dial, the greeting or the session. `retryAfter`: 0 for the usual back-off. `lot`: drawn from [0, 1). */
  | {
      readonly kind: "failed";
      readonly now: MonotonicMs;
      readonly problem: string;
      readonly isRefused: boolean;
      readonly retryAfter: Millis;
      readonly lot: number;
    }
  | { readonly kind: "moveAsked"; readonly now: MonotonicMs; readonly after: Millis; readonly elsewhere: boolean }
  | { readonly kind: "moveFailed"; readonly now: MonotonicMs; readonly lot: number }
  /** The network or the identity has changed: what failed before may work now. */
  | { readonly kind: "hurried" }
  | { readonly kind: "waited" };

export interface ReconnectSettings {
  readonly hubs: number;
  readonly initial: Millis;
  readonly max: Millis;
}

/** A hub that asks for more is believed to be mistaken: a board must not be lost to one wrong number. */
export const MAX_RETRY_AFTER = millis(3_600_000);
/** Bounds the delay that a draining hub may request. A hub drains for minutes. */
const MAX_MOVE_DELAY = millis(600_000);

export const initialState = (now: MonotonicMs): TunnelState => ({
  kind: "waitingForIdentity",
  outage: { since: now, problem: "", isRefused: false },
  attempt: { rounds: 0, hub: 0, tried: 0 },
});

/** Full jitter: uniform between nothing and the nominal delay, which doubles with each round that failed. */
export const reconnectDelay = (rounds: number, lot: number, { initial, max }: ReconnectSettings): Millis =>
  backoffDelay({ first: initial, max, jitter: FULL_JITTER }, Math.max(1, rounds), lot);

/** An event that does not belong to the state changes nothing: it is late. */
export function transition(state: TunnelState, event: TunnelEvent, settings: ReconnectSettings): TunnelState {
  switch (event.kind) {
    case "identityMissing":
      if (state.kind === "live" || state.kind === "moving") return state;
      return { kind: "waitingForIdentity", outage: withProblem(state.outage, event), attempt: state.attempt };
    case "identityReady":
      return state.kind === "waitingForIdentity" ? dialing(state) : state;
    case "connected":
      return state.kind === "dialing" ? { ...state, kind: "greeting" } : state;
    case "welcomed":
      return welcomed(state, event.now, event.rttMs);
    case "measured":
      if (state.kind !== "live" && state.kind !== "moving") return state;
      return { ...state, session: { ...state.session, rttMs: event.rttMs } };
    case "failed":
      return failed(state, event, settings);
    case "moveAsked":
      return moveAsked(state, event, settings);
    case "moveFailed":
      return moveFailed(state, event, settings);
    case "hurried":
      if (state.kind !== "backingOff" || !state.mayHurry) return state;
      return dialing({ ...state, attempt: { ...state.attempt, rounds: 0, tried: 0 } });
    case "waited":
      return state.kind === "backingOff" ? dialing(state) : state;
  }
}

const withProblem = (outage: Outage, { problem, isRefused }: Omit<Outage, "since">): Outage => {
  const isSame = problem === outage.problem && isRefused === outage.isRefused;
  return problem === "" || isSame ? outage : { ...outage, problem, isRefused };
};

const dialing = ({ outage, attempt }: { readonly outage: Outage; readonly attempt: Attempt }): TunnelState => ({
  kind: "dialing",
  outage,
  attempt,
});

function welcomed(state: TunnelState, now: MonotonicMs, rttMs: number): TunnelState {
  switch (state.kind) {
    case "greeting":
      // The rounds are forgotten only when the session has lived: see `failed`.
      return { kind: "live", session: { hub: state.attempt.hub, since: now, rttMs }, attempt: state.attempt };
    case "moving":
      // Seen from outside the tunnel was up all the time.
      return { kind: "live", session: { ...state.session, hub: state.attempt.hub, rttMs }, attempt: state.attempt };
    default:
      return state;
  }
}

type Failed = Extract<TunnelEvent, { kind: "failed" }>;

function failed(state: TunnelState, event: Failed, settings: ReconnectSettings): TunnelState {
  switch (state.kind) {
    case "waitingForIdentity":
    case "backingOff":
      return state;
    case "dialing":
    case "greeting":
      return afterFailedDial(state.attempt, withProblem(state.outage, event), event, settings);
    case "live":
    case "moving": {
      const outage = { since: event.now, problem: event.problem, isRefused: event.isRefused };
      // One that ended sooner than the longest back-off would, again and again, dial faster than the back-off allows.
      const hasLived = event.now - state.session.since >= settings.max;
      const rounds = hasLived ? 0 : state.attempt.rounds + 1;
      return backingOff({ rounds, hub: state.attempt.hub, tried: 0 }, outage, event, settings);
    }
  }
}

/** The next hub at once; when all were tried, later. */
function afterFailedDial(before: Attempt, outage: Outage, event: Failed, settings: ReconnectSettings): TunnelState {
  const hub = (before.hub + 1) % settings.hubs;
  const tried = before.tried + 1;
  if (tried < settings.hubs && event.retryAfter === 0) {
    return { kind: "dialing", outage, attempt: { ...before, hub, tried } };
  }
  return backingOff({ rounds: before.rounds + 1, hub, tried: 0 }, outage, event, settings);
}

function backingOff(attempt: Attempt, outage: Outage, event: Failed, settings: ReconnectSettings): TunnelState {
  const asked = Math.min(event.retryAfter, MAX_RETRY_AFTER);
  // All that were sent away together must not come back together.
  const delay = asked > 0 ? asked + event.lot * settings.initial : reconnectDelay(attempt.rounds, event.lot, settings);
  const until = (event.now + delay) as MonotonicMs;
  return { kind: "backingOff", outage, attempt, until, mayHurry: asked === 0 };
}

type MoveAsked = Extract<TunnelEvent, { kind: "moveAsked" }>;

function moveAsked(state: TunnelState, event: MoveAsked, { hubs }: ReconnectSettings): TunnelState {
  if (state.kind !== "live") return state;
  const until = (event.now + Math.min(event.after, MAX_MOVE_DELAY)) as MonotonicMs;
  const hub = event.elsewhere ? (state.session.hub + 1) % hubs : state.session.hub;
  const attempt = { rounds: state.attempt.rounds, hub, tried: 0 };
  return { kind: "moving", session: state.session, attempt, until, failures: 0 };
}

function moveFailed(
  state: TunnelState,
  { now, lot }: { readonly now: MonotonicMs; readonly lot: number },
  settings: ReconnectSettings,
): TunnelState {
  if (state.kind !== "moving") return state;
  const failures = state.failures + 1;
  const until = (now + reconnectDelay(failures, lot, settings)) as MonotonicMs;
  const attempt = { ...state.attempt, hub: (state.attempt.hub + 1) % settings.hubs };
  return { ...state, attempt, until, failures };
}
