import { resolve } from "node:path";
import { describeError, type ErrorCode, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import { type Clock, millis } from "@picolet/protocol/ports.ts";
import type {
  DesiredPod,
  ImageCredentials,
  ImageHoldings,
  ImageInfo,
  ImageService as ImageServiceContract,
  PullOptions,
  PullProgress,
  RuntimeFilesystem,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { ContainerdContent } from "./containerd/containerd-content.ts";
import { type CriClient, failure } from "./wire/cri-client.ts";
import { ImageService, listImagesOfContainers, RuntimeService } from "./wire/cri-messages.ts";
import { GrpcStatusError } from "./wire/grpc-status.ts";
import type { MessageOf } from "./wire/protobuf.ts";

type Image = NonNullable<MessageOf<(typeof ImageService.imageStatus)["response"]>["image"]>;

/** containerd's CRI plugin learns of an import through an event; it has been seen to take some milliseconds. */
const IMPORT_PAUSES_MS = [0, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 4_000];

/** gRPC's status for a server that gives none. */
const UNKNOWN = 2;

export interface CriImagesInit {
  /** Bounds a whole pull: a slow uplink takes hours for a large image. */
  readonly pullTimeoutMs: number;
}

/** The runtime's image store over CRI. */
export class CriImages implements ImageServiceContract {
  readonly #client: CriClient;
  readonly #runtimeClient: CriClient;
  readonly #clock: Clock;
  readonly #init: CriImagesInit;
  readonly #content: ContainerdContent;

  constructor(
    components: {
      readonly client: CriClient;
      /** The client of the runtime's containers, where that is another socket. */
      readonly runtimeClient?: CriClient;
      readonly clock: Clock;
    },
    init: CriImagesInit,
  ) {
    this.#client = components.client;
    this.#runtimeClient = components.runtimeClient ?? components.client;
    this.#content = new ContainerdContent(components.client.containerd);
    this.#clock = components.clock;
    this.#init = init;
  }

  /** containerd before 2.0 has images and writable layers on one file system, and reports the first alone. */
  async filesystems(signal: AbortSignal): ReturnType<NonNullable<ImageServiceContract["filesystems"]>> {
    try {
      const answer = await this.#client.call(ImageService.imageFsInfo, {}, signal);
      const [images] = answer.imageFilesystems.map(filesystemOf).filter((each) => each.mountPoint !== "");
      if (images === undefined) throw new PicoletError("unavailable", "it names none", { retryable: true });
      const [containers = images] = answer.containerFilesystems
        .map(filesystemOf)
        .filter((each) => each.mountPoint !== "");
      return { images, containers };
    } catch (error) {
      throw failure(error, "cannot ask for the file system of images");
    }
  }

  async list(signal: AbortSignal): Promise<readonly ImageInfo[]> {
    try {
      const { images } = await this.#client.call(ImageService.listImages, {}, signal);
      return images.map(infoOf);
    } catch (error) {
      throw failure(error, "cannot list images");
    }
  }

  /** containerd tells which images sandboxes are made of; other runtimes, and containerd from 1.7 on, pin them. */
  async holdings(signal: AbortSignal): Promise<ImageHoldings> {
    try {
      const [{ containers }, { info }] = await Promise.all([
        this.#runtimeClient.call(listImagesOfContainers, {}, signal),
        this.#runtimeClient.call(RuntimeService.status, { verbose: true }, signal),
      ]);
      const used = containers.flatMap(({ image, imageRef, imageId }) => [image?.image ?? "", imageRef, imageId]);
      const sandboxImage = sandboxImageIn(info.get("config"));
      return { used: new Set([...used, sandboxImage].filter((each) => each !== "")), derivedBytes: NOTHING };
    } catch (error) {
      throw failure(error, "cannot ask which images are used");
    }
  }

  async status(reference: string, signal: AbortSignal): Promise<ImageInfo | undefined> {
    try {
      const { image } = await this.#client.call(ImageService.imageStatus, { image: { image: reference } }, signal);
      return image === undefined ? undefined : infoOf(image);
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw failure(error, `cannot look up image ${reference}`);
    }
  }

  async pull(reference: string, { credentials, pod }: PullOptions, signal: AbortSignal): Promise<ImageInfo> {
    const request = {
      image: { image: reference, annotations: annotationsOf(pod) },
      auth: authOf(credentials),
      sandboxConfig: pod === undefined ? undefined : sandboxOf(pod),
    };
    try {
      const { imageRef } = await this.#client.call(ImageService.pullImage, request, signal, this.#init.pullTimeoutMs);
      const image = await this.status(imageRef, signal);
      if (image === undefined) throw new PicoletError("failed", "it is not there after all", { retryable: true });
      return image;
    } catch (error) {
      throw pullFailure(error, reference);
    }
  }

  async progress(reference: string, signal: AbortSignal): Promise<PullProgress | undefined> {
    try {
      return await this.#content.progress(reference, signal);
    } catch (error) {
      throw failure(error, `cannot tell how far the pull of ${reference} is`);
    }
  }

  async setPinned(reference: string, isPinned: boolean, signal: AbortSignal): Promise<void> {
    try {
      await this.#client.containerd.setPinned(canonicalName(reference), isPinned, signal);
    } catch (error) {
      throw failure(error, `cannot ${isPinned ? "pin" : "unpin"} image ${reference}`);
    }
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#client.call(ImageService.removeImage, { image: { image: id } }, signal);
    } catch (error) {
      if (!isPicoletError(error, "not_found")) throw failure(error, `cannot remove image ${id}`);
    }
  }

  async import(path: string, name: string | undefined, signal: AbortSignal): Promise<readonly ImageInfo[]> {
    // Loaded when they are needed: zlib and child processes are 1 MiB of a long-lived process.
    const { readImageArchive } = await import("./image-archive.ts");
    const { importWithCtr } = await import("./containerd/ctr-import.ts");
    const { images, gzipped } = await readImageArchive(path, signal);
    const wanted = name === undefined ? undefined : canonicalName(name);
    if (wanted !== undefined && images.length > 1) {
      throw new PicoletError("invalid", `cannot name ${images.length} images ${name}: ${path} must hold one`);
    }
    if (wanted === undefined && images.some((names) => names.length === 0)) {
      throw new PicoletError("invalid", `cannot import ${path}: it brings no name, so one must be given`);
    }
    const { socketPath } = this.#client;
    await importWithCtr({ socketPath, archive: resolve(path), gzipped, name: wanted }, signal);
    const names = [...(wanted === undefined ? [] : [wanted]), ...images.flat()];
    const imported = await Promise.all(names.map((each) => this.#afterImport(each, signal)));
    return [...new Map(imported.map((image) => [image.id, image])).values()];
  }

  async #afterImport(name: string, signal: AbortSignal): Promise<ImageInfo> {
    for (const pauseMs of IMPORT_PAUSES_MS) {
      if (pauseMs > 0) await this.#clock.sleep(millis(pauseMs), signal);
      const image = await this.status(name, signal);
      if (image !== undefined) return image;
    }
    throw new PicoletError("failed", `cannot find image ${name}, although it was imported`);
  }
}

const NOTHING: ReadonlyMap<string, number> = new Map();

/** "": it does not say. */
function sandboxImageIn(config: string | undefined): string {
  try {
    const { sandboxImage } = JSON.parse(config ?? "{}") as { readonly sandboxImage?: unknown };
    return typeof sandboxImage === "string" ? sandboxImage : "";
  } catch {
    return "";
  }
}

function canonicalName(name: string): string {
  const result = parseImageReference(name);
  if (result.ok && result.reference.kind === "registry") return result.reference.canonical;
  const why = result.ok ? "it names a file" : result.problem;
  throw new PicoletError("invalid", `cannot name an image ${name}: ${why}`, { reason: "InvalidImageName" });
}

const infoOf = (image: Image): ImageInfo => ({
  id: image.id,
  tags: image.repoTags,
  digests: image.repoDigests,
  sizeBytes: image.size,
  pinned: image.pinned,
});

type Filesystem = MessageOf<(typeof ImageService.imageFsInfo)["response"]>["imageFilesystems"][number];

const filesystemOf = ({ fsId, usedBytes, inodesUsed }: Filesystem): RuntimeFilesystem => ({
  mountPoint: fsId?.mountpoint ?? "",
  usedBytes: Number(usedBytes?.value ?? 0),
  inodesUsed: Number(inodesUsed?.value ?? 0),
});

const annotationsOf = (pod: DesiredPod | undefined): ReadonlyMap<string, string> =>
  new Map(Object.entries(pod?.pod.metadata.annotations ?? {}));

/** The part of a sandbox's configuration that a pull needs before the sandbox exists: the pod of the image. */
function sandboxOf(desired: DesiredPod) {
  const { name, namespace, labels = {} } = desired.pod.metadata;
  return {
    metadata: { name, namespace, uid: desired.uid, attempt: 0 },
    labels: new Map(Object.entries(labels)),
    annotations: annotationsOf(desired),
  };
}

/** containerd takes the server for a URL and gives the password to no other host; one with a port alone is none. */
function authOf(credentials: ImageCredentials | undefined) {
  if (credentials === undefined) return undefined;
  const { username, password, serverAddress: server, identityToken, registryToken } = credentials;
  const serverAddress = server === "" || server.includes("://") ? server : `https://${server}`;
  return { username, password, serverAddress, identityToken, registryToken };
}

/** Codes for the messages of failed pulls; CRI has no codes for them. */
const PULL_FAILURES: readonly (readonly [words: RegExp, code: ErrorCode])[] = [
  [/invalid reference format|failed to parse (image )?reference|InvalidImageName/i, "invalid"],
  [
    /^RegistryUnavailable|connection refused|connection reset|no such host|no route to host|network is unreachable|i\/o timeout|TLS handshake timeout|server misbehaving|\b50[0-4] (Internal Server Error|Bad Gateway|Service Unavailable|Gateway Time-?out)/,
    "unavailable",
  ],
  [/: not found/, "not_found"],
];
/** Reasons that a runtime may begin its words with (k8s.io/cri-api, pkg/errors). */
const TOLD_REASON = /^(RegistryUnavailable|SignatureValidationFailed)\b/;

/** Keeps the runtime's own words, as the kubelet prints them, without a status that says nothing. */
function pullFailure(error: unknown, reference: string): unknown {
  if (isCancelled(error)) return error;
  const isReported = error instanceof GrpcStatusError;
  const text = describeError(error);
  const known = PULL_FAILURES.find(([words]) => words.test(text))?.[1];
  const code = known ?? (isPicoletError(error) ? error.code : "internal");
  const message = isReported
    ? error.status === UNKNOWN
      ? error.message
      : error.printed
    : `cannot pull image ${reference}`;
  return new PicoletError(code, message, {
    ...(isReported ? {} : { cause: error }),
    // A registry may mend itself, get the image, or let us in; only a name that is none stays wrong.
    retryable: code !== "invalid",
    reason: TOLD_REASON.exec(text)?.[1] ?? (code === "invalid" ? "InvalidImageName" : "ErrImagePull"),
  });
}
