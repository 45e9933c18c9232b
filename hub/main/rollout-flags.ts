/** The part of picolet-hub's table that is about rollouts, and how its arguments are read. */
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import {
  choiceFlag,
  countFlag,
  durationFlag,
  parsedFlag,
  textFlag,
  type ValueFlag,
} from "@picolet/protocol/command-line/flag-values.ts";
import type { CommandText, Flag } from "@picolet/protocol/command-line/program.ts";
import { usageError } from "@picolet/protocol/command-line/usage-error.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { formatDuration } from "@picolet/protocol/kubernetes/duration.ts";
import type { UpdateKind } from "@picolet/protocol/updates/node-updates.ts";
import { type BoardCount, parseBoardCount, type RolloutSpec } from "../rollouts/rollout.ts";

export const ROLLOUT_COMMANDS = [
  "rollout os",
  "rollout agent",
  "rollout configuration",
  "rollout list",
  "rollout status",
  "rollout pause",
  "rollout resume",
  "rollout stop",
  "rollout undo",
] as const;
export type RolloutCommandName = (typeof ROLLOUT_COMMANDS)[number];

const boardCount = (text: string): BoardCount => {
  const count = parseBoardCount(text);
  if (count !== undefined) return count;
  throw new PicoletError("invalid", `needs a number of boards above 0, or a share such as 10%, not "${text}"`);
};

const FLAGS = {
  selector: textFlag({
    name: "selector",
    short: "l",
    value: "SELECTOR",
    help: "labels of the boards, such as role=edge,site!=lab",
  }),
  maxUnavailable: parsedFlag(
    {
      name: "max-unavailable",
      value: "N|N%",
      help: "how many boards may be under way at once; a share counts the boards that are here, and is rounded down",
      default: "10%",
    },
    boardCount,
  ),
  maxFailures: parsedFlag(
    {
      name: "max-failures",
      value: "N|N%",
      help: "how many failed boards stop it; a share counts all boards that are selected, and is rounded up",
      default: "3",
    },
    boardCount,
  ),
  canary: countFlag({
    name: "canary",
    help: "how many boards must be good before the others begin; one of them that fails stops it",
    default: "0",
  }),
  window: textFlag({
    name: "window",
    value: "HH:MM-HH:MM",
    help: "when a board may restart, in its own time zone; without it as each board's Node says",
  }),
  bandwidth: textFlag({
    name: "bandwidth",
    value: "QUANTITY",
    help: "bytes a second that each board may fetch, such as 256Ki; without it as each board's Node says",
  }),
  healthDeadline: durationFlag({
    name: "health-deadline",
    help: "the time in which the new version must be healthy",
    default: "10m",
  }),
  name: textFlag({ name: "name", value: "NAME", help: "its name; without it one of the kind and the time" }),
  hubName: textFlag({ name: "hub-name", value: "NAME", help: "the hub whose boards it is for", default: "picolet" }),
} as const satisfies Readonly<Record<string, ValueFlag<unknown>>>;
const ALL: Flag = { name: "all", help: "every board of the hub, in the place of --selector" };
const DOWNGRADE: Flag = { name: "allow-downgrade", help: "install a version that is older than the one that runs" };
const WATCH: Flag = { name: "watch", short: "w", help: "follow it until it is over; 1 when it has stopped" };
const OUTPUT = choiceFlag({
  name: "output",
  short: "o",
  help: "how it is printed",
  choices: ["text", "json"],
  default: "text",
});

type Row = Omit<CommandText, "words" | "details" | "examples"> & Partial<Pick<CommandText, "details" | "examples">>;

