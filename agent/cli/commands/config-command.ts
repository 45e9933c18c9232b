import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { childPath } from "@picolet/protocol/kubernetes/plain-data.ts";
import type { ConfigAnswer } from "@picolet/protocol/local-api/status.ts";
import { type Context, widthOf } from "../context/context.ts";
import { EXIT_HEALTHY } from "../context/exit-codes.ts";
import { machineFormat, printObject } from "../context/objects.ts";
import { wrap } from "../context/text-layout.ts";
import { toYaml } from "../context/yaml-writer.ts";

/** `edgectl config`: the configuration in use as a file, with a comment at each value that is not the file's. */
export async function runConfig(context: Context, input: Arguments): Promise<number> {
  const answer = await context.client.get<ConfigAnswer>("/v1/config");
  const format = machineFormat(input);
  const text =
    format === undefined
      ? configText(answer, { width: widthOf(context), withDefaults: !input.flag("no-defaults") })
      : printObject(answer, format);
  await context.terminal.write(text);
  return EXIT_HEALTHY;
}

interface Layout {
  readonly width: number;
  readonly withDefaults: boolean;
  /** True inside a mapping that is marked itself. */
  readonly isMarked?: boolean;
}

function configText(answer: ConfigAnswer, layout: Layout): string {
  const { file, configuration } = answer;
  const rest = answer.flags === undefined ? "all of it is defaults" : "what no flag sets is a default";
  const head = file === null ? `# There is no file: ${rest}.` : `# ${file}`;
  return [head, ...entriesOf(configuration, "", answer, layout), ""].join("\n");
}

type Fields = Readonly<Record<string, unknown>>;

const isMapping = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length > 0;

function entriesOf(fields: Fields, path: string, answer: ConfigAnswer, layout: Layout): string[] {
  return Object.entries(fields).flatMap(([key, value]) => entryOf(key, value, path, answer, layout));
}

function entryOf(key: string, value: unknown, path: string, answer: ConfigAnswer, layout: Layout): string[] {
  const at = childPath(path, key);
  const { given, derived } = answer;
  const how = derived.find((each) => each.path === at)?.how;
  const isGiven = given.includes(at);
  const holdsDerived = derived.some((each) => each.path.startsWith(`${at}[`) || each.path.startsWith(`${at}.`));
  const isDefault = !isGiven && how === undefined;
  if (isDefault && !holdsDerived && !layout.withDefaults) return [];
  const margin = path === "" ? "" : "  ".repeat(depthOf(path));
  const isMarked = isDefault && !holdsDerived && !layout.isMarked;
  const flag = answer.flags?.find((each) => each.path === at)?.flag;
  const origin = flag ?? (isMarked ? "default" : undefined);
  const mark = (line: string): string => (origin === undefined ? line : `${line}  # ${origin}`);
  const above = how === undefined ? [] : commentLines(how, margin, layout.width);
  if (!isMapping(value)) {
    const [first = "", ...rest] = toYaml({ [key]: value })
      .trimEnd()
      .split("\n");
    return [...above, ...[mark(first), ...rest].map((line) => `${margin}${line}`)];
  }
  const header = mark(toYaml({ [key]: { x: 0 } }).split("\n")[0] ?? "");
  const inner = entriesOf(value, at, answer, { ...layout, isMarked: layout.isMarked === true || isMarked });
  return [...above, `${margin}${header}`, ...inner];
}

/** Steps down to what is at the path. */
const depthOf = (path: string): number => path.replaceAll(/\[[^\]]*\]/g, ".x").split(".").length;

const commentLines = (text: string, margin: string, width: number): string[] =>
  wrap(text, width - margin.length - 2, 0)
    .split("\n")
    .map((line) => `${margin}# ${line}`);
