/** The agent's command line. Loaded at the start alone. */
import { parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import { usageReport } from "@picolet/protocol/command-line/usage-error.ts";
import { DEFAULT_SOCKET_PATH } from "@picolet/protocol/local-api/status.ts";
import type { AgentArguments } from "./agent-init.ts";
import {
  CONFIG,
  CREDENTIAL_PROVIDER_BIN_DIR,
  CREDENTIAL_PROVIDER_CONFIG,
  PICOLET,
  ROOT_DIR,
  SOCKET,
} from "./agent-program.ts";

/** @throws `invalid` that names the argument; the caller exits with 64. */
export function parseArguments(args: readonly string[], environment: NodeJS.ProcessEnv): AgentArguments {
  const { command, arguments: input } = parseCommandLine(args, PICOLET);
  const imageCredentialProviderConfig = input.value(CREDENTIAL_PROVIDER_CONFIG);
  const imageCredentialProviderBinDir = input.value(CREDENTIAL_PROVIDER_BIN_DIR);
  const wish = (["version", "check-config"] as const).find((flag) => input.flag(flag));
  return {
    command: command === undefined ? "help" : (wish ?? "run"),
    configPath: input.value(CONFIG),
    rootDir: input.value(ROOT_DIR),
    socketPath: input.value(SOCKET) ?? environment.PICOLET_SOCKET ?? DEFAULT_SOCKET_PATH,
    ...(imageCredentialProviderConfig === undefined ? {} : { imageCredentialProviderConfig }),
    ...(imageCredentialProviderBinDir === undefined ? {} : { imageCredentialProviderBinDir }),
  };
}

export const usageOfAgent = (error: unknown): string => usageReport("picolet", error, "picolet --help lists the flags");

export async function helpOfAgent(): Promise<string> {
  const { helpText } = await import("@picolet/protocol/command-line/help-text.ts");
  return helpText([], PICOLET);
}
