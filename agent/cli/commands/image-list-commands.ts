import { resolve } from "node:path";
import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import type {
  ImageImportAnswer,
  ImageImportRequest,
  ImageList,
  ImagePullReport,
  ImageReport,
} from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { type Context, table, widthOf } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY } from "../context/exit-codes.ts";
import { machineFormat, printObject } from "../context/objects.ts";
import { age, formatShare, humanBytes, printableLine, wrap } from "../context/text-layout.ts";

/** A gigabyte from a slow card, unpacked onto it. */
const IMPORT_TIMEOUT = seconds(30 * 60);

/** `edgectl image list`; a runtime that does not answer makes it fail, after the others' images are shown. */
export async function runImageList(context: Context, input: Arguments): Promise<number> {
  const answer = await context.client.get<ImageList>("/v1/images");
  const format = machineFormat(input);
  if (format !== undefined) await context.terminal.write(printObject(answer, format));
  else {
    await context.terminal.write(underWay(context, answer));
    if (answer.items.length > 0) await context.terminal.write(imageTable(context, input, answer.items));
    else if (answer.problems.length === 0) context.terminal.writeError("No images found\n");
  }
  for (const { runtime, message } of answer.problems)
    context.terminal.writeError(`edgectl: ${printableLine(`${runtime}: ${message}`)}\n`);
  return answer.problems.length === 0 ? EXIT_HEALTHY : EXIT_DEGRADED;
}

/** As much of a digest as people compare. */
const SHOWN_ID_LENGTH = 12;

export const shortId = (id: string): string => id.replace(/^[a-z0-9]+:/, "").slice(0, SHOWN_ID_LENGTH);

const namesOf = ({ tags, digests }: ImageReport): readonly string[] => {
  if (tags.length > 0) return tags;
  const [digest] = digests;
  return [digest === undefined ? "<none>" : digest.replace(/@.*$/, "@<none>")];
};

/** The one that people would say. */
/** @param asked the name in the request, which is preferred where the image has several */
export function nameOf(image: ImageReport, asked = ""): string {
  const names = namesOf(image);
  const parsed = parseImageReference(asked);
  const canonical = parsed.ok ? parsed.reference.canonical : undefined;
  return names.find((each) => each === canonical || each === asked) ?? names[0] ?? image.id;
}

/** What is on its way, and what is to come: a line each, with an empty one after them. */
function underWay(context: Context, { pulls = [], prefetches = [] }: ImageList): string {
  const width = widthOf(context);
  const shown = pulls.map((pull) => pullText(pull, context.now()));
  const coming = prefetches
    .filter(({ state }) => state !== "present" && state !== "pulling")
    .map(({ image, wantedBy, state, message }) => {
      const why = state === "failed" ? `failed: ${message}` : "waiting";
      return `prefetch of ${image} for ${wantedBy.join(", ")}: ${why}`;
    });
  const lines = [...shown, ...coming].map((line) => wrap(line, width, 4));
  return lines.length === 0 ? "" : `${lines.join("\n")}\n\n`;
}

/** `pulling app:1 for 42s: 12 of 40 MiB (default/web)`. */
export function pullText({ image, state, since, bytes, totalBytes, pods }: ImagePullReport, nowMs: number): string {
  const far = bytes === null || totalBytes === null ? "" : `: ${formatShare(bytes, totalBytes)}`;
  const whose = pods.length === 0 ? "" : ` (${pods.join(", ")})`;
  const what = state === "waiting" ? "waiting to pull" : "pulling";
  return printableLine(`${what} ${image} for ${age(since, nowMs)}${far}${whose}`);
}

function imageTable(context: Context, input: Arguments, images: readonly ImageReport[]): string {
  const wide = input.text("output") === "wide";
  const rows = images.flatMap((image) =>
    namesOf(image).map((name) => [
      name,
      wide ? image.id : shortId(image.id),
      humanBytes(image.sizeBytes),
      image.runtime,
      ...(wide ? [image.pinned ? "yes" : "no", image.digests.join(",")] : []),
    ]),
  );
  rows.sort(([a = ""], [b = ""]) => (a < b ? -1 : a > b ? 1 : 0));
  const headers = ["IMAGE", "ID", "SIZE", "RUNTIME", ...(wide ? ["PINNED", "DIGESTS"] : [])];
  return table(context, input, { headers, rows, nameColumns: 1 });
}

/** The interval of progress lines, so that a pull does not seem to hang. */
const WORD_INTERVAL = seconds(5);

/** On standard error, so that what a script reads is the result alone. */
async function sayingThatItGoesOn<T>(context: Context, what: string, task: Promise<T>): Promise<T> {
  const over = new AbortController();
  const begunAt = context.now();
  const say = async (): Promise<void> => {
    for (;;) {
      await context.sleep(WORD_INTERVAL, over.signal);
      const since = Math.round((context.now() - begunAt) / 1000);
      context.terminal.writeError(`${printableLine(what)} for ${since}s\n`);
    }
  };
  say().catch((error: unknown) => {
    // It is over.
    if (!over.signal.aborted) throw error;
  });
  try {
    return await task;
  } finally {
    over.abort();
  }
}

/** `edgectl image import FILE`: the agent reads the file itself, so it has to be on this machine. */
export async function runImageImport(context: Context, input: Arguments): Promise<number> {
  const [file = ""] = input.positionals;
  const path = resolve(context.workingDirectory, file);
  const body: ImageImportRequest = { path, name: input.text("name") };
  const importing = context.client.post<ImageImportAnswer>("/v1/images/import", body, IMPORT_TIMEOUT);
  const answer = await sayingThatItGoesOn(context, `importing ${file}`, importing);
  const format = machineFormat(input);
  if (format !== undefined) await context.terminal.write(printObject(answer, format));
  else {
    for (const image of answer.items) {
      const name = nameOf(image, body.name);
      await context.terminal.write(`imported ${printableLine(name)} (${shortId(image.id)}) into ${image.runtime}\n`);
    }
  }
  return EXIT_HEALTHY;
}
