/** containerd's own service of running processes, for what CRI cannot do. Source: its public tasks.proto. */

import { bool, message, string, uint32 } from "../wire/protobuf.ts";
import { CRI_NAMESPACE } from "./containerd-events.ts";

const metadata = ["containerd-namespace", CRI_NAMESPACE];
const Nothing = message("Nothing", {});
const Task = message("TaskRequest", { containerId: string(1) });

const task = <Q>(name: string, request: Q) => ({
  path: `/containerd.services.tasks.v1.Tasks/${name}`,
  request,
  response: Nothing,
  metadata,
});

export const ContainerdTasks = {
  kill: task("Kill", message("KillRequest", { containerId: string(1), signal: uint32(3), all: bool(4) })),
  /** Answers when it has ended. */
  wait: task("Wait", Task),
  delete: task("Delete", Task),
};
