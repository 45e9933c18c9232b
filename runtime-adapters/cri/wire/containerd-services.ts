/**
 * containerd's own gRPC services, which the adapter calls beyond CRI, on the same socket. Sources: the public
 * definitions in containerd/api/services and containerd/api/events. A service is detected by calling it: after
 * `unimplemented` it is not called for ten minutes, for the runtime may be replaced by another one. With plain CRI:
 *
 *     service      what it is used for                      with plain CRI
 *     content      how far a pull is                        a pull has no progress
 *     events       ends and kills as they happen            `GetContainerEvents` of CRI, else relists
 *     images       pinning an image                         `unimplemented`; the image collector keeps the image
 *     leases       freeing at once what was removed         the runtime frees it in its own time
 *     tasks        ending a process that CRI has lost       the removal fails, and is tried again
 *     tasks        a stop signal that CRI does not know     the runtime sends the signal of the image
 *     containers, tasks, sandbox   which shims are lost     no shim is ended
 */
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import type { GrpcClient, GrpcMethod } from "./grpc-client.ts";
import { OptionalCalls } from "./optional-calls.ts";
import {
  bool,
  bytes,
  int64,
  type MessageOf,
  message,
  nested,
  repeated,
  string,
  stringMap,
  strings,
  uint32,
} from "./protobuf.ts";

/** The namespace in which containerd's CRI plugin keeps its containers. */
export const CRI_NAMESPACE = "k8s.io";
/** Set on a manifest with a configuration; one that only leads to other manifests, of other architectures, has none. */
export const CONFIG_LABEL = "containerd.io/gc.ref.content.config";
/** From 1.7 on containerd reports an image with this label as pinned. */
const PINNED_LABEL = "io.cri-containerd.pinned";
const SIGKILL = 9;

const metadata = ["containerd-namespace", CRI_NAMESPACE];
const Empty = message("Empty", {});
const Any = message("Any", { typeUrl: string(1), value: bytes(2) });
const Timestamp = message("Timestamp", { seconds: int64(1) });
const ContentInfo = message("Info", {
  digest: string(1),
  size: int64(2),
  createdAt: nested(3, Timestamp),
  labels: stringMap(5, [CONFIG_LABEL]),
});
const ContentStatus = message("Status", { ref: string(3), offset: int64(4), total: int64(5) });
/** `target` is required even where the update mask leaves it as it is: without it containerd 1.7 and 2 crash. */
const Image = message("Image", { name: string(1), labels: stringMap(2), target: nested(3, Empty) });
const TaskId = message("WaitRequest", { containerId: string(1) });

const call = <Q, A>(service: string, name: string, request: Q, response: A) => ({
  path: `/containerd.services.${service}/${name}`,
  request,
  response,
  metadata,
});

export const CONTAINERD_CALLS = {
  content: {
    list: call(
      "content.v1.Content",
      "List",
      message("ListContentRequest", { filters: strings(1) }),
      message("ListContentResponse", { info: repeated(1, ContentInfo) }),
    ),
    listStatuses: call(
      "content.v1.Content",
      "ListStatuses",
      message("ListStatusesRequest", { filters: strings(1) }),
      message("ListStatusesResponse", { statuses: repeated(1, ContentStatus) }),
    ),
    read: call(
      "content.v1.Content",
      "Read",
      message("ReadContentRequest", { digest: string(1) }),
      message("ReadContentResponse", { data: bytes(2) }),
    ),
  },
  events: {
    subscribe: call(
      "events.v1.Events",
      "Subscribe",
      message("SubscribeRequest", { filters: strings(1) }),
      message("Envelope", { namespace: string(2), topic: string(3), event: nested(4, Any) }),
    ),
    /** Subscribers get it; containerd keeps nothing of it. */
    publish: call(
      "events.v1.Events",
      "Publish",
      message("PublishRequest", { topic: string(1), event: nested(2, Any) }),
      Empty,
    ),
  },
  images: {
    update: call(
      "images.v1.Images",
      "Update",
      message("UpdateImageRequest", {
        image: nested(1, Image),
        updateMask: nested(2, message("FieldMask", { paths: strings(1) })),
      }),
      Empty,
    ),
  },
  leases: {
    create: call("leases.v1.Leases", "Create", message("CreateRequest", { id: string(1) }), Empty),
    /** With `sync` the answer comes when all garbage has been collected. */
    delete: call("leases.v1.Leases", "Delete", message("DeleteRequest", { id: string(1), sync: bool(2) }), Empty),
  },
  tasks: {
    kill: call(
      "tasks.v1.Tasks",
      "Kill",
      message("KillRequest", { containerId: string(1), signal: uint32(3), all: bool(4) }),
      Empty,
    ),
    /** Answers when it has ended. */
    wait: call("tasks.v1.Tasks", "Wait", TaskId, Empty),
    delete: call("tasks.v1.Tasks", "Delete", TaskId, Empty),
    get: call("tasks.v1.Tasks", "Get", message("GetRequest", { containerId: string(1) }), Empty),
  },
  containers: {
    get: call("containers.v1.Containers", "Get", message("GetContainerRequest", { id: string(1) }), Empty),
  },
  /** Since containerd 1.7. */
  sandbox: {
    get: call("sandbox.v1.Store", "Get", message("StoreGetRequest", { sandboxId: string(1) }), Empty),
  },
};

