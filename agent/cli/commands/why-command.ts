import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { countFlag } from "@picolet/protocol/command-line/flag-values.ts";
import type { WhyTopic } from "@picolet/protocol/decisions/decision-kinds.ts";
import type { WhyAnswer } from "@picolet/protocol/local-api/why.ts";
import { whyHeadline, whyLines, whyNothing } from "@picolet/protocol/local-api/why-text.ts";
import { type Context, widthOf } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { machineFormat, parsePodName, printObject, query } from "../context/objects.ts";
import { wrap } from "../context/text-layout.ts";

/** A page of 24 lines: the headline, and decisions of one or two lines each; 1.5 s at 9600 baud. */
const SHOWN = 12;
const LIMIT = countFlag({ name: "limit", help: "" });

const TOPICS: ReadonlyMap<string, WhyTopic> = new Map([
  ["restarted", "restarted"],
  ["evicted", "evicted"],
  ["started", "started"],
  ["ended", "ended"],
]);

interface Asked {
  /** `undefined`: the node. */
  readonly pod: string | undefined;
  readonly topic: WhyTopic | undefined;
}

/** Reads `POD`, `restarted POD`, `not started POD`, `POD not started`, `node`, `node not ready`. */
function askedIn(words: readonly string[]): Asked {
  const [first = "", ...rest] = words;
  const isAboutReady = rest.every((word) => word === "not" || word === "ready");
  if (first === "node" && isAboutReady) return { pod: undefined, topic: rest.length === 0 ? undefined : "notReady" };
  const told = words.filter((word) => word !== "not");
  // A pod of such a name is asked for as pod/NAME.
  const word = told.length > 1 ? told.find((each) => TOPICS.has(each)) : undefined;
  const [pod, ...more] = told.filter((each) => each !== word);
  if (pod === undefined || more.length > 0) {
    throw usageError(`cannot tell why "${words.join(" ")}": name one pod, or node`);
  }
  return { pod, topic: word === undefined ? undefined : TOPICS.get(word) };
}

export async function runWhy(context: Context, input: Arguments): Promise<number> {
  const { pod, topic } = askedIn(input.positionals);
  const format = machineFormat(input);
  const answer = await context.client.get<WhyAnswer>(`${pathOf(pod, input)}${query({ topic })}`);
  await context.terminal.write(format === undefined ? whyText(context, input, answer) : printObject(answer, format));
  return answer.isWell ? EXIT_HEALTHY : EXIT_DEGRADED;
}

function pathOf(pod: string | undefined, input: Arguments): string {
  if (pod === undefined) return "/v1/why/node";
  const { namespace = "-", name } = parsePodName(pod, input.text("namespace"));
  return `/v1/why/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

function whyText(context: Context, input: Arguments, answer: WhyAnswer): string {
  const width = widthOf(context);
  const limit = input.value(LIMIT) ?? SHOWN;
  const lines = whyLines(answer, limit, context.now());
  let text = `${wrap(whyHeadline(answer), width, 2)}\n`;
  for (const { when, text: sentence } of lines) text += `${when}  ${wrap(sentence, width, 10, when.length + 2)}\n`;
  if (answer.decisions.length === 0) text += `${wrap(whyNothing(answer), width, 2)}\n`;
  const left = answer.decisions.length + answer.omitted - lines.length;
  return left > 0 ? `${text}${left} earlier; --limit N shows more.\n` : text;
}
