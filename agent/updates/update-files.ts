/**
 * The folder of updates: the progress, and the files that the agent and the boot check (`firmware/updates/boot-check`)
 * pass each other. A file is whole or not there. The boot check owns a trial from the file `trial` on until it has
 * written `result`.
 */

import { isRecord } from "@picolet/protocol/guards.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { UpdateKind } from "@picolet/protocol/updates/node-updates.ts";
import type { HealthBefore } from "../plan/updates/judge-health.ts";
import { UPDATE_ORDER } from "../plan/updates/plan-update.ts";
import type { TrialOutcome, UpdatePhase, UpdateRecord, UpdateRecords } from "../plan/updates/update-state.ts";

/** The part of `DurableFolder` that is used here. */
export interface UpdateFolder {
  read(name: string): string | undefined;
  write(name: string, text: string): void;
  rename(from: string, to: string): void;
  remove(name: string): void;
  sync(): void;
}

/** An operator keeps the board from restarting. */
export interface OperatorHold {
  readonly reason: string;
  /** Milliseconds since the epoch; undefined: until it is released. */
  readonly untilMs: number | undefined;
}

export interface Trial {
  readonly id: string;
  readonly kind: UpdateKind;
  readonly deadlineMs: number;
  readonly version: string;
  readonly slot: string;
  /** The configuration in force. */
  readonly path: string;
}

export interface TrialResult {
  readonly outcome: TrialOutcome;
  readonly reason: string;
}

const PROGRESS = "progress.json";
const HOLD = "hold.json";
const BEFORE = "before.json";
const TRIAL = "trial";
const RESULT = "result";
/** Files of one trial; the next one begins without. */
const TRIAL_FILES = ["starts", "switches", "switched", "applied", "reverting", "healthy", "unhealthy", RESULT];

export class UpdateFiles {
  readonly #folder: UpdateFolder;
  readonly #log: Log;

  constructor(components: { readonly folder: UpdateFolder; readonly log: Log }) {
    this.#folder = components.folder;
    this.#log = components.log;
  }

  /** A damaged file counts as none: what the Node asks for is begun again. */
  records(): UpdateRecords {
    const saved = this.#json(PROGRESS);
    const list: readonly unknown[] = Array.isArray(saved) ? saved : [];
    return new Map(list.filter(isRecordOfUpdate).map((record) => [record.kind, record]));
  }

  saveRecords(records: UpdateRecords): void {
    this.#replace(PROGRESS, JSON.stringify([...records.values()]));
  }

  hold(): OperatorHold | undefined {
    const saved = this.#json(HOLD);
    if (!isRecord(saved) || typeof saved.reason !== "string") return undefined;
    return { reason: saved.reason, untilMs: typeof saved.untilMs === "number" ? saved.untilMs : undefined };
  }

  saveHold(hold: OperatorHold | undefined): void {
    if (hold === undefined) this.#folder.remove(HOLD);
    else this.#replace(HOLD, JSON.stringify(hold));
    this.#folder.sync();
  }

  /** @param check the boot check of this version, which judges also when the next one has none. */
  beginTrial(trial: Trial, before: HealthBefore, check: string): void {
    for (const name of TRIAL_FILES) this.#folder.remove(name);
    this.#folder.sync();
    this.#replace(BEFORE, JSON.stringify(before));
    this.#replace("check", check);
    const { id, kind, deadlineMs, version, slot, path } = trial;
    const deadline = Math.ceil(deadlineMs / 1000);
    this.#replace(TRIAL, lines({ id, kind, deadline: String(deadline), version, slot, path }));
  }

  /** The id of the trial that the boot check has; undefined: it has none. */
  trialId(): string | undefined {
    return this.#fields(TRIAL)?.get("id");
  }

  /** The health before the trial; undefined: it cannot be read, and is not asked for. */
  before(): HealthBefore | undefined {
    const saved = this.#json(BEFORE);
    return isRecord(saved) && Array.isArray(saved.pods) ? (saved as unknown as HealthBefore) : undefined;
  }

  result(id: string): TrialResult | undefined {
    const fields = this.#fields(RESULT);
    const outcome = fields?.get("outcome");
    if (fields?.get("id") !== id || (outcome !== "good" && outcome !== "rolledBack" && outcome !== "failed"))
      return undefined;
    return { outcome, reason: fields.get("reason") ?? "" };
  }

  sayHealthy(id: string): void {
    this.#replace("healthy", lines({ id }));
  }

  /** The reason that counts when the deadline has passed. Not worth an fsync: it is lost with the boot. */
  sayUnhealthy(id: string, reason: string): void {
    this.#replace("unhealthy", lines({ id, reason }));
  }

  /** The progress that names its end is on disk. */
  endTrial(): void {
    this.#folder.remove(TRIAL);
    this.#folder.sync();
    for (const name of [...TRIAL_FILES, "check", BEFORE]) this.#folder.remove(name);
    this.#folder.sync();
  }

  #replace(name: string, text: string): void {
    this.#folder.write(`${name}.tmp`, text);
    this.#folder.rename(`${name}.tmp`, name);
    this.#folder.sync();
  }

  #json(name: string): unknown {
    const text = this.#read(name);
    if (text === undefined) return undefined;
    try {
      return JSON.parse(text);
    } catch {
      this.#log.warn("a file of updates is damaged", { name });
      return undefined;
    }
  }

  #fields(name: string): ReadonlyMap<string, string> | undefined {
    const text = this.#read(name);
    if (text === undefined) return undefined;
    const pairs = text.split("\n").flatMap((line): readonly [string, string][] => {
      const sign = line.indexOf("=");
      return sign < 0 ? [] : [[line.slice(0, sign), line.slice(sign + 1)]];
    });
    return new Map(pairs);
  }

  #read(name: string): string | undefined {
    try {
      return this.#folder.read(name);
    } catch (error) {
      this.#log.warn("a file of updates cannot be read", { name, error });
      return undefined;
    }
  }
}

/** The form that sh(1) reads with sed(1): no value has a line feed. */
const lines = (fields: Readonly<Record<string, string>>): string =>
  Object.entries(fields)
    .map(([name, value]) => `${name}=${value.replace(/[^\x20-\x7e]+/g, " ")}\n`)
    .join("");

const PHASES: readonly UpdatePhase["kind"][] = ["fetching", "prepared", "trial", "good", "rolledBack", "failed"];

function isRecordOfUpdate(value: unknown): value is UpdateRecord {
  if (!isRecord(value) || !isRecord(value.phase)) return false;
  const { kind, phase, target, asked, message, sinceMs } = value;
  return (
    UPDATE_ORDER.some((each) => each === kind) &&
    PHASES.some((each) => each === phase.kind) &&
    [target, asked, message].every((each) => typeof each === "string") &&
    typeof sinceMs === "number"
  );
}