export const CONTAINERD_EVENTS = {
  /** The first process of a container has ended and been cleaned up after. The id is a container's or a sandbox's. */
  TaskDelete: message("TaskDelete", { containerId: string(1) }),
  /**
   * The kernel has killed a process of the container because memory ran out. The event may come after the container's
   * end.
   */
  TaskOOM: message("TaskOOM", { containerId: string(1) }),
};

export const TASK_DELETE_TOPIC = "/tasks/delete";
export const TASK_OOM_TOPIC = "/tasks/oom";
/** Ours: comes back to the client that published it. */
const ECHO_TOPIC = "/picolet/echo";
const ECHO_TYPE = "picolet.io/echo";
const FILTERS = [TASK_DELETE_TOPIC, TASK_OOM_TOPIC, ECHO_TOPIC].map(
  (topic) => `namespace==${CRI_NAMESPACE},topic=="${topic}"`,
);

export type RuntimeEvent =
  | { readonly kind: "ended" | "outOfMemory"; readonly containerId: string }
  | { readonly kind: "echo"; readonly text: string };

export type ContentInfo = MessageOf<typeof ContentInfo>;
export type ContentStatus = MessageOf<typeof ContentStatus>;

interface Components {
  readonly clock: Pick<Clock, "monotonic">;
  readonly grpc: Pick<GrpcClient, "unary" | "serverStream">;
}

export class ContainerdServices {
  readonly #grpc: Components["grpc"];
  readonly #requestTimeoutMs: number;
  /** By the part of the path that names the service. */
  readonly #optional: OptionalCalls;

  constructor({ clock, grpc }: Components, init: { readonly requestTimeoutMs: number }) {
    this.#optional = new OptionalCalls(clock);
    this.#grpc = grpc;
    this.#requestTimeoutMs = init.requestTimeoutMs;
  }

  /** @returns undefined: the runtime has no such service */
  contentStatuses(signal: AbortSignal): Promise<readonly ContentStatus[] | undefined> {
    const { listStatuses } = CONTAINERD_CALLS.content;
    return this.#offered(listStatuses, async () => (await this.#call(listStatuses, {}, signal)).statuses);
  }

