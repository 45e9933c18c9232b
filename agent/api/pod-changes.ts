/** `edgectl restart` and `edgectl delete` of one pod, and what each means for the pod's source. */
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { MAX_SHUTDOWN_SECONDS, type PodChangeAnswer } from "@picolet/protocol/local-api/status.ts";
import { type Millis, seconds } from "@picolet/protocol/ports.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { PodEnder, PodMover } from "../core/pods/pod-admission.ts";
import type { PushedPods } from "../core/pods/pushed-pods.ts";
import type { Query } from "./request-input.ts";

export type PodVerb = "restart" | "delete";

export interface PodChangesComponents {
  readonly workers: PodEnder & PodMover;
  readonly pushed: Pick<PushedPods, "remove">;
  /** @throws `not_found` */
  readonly find: () => AgentPod;
}

/** Reason and message of a pod of the API server that was deleted on its board. */
const DELETED = "DeletedOnBoard";
const MESSAGE = "The pod was deleted on its board with edgectl";

/**
 * Parameters: `gracePeriodSeconds`, which can only shorten the pod's own grace period, and `wait=false`, which answers
 * before the containers have ended.
 * @throws `conflict` for a pod that is over or being ended, or that its source would bring back at once
 */
export async function changePod(
  { workers, pushed, find }: PodChangesComponents,
  verb: PodVerb,
  query: Query,
  signal: AbortSignal,
): Promise<PodChangeAnswer> {
  const period = query.count("gracePeriodSeconds");
  const waits = query.text("wait") !== "false";
  query.end();
  if (period !== undefined && period > MAX_SHUTDOWN_SECONDS)
    throw new PicoletError("invalid", `parameter gracePeriodSeconds is at most ${MAX_SHUTDOWN_SECONDS}`);
  const gracePeriod = period === undefined ? undefined : seconds(period);
  const pod = find();
  const change =
    verb === "restart" ? restart(workers, pod, gracePeriod) : remove({ workers, pushed }, pod, gracePeriod);
  // The change goes on when its client has gone.
  const ended = change.ended(waits ? signal : new AbortController().signal);
  if (waits) await ended;
  else void ended.catch(ignore("nobody waits for it, and the pod's worker reports what goes wrong"));
  const { pod: object, source } = pod.desired;
  const { namespace, name } = object.metadata;
  return { namespace, name, source, change: change.change };
}

interface PodChange {
  readonly change: PodChangeAnswer["change"];
  /** Begins it. @returns when it is done */
  readonly ended: (signal: AbortSignal) => Promise<void>;
}

function restart(
  workers: PodMover,
  { desired, status, terminatingSinceMs }: AgentPod,
  gracePeriod?: Millis,
): PodChange {
  const { name } = desired.pod.metadata;
  if (terminatingSinceMs !== undefined) throw new PicoletError("conflict", `pod "${name}" is being ended`);
  if (status?.phase === "Succeeded" || status?.phase === "Failed") {
    const reason = status.reason === undefined || status.reason === "" ? "" : `: ${status.reason}`;
    throw new PicoletError("conflict", `pod "${name}" is over (${status.phase}${reason}), and does not start again`);
  }
  const ended = (signal: AbortSignal): Promise<void> =>
    workers.leave(desired.uid, { gracePeriod, comesBack: true }, signal);
  return { change: "restarted", ended };
}

function remove(
  { workers, pushed }: Omit<PodChangesComponents, "find">,
  { desired }: AgentPod,
  gracePeriod?: Millis,
): PodChange {
  const { uid, source, origin, pod } = desired;
  const { name } = pod.metadata;
  const end = (signal: AbortSignal): Promise<void> =>
    workers.end(uid, { reason: DELETED, message: MESSAGE, gracePeriod }, signal);
  switch (source) {
    case "push": {
      const ended = async (signal: AbortSignal): Promise<void> => {
        await pushed.remove(uid);
        await end(signal);
      };
      return { change: "removed", ended };
    }
    case "api":
      return { change: "ended", ended: end };
    case "file":
    case "http": {
      const mend = source === "file" ? `remove it from ${origin}` : `have ${origin} leave it out`;
      throw new PicoletError(
        "conflict",
        `pod "${name}" would come back at once: ${mend}, or run \`edgectl restart ${name}\` to start it again`,
      );
    }
  }
}
