/** `edgectl keyvalue`: what components keep, shown and changed. */
import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { KeyvalueBucketList, KeyvalueChangeAnswer, KeyvalueKeyList } from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { type Context, table } from "../context/context.ts";
import { EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { readInput, STANDARD_INPUT } from "../context/input-file.ts";
import { machineFormat, printObject, query } from "../context/objects.ts";
import { humanBytes, printableLine } from "../context/text-layout.ts";
import { KEY_LIMIT } from "./keyvalue.ts";
import { type BucketAddress, bucketLabel, bucketPath, parseBucket } from "./keyvalue-names.ts";

/** As much as a component may set. */
const MAX_VALUE_BYTES = MEBIBYTE;
/** The number of keys without `--limit`; the agent returns as many at a time. */
const PAGE_KEYS = 1000;
/** A commit waits 600 ms at the most when flash is short, and for a slow card. */
const CHANGE_TIMEOUT = seconds(30);

const bucketOf = (input: Arguments): BucketAddress => parseBucket(input.positionals[0] ?? "", input.text("namespace"));

/** `edgectl keyvalue list`: buckets, or the keys of one. */
export async function runList(context: Context, input: Arguments): Promise<number> {
  if (input.positionals.length > 0) return await listKeys(context, input, bucketOf(input));
  for (const flag of ["prefix", "limit", "after"])
    if (input.text(flag) !== undefined) throw usageError(`--${flag} goes with a bucket`);
  const namespace = input.text("namespace");
  const answer = await context.client.get<KeyvalueBucketList>("/v1/keyvalue");
  const items = answer.items.filter((each) => namespace === undefined || each.namespace === namespace);
  const format = machineFormat(input);
  if (format !== undefined) await context.terminal.write(printObject({ items }, format));
  else if (items.length === 0) context.terminal.writeError("No buckets found\n");
  else {
    const wide = input.text("output") === "wide";
    const rows = items.map(({ quota, pods, ...each }) => [
      ...[each.namespace, each.name, String(each.keys), humanBytes(each.bytes)],
      quota === null ? "-" : `${quota.keys} keys, ${humanBytes(quota.bytes)}`,
      each.usedOn,
      ...(wide ? [pods.join(",")] : []),
    ]);
    const headers = ["NAMESPACE", "BUCKET", "KEYS", "SIZE", "QUOTA", "USED", ...(wide ? ["PODS"] : [])];
    await context.terminal.write(table(context, input, { headers, rows, nameColumns: 2 }));
  }
  return EXIT_HEALTHY;
}

async function listKeys(context: Context, input: Arguments, bucket: BucketAddress): Promise<number> {
  const limit = input.value(KEY_LIMIT) ?? PAGE_KEYS;
  const items: KeyvalueKeyList["items"][number][] = [];
  let next: string | null = input.text("after") ?? "";
  while (next !== null && items.length < limit) {
    const after = next === "" ? undefined : next;
    const parameters = { prefix: input.text("prefix"), after, limit: Math.min(PAGE_KEYS, limit - items.length) };
    const page: KeyvalueKeyList = await context.client.get(`${bucketPath(bucket)}/keys${query(parameters)}`);
    items.push(...page.items);
    next = page.next;
  }
  const format = machineFormat(input);
  if (format !== undefined) {
    await context.terminal.write(printObject({ items, next } satisfies KeyvalueKeyList, format));
    return EXIT_HEALTHY;
  }
  if (items.length === 0) context.terminal.writeError("No keys found\n");
  else {
    const rows = items.map(({ key, bytes }) => [key, humanBytes(bytes)]);
    await context.terminal.write(table(context, input, { headers: ["KEY", "SIZE"], rows, nameColumns: 1 }));
  }
  if (next !== null && limit > 0) context.terminal.writeError(`There are more: --after ${quoted(next)}\n`);
  return EXIT_HEALTHY;
}

/** Quotes a text for a shell. */
const quoted = (text: string): string =>
  /^[\w./:-]+$/.test(text) ? text : `'${printableLine(text).replaceAll("'", "'\\''")}'`;

/** `edgectl keyvalue get`. */
export async function runGet(context: Context, input: Arguments): Promise<number> {
  const { chunks } = await context.client.stream(valuePath(bucketOf(input), input.positionals[1] ?? ""));
  const pieces: Buffer[] = [];
  for await (const chunk of chunks) pieces.push(chunk);
  const value = Buffer.concat(pieces);
  const file = input.text("output-file");
  if (file !== undefined) writeValue(resolve(context.workingDirectory, file), value);
  else if (context.terminal.columns !== undefined && !isText(value)) {
    throw new PicoletError("invalid", `the value is ${value.length} bytes of no text: -o FILE writes it to a file`);
  } else await context.terminal.write(value);
  return EXIT_HEALTHY;
}

/** True for text that is safe on a terminal: a value may hold control sequences. */
function isText(value: Buffer): boolean {
  const text = value.toString("utf8");
  return Buffer.from(text).equals(value) && !/(?![\t\n\r])\p{Cc}/u.test(text);
}

function writeValue(path: string, value: Buffer): void {
  try {
    writeFileSync(path, value);
  } catch (error) {
    throw new PicoletError("failed", `cannot write ${path}`, { cause: error });
  }
}

/** `edgectl keyvalue set`. */
export async function runSet(context: Context, input: Arguments): Promise<number> {
  const [, key = "", text] = input.positionals;
  const file = input.text("file");
  if (text !== undefined && file !== undefined) throw usageError("the value is given, and --file too");
  const bucket = bucketOf(input);
  const value =
    text === undefined
      ? await readInput(context, file ?? STANDARD_INPUT, MAX_VALUE_BYTES, "a value")
      : Buffer.from(text, "utf8");
  await context.client.send<KeyvalueChangeAnswer>("PUT", valuePath(bucket, key), value, CHANGE_TIMEOUT);
  await context.terminal.write(`set ${printableLine(key)} of ${bucketLabel(bucket)} to ${humanBytes(value.length)}\n`);
  return EXIT_HEALTHY;
}

/** `edgectl keyvalue rm`; stops at the first that cannot be deleted. */
export async function runRemove(context: Context, input: Arguments): Promise<number> {
  const bucket = bucketOf(input);
  for (const key of input.positionals.slice(1)) {
    await context.client.send<KeyvalueChangeAnswer>("DELETE", valuePath(bucket, key), undefined, CHANGE_TIMEOUT);
    await context.terminal.write(`deleted ${printableLine(key)} of ${bucketLabel(bucket)}\n`);
  }
  return EXIT_HEALTHY;
}

/** `edgectl keyvalue drop`. */
export async function runDrop(context: Context, input: Arguments): Promise<number> {
  const bucket = bucketOf(input);
  const label = bucketLabel(bucket);
  if (!input.flag("yes")) throw usageError(`keyvalue drop deletes all that ${label} holds: say --yes if that is meant`);
  await context.client.send<KeyvalueChangeAnswer>("DELETE", bucketPath(bucket), undefined, CHANGE_TIMEOUT);
  await context.terminal.write(`deleted ${label}\n`);
  return EXIT_HEALTHY;
}

const valuePath = (bucket: BucketAddress, key: string): string => `${bucketPath(bucket)}/value${query({ key })}`;