  /** @returns undefined: the runtime has no such service */
  contentInfos(filters: readonly string[], signal: AbortSignal): Promise<readonly ContentInfo[] | undefined> {
    const { list } = CONTAINERD_CALLS.content;
    return this.#offered(list, async () => {
      const found: ContentInfo[] = [];
      for await (const { info } of this.#stream(list, { filters }, signal)) found.push(...info);
      return found;
    });
  }

  /** @returns undefined: the runtime has no such service */
  contentOf(digest: string, signal: AbortSignal): Promise<Buffer | undefined> {
    const { read } = CONTAINERD_CALLS.content;
    return this.#offered(read, async () => {
      const pieces: Uint8Array[] = [];
      for await (const { data } of this.#stream(read, { digest }, signal)) pieces.push(data);
      return Buffer.concat(pieces);
    });
  }

  /** Until the stream breaks. @throws `unimplemented` */
  async *events(signal: AbortSignal): AsyncGenerator<RuntimeEvent> {
    const { subscribe } = CONTAINERD_CALLS.events;
    for await (const { topic, event } of this.#grpc.serverStream(subscribe, { filters: FILTERS }, undefined, signal)) {
      if (event === undefined) continue;
      const value = Buffer.from(event.value);
      if (topic === ECHO_TOPIC) yield { kind: "echo", text: value.toString() };
      else if (topic === TASK_OOM_TOPIC) yield { kind: "outOfMemory", ...CONTAINERD_EVENTS.TaskOOM.decode(value) };
      else yield { kind: "ended", ...CONTAINERD_EVENTS.TaskDelete.decode(value) };
    }
  }

  /** Comes back among the `events` of every client that reads them. @throws `unimplemented` */
  async publishEcho(text: string, signal: AbortSignal): Promise<void> {
    const event = { typeUrl: ECHO_TYPE, value: Buffer.from(text) };
    await this.#call(CONTAINERD_CALLS.events.publish, { topic: ECHO_TOPIC, event }, signal);
  }

  /** @param name canonical, with its tag @throws `unimplemented`, `not_found` */
  async setPinned(name: string, isPinned: boolean, signal: AbortSignal): Promise<void> {
    const labels = new Map([[PINNED_LABEL, isPinned ? "pinned" : ""]]);
    const updateMask = { paths: [`labels.${PINNED_LABEL}`] };
    await this.#call(CONTAINERD_CALLS.images.update, { image: { name, labels, target: {} }, updateMask }, signal);
  }

  /**
   * Frees what nothing holds any more, which containerd does by itself after a hundred changes.
   * @param id of the lease that is made to be given up; another client may have made it, which does no harm
   */
  async collect(id: string, signal: AbortSignal): Promise<void> {
    const { leases } = CONTAINERD_CALLS;
    await this.#offered(leases.create, async () => {
      await this.#call(leases.create, { id }, signal).catch((error: unknown) => {
        if (!isPicoletError(error, "already_exists")) throw error;
      });
      await this.#call(leases.delete, { id, sync: true }, signal);
      return "collected";
    });
  }

  /** Kills what runs in a container and forgets the task. One that is gone already is no fault. */
  async endTask(containerId: string, signal: AbortSignal): Promise<void> {
    const { kill, wait, delete: remove } = CONTAINERD_CALLS.tasks;
    for (const step of [
      () => this.#call(kill, { containerId, signal: SIGKILL, all: true }, signal),
      () => this.#call(wait, { containerId }, signal),
      () => this.#call(remove, { containerId }, signal),
    ]) {
      await this.#offered(kill, () => unlessGone(step()));
    }
  }

  /** @returns `unsupported`: the runtime has no such service */
  async signalTask(containerId: string, number: number, signal: AbortSignal): Promise<"sent" | "gone" | "unsupported"> {
    const { kill } = CONTAINERD_CALLS.tasks;
    const sent = await this.#offered(kill, () => unlessGone(this.#call(kill, { containerId, signal: number }, signal)));
    return sent === undefined ? "unsupported" : sent === "gone" ? "gone" : "sent";
  }

  /** Until the container's first process has ended. @throws `deadline_exceeded` */
  async waitForTask(containerId: string, timeoutMs: number, signal: AbortSignal): Promise<void> {
    await unlessGone(this.#grpc.unary(CONTAINERD_CALLS.tasks.wait, { containerId }, timeoutMs, signal));
  }

  /** True only if containerd answers that it has neither a container, a task nor a sandbox of this id. */
  async knowsNothingOf(id: string, signal: AbortSignal): Promise<boolean> {
    const { containers, tasks, sandbox } = CONTAINERD_CALLS;
    if ((await unlessGone(this.#call(containers.get, { id }, signal))) !== "gone") return false;
    if ((await unlessGone(this.#call(tasks.get, { containerId: id }, signal))) !== "gone") return false;
    const known = await this.#offered(sandbox.get, () =>
      unlessGone(this.#call(sandbox.get, { sandboxId: id }, signal)),
    );
    return known === undefined || known === "gone";
  }

  #call<Q, A>(method: GrpcMethod<Q, A>, request: Q, signal: AbortSignal): Promise<A> {
    return this.#grpc.unary(method, request, this.#requestTimeoutMs, signal);
  }

  #stream<Q, A>(method: GrpcMethod<Q, A>, request: Q, signal: AbortSignal): AsyncIterable<A> {
    return this.#grpc.serverStream(method, request, this.#requestTimeoutMs, signal);
  }

  /** @returns undefined: the runtime has no such service */
  #offered<T>({ path }: { readonly path: string }, use: () => Promise<T>): Promise<T | undefined> {
    return this.#optional.use(path.slice(0, path.lastIndexOf("/")), use);
  }
}

async function unlessGone<T>(answer: Promise<T>): Promise<T | "gone"> {
  try {
    return await answer;
  } catch (error) {
    if (isPicoletError(error, "not_found")) return "gone";
    throw error;
  }
}
