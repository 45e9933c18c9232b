import type { Arguments } from "../../protocol/command-line/command-line.ts";
import type { VersionAnswer } from "../../protocol/local-api.ts";
import { VERSION } from "../../protocol/version.ts";
import type { Context } from "./context.ts";
import { EXIT_HEALTHY } from "./failures.ts";
import { machineFormat, printObject } from "./objects.ts";

/** `edgectl version`: its own, then the agent's, so that the first is there even without an agent. */
export async function runVersion(context: Context, input: Arguments): Promise<number> {
  const format = machineFormat(input);
  if (format === undefined) await context.terminal.write(`edgectl ${VERSION}\n`);
  const agent = input.flag("client") ? undefined : await context.client.get<VersionAnswer>("/v1/version");
  if (format !== undefined) await context.terminal.write(printObject({ client: { version: VERSION }, agent }, format));
  else if (agent !== undefined) await context.terminal.write(`picolet ${agent.version} (node ${agent.node})\n`);
  return EXIT_HEALTHY;
}
