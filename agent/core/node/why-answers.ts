import type { WhyTopic } from "@picolet/protocol/decisions/decision-kinds.ts";
import type { WhyAnswer } from "@picolet/protocol/local-api/why.ts";

export interface WhyQuestion {
  /** `undefined`: the node. Without a namespace any; a static pod's name may lack the node's. */
  readonly pod: { readonly namespace: string | undefined; readonly name: string } | undefined;
  /** `undefined`: the whole story. */
  readonly topic: WhyTopic | undefined;
}

/** Tells from the black box why a pod or the node is as it is. */
export interface WhyAnswers {
  /** @throws `not_found` for a pod that the node does not have and of which it has no record; `conflict` for several */
  ask(question: WhyQuestion): Promise<WhyAnswer>;
}
