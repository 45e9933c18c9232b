import type { FleetBackend, NodeBackend } from "@picolet/hub-core/fleet.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, type Random } from "@picolet/protocol/ports.ts";
import type { EventItem } from "@picolet/protocol/tunnel/messages.ts";
import { NodeMemories, type NodeMemory } from "./desired-memory.ts";
import { type NodeSession, type SessionLease, SessionRefused } from "./node-session.ts";

export interface RegistryComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly backend: FleetBackend;
}

export interface RegistryInit {
  /** Nodes that are away and whose set is still known, some kilobytes each. */
  readonly maxRemembered: number;
}

interface Seat {
  readonly node: string;
  readonly backend: NodeBackend;
  readonly memory: NodeMemory;
  session: NodeSession | undefined;
  /** Monotonic milliseconds at which one session took over from another. */
  takeovers: number[];
  /** Time of the last report that two agents use this name. */
  reportedAt: number;
  /** Set while the seat is being given back; the next session waits for it and takes a new one. */
  leaving: Promise<void> | undefined;
}

/**
 * Two agents with one name would take the node from each other for ever. One agent on a bad link takes over from itself
 * now and then, but the session before is dead then; so beyond this many in a minute the older is asked first.
 */
const MAX_TAKEOVERS = 3;
const TAKEOVER_WINDOW_MS = 60_000;
/** An agent that is there answers a ping in that time. */
const PROBE_LIMIT = millis(5000);
/**
 * The second agent of a name stays away about this long, in which an operator may find out which of the two is right.
 */
const STAY_AWAY_MS = 60_000;
/**
 * Writes of the previous session have been cancelled; an API server that does not answer cannot hold up a node longer.
 */
const SETTLE_LIMIT = millis(10_000);

/** The session of each node; the node's backend lives from its first session to the end of its last. */
export class NodeRegistry implements AsyncDisposable {
  readonly #components: RegistryComponents;
  readonly #seats = new Map<string, Seat>();
  readonly #memories: NodeMemories;
  readonly #life = new AbortController();

  constructor(components: RegistryComponents, init: RegistryInit) {
    this.#components = components;
    this.#memories = new NodeMemories(init.maxRemembered);
  }

  /** @throws SessionRefused when another agent holds the name */
  async admit(session: NodeSession): Promise<SessionLease> {
    const seat = await this.#freeSeat(session);
    const before = seat.session;
    seat.session = session;
    if (before !== undefined) {
      this.#supersede(seat, before, session);
      await this.#settle(before);
    }
    // It may have ended while it waited, when it had no seat to give back yet.
    if (session.isClosed) this.ended(session);
    return seat;
  }

  /** The node's seat, whose session, if it has one, may be superseded. */
  async #freeSeat(session: NodeSession): Promise<Seat> {
    for (;;) {
      const seat = this.#seats.get(session.node) ?? this.#newSeat(session.node);
      if (seat.leaving !== undefined) {
        await seat.leaving;
        continue;
      }
      const now = this.#components.clock.monotonic();
      seat.takeovers = seat.takeovers.filter((at) => at > now - TAKEOVER_WINDOW_MS);
      const older = seat.session;
      if (older === undefined || older.isClosed || seat.takeovers.length < MAX_TAKEOVERS) return seat;
      if (await older.isAlive(PROBE_LIMIT)) throw this.#conflict(seat, older, session);
      if (seat.session === older && seat.leaving === undefined) return seat;
    }
  }

  #newSeat(node: string): Seat {
    const backend = this.#components.backend.connect(node);
    const memory = this.#memories.take(node);
    const reportedAt = Number.NEGATIVE_INFINITY;
    const seat: Seat = { node, backend, memory, session: undefined, takeovers: [], reportedAt, leaving: undefined };
    this.#seats.set(node, seat);
    return seat;
  }

  #supersede(seat: Seat, before: NodeSession, session: NodeSession): void {
    if (before.isClosed) return;
    const { clock, log } = this.#components;
    seat.takeovers.push(clock.monotonic());
    const { node, address } = session;
    log.info("a session took over from an older one", { node, address, before: before.address });
    const message = `another session of node ${node} has begun, from ${address}`;
    // One that is alive is another agent, or has begun the newer session itself: either way it need not hurry.
    const retryAfterMs = this.#spread((STAY_AWAY_MS * seat.takeovers.length) / (2 * MAX_TAKEOVERS));
    before.refuse({ kind: "refusal", code: "superseded", message, retryAfterMs });
  }

  #conflict(seat: Seat, older: NodeSession, session: NodeSession): SessionRefused {
    const { clock, log } = this.#components;
    const { node, address } = session;
    const message =
      `two agents use the name ${node}: one at ${older.address}, which is connected, one at ${address}; ` +
      "give one of them another name, with which it joins again";
    const now = clock.monotonic();
    if (seat.reportedAt < now - TAKEOVER_WINDOW_MS) {
      seat.reportedAt = now;
      log.warn("two agents use one name", { node, address, connected: older.address });
      this.#report(seat, message).catch((error: unknown) => {
        if (!isCancelled(error)) log.warn("cannot record an event", { node, error: describeError(error) });
      });
    }
    return new SessionRefused("superseded", message, this.#spread(STAY_AWAY_MS));
  }

  async #report({ node, backend }: Seat, message: string): Promise<void> {
    const nowMs = this.#components.clock.wall().getTime();
    const event: EventItem = {
      id: `${node}.duplicate-name`,
      regarding: { kind: "Node", namespace: "", name: node, uid: node, fieldPath: "" },
      type: "Warning",
      reason: "DuplicateNodeName",
      message,
      count: 1,
      firstAtMs: nowMs,
      lastAtMs: nowMs,
    };
    await backend.putEvents([event], this.#life.signal);
  }

  #spread(ms: number): number {
    return Math.floor(ms * (0.75 + this.#components.random.next() / 2));
  }

  /** Its writes are over: what the next session writes comes after them. */
  async #settle(session: NodeSession): Promise<void> {
    const { clock, log } = this.#components;
    try {
      await withDeadline(clock, SETTLE_LIMIT, "end the session's writes", () => session.settled(), this.#life.signal);
    } catch (error) {
      if (!isCancelled(error))
        log.warn("a session was left behind", { node: session.node, error: describeError(error) });
    }
  }

  /** The session is over. When no other has taken its seat by the time its writes are, the seat is given back. */
  ended(session: NodeSession): void {
    const seat = this.#seats.get(session.node);
    if (seat?.session !== session) return;
    this.#giveBack(seat, session).catch((error: unknown) => {
      this.#components.log.warn("cannot release a node", { node: seat.node, error: describeError(error) });
    });
  }

  async #giveBack(seat: Seat, session: NodeSession): Promise<void> {
    await this.#settle(session);
    if (seat.session !== session || seat.leaving !== undefined) return;
    const gone = Promise.withResolvers<void>();
    seat.leaving = gone.promise;
    try {
      await seat.backend[Symbol.asyncDispose]();
    } finally {
      this.#memories.keep(seat.node, seat.memory);
      this.#seats.delete(seat.node);
      gone.resolve();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    const seats = [...this.#seats.values()].filter(({ leaving }) => leaving === undefined);
    await Promise.all(
      seats.map(async (seat) => {
        if (seat.session !== undefined) await this.#giveBack(seat, seat.session);
      }),
    );
  }
}
