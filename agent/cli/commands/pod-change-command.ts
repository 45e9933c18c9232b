import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { podChangeSentence } from "@picolet/protocol/local-api/pod-change.ts";
import type { PodChangeAnswer } from "@picolet/protocol/local-api/status.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { Context } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY, EXIT_UNREACHABLE, exitCodeOf, usageError } from "../context/exit-codes.ts";
import { listObject, machineFormat, parsePodName, podLabel, podPath, printObject, query } from "../context/objects.ts";
import { printableLine } from "../context/text-layout.ts";
import { GRACE_PERIOD } from "./pods.ts";

/** The grace period of a pod and of its hooks can be of any length; the agent answers when all has ended. */
const CHANGE_TIMEOUT = seconds(24 * 3600);
const RESOURCE = /^(?:pods?|po)$/;

/** `edgectl restart` and `edgectl delete`: each pod in turn; one that cannot be changed keeps no other from it. */
export async function runPodChange(context: Context, input: Arguments, verb: "restart" | "delete"): Promise<number> {
  const [first = "", ...others] = input.positionals;
  const names = verb === "delete" && RESOURCE.test(first) ? others : [first, ...others];
  if (names.length === 0) throw usageError(`${verb} needs the name of a pod`);
  const period = input.flag("now") ? seconds(1) : input.value(GRACE_PERIOD);
  if (input.flag("now") && input.value(GRACE_PERIOD) !== undefined)
    throw usageError("only one of --now and --grace-period may be given");
  const gracePeriodSeconds = period === undefined ? undefined : Math.ceil(period / 1000);
  const isWaiting = !input.flag("no-wait");
  const paths = names.map((name) => podPath(parsePodName(name, input.text("namespace"))));
  const parameters = query({ gracePeriodSeconds, wait: isWaiting ? undefined : false });
  const format = machineFormat(input);
  const answers: PodChangeAnswer[] = [];
  let code = EXIT_HEALTHY;
  for (const path of paths) {
    try {
      const answer = await change(context, verb, path, parameters);
      answers.push(answer);
      if (format === undefined) await context.terminal.write(`${sentence(answer, isWaiting)}\n`);
    } catch (error) {
      if (exitCodeOf(error) === EXIT_UNREACHABLE) throw error;
      context.terminal.writeError(`edgectl: ${printableLine(describeError(error))}\n`);
      code = EXIT_DEGRADED;
    }
  }
  if (format !== undefined)
    await context.terminal.write(printObject(names.length === 1 ? (answers[0] ?? null) : listObject(answers), format));
  return code;
}

function change(context: Context, verb: "restart" | "delete", path: string, query: string): Promise<PodChangeAnswer> {
  const { client } = context;
  const timeout = millis(CHANGE_TIMEOUT);
  if (verb === "restart") return client.post<PodChangeAnswer>(`${path}/restart${query}`, {}, timeout);
  return client.send<PodChangeAnswer>("DELETE", `${path}${query}`, undefined, timeout);
}

const sentence = ({ namespace, name, change: what }: PodChangeAnswer, isDone: boolean): string =>
  podChangeSentence(what, printableLine(podLabel(namespace, name)), isDone);
