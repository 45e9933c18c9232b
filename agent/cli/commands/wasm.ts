/** `edgectl wasm`: its commands. */
import { type Command, output } from "../context/command.ts";
import type { Flag } from "../context/command-line.ts";

const WASM_FLAGS: readonly Flag[] = [
  { name: "pod", value: "FILE", help: "a manifest: it is run as that pod" },
  { name: "container", short: "c", value: "CONTAINER", help: "of a pod with several" },
  { name: "annotation", short: "a", value: "NAME=VALUE", help: "a grant, as network=...; may come again" },
  { name: "memory", value: "QUANTITY", help: "its memory limit" },
  { name: "p3", help: "as a node with wasm.p3: true, which runs WASI 0.3" },
  { name: "max-size", value: "QUANTITY", help: "as a node with this wasm.maxComponentSize" },
];

const wasmCheck: Command = {
  words: ["wasm", "check"],
  operands: "FILE",
  atLeast: 1,
  atMost: 1,
  summary: "what a component wants, and whether this machine would run it",
  details: `FILE is a WebAssembly component; - is standard input. Needs no agent. Exit code
0 when it would run, 1 when it would not, with all the reasons.`,
  flags: [...WASM_FLAGS, output("json")],
  examples: [
    ["edgectl wasm check app.wasm", "as a pod that grants nothing"],
    ["edgectl wasm check app.wasm --pod app.yaml", "as this pod"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./wasm-commands.ts")).runWasm(context, input, "check"),
};

const wasmRun: Command = {
  words: ["wasm", "run"],
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
    { name: "cpu", value: "QUANTITY", help: "its CPU limit" },
    { name: "env", short: "e", value: "NAME=VALUE", help: "a variable; may come again" },
    { name: "dir", value: "HOST:CONTAINER[:ro]", help: "a folder, whose owner it is; may come again" },
    { name: "ca-file", value: "FILE", help: "authorities that it trusts besides (PEM)" },
    { name: "time-limit", value: "DURATION", help: "ends it after that" },
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
