/** The behaviour of a container of the fake runtime; scripted, or read from its command. */
import { type Millis, millis } from "@picolet/protocol/ports.ts";
import type { ContainerLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";

export interface FakeLine {
  readonly stream: "stdout" | "stderr";
  readonly text: string;
}

export interface FakeProgram {
  /** `undefined`: until a signal ends it. */
  readonly runsFor: Millis | undefined;
  /** With which it ends by itself. */
  readonly exitCode: number;
  /** How long it takes to end after SIGTERM, with 143; `undefined`: it is deaf to it. */
  readonly endsAfterTerm: Millis | undefined;
  /** Printed when it starts. */
  readonly prints: readonly FakeLine[];
  /** Prints `line <n>` on stdout this often. */
  readonly countsEvery?: Millis;
}

const FOREVER: FakeProgram = { runsFor: undefined, exitCode: 0, endsAfterTerm: millis(0), prints: [] };
const COUNT_PERIOD = millis(100);

/**
 * The fake's little language, in `command`: `run` · `run-for MS CODE` · `exit CODE` · `say CODE STREAM:TEXT…` · `deaf`
 * · `slow-end MS` · `print STREAM:TEXT…` · `count` · `printenv NAME`. Anything else runs for ever.
 */
export function fakeProgramOf(launch: Pick<ContainerLaunch, "command" | "args" | "env">): FakeProgram {
  const [verb, ...words] = [...launch.command, ...launch.args];
  switch (verb) {
    case "run-for":
      return { ...FOREVER, runsFor: millis(Number(words[0])), exitCode: Number(words[1]) };
    case "exit":
      return { ...FOREVER, runsFor: millis(0), exitCode: Number(words[0]) };
    case "say":
      return { ...FOREVER, runsFor: millis(0), exitCode: Number(words[0]), prints: words.slice(1).map(lineOf) };
    case "deaf":
      return { ...FOREVER, endsAfterTerm: undefined, prints: [{ stream: "stdout", text: "deaf" }] };
    case "slow-end":
      return { ...FOREVER, endsAfterTerm: millis(Number(words[0])) };
    case "print":
      return { ...FOREVER, runsFor: millis(0), prints: words.map(lineOf) };
    case "count":
      return { ...FOREVER, countsEvery: COUNT_PERIOD };
    case "printenv": {
      const text = launch.env.find((each) => each.name === words[0])?.value ?? "";
      return { ...FOREVER, runsFor: millis(0), prints: [{ stream: "stdout", text }] };
    }
    default:
      return FOREVER;
  }
}

function lineOf(word: string): FakeLine {
  const colon = word.indexOf(":");
  return { stream: word.slice(0, colon) === "stderr" ? "stderr" : "stdout", text: word.slice(colon + 1) };
}
