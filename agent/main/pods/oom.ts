/** The agent's score for the kernel's OOM killer, and the log of OOM kills. */
import { readFileSync, writeFileSync } from "node:fs";
import { describeError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type { DecisionRecorder } from "../../core/store/decisions.ts";
import type { EventRecorder } from "../../core/store/store-ports.ts";
import { KernelLog } from "../../oom/kernel-log.ts";
import { OomKillLog } from "../../oom/oom-kill-log.ts";
import { OomWatch } from "../../oom/oom-watch.ts";
import { privateRecordWait, publicRecordWait } from "../../oom/record-wait.ts";

export interface OomComponents {
  readonly clock: Clock;
  readonly log: Log;
  readonly events: EventRecorder;
  readonly decisions: DecisionRecorder;
  readonly kills: OomKillLog;
  /** UIDs of all pods on this node. */
  readonly uids: () => Iterable<string>;
  /** A process of that pod was killed: its runtime knows more. */
  readonly killed: (uid: PodUid) => void;
}

export interface OomInit {
  readonly nodeName: string;
  readonly oomScoreAdj: number;
}

/** The kernel's own, opened when it is needed first. */
export function makeOomKillLog({ log, clock }: Pick<OomComponents, "log" | "clock">): OomKillLog {
  const openLog = (): KernelLog => new KernelLog({ waitFor: privateRecordWait() ?? publicRecordWait(clock) });
  return new OomKillLog({ openLog, log });
}

export function makeOomWatch(components: OomComponents, { nodeName, oomScoreAdj }: OomInit): OomWatch {
  const { log, uids } = components;
  takeOomScore(oomScoreAdj, log);
  const podOf = (cgroup: string): PodUid | undefined => {
    for (const uid of uids()) if (isOfPod(cgroup, uid)) return podUid(uid);
    return undefined;
  };
  return new OomWatch({ ...components, podOf }, { nodeName });
}

/** With cgroupfs names and with systemd's. */
const isOfPod = (cgroup: string, uid: string): boolean =>
  cgroup.split("/").some((part) => part === `pod${uid}` || part.endsWith(`-pod${uid.replaceAll("-", "_")}.slice`));

/** Makes the agent the last process that the kernel kills. */
function takeOomScore(score: number, log: Log): void {
  try {
    if (readFileSync("/proc/self/oom_score_adj", "utf8").trim() === String(score)) return;
    writeFileSync("/proc/self/oom_score_adj", String(score));
  } catch (error) {
    log.warn("cannot set the agent's own oom_score_adj: the OOM killer treats it like any other process", {
      oomScoreAdj: score,
      error: describeError(error),
    });
  }
}