/** @param clusterFlags those of every command that asks the API server */
export function rolloutRows(clusterFlags: readonly Flag[]): Readonly<Record<RolloutCommandName, Row>> {
  const { selector, ...others } = FLAGS;
  const making: Omit<Row, "summary"> = {
    operands: "IMAGE",
    atLeast: 1,
    atMost: 1,
    flags: [...clusterFlags, selector, ALL, ...Object.values(others), DOWNGRADE],
  };
  const named: Omit<Row, "summary"> = { operands: "NAME", atLeast: 1, atMost: 1, flags: clusterFlags };
  return {
    "rollout os": {
      ...making,
      summary: "update the system of boards, some at a time",
      details: `IMAGE is an OCI artifact with a signed bundle. Boards that are away are done
when they come. A board that goes back to its version of before is not tried
again.`,
      examples: [
        [
          'picolet-hub rollout os reg.example/os:1.3 -l role=edge --window "02:00-05:00"',
          "a tenth of the boards at a time, by night",
        ],
      ],
    },
    "rollout agent": {
      ...making,
      summary: "update the agent where the system is the vendor's",
      examples: [["picolet-hub rollout agent registry.example/agent:1.3 --all --canary 2", "two boards first"]],
    },
    "rollout configuration": {
      ...making,
      operands: "FILE",
      completes: ["files"],
      summary: "change the configuration of boards",
      details: "FILE has the fields, in YAML, that replace those of each board's own file.",
      examples: [["picolet-hub rollout configuration night.yaml -l site=mast-7", "the boards of a site"]],
    },
    "rollout list": { summary: "list rollouts", flags: [...clusterFlags, OUTPUT] },
    "rollout status": {
      ...named,
      summary: "show how far it is, and which boards failed why",
      flags: [...clusterFlags, WATCH, OUTPUT],
    },
    "rollout pause": { ...named, summary: "give no further boards their turn" },
    "rollout resume": {
      ...named,
      summary: "go on after a pause or a stop",
      details: "Boards that have failed are accepted, and are not tried again.",
    },
    "rollout stop": {
      ...named,
      summary: "end a rollout; boards that have not restarted stay",
    },
    "rollout undo": {
      ...named,
      summary: "put its boards back to what they had before",
      details: "Boards go back as they came: within --max-unavailable and the other limits.",
    },
  };
}

export type RolloutArguments =
  | {
      readonly command: "rollout os" | "rollout agent" | "rollout configuration";
      /** Without `target`, which of a configuration is the text of the file. */
      readonly spec: Omit<RolloutSpec, "target">;
      /** Image or file. */
      readonly operand: string;
      readonly name: string | undefined;
    }
  | { readonly command: "rollout list"; readonly isJson: boolean }
  | {
      readonly command: "rollout status";
      readonly name: string;
      readonly isJson: boolean;
      readonly isWatched: boolean;
    }
  | {
      readonly command: "rollout pause" | "rollout resume" | "rollout stop" | "rollout undo";
      readonly name: string;
    };

/** @throws a usage error */
export function readRollout(command: RolloutCommandName, input: Arguments): RolloutArguments {
  const [operand = ""] = input.positionals;
  const isJson = input.value(OUTPUT) === "json";
  switch (command) {
    case "rollout os":
    case "rollout agent":
    case "rollout configuration":
      return { command, operand, name: input.value(FLAGS.name), spec: specOf(kindOf(command), input) };
    case "rollout list":
      return { command, isJson };
    case "rollout status":
      return { command, name: operand, isJson, isWatched: input.flag("watch") };
    default:
      return { command, name: operand };
  }
}

const kindOf = (command: "rollout os" | "rollout agent" | "rollout configuration"): UpdateKind =>
  command === "rollout os" ? "os" : command === "rollout agent" ? "agent" : "configuration";

function specOf(kind: UpdateKind, input: Arguments): Omit<RolloutSpec, "target"> {
  const [selector, isAll] = [input.value(FLAGS.selector), input.flag("all")];
  if (isAll === (selector !== undefined)) throw usageError("say which boards: either --selector or --all");
  return {
    kind,
    selector: selector ?? "",
    hub: input.value(FLAGS.hubName),
    maxUnavailable: input.value(FLAGS.maxUnavailable),
    maxFailures: input.value(FLAGS.maxFailures),
    canary: input.value(FLAGS.canary) ?? 0,
    window: input.value(FLAGS.window),
    bandwidth: input.value(FLAGS.bandwidth),
    healthDeadline: formatDuration(input.value(FLAGS.healthDeadline)),
    allowDowngrade: input.flag("allow-downgrade"),
  };
}
