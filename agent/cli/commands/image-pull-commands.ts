import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type {
  ImagePinAnswer,
  ImagePinRequest,
  ImagePullLine,
  ImagePullReport,
  ImagePullRequest,
  ImageRemoveAnswer,
  ImageRemoveRequest,
  ImageReport,
} from "@picolet/protocol/local-api/status.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { Context } from "../context/context.ts";
import { EXIT_HEALTHY } from "../context/exit-codes.ts";
import { machineFormat, printObject } from "../context/objects.ts";
import { humanBytes, printableLine } from "../context/text-layout.ts";
import { nameOf, pullText, shortId } from "./image-list-commands.ts";

/** Layers of a gigabyte taken off a slow card. */
const REMOVE_TIMEOUT = seconds(5 * 60);

/** `edgectl image pull`: progress goes to standard error, so that what a script reads is the image alone. */
export async function runImagePull(context: Context, input: Arguments): Promise<number> {
  const [image = ""] = input.positionals;
  const secrets = (input.text("secret") ?? "").split(",").filter((each) => each !== "");
  const request: ImagePullRequest = {
    image,
    runtime: input.text("runtime"),
    namespace: input.text("namespace"),
    secrets,
  };
  const format = machineFormat(input);
  const progress = new ProgressLine(context);
  for await (const line of context.client.lines<ImagePullLine>("/v1/images/pull", request)) {
    if (line.type === "PROGRESS") progress.show(line.object);
    else if (line.type === "PULLED") {
      progress.end();
      const { object } = line;
      await context.terminal.write(
        format === undefined ? pulledText(object, request.image) : printObject(object, format),
      );
      return EXIT_HEALTHY;
    }
  }
  throw new PicoletError("unavailable", "the agent ended before the image was there");
}

const pulledText = (image: ImageReport, asked: string): string =>
  `pulled ${printableLine(nameOf(image, asked))} (${shortId(image.id)}, ${humanBytes(image.sizeBytes)}) into ${image.runtime}\n`;

/**
 * On a terminal one line that is written over; else a line whenever there is something new to say, every ten percent.
 */
class ProgressLine {
  readonly #context: Context;
  #shown = "";

  constructor(context: Context) {
    this.#context = context;
  }

  show(pull: ImagePullReport): void {
    const { terminal, now } = this.#context;
    const isTerminal = terminal.columns !== undefined;
    const text = isTerminal ? pullText(pull, now()) : coarseText(pull);
    if (text === this.#shown) return;
    const line = isTerminal ? `\r${text.padEnd(this.#shown.length)}` : `${text}\n`;
    terminal.writeError(line);
    this.#shown = text;
  }

  end(): void {
    if (this.#context.terminal.columns !== undefined && this.#shown !== "") this.#context.terminal.writeError("\n");
  }
}

function coarseText({ image, state, bytes, totalBytes }: ImagePullReport): string {
  if (state === "waiting") return `${printableLine(image)} waits for its turn`;
  if (bytes === null || totalBytes === null || totalBytes === 0) return `pulling ${printableLine(image)}`;
  return `pulling ${printableLine(image)}: ${Math.floor((bytes / totalBytes) * 10) * 10} % of ${humanBytes(totalBytes)}`;
}

/** `edgectl image rm`; stops at the first that cannot be removed. */
export async function runImageRemove(context: Context, input: Arguments): Promise<number> {
  const format = machineFormat(input);
  const items: ImageReport[] = [];
  for (const image of input.positionals) {
    const request: ImageRemoveRequest = { image, runtime: input.text("runtime"), force: input.flag("force") };
    const answer = await context.client.post<ImageRemoveAnswer>("/v1/images/remove", request, REMOVE_TIMEOUT);
    items.push(...answer.items);
    if (format !== undefined) continue;
    for (const each of answer.items)
      await context.terminal.write(
        `removed ${printableLine(nameOf(each, image))} (${shortId(each.id)}) from ${each.runtime}\n`,
      );
  }
  if (format !== undefined) await context.terminal.write(printObject({ items }, format));
  return EXIT_HEALTHY;
}

/** `edgectl image pin` and `unpin`. */
export async function runImagePin(context: Context, input: Arguments, pinned: boolean): Promise<number> {
  const format = machineFormat(input);
  let answer: ImagePinAnswer = { pinned: [] };
  for (const image of input.positionals) {
    const request: ImagePinRequest = { image, pinned };
    answer = await context.client.post<ImagePinAnswer>("/v1/images/pin", request, REMOVE_TIMEOUT);
    if (format === undefined)
      await context.terminal.write(`${pinned ? "pinned" : "unpinned"} ${printableLine(image)}\n`);
  }
  if (format !== undefined) await context.terminal.write(printObject(answer, format));
  return EXIT_HEALTHY;
}
