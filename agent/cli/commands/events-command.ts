import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { EventList, EventObject, WatchLine } from "@picolet/protocol/local-api/status.ts";
import { type Context, paintStatus, table } from "../context/context.ts";
import { EXIT_HEALTHY } from "../context/exit-codes.ts";
import { listObject, machineFormat, parsePodName, podLabel, printObject, query } from "../context/objects.ts";
import { age } from "../context/text-layout.ts";
import { EVENT_LIMIT } from "./pods.ts";

/** What is shown to people unless they ask for more: some 80 characters each, 5 s at 9600 baud. */
const SHOWN_EVENTS = 50;

/** `edgectl events`, oldest first, so that the newest is next to the prompt. */
export async function runEvents(context: Context, input: Arguments): Promise<number> {
  const format = machineFormat(input);
  const pod = input.text("pod");
  const named = pod === undefined ? undefined : parsePodName(pod, input.text("namespace"));
  const limit = input.value(EVENT_LIMIT) ?? (format === undefined ? SHOWN_EVENTS : undefined);
  const parameters = {
    namespace: named?.namespace ?? input.text("namespace"),
    pod: named?.name,
    limit,
  };
  if (input.flag("watch")) return await watch(context, input, `/v1/events${query({ ...parameters, watch: true })}`);
  const { items } = await context.client.get<EventList>(`/v1/events${query(parameters)}`);
  if (format !== undefined) await context.terminal.write(printObject(listObject(items), format));
  else if (items.length === 0) context.terminal.writeError("No events found\n");
  else {
    await context.terminal.write(eventTable(context, input, items));
    if (input.text("limit") === undefined && items.length === limit) {
      context.terminal.writeError(`Only the newest ${limit} are shown; --limit N shows more.\n`);
    }
  }
  return EXIT_HEALTHY;
}

/** `5m`, or `5m x12` for one that came twelve times. */
export const lastSeen = (event: EventObject, nowMs: number): string =>
  `${age(event.lastTimestamp, nowMs)}${event.count > 1 ? ` x${event.count}` : ""}`;

function objectLabel({ kind, namespace, name }: EventObject["involvedObject"]): string {
  return kind === "Pod" ? podLabel(namespace, name) : `${kind.toLowerCase()}/${name}`;
}

function eventTable(
  context: Context,
  input: Arguments,
  events: readonly EventObject[],
  options: { readonly minWidths?: readonly number[]; readonly withHeaders?: boolean } = {},
): string {
  return table(context, input, {
    headers: ["LAST", "TYPE", "REASON", "OBJECT", "MESSAGE"],
    rows: events.map((event) => [
      lastSeen(event, context.now()),
      event.type,
      event.reason,
      objectLabel(event.involvedObject),
      event.message,
    ]),
    textLast: true,
    paint: (cell, column) => (column === 1 ? paintStatus(context, cell) : cell),
    ...options,
  });
}

/** Columns of rows that come one by one. */
const WATCH_WIDTHS = [6, 7, 10, 16];

async function watch(context: Context, input: Arguments, path: string): Promise<number> {
  const format = machineFormat(input);
  let isFirst = true;
  for await (const line of context.client.lines<WatchLine<EventObject>>(path)) {
    if (line.type === "ERROR") continue;
    if (format !== undefined) {
      await context.terminal.write(`${format === "yaml" ? "---\n" : ""}${printObject(line.object, format)}`);
      continue;
    }
    const options = { minWidths: WATCH_WIDTHS, withHeaders: isFirst };
    await context.terminal.write(eventTable(context, input, [line.object], options));
    isFirst = false;
  }
  return EXIT_HEALTHY;
}
