/** The table of picolet: its flags, with what the help, the man page and docs/configuration.md say of them. */
import { fileFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { type Flag, HELP_FLAG, type Program } from "@picolet/protocol/command-line/program.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { DEFAULT_SOCKET_PATH } from "@picolet/protocol/local-api/status.ts";
import { labelOf } from "../../config/kubelet-flag-values.ts";
import { effectOf, type IdleFlag, isSetting, KUBELET_FLAGS, type KubeletFlag } from "../../config/kubelet-flags.ts";
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
const CHECK_CONFIG: Flag = { name: "check-config", help: "report all that is wrong with the configuration, and exit" };

const HELP_KUBELET: Flag = { name: "help-kubelet", help: "list the kubelet's flags" };

export const KUBELET_GROUP = "The kubelet's flags";

/** Describes a flag of the kubelet by its effect here. */
function helpOf(flag: KubeletFlag): string {
  if (isSetting(flag)) return `sets ${flag.field}${flag.isOwn ? "; the kubelet has the field alone" : ""}`;
  return `${effectOf(flag)}: ${flag.instead}`;
}

function commandLineFlag(flag: KubeletFlag): Flag {
  const { name, form } = flag;
  return {
    name,
    value: labelOf(form),
    ...(form === "switch" ? { implied: "true" } : {}),
    ...(form === "path" ? { completes: "files" } : {}),
    help: helpOf(flag),
    group: KUBELET_GROUP,
    ...(isSetting(flag) ? (flag.short === undefined ? {} : { short: flag.short }) : { parse: refusalOf(flag) }),
  };
}

/** @returns a parser that throws for a value that would need what picolet does not have */
const refusalOf =
  ({ name, takes, instead }: IdleFlag) =>
  (text: string): void => {
    if (takes?.includes(text) === false) throw usageError(`picolet does not take the kubelet's --${name}: ${instead}`);
  };

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
      flags: [CONFIG, ROOT_DIR, SOCKET, CHECK_CONFIG, HELP_KUBELET, ...KUBELET_FLAGS.map(commandLineFlag)],
      examples: [
        ["picolet --config /etc/picolet/config.yaml --check-config", "is the configuration good?"],
        ["picolet --pod-manifest-path=/etc/kubernetes/manifests --max-pods=30", "flags win over the file"],
      ],
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
  chapters: [
    {
      title: KUBELET_GROUP,
      paragraphs: [
        "A kubelet's command line is taken as it is: its flags set the fields of the configuration, and win over the file. " +
          "picolet --help-kubelet lists them.",
      ],
    },
  ],
};
