/** The agent's command line. Loaded at the start alone. */
import { parseCommandLine } from "@picolet/protocol/command-line/command-line.ts";
import { usageReport } from "@picolet/protocol/command-line/usage-error.ts";
import { DEFAULT_SOCKET_PATH } from "@picolet/protocol/local-api/status.ts";
import { kubeletFlagValues } from "../../config/kubelet-flag-values.ts";
import type { AgentArguments } from "./agent-init.ts";
import { CONFIG, KUBELET_GROUP, PICOLET, ROOT_DIR, SOCKET } from "./agent-program.ts";

/** @throws `invalid` that names the argument; the caller exits with 64. */
export function parseArguments(args: readonly string[], environment: NodeJS.ProcessEnv): AgentArguments {
  const { command, arguments: input } = parseCommandLine(args, PICOLET);
  const wish = (["version", "help-kubelet", "check-config"] as const).find((flag) => input.flag(flag));
  const kubelet = kubeletFlagValues((name) => input.texts(name));
  return {
    command: command === undefined ? "help" : (wish ?? "run"),
    configPath: input.value(CONFIG),
    rootDir: input.value(ROOT_DIR),
    socketPath: input.value(SOCKET) ?? environment.PICOLET_SOCKET ?? DEFAULT_SOCKET_PATH,
    ...(kubelet.settings.length + kubelet.notices.length === 0 ? {} : { kubelet }),
  };
}

export const usageOfAgent = (error: unknown): string =>
  usageReport("picolet", error, "picolet --help lists the flags, picolet --help-kubelet those of the kubelet");

export async function helpOfAgent(command: "help" | "help-kubelet"): Promise<string> {
  const { groupHelp, helpText } = await import("@picolet/protocol/command-line/help-text.ts");
  return command === "help" ? helpText([], PICOLET) : groupHelp(KUBELET_GROUP, PICOLET);
}
