/** Every command with its flags and its help, each kind in a file of `commands/`. What one does is loaded only when it is run. */

import { IMAGE_COMMANDS } from "./commands/images.ts";
import { KEYVALUE_COMMANDS } from "./commands/keyvalue.ts";
import { NODE_COMMANDS, STATUS } from "./commands/node.ts";
import { POD_COMMANDS } from "./commands/pods.ts";
import { WASM_COMMANDS } from "./commands/wasm.ts";
import type { Command } from "./context/command.ts";
import type { Flag } from "./context/command-line.ts";

export const GLOBAL_FLAGS: readonly Flag[] = [
  { name: "socket", value: "PATH", help: "the agent's socket; also PICOLET_SOCKET" },
  { name: "timeout", value: "DURATION", help: "how long the agent may be silent (default 10s)" },
  { name: "help", short: "h", help: "how a command is used" },
];

const help: Command = {
  words: ["help"],
  operands: "[COMMAND]",
  atLeast: 0,
  atMost: 2,
  summary: "how a command is used",
  details: "",
  flags: [],
  examples: [["edgectl help logs", "the flags of logs"]],
  completes: ["commands"],
  run: async (context, input) => (await import("./help-command.ts")).runHelp(context, input, COMMANDS),
};

const completion: Command = {
  words: ["completion"],
  operands: "bash",
  atLeast: 1,
  atMost: 1,
  summary: "a script that completes commands, flags and names",
  details: "Names of pods and namespaces are asked of the agent.",
  flags: [],
  examples: [
    ["source <(edgectl completion bash)", "for this shell"],
    ["edgectl completion bash > /etc/bash_completion.d/edgectl", "for all"],
  ],
  completes: ["shells"],
  run: async (context, input) => (await import("./completion-command.ts")).runCompletion(context, input),
};

export const COMMANDS: readonly Command[] = [
  STATUS,
  ...POD_COMMANDS,
  ...IMAGE_COMMANDS,
  ...WASM_COMMANDS,
  ...KEYVALUE_COMMANDS,
  ...NODE_COMMANDS,
  help,
  completion,
];
