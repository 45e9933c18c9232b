/** The text of the annotation `picolet.io/why`: what a board tells, for `kubectl describe pod`. Pure. */
import { WHY_QUESTION } from "@picolet/hub-core/fleet.ts";

/** In bytes. The annotations of an object have 256 KiB together; each watcher of the pod receives them. */
export const MAX_WHY_LENGTH = 4096;
/** `kubectl describe` cuts the lines of an annotation at 138 characters. */
const WIDTH = 120;
/** The beginning of a line of `whyText`: a time of day, a date with it, or `boot 3 +12s`. */
const BEGINS_DECISION = /^(?:\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d|boot \d+ \+\d+s) /;
const EARLIER = /^\((\d+) earlier\)$/;
/** Line ends are kept. */
const CONTROLS = /[\p{Cc}\p{Cf}]/gu;

/**
 * @param told the answer of a board as text, newest first; a board may send anything
 * @param namespace of the pod; names of pods of others are left out, because who asks may not see them
 * @returns the headline with its date, the number of older decisions that do not fit, and the newest decision last
 */
export function whyAnnotation(told: string, namespace: string, at: Date): string {
  const headline: string[] = [];
  const decisions: string[] = [];
  let earlier = 0;
  for (const raw of told.split(/\r?\n/)) {
    const line = withoutOthers(raw.replace(CONTROLS, ""), namespace).trim();
    if (line === "") continue;
    const count = EARLIER.exec(line)?.[1];
    if (count !== undefined) earlier += Number(count);
    else if (BEGINS_DECISION.test(line)) decisions.push(line);
    else if (decisions.length === 0) headline.push(line);
    else decisions.push(`${decisions.pop()} ${line}`);
  }
  const first = wrapped(`${utcText(at)}  ${headline.join(" ")}`).slice(0, MAX_WHY_LENGTH / 4);
  const shown: string[] = [];
  let left = MAX_WHY_LENGTH - Buffer.byteLength(first) - "\n(1000000 earlier)".length;
  for (const decision of decisions) {
    const text = wrapped(decision);
    left -= Buffer.byteLength(text) + 1;
    if (left < 0) break;
    shown.unshift(text);
  }
  earlier += decisions.length - shown.length;
  return [first, ...(earlier > 0 ? [`(${earlier} earlier)`] : []), ...shown].join("\n");
}

/** @returns what stands in the annotation while the pod's board is away */
export const awayAnnotation = (node: string, at: Date): string =>
  wrapped(
    `${utcText(at)}  ${node} is away: its black box cannot be read. Set the annotation to "${WHY_QUESTION}" again ` +
      "when it is back.",
  );

const utcText = (at: Date): string => `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;

const withoutOthers = (line: string, namespace: string): string =>
  line.replace(/\bpod ([a-z0-9][a-z0-9-]*)\/[a-z0-9][a-z0-9.-]*[a-z0-9]/g, (pod, other: string) =>
    other === namespace ? pod : "pod of another namespace",
  );

/** Continued lines are indented. A word that is longer than a line is divided. */
function wrapped(text: string): string {
  const lines: string[] = [];
  let rest = text;
  while (rest.length > WIDTH) {
    const space = rest.lastIndexOf(" ", WIDTH);
    const end = space > WIDTH / 2 ? space : WIDTH;
    lines.push(rest.slice(0, end));
    rest = `  ${rest.slice(end).trimStart()}`;
  }
  return [...lines, rest].join("\n");
}
