import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { EventList, IsolationAnswer } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { type Context, widthOf } from "../context/context.ts";
import { EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { parsePodName, podPath, query } from "../context/objects.ts";
import { describePod } from "./describe-pod.ts";

/** kubectl shows all there are; a serial console should not. */
const SHOWN_EVENTS = 20;

/** `edgectl describe pod NAME` and, because there is nothing else to describe, `edgectl describe NAME`. */
export async function runDescribe(context: Context, input: Arguments): Promise<number> {
  const [first = "", second] = input.positionals;
  const isPodWord = ["pod", "pods", "po"].includes(first);
  if (second !== undefined && !isPodWord) throw usageError(`cannot describe "${first}", only pods`);
  if (second === undefined && isPodWord) throw usageError("describe pod needs the pod's name");
  const pod = await context.client.get<Pod>(podPath(parsePodName(second ?? first, input.text("namespace"))));
  const { namespace, name } = pod.metadata;
  const path = `/v1/events${query({ namespace, pod: name, limit: SHOWN_EVENTS })}`;
  const events = (await context.client.get<EventList>(path)).items;
  const { containers } = await context.client.get<IsolationAnswer>(`${podPath(pod.metadata)}/isolation`);
  await context.terminal.write(describePod(pod, { events, isolation: containers }, widthOf(context), context.now()));
  return EXIT_HEALTHY;
}
