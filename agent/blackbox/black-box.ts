import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { TokenBucket } from "@picolet/protocol/async/token-bucket.ts";
import { type PublicText, publicMessage, publicName } from "@picolet/protocol/decisions/public-text.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type Millis, type MonotonicMs, millis, seconds } from "@picolet/protocol/ports.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Decision, DecisionRecorder } from "../core/store/decisions.ts";
import type { KernelPanic } from "./kernel-panic.ts";
import { RingFile } from "./ring-file.ts";
import { encodeLine, type RingLine } from "./ring-lines.ts";
import type { RecordTime, RingRecord } from "./ring-record.ts";

/** Batches the decisions of one cause, such as all steps of a pod's start. After a power cut at most this is missing. */
const WRITE_DELAY = seconds(2);
/** The delay of a count that has grown: 24 pages of flash a day for a container that keeps ending. */
const COUNT_DELAY = seconds(3600);
/**
 * Bounds the wear by a tenant who changes pods all day: 16 writes at once, then one in 5 minutes, each of one or two
 * pages, are at most 2.3 MiB a day of the agent's 5. Then a power cut may cost the decisions of 5 minutes.
 */
const WRITES = { burst: 16, rate: 1 / 300 };
/** Equal decisions within this time are one record with a count. */
const SAME_WITHIN_MS = 3_600_000;
/** Bounds memory at about 40 KiB: decisions that may still repeat. A crash loop has three of them. */
const MAX_RECENT = 128;
/** Bounds memory while the disk takes nothing; the oldest are dropped first. */
const MAX_PENDING = 256;
/** The wait before another attempt to write to a disk that refused. */
const RETRY = seconds(60);
/** A clock that differs by more from what it showed before was set. */
const CLOCK_JUMP_MS = 60_000;
const BOOT_ID_DIGITS = 8;

export interface BlackBoxComponents {
  readonly clock: Clock;
  readonly log: Log;
  /** False while the clock is known to be behind: before 1971, or before the time that a hub has confirmed. */
  readonly isClockSet: () => boolean;
}

export interface BlackBoxInit {
  readonly path: string;
  /** The file's, in bytes. */
  readonly size: number;
  /** The kernel's `boot_id`. */
  readonly bootId: string;
  /** The time since the boot at the monotonic clock's zero. */
  readonly uptimeAtZero: Millis;
  /**
   * When other files of the agent were last written, as wall times: how long the board lived before a power cut. Called
   * before the agent writes any.
   */
  readonly signsOfLife: () => readonly number[];
  /** The panic that ended the boot before this one. @param isNewBoot the agent has not run in this boot before */
  readonly kernelPanic?: ((isNewBoot: boolean) => KernelPanic | undefined) | undefined;
  /** Why the agent ends; asked once, when it does. */
  readonly ending: () => "asked" | "restart" | "failed";
}

/** A panic, without secrets. */
type PanicText = Readonly<Record<keyof KernelPanic, PublicText>>;

/** A decision and its repetitions. */
interface Occurrence {
  /** The first one's; 0 until it is written. */
  sequence: number;
  count: number;
  readonly first: RecordTime;
  latest: RecordTime;
  lastAt: MonotonicMs;
  decision: Decision;
  readonly isClockSet: boolean;
  readonly pod: Pick<RingRecord, "p" | "u">;
}

/** Records decisions in a ring on disk. Reading is in `reading/`, which is loaded with the first question. */
export class BlackBox implements Component, DecisionRecorder {
  readonly name = "black box";
  readonly #components: BlackBoxComponents;
  readonly #init: BlackBoxInit;
  readonly #alarm: Alarm;
  readonly #writes: TokenBucket;
  /** By `keyOf`, least recent first. */
  readonly #recent = new Map<string, Occurrence>();
  /** To be written, in order. */
  readonly #pending = new Set<Occurrence>();
  #ring: RingFile | undefined;
  #flush: Promise<void> = Promise.resolve();
  #sequence = 0;
  #boot: RingRecord["b"];
  #stretch = 1;
  /** Wall minus monotonic time of the last decision. */
  #wallAtZero: number | undefined;
  #isFailing = false;
  #panic: PanicText | undefined;

