import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { VersionAnswer } from "@picolet/protocol/local-api/status.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { Context } from "../context/context.ts";
import { EXIT_HEALTHY } from "../context/exit-codes.ts";
import { machineFormat, printObject } from "../context/objects.ts";

/** `edgectl version`: its own, then the agent's, so that the first is there even without an agent. */
export async function runVersion(context: Context, input: Arguments): Promise<number> {
  const format = machineFormat(input);
  if (format === undefined) await context.terminal.write(`edgectl ${VERSION}\n`);
  const agent = input.flag("client") ? undefined : await context.client.get<VersionAnswer>("/v1/version");
  if (format !== undefined) await context.terminal.write(printObject({ client: { version: VERSION }, agent }, format));
  else if (agent !== undefined) await context.terminal.write(`picolet ${agent.version} (node ${agent.node})\n`);
  return EXIT_HEALTHY;
}
