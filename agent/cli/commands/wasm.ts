/** `edgectl wasm`: its commands. */

import { bytesFlag, durationFlag, quantityFlag } from "@picolet/protocol/command-line/flag-values.ts";
import type { Flag } from "@picolet/protocol/command-line/program.ts";
import { type Command, output } from "../context/command.ts";

export const MAX_SIZE = bytesFlag({
  name: "max-size",
  value: "QUANTITY",
  help: "run as a node with this wasm.maxComponentSize",
});
export const MEMORY = quantityFlag({ name: "memory", help: "the memory limit", example: "64Mi" });
export const CPU = quantityFlag({ name: "cpu", help: "the CPU limit", example: "500m" });
export const TIME_LIMIT = durationFlag({ name: "time-limit", help: "end it after that time", example: "30s or 5m" });

const WASM_FLAGS: readonly Flag[] = [
  { name: "pod", value: "FILE", help: "a manifest: run the component as that pod", completes: "files" },
  { name: "container", short: "c", value: "CONTAINER", help: "the container, of a pod with several" },
  { name: "annotation", short: "a", value: "NAME=VALUE", help: "a grant such as network=...", repeats: true },
  MEMORY,
  { name: "p3", help: "run as a node with wasm.p3: true, which runs WASI 0.3" },
  MAX_SIZE,
];

const wasmCheck: Command = {
  words: ["wasm", "check"],
  access: "view",
  operands: "FILE",
  atLeast: 1,
  atMost: 1,
  summary: "show a component's imports, and if this machine would run it",
  details: `FILE is a WebAssembly component; - is standard input. Needs no agent. Exit code
0 when it would run, 1 when it would not, with all the reasons.`,
  flags: [...WASM_FLAGS, output("json")],
  exitCodes: [
    [0, "the component would run"],
    [1, "it would not"],
  ],
  examples: [
    ["edgectl wasm check app.wasm", "as a pod that grants nothing"],
    ["edgectl wasm check app.wasm --pod app.yaml", "as this pod"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./wasm-commands.ts")).runWasm(context, input, "check"),
};

const wasmRun: Command = {
  words: ["wasm", "run"],
  access: "admin",
  operands: "FILE [ARG...]",
  atLeast: 1,
  atMost: 1000,
  summary: "run a component once, with a pod's limits",
  details: `Needs no agent, but root for limits that a cgroup keeps: without it those that
are not kept are named on standard error. Its output and exit code are
edgectl's; Ctrl-C ends it (130), --time-limit does (124), counted from its
start. FILE may be - for standard input, of which the component sees nothing.
Arguments that begin with a dash come after --.
Buckets are empty at first and go with the run; telemetry is judged and goes
nowhere.`,
  flags: [
    ...WASM_FLAGS,
    CPU,
    { name: "env", short: "e", value: "NAME=VALUE", help: "an environment variable", repeats: true },
    { name: "dir", value: "HOST:CONTAINER[:ro]", help: "a folder, which it gets as its owner", repeats: true },
    { name: "ca-file", value: "FILE", help: "PEM of authorities that it trusts besides", completes: "files" },
    TIME_LIMIT,
  ],
  exitCodes: [
    [124, "--time-limit ended it"],
    [130, "Ctrl-C ended it"],
    [137, "it was killed, for its memory for instance"],
  ],
  examples: [
    ["edgectl wasm run hello.wasm", "the component alone"],
    [
      "edgectl wasm run app.wasm --memory 32Mi --dir ./data:/data -- --verbose",
      "with a limit, a folder and an argument",
    ],
    ["edgectl wasm run app.wasm --pod app.yaml", "as this pod's container"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./wasm-commands.ts")).runWasm(context, input, "run"),
};

export const WASM_COMMANDS: readonly Command[] = [wasmCheck, wasmRun];
