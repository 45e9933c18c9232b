/**
 * GET /v1/why/node, GET /v1/why/pods/NAMESPACE/POD (`-` for any namespace), with `?topic=`. Through a hub the same
 * answer is at /api/v1/nodes/NODE/proxy/why and .../why/NAMESPACE/POD, as text with `?output=text`.
 */

import type { Decision, WhyTopic } from "../decisions/decision-kinds.ts";
import { PicoletError } from "../errors.ts";

export interface WhyAnswer {
  readonly node: string;
  /** Null: the question is about the node. */
  readonly pod: { readonly namespace: string; readonly name: string; readonly uid: string } | null;
  /** Null: the whole story. */
  readonly topic: WhyTopic | null;
  /** RFC 3339, by the board's clock. */
  readonly answeredAt: string;
  /** How it is now, in one sentence. */
  readonly now: string;
  /** False for a pod that is not ready and not done, and for a node that is not healthy. */
  readonly isWell: boolean;
  /** Newest first. */
  readonly decisions: readonly WhyDecision[];
  /** Older ones that are not in `decisions`, because the answer is bounded. */
  readonly omitted: number;
}

export interface WhyDecision {
  /** RFC 3339, of the latest of equal ones; null: the board's clock was not set, and never was in that boot. */
  readonly at: string | null;
  /** Milliseconds between the board's start and the decision. */
  readonly uptimeMs: number;
  /** Counts the board's starts; the decisions of one start are in order of `uptimeMs`. */
  readonly boot: number;
  /** How many equal decisions this one stands for. */
  readonly count: number;
  /** RFC 3339, of the first of them. */
  readonly firstAt: string | null;
  readonly sentence: string;
  /** The record: its kind, inputs and figures. */
  readonly decision: Decision;
}

const TOPICS: readonly WhyTopic[] = ["restarted", "evicted", "started", "ended", "notReady"];

/** @throws `invalid` */
export function topicOf(word: string): WhyTopic {
  const topic = TOPICS.find((each) => each === word);
  if (topic === undefined) throw new PicoletError("invalid", `topic is one of ${TOPICS.join(", ")}`);
  return topic;
}
