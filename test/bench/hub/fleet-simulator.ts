/** Thousands of simulated boards in this process, against any hub whose client CA is at hand. */
import { type CertificateAuthority, makeClientPair } from "@picolet/hub/identity/certificate-authority.ts";
import { type BackoffPolicy, backoffDelay, FULL_JITTER } from "@picolet/protocol/async/backoff.ts";
import { ConsoleLog } from "@picolet/protocol/async/console-log.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { ObjectKey } from "@picolet/protocol/tunnel/messages.ts";
import { type BoardEvents, SimulatedBoard } from "./simulated-board.ts";

export interface FleetInit {
  /** `https://127.0.0.1:10270` */
  readonly hub: string;
  /** PEM: what the hub's certificate is verified against. */
  readonly hubCa: string;
  /** Issues the boards' certificates. */
  readonly clientCa: CertificateAuthority;
  readonly count: number;
  /** Names are this and a number. */
  readonly prefix: string;
}

const HEARTBEAT_MS = 30_000;
/** As an agent's: full jitter between nothing and a time that doubles from 1 s to 60 s. */
const RECONNECT: BackoffPolicy = { first: seconds(1), max: seconds(60), jitter: FULL_JITTER };
const NEVER = new AbortController().signal;

type OnObject = BoardEvents["onObject"];

export class FleetSimulator {
  readonly boards: readonly SimulatedBoard[];
  readonly #heartbeats: NodeJS.Timeout;
  readonly #failures = new Map<SimulatedBoard, number>();
  readonly #welcomed = new Set<SimulatedBoard>();
  #onWelcomed: () => void = () => undefined;
  readonly #waiting = new Map<SimulatedBoard, () => void>();
  #isEnding = false;
  #beat = 0;
  onObject: OnObject = () => undefined;
  /** Why connections ended, and how often. */
  readonly ends = new Map<string, number>();
  /** Welcomes by what they said of the desired set. */
  readonly welcomes = { current: 0, delta: 0, inventory: 0 };

  private constructor(make: (events: BoardEvents) => readonly SimulatedBoard[]) {
    this.boards = make({
      onObject: (board, key: ObjectKey, object) => this.onObject(board, key, object),
      onWelcome: (board, { desired }) => {
        this.welcomes[desired] += 1;
        this.#failures.delete(board);
        this.#welcomed.add(board);
        this.#onWelcomed();
        this.#waiting.get(board)?.();
        this.#waiting.delete(board);
      },
      onClosed: (board, reason) => this.#onClosed(board, reason),
    });
    // Spread evenly, as those of boards that started at different times are.
    const perTick = Math.ceil(this.boards.length / (HEARTBEAT_MS / 100));
    this.#heartbeats = setInterval(() => {
      for (let each = 0; each < perTick; each += 1) this.boards[this.#beat++ % this.boards.length]?.ping();
    }, 100);
  }

  static create({ hub, hubCa, clientCa, count, prefix }: FleetInit): FleetSimulator {
    const log = new ConsoleLog({ format: "text", level: "error", write: () => undefined, now: () => new Date() });
    return new FleetSimulator((events) =>
      Array.from({ length: count }, (_, index) => {
        const node = `${prefix}${index}`;
        const subject = [
          { type: "O", value: "system:nodes" },
          { type: "CN", value: `system:node:${node}` },
        ] as const;
        const pair = makeClientPair(clientCa, subject, { days: 1, now: new Date() });
        return new SimulatedBoard(
          { clock: systemClock, log },
          { node, hub, credentials: { ca: hubCa, ...pair } },
          events,
        );
      }),
    );
  }

  get welcomed(): number {
    return this.#welcomed.size;
  }

  /** Connects all, so many a second at most; resolves when all were welcomed. */
  async connect(perSecond: number): Promise<void> {
    const all = this.allWelcomed();
    const perTick = Math.max(1, Math.round(perSecond / 20));
    for (let at = 0; at < this.boards.length; at += perTick) {
      for (const board of this.boards.slice(at, at + perTick)) board.connect();
      await systemClock.sleep(millis(50), NEVER);
    }
    await all;
  }

  /** Resolves as soon as every board has a session. */
  allWelcomed(): Promise<void> {
    return new Promise((resolve) => {
      this.#onWelcomed = () => {
        if (this.#welcomed.size === this.boards.length) resolve();
      };
      this.#onWelcomed();
    });
  }

  /** Ends the session of `board` as a restart does; it dials again by itself. Resolves with its next welcome. */
  restart(board: SimulatedBoard): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.set(board, resolve);
      board.end();
    });
  }

  #onClosed(board: SimulatedBoard, reason: string): void {
    this.#welcomed.delete(board);
    this.ends.set(reason, (this.ends.get(reason) ?? 0) + 1);
    if (this.#isEnding) return;
    const failures = (this.#failures.get(board) ?? 0) + 1;
    this.#failures.set(board, failures);
    const delay = backoffDelay(RECONNECT, failures, Math.random());
    setTimeout(() => {
      if (!this.#isEnding) board.connect();
    }, delay);
  }

  end(): void {
    this.#isEnding = true;
    clearInterval(this.#heartbeats);
    for (const board of this.boards) board.end();
  }
}
