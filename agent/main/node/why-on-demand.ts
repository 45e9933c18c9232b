/** Answers to why; what reads the black box is loaded with the first question. */
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { ANY_NAMESPACE, findPod, statusAnswer } from "../../api/pod-objects.ts";
import type { PodNow, WhyComponents } from "../../blackbox/reading/answer-why.ts";
import type { WhyAnswers, WhyQuestion } from "../../core/node/why-answers.ts";
import type { ActivePull } from "../../core/pods/image-pulls.ts";
import type { NodeAgentView } from "./node-agent-view.ts";

export interface WhySources extends Pick<WhyComponents, "box" | "clock" | "log"> {
  readonly view: () => NodeAgentView;
  readonly pulls: () => readonly ActivePull[];
}

export function whyOnDemand({ box, clock, log, view, pulls }: WhySources): WhyAnswers {
  return {
    ask: async (question) => {
      const { answerWhy } = await import("../../blackbox/reading/answer-why.ts");
      const { name } = view().node();
      const judge = () => {
        const { healthy, summary, details } = statusAnswer(view(), pulls()).health;
        return { now: [summary, ...details].join("; "), isWell: healthy };
      };
      const node = { name, judge };
      return await answerWhy({ box, clock, log, node, findPod: (pod) => podNow(view(), pulls(), pod) }, question);
    },
  };
}

function podNow(
  view: NodeAgentView,
  pulls: readonly ActivePull[],
  { namespace = ANY_NAMESPACE, name }: NonNullable<WhyQuestion["pod"]>,
): PodNow | undefined {
  try {
    const { metadata } = findPod(view, namespace, name).desired.pod;
    const isMeant = (each: { readonly namespace: string; readonly name: string }): boolean =>
      each.namespace === metadata.namespace && each.name === metadata.name;
    const report = statusAnswer(view, pulls).pods.find(isMeant);
    const status = report?.summary.status ?? "Pending";
    const message = report?.message ?? "";
    const why = message === "" || message.startsWith(status) ? message : `${status}: ${message}`;
    const now = why === "" ? `${status}${report?.ready === true ? ", ready" : ""}` : why;
    return { namespace: metadata.namespace, name: metadata.name, now, isWell: report?.isWell ?? false };
  } catch (error) {
    if (isPicoletError(error, "not_found")) return undefined;
    throw error;
  }
}
