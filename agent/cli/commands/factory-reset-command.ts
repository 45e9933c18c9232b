import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { FactoryResetAnswer } from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { confirms } from "../context/confirm.ts";
import type { Context } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { printableLine } from "../context/text-layout.ts";

/** Longer than the agent waits for systemd. */
const RESET_TIMEOUT = seconds(120);
const QUESTION = `The board restarts, and loses its pods, images, values, keys and configuration.
picolet.yaml stays, and is applied again. Go on? [y/N] `;

export async function runFactoryReset(context: Context, input: Arguments): Promise<number> {
  if (!input.flag("yes")) {
    if (!context.terminal.interactive)
      throw usageError("factory-reset deletes all that the board has: confirm it with --yes");
    if (!(await confirms(context, QUESTION))) {
      context.terminal.writeError("edgectl: nothing has been changed\n");
      return EXIT_DEGRADED;
    }
  }
  const { node } = await context.client.post<FactoryResetAnswer>("/v1/node/factory-reset", {}, RESET_TIMEOUT);
  await context.terminal.write(`node/${printableLine(node)} restarts, and is as new\n`);
  return EXIT_HEALTHY;
}
