/** The table of picolet: its flags, with what the help, the man page and docs/configuration.md say of them. */
import { fileFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { type Flag, HELP_FLAG, type Program } from "@picolet/protocol/command-line/program.ts";
import { DEFAULT_SOCKET_PATH } from "@picolet/protocol/local-api/status.ts";
import { DEFAULT_CONFIG_PATH, DEFAULT_ROOT_DIR } from "./default-places.ts";

export const CONFIG = fileFlag({
  name: "config",
  help: `the configuration, KubeletConfiguration v1beta1 and picolet's own fields; without it ${DEFAULT_CONFIG_PATH}, which may be absent`,
});
export const ROOT_DIR = fileFlag({
  name: "root-dir",
  value: "DIR",
  help: "the folder of state that survives a reboot",
  default: DEFAULT_ROOT_DIR,
});
export const SOCKET = fileFlag({
  name: "socket",
  value: "PATH",
  help: `the local socket for edgectl; also PICOLET_SOCKET; else ${DEFAULT_SOCKET_PATH}`,
});
export const CREDENTIAL_PROVIDER_CONFIG = fileFlag({
  name: "image-credential-provider-config",
  help: "credential provider plugins (CredentialProviderConfig), a file or a folder of them",
});
export const CREDENTIAL_PROVIDER_BIN_DIR = fileFlag({
  name: "image-credential-provider-bin-dir",
  value: "DIR",
  help: "the folder of those programs",
});
const CHECK_CONFIG: Flag = { name: "check-config", help: "report all that is wrong with the configuration, and exit" };

export const PICOLET: Program = {
  name: "picolet",
  section: 8,
  summary: "a kubelet for small boards",
  description:
    "picolet runs Kubernetes pods on this machine: as containers through a CRI socket, or as WebAssembly components. Pods come " +
    "from manifests in a folder, from edgectl apply, from a web server, and from a hub. Stopping the agent stops no pod; " +
    "the next one takes them up again. With SIGPWR it ends the pods as for a shutdown of the machine.",
  commands: [
    {
      words: [],
      summary: "run the agent",
      details: "",
      flags: [CONFIG, ROOT_DIR, SOCKET, CREDENTIAL_PROVIDER_CONFIG, CREDENTIAL_PROVIDER_BIN_DIR, CHECK_CONFIG],
      examples: [["picolet --config /etc/picolet/config.yaml --check-config", "is the configuration good?"]],
    },
  ],
  defaultWords: [],
  globals: [HELP_FLAG, { name: "version", help: "print the version" }],
  exitCodes: [
    [0, "stopped by a signal"],
    [64, "wrong usage"],
    [75, "to be started again"],
    [78, "wrong configuration"],
    [1, "anything else"],
  ],
  environment: [["PICOLET_SOCKET", "the local socket, where --socket is not given"]],
  files: [
    [DEFAULT_CONFIG_PATH, "the configuration; all of it is in docs/configuration.md"],
    [DEFAULT_ROOT_DIR, "state that survives a reboot"],
    [DEFAULT_SOCKET_PATH, "the local socket"],
  ],
  chapters: [],
};
