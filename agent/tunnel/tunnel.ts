import { cancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { publicMessage } from "@picolet/protocol/decisions/public-text.ts";
import { describeError, ignore, isCancelled, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import type { TunnelReport } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type Millis, type MonotonicMs, millis, type Random } from "@picolet/protocol/ports.ts";
import type { ReviewParams, StreamOpener, TokenParams } from "@picolet/protocol/tunnel/stream.ts";
import type { IssuedToken } from "../core/hub/cluster-objects.ts";
import type { HubAddress } from "../core/hub/hub-address.ts";
import { isRefusal, type NodeCredentials, type NodeIdentity } from "../core/hub/identity.ts";
import type { StreamHandlers, TunnelPorts } from "../core/hub/tunnel-ports.ts";
import type { DecisionRecorder } from "../core/store/decisions.ts";
import { type EventRecorder, nodeReference } from "../core/store/store-ports.ts";
import type { Connection, Dialer } from "./dialing/dialer.ts";
import type { NetworkChanges } from "./dialing/network-changes.ts";
import { TunnelError } from "./dialing/tunnel-error.ts";
import { AcknowledgedReport } from "./lanes/node-lane.ts";
import { SentStatuses } from "./lanes/sent-statuses.ts";
import { Session } from "./session.ts";
import {
  initialState,
  type ReconnectSettings,
  type TunnelEvent,
  type TunnelState,
  transition,
} from "./session-state.ts";
import { StreamDispatch } from "./stream-dispatch.ts";
import { requestToken } from "./token-request.ts";
import { reportOf, type TunnelCounters } from "./tunnel-report.ts";

export interface TunnelComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly node: TunnelPorts;
  readonly identity: Pick<NodeIdentity, "state" | "worked" | "refused" | "observeTime">;
  readonly handlers: StreamHandlers;
  readonly events: EventRecorder;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
  readonly dialer: Dialer;
  readonly network: NetworkChanges;
}

export interface TunnelInit {
  readonly nodeName: string;
  /** Tried in turn; at least one. */
  readonly hubs: readonly HubAddress[];
  readonly heartbeatInterval: Millis;
  readonly reconnectBackoff: { readonly initial: Millis; readonly max: Millis };
}

/** Bounds the logged problems of one outage; the last one is always in the report. */
const MAX_LOGGED_PROBLEMS = 16;

interface Current {
  readonly session: Session;
  readonly connection: Connection;
  readonly credentials: NodeCredentials;
  /** Resolves with the reason. */
  readonly ended: Promise<PicoletError>;
}

/**
 * Keeps a session with a hub as long as there is an identity and a way. One task; all of its state is `TunnelState`.
 */
export class Tunnel implements Component {
  readonly name = "tunnel";
  readonly #components: TunnelComponents;
  readonly #init: TunnelInit;
  readonly #settings: ReconnectSettings;
  readonly #streams: StreamDispatch;
  readonly #sent = new SentStatuses();
  readonly #acknowledged = new AcknowledgedReport();
  #state: TunnelState;
  #current: Current | undefined;
  /** Counters of ended sessions. */
  #past: Omit<TunnelCounters, "sessions"> = { bytesSent: 0, bytesReceived: 0 };
  #sessions = 0;
  /** Problems of this outage that are in the log and among the events. */
  readonly #told = new Set<string>();
  /** Ends the wait for the replacement of the current session. */
  #moveAsked: (() => void) | undefined;

  constructor(components: TunnelComponents, init: TunnelInit) {
    this.#components = components;
    this.#init = init;
    const { initial, max } = init.reconnectBackoff;
    this.#settings = { hubs: init.hubs.length, initial, max };
    this.#streams = new StreamDispatch(components.handlers);
    this.#state = initialState(components.clock.monotonic());
  }

