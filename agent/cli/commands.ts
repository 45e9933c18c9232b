/**
 * The table of edgectl: every command with its flags and its help, each kind in a file of `commands/`. To add a
 * command, add its row here or there; what it does is loaded only when it is run.
 */
import { durationFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { HELP_FLAG } from "@picolet/protocol/command-line/program.ts";
import { DEFAULT_SOCKET_PATH } from "@picolet/protocol/local-api/status.ts";
import { IMAGE_COMMANDS } from "./commands/images.ts";
import { KEYVALUE_COMMANDS } from "./commands/keyvalue.ts";
import { NODE_COMMANDS, STATUS, WHY } from "./commands/node.ts";
import { POD_COMMANDS } from "./commands/pods.ts";
import { UPDATE_COMMANDS } from "./commands/update.ts";
import { WASM_COMMANDS } from "./commands/wasm.ts";
import type { Command, EdgectlProgram } from "./context/command.ts";

/** A board under load answers within a second or two. */
export const TIMEOUT = durationFlag({
  name: "timeout",
  help: "how long the agent may be silent",
  default: "10s",
  takesSeconds: true,
});

const help: Command = {
  words: ["help"],
  access: "view",
  operands: "[COMMAND]",
  atMost: 2,
  summary: "show how a command is used",
  details: "",
  flags: [],
  examples: [["edgectl help logs", "the flags of logs"]],
  completes: ["commands"],
  run: async (context, input) => {
    const { helpText } = await import("@picolet/protocol/command-line/help-text.ts");
    await context.terminal.write(helpText(input.positionals, context.program));
    return 0;
  },
};

const completion: Command = {
  words: ["completion"],
  access: "view",
  operands: "bash|zsh|fish",
  atLeast: 1,
  atMost: 1,
  summary: "print a script that completes commands, flags and names",
  details: "The script asks the agent for names of pods, namespaces and buckets.",
  flags: [],
  examples: [
    ["source <(edgectl completion bash)", "for this shell"],
    ["edgectl completion bash > /etc/bash_completion.d/edgectl", "for all"],
    ["edgectl completion zsh > /usr/share/zsh/vendor-completions/_edgectl", "zsh"],
    ["edgectl completion fish > ~/.config/fish/completions/edgectl.fish", "fish"],
  ],
  completes: ["shells"],
  run: async (context, input) => (await import("./completion-command.ts")).runCompletion(context, input),
};

export const COMMANDS: readonly Command[] = [
  STATUS,
  WHY,
  ...POD_COMMANDS,
  ...IMAGE_COMMANDS,
  ...WASM_COMMANDS,
  ...KEYVALUE_COMMANDS,
  ...NODE_COMMANDS,
  ...UPDATE_COMMANDS,
  help,
  completion,
];

export const EDGECTL: EdgectlProgram = {
  name: "edgectl",
  section: 1,
  summary: "show and change what the picolet agent of this board does",
  description:
    "edgectl shows and changes what the picolet agent of this machine does. It talks to the agent's local socket, and needs " +
    "no network. What it prints fits a serial console of 80 columns.",
  commands: COMMANDS,
  globals: [
    { name: "socket", value: "PATH", help: "the agent's socket; also PICOLET_SOCKET", completes: "files" },
    TIMEOUT,
    HELP_FLAG,
  ],
  exitCodes: [
    [0, "all is well"],
    [1, "it is not, or the command failed"],
    [2, "no agent answers"],
    [64, "wrong usage"],
  ],
  environment: [
    ["PICOLET_SOCKET", `the agent's socket, where --socket is not given; else ${DEFAULT_SOCKET_PATH}`],
    ["PICOLET_ACCESS", "view or operate refuses commands that need more; consoles and SSH of an image have it"],
    ["NO_COLOR", "no colours, on any terminal"],
  ],
  files: [[DEFAULT_SOCKET_PATH, "the agent's socket"]],
  chapters: [],
};
