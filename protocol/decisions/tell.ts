/** Decisions as text: sentences, and the answer to why on a console. Pure. */
import { humanBytes, humanDuration } from "../human-figures.ts";
import { DECISION_KINDS, type Decision, type DecisionRow, type WhyTopic, type Wording } from "./decision-kinds.ts";

const DAY_LENGTH = "2026-01-31".length;

/** @param nowMs what "today" is; times are in UTC, as in all else that a node shows */
export const wordingAt = (nowMs: number): Wording => ({
  duration: (ms) => (ms < 1000 ? `${Math.max(0, Math.round(ms))} ms` : humanDuration(ms)),
  bytes: (bytes) => humanBytes(Math.max(0, bytes)),
  time: (wallMs) => shortTime(new Date(wallMs).toISOString(), new Date(nowMs).toISOString()),
});

/** `14:02:31` of the same day, else `2026-11-22 14:02:31`. @param time RFC 3339 in UTC */
export function shortTime(time: string, now: string): string {
  const clock = time.slice(DAY_LENGTH + 1, DAY_LENGTH + 1 + "14:02:31".length);
  return time.slice(0, DAY_LENGTH) === now.slice(0, DAY_LENGTH) ? clock : `${time.slice(0, DAY_LENGTH)} ${clock}`;
}

/** @returns a sentence also for a kind of a later version */
export function sentenceOf(decision: Decision, say: Wording): string {
  const row = rowOf(decision);
  if (row === undefined) return `${String(decision.kind)}: recorded by another version of the agent.`;
  return row.sentence(decision, say);
}

export const topicsOf = (decision: Decision): readonly WhyTopic[] => rowOf(decision)?.topics ?? [];

function rowOf({ kind }: Decision): DecisionRow<Decision> | undefined {
  if (!Object.hasOwn(DECISION_KINDS, kind)) return undefined;
  // The row of a kind takes the fields of that kind.
  return DECISION_KINDS[kind] as DecisionRow<never> as DecisionRow<Decision>;
}
