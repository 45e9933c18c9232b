import type { IncomingMessage } from "node:http";
import { isAbsolute } from "node:path";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { DEFAULT_NAMESPACE } from "@picolet/protocol/kubernetes/default-namespace.ts";
import type {
  ImageImportAnswer,
  ImageList,
  ImagePinAnswer,
  ImagePullLine,
  ImagePullReport,
  ImageRemoveAnswer,
  ImageReport,
} from "@picolet/protocol/local-api/status.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import type { ImageInfo } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ActivePull, HandPull, NodeImages } from "../core/pods/image-pulls.ts";
import { rfc3339 } from "../core/pods/pod-object.ts";
import type { AgentView, ImageStore } from "./agent-view.ts";
import type { Answer } from "./api-answers.ts";
import { type Query, readJsonBody } from "./request-input.ts";

/** The longest path Linux takes. */
const MAX_PATH_LENGTH = 4096;
/** The interval between two reports of a pull's progress. */
const PROGRESS_INTERVAL = seconds(1);
/** Bounds the credentials of a manual pull; a pod has a few. */
const MAX_SECRETS = 32;

export interface ImageRoutesComponents {
  readonly view: AgentView;
  readonly clock: Clock;
  /** `undefined`: pulls are neither reported nor possible. */
  readonly images?: NodeImages;
}

/** `/v1/images` and what is below it. */
export class ImageRoutes {
  readonly #view: AgentView;
  readonly #clock: Clock;
  readonly #images: NodeImages | undefined;

  constructor({ view, clock, images }: ImageRoutesComponents) {
    this.#view = view;
    this.#clock = clock;
    this.#images = images;
  }

  get pulls(): readonly ActivePull[] {
    return this.#images?.pulls ?? [];
  }

