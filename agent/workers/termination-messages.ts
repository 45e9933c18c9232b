import { describeError } from "@picolet/protocol/errors.ts";
import type { DesiredPod, ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { containersOf } from "../plan/container-roles.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";

type Messages = ReadonlyMap<string, string>;

const NONE: Messages = new Map();

/**
 * Reads the termination messages of ended containers, each once.
 * @param known those read before
 * @returns by container id, "" for a container without a message
 */
export function readMessages(
  ports: Pick<WorkerPorts, "terminationMessage" | "log">,
  desired: DesiredPod,
  { observed, known }: { readonly observed: ObservedPod; readonly known: Messages },
): Messages {
  const ended = observed.containers.filter((each) => each.state.kind === "exited");
  if (ended.length === 0) return NONE;
  if (ended.length === known.size && ended.every(({ id }) => known.has(id))) return known;
  return new Map(
    ended.map((container) => [container.id, known.get(container.id) ?? readOne(ports, desired, container)] as const),
  );
}

/** @returns `messages` without the containers that left none */
export function withoutEmpty(messages: Messages): Messages {
  return messages.size === 0 ? NONE : new Map([...messages].filter(([, message]) => message !== ""));
}

function readOne(
  { terminationMessage, log }: Pick<WorkerPorts, "terminationMessage" | "log">,
  desired: DesiredPod,
  ended: ObservedContainer,
): string {
  const container = containersOf(desired.pod).find((each) => each.name === ended.name);
  if (container === undefined) return "";
  try {
    return terminationMessage(desired, container, ended);
  } catch (error) {
    log.debug("cannot read a termination message", { pod: desired.uid, error: describeError(error) });
    return "";
  }
}