  private constructor(components: BlackBoxComponents, init: BlackBoxInit) {
    this.#components = components;
    this.#init = init;
    this.#alarm = new Alarm(components.clock);
    this.#writes = new TokenBucket({ clock: components.clock }, WRITES);
    this.#boot = [1, init.bootId.slice(0, BOOT_ID_DIGITS)];
  }

  /** Continues the ring on disk, and records how the life before this one ended. Never throws. */
  static async open(components: BlackBoxComponents, init: BlackBoxInit): Promise<BlackBox> {
    const box = new BlackBox(components, init);
    await box.#open();
    box.#begin();
    return box;
  }

  get path(): string {
    return this.#init.path;
  }

  /** This boot: its count and the first digits of its id. */
  get boot(): RingRecord["b"] {
    return this.#boot;
  }

  /** The panic that ended the boot before this one. */
  get kernelPanic(): PanicText | undefined {
    return this.#panic;
  }

  /** Multiplies the delay of what can wait, such as counts. @param factor 1: as usual */
  stretch(factor: number): void {
    this.#stretch = factor;
  }

  record(decision: Decision, pod?: DesiredPod): void {
    this.#noteClock();
    this.#record(decision, pod);
  }

  #record(decision: Decision, pod?: DesiredPod): void {
    const key = keyOf(decision, pod);
    const now = this.#components.clock.monotonic();
    const known = this.#recent.get(key);
    if (known !== undefined && now - known.lastAt < SAME_WITHIN_MS) {
      known.count += 1;
      known.latest = this.#now();
      known.lastAt = now;
      known.decision = decision;
      this.#remember(key, known);
      const isNews = known.sequence === 0 || Number.isInteger(Math.log2(known.count));
      this.#keepBack(known, isNews ? WRITE_DELAY : millis(COUNT_DELAY * this.#stretch));
      return;
    }
    const at = this.#now();
    const isClockSet = this.#components.isClockSet();
    const own = pod === undefined ? {} : { p: `${pod.pod.metadata.namespace}/${pod.pod.metadata.name}`, u: pod.uid };
    const occurrence = { sequence: 0, count: 1, first: at, latest: at, lastAt: now, decision, isClockSet, pod: own };
    this.#remember(key, occurrence);
    this.#keepBack(occurrence, WRITE_DELAY);
  }

  /** What is not on disk yet, oldest first. A record that replaces one on disk names it. */
  pending(): readonly RingRecord[] {
    return [...this.#pending].map((each, index) => this.#recordOf(each, this.#sequence + index + 1));
  }

  async run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#alarm.ring(signal);
      await this.#writes.take(signal);
      await this.flush();
    }
  }

  /** Resolves when the writes that have begun are over. */
  flushed(): Promise<void> {
    return this.#flush;
  }

  /** Writes what is pending. Never throws: what the disk refuses is tried again later. */
  flush(): Promise<void> {
    this.#flush = this.#flush.then(() => this.#write());
    return this.#flush;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#record({ kind: "agentStopped", cause: publicName(this.#init.ending()) });
    await this.flush();
  }

  async #open(): Promise<RingLine | undefined> {
    try {
      const { file, newest } = await RingFile.open(this.#init.path, this.#init.size);
      this.#ring = file;
      this.#newest = newest === undefined ? undefined : (JSON.parse(newest.json) as RingRecord);
      this.#sequence = Math.max(this.#sequence, newest?.sequence ?? 0);
      return newest;
    } catch (error) {
      this.#failed(error);
      return undefined;
    }
  }

  #newest: RingRecord | undefined;

  #begin(): void {
    const last = this.#newest;
    const { clock, isClockSet } = this.#components;
    const id = this.#boot[1];
    const isSameBoot = last?.b[1] === id;
    this.#boot = [last === undefined ? 1 : last.b[0] + (isSameBoot ? 0 : 1), id];
    const stopped = last?.d.kind === "agentStopped" ? last.d.cause : undefined;
    const panic = this.#init.kernelPanic?.(last !== undefined && !isSameBoot);
    this.#panic = panic && { message: publicMessage(panic.message), path: publicName(panic.path) };
    const isAfterPanic = this.#panic !== undefined && !isSameBoot;
    const after = isAfterPanic ? "kernelPanic" : beginningOf(last, isSameBoot, stopped);
    const now = clock.wall().getTime();
    if ((after === "powerCut" || isAfterPanic) && last !== undefined) {
      const lastWall = last.t[1];
      const signs = this.#init.signsOfLife();
      const lastSignWallMs = Math.max(lastWall, ...signs.filter((each) => each > lastWall && each < now));
      const downMs = isClockSet() && last.x === undefined ? Math.max(0, now - lastSignWallMs) : undefined;
      const figures = { lastSignWallMs, downMs };
      this.#record(
        this.#panic === undefined ? { kind: "powerCut", figures } : { kind: "kernelPanic", ...this.#panic, figures },
      );
    }
    this.#record({ kind: "agentStarted", version: publicName(VERSION), after: publicName(after) });
  }

  #now(): RecordTime {
    const { clock } = this.#components;
    return [Math.round(this.#init.uptimeAtZero + clock.monotonic()), clock.wall().getTime()];
  }

  #noteClock(): void {
    const { clock } = this.#components;
    const wallAtZero = clock.wall().getTime() - clock.monotonic();
    const byMs = Math.round(wallAtZero - (this.#wallAtZero ?? wallAtZero));
    // Slow drift, and the kernel's slewing, are no news.
    if (this.#wallAtZero === undefined || Math.abs(byMs) > CLOCK_JUMP_MS) this.#wallAtZero = wallAtZero;
    if (Math.abs(byMs) > CLOCK_JUMP_MS) this.#record({ kind: "clockCorrected", figures: { byMs } });
  }

  #remember(key: string, occurrence: Occurrence): void {
    this.#recent.delete(key);
    this.#recent.set(key, occurrence);
    if (this.#recent.size <= MAX_RECENT) return;
    const [leastRecent] = this.#recent.keys();
    if (leastRecent !== undefined) this.#recent.delete(leastRecent);
  }

  #keepBack(occurrence: Occurrence, delay: Millis): void {
    this.#pending.add(occurrence);
    if (this.#pending.size > MAX_PENDING) {
      const [oldest] = this.#pending;
      if (oldest !== undefined) this.#pending.delete(oldest);
    }
    this.#alarm.set(this.#isFailing ? RETRY : delay);
  }

  async #write(): Promise<void> {
    if (this.#pending.size === 0) return;
    if (this.#ring === undefined) await this.#open();
    const ring = this.#ring;
    if (ring === undefined) return;
    const batch = [...this.#pending].map((occurrence, index) => {
      const sequence = this.#sequence + index + 1;
      return { occurrence, sequence, count: occurrence.count, line: encodeLine(this.#recordOf(occurrence, sequence)) };
    });
    this.#sequence += batch.length;
    try {
      await ring.append(batch.flatMap(({ line }) => line ?? []));
    } catch (error) {
      this.#ring = undefined;
      this.#failed(error);
      return;
    }
    this.#isFailing = false;
    for (const { occurrence, sequence, count } of batch) {
      if (occurrence.sequence === 0) occurrence.sequence = sequence;
      // One that was repeated meanwhile waits on.
      if (occurrence.count === count) this.#pending.delete(occurrence);
    }
  }

  #recordOf(each: Occurrence, n: number): RingRecord {
    const { count, first, latest, decision, isClockSet, pod, sequence } = each;
    return {
      ...{ n, b: this.#boot, t: latest },
      ...(isClockSet ? {} : { x: 1 as const }),
      ...(count > 1 ? { c: count, f: first } : {}),
      ...(sequence > 0 ? { r: sequence } : {}),
      ...pod,
      d: decision,
    };
  }

  #failed(error: unknown): void {
    if (!this.#isFailing) {
      const fields = { path: this.#init.path, error: describeError(error) };
      this.#components.log.warn("cannot write to the black box; tries again", fields);
    }
    this.#isFailing = true;
    this.#alarm.set(RETRY);
  }
}

function beginningOf(last: RingRecord | undefined, isSameBoot: boolean, stopped: string | undefined): string {
  if (last === undefined) return "first";
  if (!isSameBoot) return stopped === "asked" ? "reboot" : "powerCut";
  if (stopped === "restart") return "restarted";
  if (stopped === "failed") return "failed";
  return stopped === undefined ? "killed" : "stopped";
}

/** Equal for decisions of one pod, or of the node, that differ in figures alone. */
function keyOf(decision: Decision, pod: DesiredPod | undefined): string {
  const { figures: _, ...rest } = decision as Decision & { readonly figures?: unknown };
  return `${pod?.uid ?? ""} ${JSON.stringify(rest)}`;
}
