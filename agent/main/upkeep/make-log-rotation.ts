import { statfsSync } from "node:fs";
import { podUid } from "@picolet/protocol/ports.ts";
import { type LoggedContainer, LogRotation } from "../../logs/log-rotation.ts";
import type { StatusManager } from "../../status/status-manager.ts";
import type { AgentBase } from "../base/agent-base.ts";
import type { Runtimes } from "../pods/runtimes.ts";

/** All logs together may take this share of the file system they are on: a full disk would stop everything else. */
const LOG_SHARE_OF_DISK = 0.2;

export function makeLogRotation(
  { ports: { clock, log }, init }: AgentBase,
  { adapters, pleg }: Pick<Runtimes, "adapters" | "pleg">,
  statuses: StatusManager,
): LogRotation {
  const {
    podLogsDir,
    containerLogMaxSize,
    containerLogMaxFiles,
    containerLogMonitorInterval: interval,
    containerLogMaxWorkers: maxWorkers,
  } = init.configuration;
  const { blocks, bsize } = statfsSync(podLogsDir);
  const ownerOf = ({ uid }: LoggedContainer) => adapters.find((adapter) => pleg.listing(adapter)?.has(uid));
  const reopen = async (container: LoggedContainer, signal: AbortSignal): Promise<void> =>
    await ownerOf(container)?.reopenLog(container.uid, container.id, signal);
  return new LogRotation(
    {
      containers: () => runningContainers(statuses),
      changes: statuses.changes,
      reopen,
      isBounded: (container) => ownerOf(container)?.boundsLogs ?? false,
      freeBytes: () => freeBytesOf(podLogsDir),
      owns: (uid) => statuses.pods.has(podUid(uid)),
      clock,
      log,
    },
    {
      podLogsDir,
      maxSizeBytes: containerLogMaxSize,
      maxFiles: containerLogMaxFiles,
      interval,
      maxWorkers,
      totalMaxBytes: Math.floor(blocks * bsize * LOG_SHARE_OF_DISK),
    },
  );
}

function freeBytesOf(directory: string): number {
  try {
    const { bavail, bsize } = statfsSync(directory);
    return bavail * bsize;
  } catch {
    // The folder is being replaced; the next check is due within a few intervals anyway.
    return 0;
  }
}

/** Containers that run now, as the log rotation needs them. */
function* runningContainers(statuses: StatusManager): Iterable<LoggedContainer> {
  for (const { view } of statuses.pods.values()) {
    for (const { id, logPath, state } of view.observed?.containers ?? []) {
      if (state.kind === "running") yield { uid: view.desired.uid, id, logPath };
    }
  }
}
