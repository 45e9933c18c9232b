import { PicoletError } from "@picolet/protocol/errors.ts";
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";

export interface AgentArguments {
  readonly command: "run" | "help" | "version" | "check-config";
  /** `undefined`: the default path, which may be absent. */
  readonly configPath: string | undefined;
  readonly rootDir: string;
  readonly socketPath: string;
  /** Instead of what the configuration says. */
  readonly imageCredentialProviderConfig?: string;
  readonly imageCredentialProviderBinDir?: string;
}

export const DEFAULT_CONFIG_PATH = "/etc/picolet/config.yaml";
export const DEFAULT_ROOT_DIR = "/var/lib/picolet";
const DEFAULT_SOCKET_PATH = "/run/picolet/picolet.sock";

export const HELP = `picolet - a kubelet for small boards

Usage: picolet [flags]

  --config FILE     configuration, KubeletConfiguration v1beta1 and picolet's own fields
                    (default ${DEFAULT_CONFIG_PATH}; absent: built-in defaults)
  --root-dir DIR    state that survives a reboot (default ${DEFAULT_ROOT_DIR})
  --socket PATH     local socket for edgectl; also PICOLET_SOCKET
                    (default ${DEFAULT_SOCKET_PATH})
  --image-credential-provider-config FILE
                    credential provider plugins (CredentialProviderConfig), a file or a folder of them
  --image-credential-provider-bin-dir DIR
                    where those programs are
  --check-config    says everything that is wrong with the configuration and leaves
  --version         prints the version and leaves
  --help            prints this and leaves

Exit codes: 0 stopped by a signal, 64 wrong usage, 78 wrong configuration, 1 anything else.
Stopping the agent stops no pod; the next one takes them up again.
`;

type ValueField =
  | "configPath"
  | "rootDir"
  | "socketPath"
  | "imageCredentialProviderConfig"
  | "imageCredentialProviderBinDir";

const VALUE_FLAGS = new Map<string, ValueField>([
  ["--config", "configPath"],
  ["--root-dir", "rootDir"],
  ["--socket", "socketPath"],
  ["--image-credential-provider-config", "imageCredentialProviderConfig"],
  ["--image-credential-provider-bin-dir", "imageCredentialProviderBinDir"],
]);

/** @throws `invalid` that names the argument; the caller exits with 64. */
export function parseArguments(args: readonly string[], environment: NodeJS.ProcessEnv): AgentArguments {
  const values: { [field in ValueField]?: string } = {};
  let command: AgentArguments["command"] = "run";
  for (let index = 0; index < args.length; index += 1) {
    const [flag = "", inline] = splitFlag(args[index] ?? "");
    const field = VALUE_FLAGS.get(flag);
    if (field !== undefined) {
      if (inline === undefined) index += 1;
      const value = inline ?? args[index];
      if (value === undefined || value === "") throw new PicoletError("invalid", `flag ${flag} needs a value`);
      values[field] = value;
    } else if (flag === "--help" || flag === "-h") command = "help";
    else if (flag === "--version") command = "version";
    else if (flag === "--check-config") command = "check-config";
    else throw new PicoletError("invalid", `unknown argument ${args[index]}; ${hintFor(flag)}`);
  }
  return {
    ...values,
    command,
    configPath: values.configPath,
    rootDir: values.rootDir ?? DEFAULT_ROOT_DIR,
    socketPath: values.socketPath ?? environment.PICOLET_SOCKET ?? DEFAULT_SOCKET_PATH,
  };
}

const SWITCHES = ["--help", "--version", "--check-config"];

/** Names the flag that was probably meant. */
function hintFor(argument: string): string {
  const near = nearestName(argument, [...VALUE_FLAGS.keys(), ...SWITCHES]);
  return near === undefined ? "picolet --help lists the flags" : `did you mean ${near}?`;
}

function splitFlag(argument: string): [string, string | undefined] {
  const equals = argument.indexOf("=");
  return equals < 0 ? [argument, undefined] : [argument.slice(0, equals), argument.slice(equals + 1)];
}