  async list(query: Query, signal: AbortSignal): Promise<Answer> {
    query.end();
    const stores = this.#view.imageStores();
    const [lists] = await Promise.all([
      Promise.allSettled(stores.map((each) => each.images.list(signal))),
      this.#images?.refresh(signal),
    ]);
    const body: ImageList = {
      items: lists.flatMap((list, index) =>
        list.status === "fulfilled" ? list.value.map((image) => this.#report(stores[index]?.name, image)) : [],
      ),
      problems: lists.flatMap((list, index) =>
        list.status === "rejected" ? [{ runtime: stores[index]?.name ?? "", message: describeError(list.reason) }] : [],
      ),
      pulls: this.pulls.map(pullReport),
      prefetches: this.#images?.prefetches ?? [],
      pinned: this.#images?.pinned ?? [],
    };
    return { kind: "json", body };
  }

  async import(query: Query, message: IncomingMessage, signal: AbortSignal): Promise<Answer> {
    query.end();
    const body = await readFields(message, ["path", "name"]);
    const { path, name } = body;
    if (typeof path !== "string" || !isAbsolute(path) || path.length > MAX_PATH_LENGTH || path.includes("\0")) {
      throw new PicoletError("invalid", "field path is the absolute path of a file on this node");
    }
    if (name !== undefined && (typeof name !== "string" || name === "")) {
      throw new PicoletError("invalid", "field name is an image's name");
    }
    const refusals: string[] = [];
    for (const store of this.#view.imageStores()) {
      const images = await importInto(store, path, name, refusals, signal);
      if (images === undefined) continue;
      this.#images?.imported(images);
      const answer: ImageImportAnswer = { items: images.map((image) => this.#report(store.name, image)) };
      return { kind: "json", body: answer };
    }
    const why = refusals.length === 0 ? "this node has no runtime" : refusals.join("; ");
    throw new PicoletError("unimplemented", `cannot import ${path}: ${why}`);
  }

  async pull(query: Query, message: IncomingMessage, signal: AbortSignal): Promise<Answer> {
    query.end();
    const images = this.#required();
    const body = await readFields(message, ["image", "runtime", "namespace", "secrets"]);
    const { secrets = [] } = body;
    const isNames = Array.isArray(secrets) && secrets.every((each) => typeof each === "string" && each !== "");
    if (!isNames || secrets.length > MAX_SECRETS) throw new PicoletError("invalid", "field secrets is a list of names");
    const request: HandPull = {
      image: requiredText(body, "image"),
      runtime: optionalText(body, "runtime"),
      namespace: optionalText(body, "namespace") ?? DEFAULT_NAMESPACE,
      secrets,
    };
    const open = async (): Promise<AsyncIterable<string>> => this.#pullLines(images, request, signal);
    return { kind: "stream", contentType: "application/x-ndjson", notice: "", open };
  }

  async remove(query: Query, message: IncomingMessage, signal: AbortSignal): Promise<Answer> {
    query.end();
    const images = this.#required();
    const body = await readFields(message, ["image", "runtime", "force"]);
    const { force = false } = body;
    if (typeof force !== "boolean") throw new PicoletError("invalid", "field force is true or false");
    const options = { runtime: optionalText(body, "runtime"), force };
    const removed = await images.remove(requiredText(body, "image"), options, signal);
    const answer: ImageRemoveAnswer = { items: removed.map(({ runtime, image }) => this.#report(runtime, image)) };
    return { kind: "json", body: answer };
  }

  async pin(query: Query, message: IncomingMessage, signal: AbortSignal): Promise<Answer> {
    query.end();
    const images = this.#required();
    const body = await readFields(message, ["image", "pinned"]);
    const { pinned } = body;
    if (typeof pinned !== "boolean") throw new PicoletError("invalid", "field pinned is true or false");
    await images.setPinned(requiredText(body, "image"), pinned, signal);
    return { kind: "json", body: { pinned: images.pinned } satisfies ImagePinAnswer };
  }

  /** Streams the progress when it changes, and the image at the end. A client that disconnects cancels the pull. */
  async *#pullLines(images: NodeImages, request: HandPull, signal: AbortSignal): AsyncGenerator<string> {
    using life = joinSignals(signal);
    const pulling = images.pull(request, life.signal);
    let isOver = false;
    const over = pulling.then(
      () => true,
      () => true,
    );
    try {
      for (let last = ""; !isOver; ) {
        const report = images.pulls.find((each) => each.image === request.image && each.pods.length === 0);
        const line = report === undefined ? "" : lineOf({ type: "PROGRESS", object: pullReport(report) });
        if (line !== "" && line !== last) yield line;
        last = line;
        isOver = await Promise.race([over, this.#clock.sleep(PROGRESS_INTERVAL, life.signal).then(() => false)]);
        if (!isOver) await images.refresh(life.signal);
      }
      const { runtime, image } = await pulling;
      yield lineOf({ type: "PULLED", object: this.#report(runtime, image) });
    } finally {
      life.abort();
    }
  }

  #required(): NodeImages {
    if (this.#images === undefined) throw new PicoletError("unimplemented", "this agent pulls no images here");
    return this.#images;
  }

  #report(runtime: string | undefined, image: ImageInfo): ImageReport {
    const { id, tags, digests, sizeBytes } = image;
    const pinned = this.#images?.isPinned(image) ?? image.pinned;
    return { runtime: runtime ?? "", id, tags, digests, sizeBytes, pinned };
  }
}

/** @returns undefined when the file is nothing for this runtime; why is added to `refusals` */
async function importInto(
  store: ImageStore,
  path: string,
  name: string | undefined,
  refusals: string[],
  signal: AbortSignal,
): Promise<readonly ImageInfo[] | undefined> {
  try {
    return await store.images.import(path, name, signal);
  } catch (error) {
    if (isCancelled(error) || !isPicoletError(error, "unimplemented")) throw error;
    refusals.push(`${store.name}: ${describeError(error)}`);
    return undefined;
  }
}

const lineOf = (line: ImagePullLine): string => `${JSON.stringify(line)}\n`;

const pullReport = ({ image, runtime, state, sinceMs, progress, pods }: ActivePull): ImagePullReport => ({
  image,
  runtime,
  state,
  since: rfc3339(sinceMs),
  bytes: progress?.bytes ?? null,
  totalBytes: progress?.totalBytes ?? null,
  pods: pods.map(({ namespace, name }) => `${namespace}/${name}`),
});

type Fields = Readonly<Record<string, unknown>>;

async function readFields(message: IncomingMessage, known: readonly string[]): Promise<Fields> {
  const body = await readJsonBody(message);
  const field = Object.keys(body).find((each) => !known.includes(each));
  if (field !== undefined) throw new PicoletError("invalid", `there is no field ${field} here`);
  return body;
}

function optionalText(body: Fields, field: string): string | undefined {
  const value = body[field];
  if (value === undefined || (typeof value === "string" && value !== "")) return value;
  throw new PicoletError("invalid", `field ${field} is a text`);
}

function requiredText(body: Fields, field: string): string {
  const value = optionalText(body, field);
  if (value === undefined) throw new PicoletError("invalid", `field ${field} is missing`);
  return value;
}
