/** Answers /why of the kubelet's API; loaded with the first question. */
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { topicOf } from "@picolet/protocol/local-api/why.ts";
import { whyText } from "@picolet/protocol/local-api/why-text.ts";
import type { WhyAnswers, WhyQuestion } from "../core/node/why-answers.ts";
import type { KubeletAnswer } from "./kubelet-answers.ts";

/** One screen of a terminal, and within what an annotation may have (`MAX_WHY_LENGTH` of the hub). */
const TEXT_LIMITS = { decisions: 20, characters: 4096 };

/** @param path `/why` or `/why/NAMESPACE/POD` */
export async function answerWhyPath(
  why: WhyAnswers | undefined,
  path: string,
  query: URLSearchParams,
): Promise<KubeletAnswer> {
  if (why === undefined) return text(404, "404 page not found\n");
  try {
    const answer = await why.ask({ pod: podOf(path), topic: topicIn(query) });
    if (query.get("output") !== "text") {
      return { status: 200, contentType: "application/json", body: [`${JSON.stringify(answer)}\n`] };
    }
    return text(200, whyText(answer, { ...TEXT_LIMITS, nowMs: Date.parse(answer.answeredAt) }));
  } catch (error) {
    if (isPicoletError(error, "not_found")) return text(404, `${error.message}\n`);
    if (isPicoletError(error, "invalid")) return text(400, `${error.message}\n`);
    throw error;
  }
}

const topicIn = (query: URLSearchParams): WhyQuestion["topic"] => {
  const word = query.get("topic");
  return word === null ? undefined : topicOf(word);
};

function podOf(path: string): WhyQuestion["pod"] {
  const [, , namespace, name, ...more] = path.split("/").map(decodeURIComponent);
  if (namespace === undefined) return undefined;
  if (name === undefined || more.length > 0) throw new PicoletError("not_found", "the path is /why/NAMESPACE/POD");
  return { namespace, name };
}

const text = (status: number, body: string): KubeletAnswer => ({
  status,
  contentType: "text/plain; charset=utf-8",
  body: [body],
});
