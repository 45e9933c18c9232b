import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import type { Context } from "../context/context.ts";
import { EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { parsePodName, podPath, query } from "../context/objects.ts";
import { LIMIT_BYTES, SINCE, SINCE_TIME, TAIL } from "./pods.ts";

/** A longer line is shown in parts of this size, each with its prefix. */
const MAX_PREFIXED_LINE_BYTES = 64 * KIBIBYTE;

const NEWLINE = 0x0a;

/** `edgectl logs`: what the containers wrote, byte for byte. */
export async function runLogs(context: Context, input: Arguments): Promise<number> {
  const [pod = "", positionalContainer] = input.positionals;
  const name = parsePodName(pod, input.text("namespace"));
  const container = input.text("container") ?? positionalContainer;
  const all = input.flag("all-containers");
  if (all && container !== undefined) throw usageError("a container does not go with --all-containers");
  if (positionalContainer !== undefined && container !== positionalContainer) {
    throw usageError("the container is named twice");
  }
  const parameters = logParameters(input);
  if (!all) {
    const path = `${podPath(name)}/log${query({ ...parameters, container })}`;
    await copyLog(context, path, input.flag("prefix") ? prefixOf(pod, container ?? "") : undefined);
    return EXIT_HEALTHY;
  }
  const { metadata, spec } = await context.client.get<Pod>(podPath(name));
  const containers = [...(spec.initContainers ?? []), ...spec.containers, ...(spec.ephemeralContainers ?? [])];
  const copies = containers.map((each) => {
    const path = `${podPath(metadata)}/log${query({ ...parameters, container: each.name })}`;
    return () => copyLog(context, path, prefixOf(metadata.name, each.name));
  });
  // Followed logs come at the same time, others one after the other.
  if (input.flag("follow")) await Promise.all(copies.map((copy) => copy()));
  else for (const copy of copies) await copy();
  return EXIT_HEALTHY;
}

const prefixOf = (pod: string, container: string): string => `[${pod}${container === "" ? "" : `/${container}`}] `;

function logParameters(input: Arguments): Readonly<Record<string, string | number | boolean | undefined>> {
  const [sinceMs, sinceTime] = [input.value(SINCE), input.value(SINCE_TIME)];
  if (sinceMs !== undefined && sinceTime !== undefined) {
    throw usageError("only one of --since and --since-time may be given");
  }
  return {
    follow: input.flag("follow") || undefined,
    previous: input.flag("previous") || undefined,
    timestamps: input.flag("timestamps") || undefined,
    tailLines: input.value(TAIL),
    limitBytes: input.value(LIMIT_BYTES),
    sinceSeconds: sinceMs === undefined ? undefined : Math.ceil(sinceMs / 1000),
    sinceTime,
  };
}

/** As fast as standard output takes it, and no faster than that is it read from the agent. */
async function copyLog(context: Context, path: string, prefix: string | undefined): Promise<void> {
  const { notice, chunks } = await context.client.stream(path);
  if (notice !== "") context.terminal.writeError(`${notice}\n`);
  for await (const bytes of prefix === undefined ? chunks : prefixed(chunks, prefix))
    await context.terminal.write(bytes);
}

/** Yields complete lines, each with `prefix`, which names the log. */
async function* prefixed(chunks: AsyncIterable<Buffer>, prefix: string): AsyncGenerator<Buffer> {
  const start = Buffer.from(prefix);
  const end = Buffer.from("\n");
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of chunks) {
    const bytes = Buffer.concat([rest, chunk]);
    const out: Buffer[] = [];
    let from = 0;
    for (let at = bytes.indexOf(NEWLINE); at >= 0; at = bytes.indexOf(NEWLINE, from)) {
      out.push(start, bytes.subarray(from, at + 1));
      from = at + 1;
    }
    rest = bytes.subarray(from);
    if (rest.length > MAX_PREFIXED_LINE_BYTES) {
      out.push(start, rest, end);
      rest = Buffer.alloc(0);
    }
    if (out.length > 0) yield Buffer.concat(out);
  }
  if (rest.length > 0) yield Buffer.concat([start, rest, end]);
}