  report(): TunnelReport {
    const { clock, node, identity } = this.#components;
    return reportOf(this.#state, {
      identity: identity.state.current,
      now: clock.monotonic(),
      wall: clock.wall(),
      hubs: this.#init.hubs,
      pendingStatuses: node.statuses.pendingCount(),
      counters: {
        bytesSent: this.#past.bytesSent + (this.#current?.connection.bytesSent ?? 0),
        bytesReceived: this.#past.bytesReceived + (this.#current?.connection.bytesReceived ?? 0),
        sessions: this.#sessions,
      },
    });
  }

  /** @throws `unavailable` at once without a session; what the hub refuses it with; `cancelled` */
  async requestToken(params: TokenParams, signal: AbortSignal): Promise<IssuedToken> {
    return await requestToken(this.#session("cannot request a token"), params, signal);
  }

  /** @throws as `requestToken` */
  async review(params: ReviewParams, signal: AbortSignal): Promise<unknown> {
    const stream = await this.#session("cannot review a client").open("token", params, "status", signal);
    // Everything is in the reply.
    stream.end();
    return stream.reply;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) await this.#step(signal);
    } finally {
      await this.#endCurrent();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#endCurrent();
  }

  #session(what: string): StreamOpener {
    if (this.#current !== undefined) return this.#current.session;
    throw new PicoletError("unavailable", `${what}: there is no connection to a hub`, { retryable: true });
  }

  /** Does what the state asks for, until there is something new. */
  async #step(signal: AbortSignal): Promise<void> {
    switch (this.#state.kind) {
      case "waitingForIdentity":
        await this.#waitForIdentity(signal);
        return;
      case "backingOff":
        await this.#waitToDial(this.#state.until, signal);
        return;
      case "dialing":
      case "greeting":
        await this.#dial(this.#state.attempt.hub, signal);
        return;
      case "live":
        await this.#live(signal);
        return;
      case "moving":
        await this.#move(this.#state.until, this.#state.attempt.hub, signal);
    }
  }

  async #waitForIdentity(signal: AbortSignal): Promise<void> {
    for await (const state of this.#components.identity.state.changes(signal)) {
      if (state.kind === "joined") {
        this.#apply({ kind: "identityReady" });
        return;
      }
      this.#apply({ kind: "identityMissing", problem: state.problem, isRefused: state.isRefused });
    }
  }

  async #waitToDial(until: MonotonicMs, signal: AbortSignal): Promise<void> {
    const { clock, network } = this.#components;
    using wait = joinSignals(signal);
    const due = clock.sleep(this.#until(until), wait.signal).then((): TunnelEvent => ({ kind: "waited" }));
    const hurry = (): TunnelEvent => ({ kind: "hurried" });
    const changed = network.changed(wait.signal).then(hurry);
    const renewed = this.#identityChange(this.#credentials(), wait.signal).then(hurry);
    for (const each of [due, changed, renewed])
      each.catch(ignore("the race has the first; the others are cancelled with the wait"));
    try {
      this.#apply(await Promise.race([due, changed, renewed]));
      // The hub has said how long to stay away: the rest of the wait.
      if (this.#state.kind === "backingOff") this.#apply(await due);
    } finally {
      wait.abort();
    }
  }

  async #dial(hub: number, signal: AbortSignal): Promise<void> {
    const credentials = this.#credentials();
    if (credentials === undefined) {
      this.#apply({ kind: "identityMissing", problem: "", isRefused: false });
      return;
    }
    try {
      const connection = await this.#components.dialer.dial(this.#hub(hub), credentials, signal);
      this.#apply({ kind: "connected" });
      await this.#greet(connection, credentials, signal, signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      this.#reportRefusal(error, credentials);
      this.#failed(error);
    }
  }

  /**
   * The new session takes the place of the current one, if there is one.
   * @param life of the session
   * @throws why there is no session
   */
  async #greet(
    connection: Connection,
    credentials: NodeCredentials,
    life: AbortSignal,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, log, network, node, identity } = this.#components;
    const session: Session = new Session(
      {
        ...{ clock, log, connection, network, node },
        ...{ streams: this.#streams, sent: this.#sent, acknowledged: this.#acknowledged },
        onDrain: () => this.#moveIfDrained(session),
        onMeasured: (rttMs) => this.#apply({ kind: "measured", rttMs }),
      },
      { heartbeatInterval: this.#init.heartbeatInterval },
    );
    const greeting = await session.greet(signal);
    try {
      identity.observeTime(greeting.welcome.timeMs, greeting.rttMs);
      identity.worked(credentials);
    } catch (error) {
      session.close(toPicoletError(error, "failed", "the identity could not be kept"));
      throw error;
    }
    const before = this.#current;
    this.#sessions += 1;
    this.#current = { session, connection, credentials, ended: session.run(greeting, life) };
    if (before !== undefined) this.#put(before, "the session, which another one replaces,");
    this.#apply({ kind: "welcomed", now: clock.monotonic(), rttMs: greeting.rttMs });
    this.#moveIfDrained(session);
  }

  async #live(signal: AbortSignal): Promise<void> {
    const current = this.#mustHaveSession();
    using wait = joinSignals(signal);
    const asked = new Promise<undefined>((resolve) => {
      this.#moveAsked = () => resolve(undefined);
    });
    const renewed = this.#identityChange(current.credentials, wait.signal);
    try {
      const error = await Promise.race([current.ended, asked, renewed]);
      if (error !== undefined) this.#lost(current, error);
      // A new certificate is tried while the old one still holds the session.
      else if (!signal.aborted && this.#state.kind === "live") this.#askToMove(millis(0), false);
    } finally {
      wait.abort();
    }
  }

  async #move(until: MonotonicMs, hub: number, signal: AbortSignal): Promise<void> {
    const current = this.#mustHaveSession();
    using wait = joinSignals(signal);
    const attempt = this.#tryToMove(until, hub, current, signal, wait.signal);
    const error = await Promise.race([current.ended, attempt]);
    // A hub that takes the new one ends the old one first.
    if (!current.session.isRetired) wait.abort();
    await attempt;
    wait.abort();
    if (error !== undefined && this.#current === current) this.#lost(current, error);
  }

  /** Ends the current session when it has given up its place and the new one could not take it. */
  async #tryToMove(
    until: MonotonicMs,
    hub: number,
    current: Current,
    life: AbortSignal,
    signal: AbortSignal,
  ): Promise<undefined> {
    const { clock, dialer, log, random } = this.#components;
    const credentials = this.#credentials() ?? current.credentials;
    let hasRetired = false;
    try {
      await clock.sleep(this.#until(until), signal);
      const connection = await dialer.dial(this.#hub(hub), credentials, signal);
      current.session.retire();
      hasRetired = true;
      await this.#greet(connection, credentials, life, signal);
    } catch (error) {
      if (hasRetired) current.session.close(toPicoletError(error, "unavailable", "cannot move the tunnel"));
      if (isCancelled(error)) return;
      this.#reportRefusal(error, credentials);
      log.warn("cannot move the tunnel to another session yet", { error: describeError(error) });
      this.#apply({ kind: "moveFailed", now: clock.monotonic(), lot: random.next() });
    }
  }

  /** Resolves when the node has credentials other than `known`, and when `signal` aborts. */
  async #identityChange(known: NodeCredentials | undefined, signal: AbortSignal): Promise<undefined> {
    for await (const state of this.#components.identity.state.changes(signal)) {
      if (state.kind === "joined" && state.credentials !== known) return;
    }
  }

  #credentials(): NodeCredentials | undefined {
    const { current } = this.#components.identity.state;
    return current.kind === "joined" ? current.credentials : undefined;
  }

  #reportRefusal(error: unknown, credentials: NodeCredentials): void {
    if (error instanceof TunnelError && error.isRefusal) {
      this.#components.identity.refused(credentials, describeError(error));
    }
  }

  #moveIfDrained(session: Session): void {
    if (session.drain === undefined || this.#current?.session !== session) return;
    this.#components.log.info("the hub asks to go elsewhere", { reason: session.drain.reason });
    this.#askToMove(millis(session.drain.reconnectAfterMs), true);
  }

  #askToMove(after: Millis, elsewhere: boolean): void {
    this.#apply({ kind: "moveAsked", now: this.#components.clock.monotonic(), after, elsewhere });
    this.#moveAsked?.();
  }

  #lost(current: Current, error: PicoletError): void {
    this.#current = undefined;
    this.#put(current, "the session");
    this.#failed(error);
  }

  /** Ends a session that is not current any more. */
  #put({ session, connection }: Current, what: string): void {
    session.close(cancelled(what));
    this.#past = {
      bytesSent: this.#past.bytesSent + connection.bytesSent,
      bytesReceived: this.#past.bytesReceived + connection.bytesReceived,
    };
  }

  #failed(error: unknown): void {
    const { clock, random } = this.#components;
    const retryAfter = error instanceof TunnelError ? error.retryAfter : millis(0);
    const problem = describeError(error);
    const isRefused = isRefusal(error) || (error instanceof TunnelError && error.isRefusal);
    this.#apply({ kind: "failed", now: clock.monotonic(), problem, isRefused, retryAfter, lot: random.next() });
  }

  #apply(event: TunnelEvent): void {
    const before = this.#state;
    this.#state = transition(before, event, this.#settings);
    if (this.#state !== before) this.#logChange(before, this.#state);
  }

  /** Logs each change between connected and not connected once, and each new problem. */
  #logChange(before: TunnelState, after: TunnelState): void {
    const { log } = this.#components;
    const wasUp = "session" in before;
    if ("session" in after) {
      if (wasUp) return;
      this.#told.clear();
      const { url } = this.#hub(after.session.hub);
      log.info("the tunnel is up", { hub: url, rttMs: Math.round(after.session.rttMs) });
      this.#components.decisions?.record({ kind: "hubReached" });
      this.#record("Normal", "TunnelConnected", `connected to hub ${url}`);
      return;
    }
    const { problem } = after.outage;
    if (problem === "" || (!wasUp && this.#hasReported(problem))) return;
    this.#told.add(problem);
    this.#components.decisions?.record({ kind: "hubLost", message: publicMessage(problem) });
    log.warn(wasUp ? "the tunnel is down" : "there is no tunnel", { error: problem });
    this.#record("Warning", wasUp ? "TunnelDisconnected" : "TunnelUnavailable", problem);
  }

  /** Several hubs fail in several ways in turn, for weeks. */
  #hasReported(problem: string): boolean {
    return this.#told.has(problem) || this.#told.size >= MAX_LOGGED_PROBLEMS;
  }

  #record(type: "Normal" | "Warning", reason: string, message: string): void {
    const { nodeName } = this.#init;
    const regarding = nodeReference(nodeName);
    this.#components.events.record({ regarding, type, reason, message });
  }

  async #endCurrent(): Promise<void> {
    const current = this.#current;
    this.#current = undefined;
    if (current === undefined) return;
    this.#put(current, "the session");
    await current.ended;
  }

  #mustHaveSession(): Current {
    if (this.#current === undefined) throw new PicoletError("internal", "cannot be live without a session");
    return this.#current;
  }

  #hub(index: number): HubAddress {
    const hub = this.#init.hubs[index];
    if (hub === undefined) throw new PicoletError("internal", `cannot find hub ${index}`);
    return hub;
  }

  #until(at: MonotonicMs): Millis {
    return millis(Math.max(0, at - this.#components.clock.monotonic()));
  }
}
