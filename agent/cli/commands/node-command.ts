import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { NodeShutdownAnswer, NodeShutdownRequest } from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { Context } from "../context/context.ts";
import { EXIT_HEALTHY } from "../context/exit-codes.ts";
import { machineFormat, printObject } from "../context/objects.ts";
import { printableLine } from "../context/text-layout.ts";
import { GRACE_PERIOD } from "./node.ts";

/** Longer than any grace period in use; the agent answers when they have ended. */
const SHUTDOWN_TIMEOUT = seconds(24 * 3600);

/** `edgectl node shutdown`: returns when the pods have ended, or the node is back. */
export async function runNodeShutdown(context: Context, input: Arguments): Promise<number> {
  const period = input.value(GRACE_PERIOD);
  const body: NodeShutdownRequest = {
    cancel: input.flag("cancel"),
    ...(period === undefined ? {} : { gracePeriodSeconds: Math.ceil(period / 1000) }),
  };
  const answer = await context.client.post<NodeShutdownAnswer>("/v1/node/shutdown", body, SHUTDOWN_TIMEOUT);
  const format = machineFormat(input);
  const line = `node/${printableLine(answer.node)} ${answer.shutDown ? "is shut down" : "takes pods"}\n`;
  await context.terminal.write(format === undefined ? line : printObject(answer, format));
  return EXIT_HEALTHY;
}
