/** Tells the story of a pod, or of the node, from records. Pure. */
import type { DecisionKind, WhyTopic } from "@picolet/protocol/decisions/decision-kinds.ts";
import { sentenceOf, topicsOf, wordingAt } from "@picolet/protocol/decisions/tell.ts";
import type { WhyAnswer, WhyDecision } from "@picolet/protocol/local-api/why.ts";
import type { RingRecord } from "../ring-record.ts";

/** Bounds an answer at some 100 KiB; a crash loop of a day is three records an hour. */
const MAX_DECISIONS = 300;
/** Decisions about the node that are part of the story of every pod that was there then. */
const NODE_TURNS: ReadonlySet<DecisionKind> = new Set([
  "powerCut",
  "agentStarted",
  "shutdownBegan",
  "shutdownCancelled",
  "nodeNotReady",
  "clockCorrected",
]);

export interface Question {
  /** `undefined`: the node. */
  readonly pod: { readonly namespace: string; readonly name: string } | undefined;
  /** `undefined`: everything. */
  readonly topic: WhyTopic | undefined;
}

/** @returns whether a record of the node is part of every pod's story */
export const isNodeTurn = ({ p, d }: RingRecord): boolean => p === undefined && NODE_TURNS.has(d.kind);

/** @param records of the pod and turns of the node, or all of the node; oldest first */
export function explainWhy(
  { pod, topic }: Question,
  records: readonly RingRecord[],
  init: { readonly node: string; readonly now: string; readonly isWell: boolean; readonly nowMs: number },
): WhyAnswer {
  const anchors = anchorsOf(records);
  const first = pod === undefined ? 0 : records.findIndex((each) => each.p !== undefined);
  const story = first < 0 ? [] : records.slice(first).filter(({ d }) => isOfTopic(d.kind, topicsOf(d), topic, pod));
  // A story needs a decision about the pod itself.
  const told = pod !== undefined && !story.some((each) => each.p !== undefined) ? [] : story;
  const newest = told.toReversed().slice(0, MAX_DECISIONS);
  const uid = records.findLast((each) => each.u !== undefined)?.u ?? "";
  return {
    node: init.node,
    pod: pod === undefined ? null : { ...pod, uid },
    topic: topic ?? null,
    answeredAt: new Date(init.nowMs).toISOString(),
    now: init.now,
    isWell: init.isWell,
    decisions: newest.map((record) => shown(record, anchors, init.nowMs)),
    omitted: told.length - newest.length,
  };
}

function isOfTopic(
  kind: DecisionKind,
  topics: readonly WhyTopic[],
  topic: WhyTopic | undefined,
  pod: Question["pod"],
): boolean {
  if (topic === undefined) return true;
  return topics.includes(topic) || (pod !== undefined && kind === "powerCut");
}

function shown(record: RingRecord, anchors: Anchors, nowMs: number): WhyDecision {
  const { b, t, c = 1, f = t, d } = record;
  return {
    at: timeOf(record, t, anchors),
    uptimeMs: t[0],
    boot: b[0],
    count: c,
    firstAt: timeOf(record, f, anchors),
    sentence: sentenceOf(d, wordingAt(nowMs)),
    decision: d,
  };
}

/** Wall minus uptime by boot, from the newest record with a clock that was set. */
type Anchors = ReadonlyMap<number, number>;

const anchorsOf = (records: readonly RingRecord[]): Anchors =>
  new Map(records.filter(({ x }) => x === undefined).map(({ b, t }) => [b[0], t[1] - t[0]]));

/** A time that was recorded before the clock was set follows from one of the same boot that was recorded after. */
function timeOf({ b, x }: RingRecord, [uptime, wall]: readonly [number, number], anchors: Anchors): string | null {
  const anchor = anchors.get(b[0]);
  const known = x === undefined ? wall : anchor === undefined ? undefined : anchor + uptime;
  return known === undefined ? null : new Date(known).toISOString();
}
