/** `edgectl keyvalue`: its commands. What they do is in `keyvalue-command.ts`. */

import { countFlag } from "@picolet/protocol/command-line/flag-values.ts";
import type { Flag } from "@picolet/protocol/command-line/program.ts";
import { type Command, NAMESPACE, NO_HEADERS, output } from "../context/command.ts";

const OF_BUCKET: Flag = { ...NAMESPACE, help: "the bucket's namespace" };

/** The agent gives so many keys at a time. */
export const KEY_LIMIT = countFlag({ name: "limit", help: "list at most N keys (without it 1000)" });

const BUCKET_OPERAND = `BUCKET is a bucket's name, or NAMESPACE/NAME; without a namespace it is one of
"default".`;

const SHARED = { alias: "kv", atMost: 2 } as const;

const list: Command = {
  ...SHARED,
  words: ["keyvalue", "list"],
  access: "view",
  operands: "[BUCKET]",
  atMost: 1,
  summary: "list buckets of components, or the keys of one",
  details: `A bucket's size is of its keys and values; its quota is the largest that a pod
of this node names, "-" where none does; the day is when it was last used. Keys
are sorted. kv is short for keyvalue.
${BUCKET_OPERAND}`,
  flags: [
    { ...OF_BUCKET, help: "list only buckets of this namespace" },
    { name: "prefix", value: "TEXT", help: "list only keys that begin with this" },
    KEY_LIMIT,
    { name: "after", value: "KEY", help: "begin behind this key" },
    output("json", "yaml", "wide"),
    NO_HEADERS,
  ],
  examples: [
    ["edgectl keyvalue list", "every bucket"],
    ["edgectl kv list plant/samples --prefix 2026-11", "keys of one"],
  ],
  completes: ["buckets"],
  run: async (context, input) => (await import("./keyvalue-command.ts")).runList(context, input),
};

const get: Command = {
  ...SHARED,
  words: ["keyvalue", "get"],
  access: "operate",
  operands: "BUCKET KEY",
  atLeast: 2,
  summary: "print a value that a component keeps, byte for byte",
  details: BUCKET_OPERAND,
  flags: [
    OF_BUCKET,
    {
      name: "output-file",
      short: "o",
      value: "FILE",
      help: "write the value to this file instead of standard output",
      completes: "files",
    },
  ],
  examples: [
    ["edgectl kv get settings interval", "to standard output"],
    ["edgectl kv get plant/models pump -o pump.bin", "into a file"],
  ],
  completes: ["buckets", "keys"],
  run: async (context, input) => (await import("./keyvalue-command.ts")).runGet(context, input),
};

const set: Command = {
  ...SHARED,
  words: ["keyvalue", "set"],
  access: "operate",
  operands: "BUCKET KEY [VALUE]",
  atLeast: 2,
  atMost: 3,
  summary: "set a value that components find",
  details: `Without VALUE and --file the value is what comes on standard input. It is on
the disk when this returns. Limits and quota are those of components; a bucket
that is not there yet is made when a pod of this node names it.
${BUCKET_OPERAND}`,
  flags: [
    OF_BUCKET,
    { name: "file", value: "FILE", help: "read the value from this file; - for standard input", completes: "files" },
  ],
  examples: [
    ["edgectl kv set settings interval 30s", "a text"],
    ["edgectl kv set plant/models pump --file pump.bin", "a file"],
    ["edgectl kv set settings offset -- -5", "a value that begins with a dash"],
  ],
  completes: ["buckets", "keys"],
  run: async (context, input) => (await import("./keyvalue-command.ts")).runSet(context, input),
};

const remove: Command = {
  ...SHARED,
  words: ["keyvalue", "rm"],
  access: "operate",
  operands: "BUCKET KEY...",
  atLeast: 2,
  atMost: 1000,
  summary: "delete keys with their values",
  details: BUCKET_OPERAND,
  flags: [OF_BUCKET],
  examples: [["edgectl kv rm settings interval", "one key"]],
  completes: ["buckets", "keys"],
  run: async (context, input) => (await import("./keyvalue-command.ts")).runRemove(context, input),
};

const drop: Command = {
  ...SHARED,
  words: ["keyvalue", "drop"],
  access: "operate",
  operands: "BUCKET",
  atLeast: 1,
  atMost: 1,
  summary: "delete a bucket with all it holds",
  details: `Components that use it go on and find it empty.
${BUCKET_OPERAND}`,
  flags: [OF_BUCKET, { name: "yes", help: "confirm: the values cannot be restored" }],
  examples: [["edgectl kv drop plant/samples --yes", "the bucket and its keys"]],
  completes: ["buckets"],
  run: async (context, input) => (await import("./keyvalue-command.ts")).runDrop(context, input),
};

export const KEYVALUE_COMMANDS: readonly Command[] = [list, get, set, remove, drop];
