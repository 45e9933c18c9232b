/** Restart and delete of one pod, by edgectl and by the page, and what each means for the pod's source. */
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { MAX_SHUTDOWN_SECONDS, type PodChangeAnswer } from "@picolet/protocol/local-api/status.ts";
import { type Millis, NEVER, seconds } from "@picolet/protocol/ports.ts";
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

export interface PodChangeInit {
  /** Can only shorten the pod's own grace period; undefined: the pod's own. */
  readonly gracePeriod?: Millis | undefined;
  /** False: the answer comes before the containers have ended. */
  readonly waits: boolean;
  /** The user of the page who asks; undefined: a user of edgectl. */
  readonly user?: string | undefined;
}

/** Reason and message of a pod of the API server that was deleted on its board. */
const DELETED = "DeletedOnBoard";
const messageOf = (user: string | undefined): string =>
  `The pod was deleted on its board ${user === undefined ? "with edgectl" : `by ${user} with its page`}`;
/** Bounds a status and an event: names of service accounts have at most 331 characters. */
const MAX_USER_LENGTH = 340;

/** Parameters: `gracePeriodSeconds` (`gracePeriod` of `PodChangeInit`), and `wait=false`. @throws `invalid` */
export function podChangeInit(query: Query): PodChangeInit {
  const period = query.count("gracePeriodSeconds");
  const waits = query.text("wait") !== "false";
  query.end();
  if (period !== undefined && period > MAX_SHUTDOWN_SECONDS)
    throw new PicoletError("invalid", `parameter gracePeriodSeconds is at most ${MAX_SHUTDOWN_SECONDS}`);
  return { waits, gracePeriod: period === undefined ? undefined : seconds(period) };
}

/**
 * @throws `conflict` for a pod that is over or being ended, or that its source would bring back at once
 */
export async function changePod(
  { workers, pushed, find }: PodChangesComponents,
  verb: PodVerb,
  { gracePeriod, waits, user: name }: PodChangeInit,
  signal: AbortSignal,
): Promise<PodChangeAnswer> {
  const how = { gracePeriod, user: name?.slice(0, MAX_USER_LENGTH) };
  const pod = find();
  const change = verb === "restart" ? restart(workers, pod, how) : remove({ workers, pushed }, pod, how);
  // The change goes on when its client has gone.
  const ended = change.ended(waits ? signal : NEVER);
  if (waits) await ended;
  else void ended.catch(ignore("no caller waits for it, and the pod's worker reports what goes wrong"));
  const { pod: object, source } = pod.desired;
  const { metadata } = object;
  return { namespace: metadata.namespace, name: metadata.name, source, change: change.change };
}

interface PodChange {
  readonly change: PodChangeAnswer["change"];
  /** Begins it. @returns when it is done */
  readonly ended: (signal: AbortSignal) => Promise<void>;
}

function restart(
  workers: PodMover,
  { desired, status, terminatingSinceMs }: AgentPod,
  how: Omit<PodChangeInit, "waits">,
): PodChange {
  const { name } = desired.pod.metadata;
  if (terminatingSinceMs !== undefined) throw new PicoletError("conflict", `pod "${name}" is being ended`);
  if (status?.phase === "Succeeded" || status?.phase === "Failed") {
    const reason = status.reason === undefined || status.reason === "" ? "" : `: ${status.reason}`;
    throw new PicoletError("conflict", `pod "${name}" is over (${status.phase}${reason}), and does not start again`);
  }
  const ended = (signal: AbortSignal): Promise<void> => workers.leave(desired.uid, { ...how, comesBack: true }, signal);
  return { change: "restarted", ended };
}

function remove(
  { workers, pushed }: Omit<PodChangesComponents, "find">,
  { desired }: AgentPod,
  { gracePeriod, user }: Omit<PodChangeInit, "waits">,
): PodChange {
  const { uid, source, origin, pod } = desired;
  const { name } = pod.metadata;
  const end = (signal: AbortSignal): Promise<void> =>
    workers.end(uid, { reason: DELETED, message: messageOf(user), gracePeriod }, signal);
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
