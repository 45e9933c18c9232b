/** The answer to why as text: the newest decision first, because it comes first over a slow line. Pure. */
import { shortTime } from "../decisions/tell.ts";
import type { WhyAnswer, WhyDecision } from "./why.ts";

/** A line of a story: when, and what. */
export interface WhyLine {
  readonly when: string;
  readonly text: string;
}

/** `14:02:31`, `2026-11-22 14:02:31`, or since the board's start where it had no clock. */
function whenOf({ at, boot, uptimeMs }: WhyDecision, now: string): string {
  if (at !== null) return shortTime(at, now);
  return `boot ${boot} +${Math.floor(uptimeMs / 1000)}s`;
}

function textOf(decision: WhyDecision, now: string): string {
  const { sentence, count, firstAt } = decision;
  if (count === 1) return sentence;
  const since = firstAt === null ? "" : ` since ${shortTime(firstAt, now)}`;
  return `${sentence} ${count} times${since}.`;
}

/**
 * @param limit of lines; the page of a console
 * @param nowMs whose day is not shown
 */
export function whyLines(answer: WhyAnswer, limit: number, nowMs: number): readonly WhyLine[] {
  const now = new Date(nowMs).toISOString();
  return answer.decisions.slice(0, limit).map((each) => ({ when: whenOf(each, now), text: textOf(each, now) }));
}

/** `default/web on board-1: CrashLoopBackOff: …` */
export const whyHeadline = ({ node, pod, now }: WhyAnswer): string =>
  pod === null ? `${node}: ${now}` : `${pod.namespace}/${pod.name} on ${node}: ${now}`;

/** Why there is nothing to tell. */
export const whyNothing = ({ topic }: WhyAnswer): string =>
  topic === null
    ? "The black box has no decision about it."
    : "The black box has no such decision about it; without the word the whole story is shown.";

/** All of it as text with line ends. @param limits of decisions, and of all characters, which an annotation has */
export function whyText(
  answer: WhyAnswer,
  { decisions, characters, nowMs }: { readonly decisions: number; readonly characters: number; readonly nowMs: number },
): string {
  const lines = [`${whyHeadline(answer)}`];
  const told = whyLines(answer, decisions, nowMs).map(({ when, text }) => `${when}  ${text}`);
  let length = lines[0]?.length ?? 0;
  for (const line of told.length === 0 ? [whyNothing(answer)] : told) {
    length += line.length + 1;
    if (length > characters) break;
    lines.push(line);
  }
  const left = answer.omitted + answer.decisions.length - (lines.length - 1);
  if (told.length > 0 && left > 0) lines.push(`(${left} earlier)`);
  return `${lines.join("\n")}\n`;
}
