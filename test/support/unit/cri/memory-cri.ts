/**
 * A CRI runtime without containers, on a real socket: thousands of pods come and go in a second of CPU time, and the
 * agent in front of it is the real one. It only remembers its calls.
 */
import type { ServerHttp2Stream } from "node:http2";
import { ContainerState, ImageService, RuntimeService, SandboxState } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { withPrefix } from "@picolet/runtime-cri/wire/grpc-messages.ts";
import type { InputOf, MessageOf } from "@picolet/runtime-cri/wire/protobuf.ts";
import { answer, GRPC_HEADERS, refuse, ScriptedCri } from "./scripted-cri.ts";

export const MEMORY_IMAGE = "registry.example/program:1";

type SandboxConfig = NonNullable<MessageOf<typeof RuntimeService.runPodSandbox.request>["config"]>;
type CreateContainer = MessageOf<typeof RuntimeService.createContainer.request>;
type Handler = (request: Buffer) => Buffer;

interface Sandbox {
  readonly id: string;
  readonly config: SandboxConfig;
  readonly createdAtMs: number;
  state: number;
}

interface Container {
  readonly id: string;
  readonly podSandboxId: string;
  readonly config: NonNullable<CreateContainer["config"]>;
  readonly createdAtMs: number;
  startedAtMs: number;
  finishedAtMs: number;
  state: number;
  exitCode: number;
}

const UNIMPLEMENTED = 12;
const NOT_FOUND = 5;
const EVENT = { created: 0, started: 1, stopped: 2, deleted: 3 } as const;
const IMAGE_ID = `sha256:${"0a".repeat(32)}`;

export class MemoryCri implements Disposable {
  readonly #sandboxes = new Map<string, Sandbox>();
  readonly #containers = new Map<string, Container>();
  readonly #listeners = new Set<ServerHttp2Stream>();
  readonly #handlers: ReadonlyMap<string, Handler> = new Map([...this.#podCalls(), ...this.#otherCalls()]);
  #server: ScriptedCri | undefined;
  #ids = 0;

  static async start(): Promise<MemoryCri> {
    const runtime = new MemoryCri();
    runtime.#server = await ScriptedCri.start((method, stream, request) => {
      void request.then((bytes) => runtime.#serve(method, stream, bytes));
    });
    return runtime;
  }

  get endpoint(): string {
    return `unix://${this.#server?.endpoint}`;
  }

  /** Ids of the containers that run. */
  get running(): readonly string[] {
    return [...this.#containers.values()].filter((each) => each.state === ContainerState.running).map(({ id }) => id);
  }

  /** Ends a container of itself. */
  exit(id: string, exitCode: number): void {
    const container = this.#containers.get(id);
    if (container?.state === ContainerState.running) this.#stop(container, exitCode);
  }

  [Symbol.dispose](): void {
    this.#server?.[Symbol.dispose]();
  }

  #serve(method: string, stream: ServerHttp2Stream, request: Buffer): void {
    if (method === "GetContainerEvents") {
      stream.respond(GRPC_HEADERS);
      this.#listeners.add(stream);
      stream.on("close", () => this.#listeners.delete(stream));
      return;
    }
    const handler = this.#handlers.get(method);
    if (handler === undefined) {
      refuse(stream, UNIMPLEMENTED, `unknown method ${method}`);
      return;
    }
    try {
      answer(stream, handler(request));
    } catch (error) {
      refuse(stream, NOT_FOUND, String(error));
    }
  }

  #podCalls(): [string, Handler][] {
    const calls = RuntimeService;
    return [
      ["RunPodSandbox", (bytes) => this.#runSandbox(calls.runPodSandbox.request.decode(bytes).config)],
      ["StopPodSandbox", (bytes) => this.#stopSandbox(calls.stopPodSandbox.request.decode(bytes).podSandboxId)],
      ["RemovePodSandbox", (bytes) => this.#removeSandbox(calls.removePodSandbox.request.decode(bytes).podSandboxId)],
      ["PodSandboxStatus", (bytes) => this.#sandboxStatus(calls.podSandboxStatus.request.decode(bytes).podSandboxId)],
      ["ListPodSandbox", (bytes) => this.#listSandboxes(calls.listPodSandbox.request.decode(bytes).filter)],
      ["CreateContainer", (bytes) => this.#createContainer(calls.createContainer.request.decode(bytes))],
      ["StartContainer", (bytes) => this.#start(calls.startContainer.request.decode(bytes).containerId)],
      ["StopContainer", (bytes) => this.#stopContainer(calls.stopContainer.request.decode(bytes).containerId)],
      ["RemoveContainer", (bytes) => this.#removeContainer(calls.removeContainer.request.decode(bytes).containerId)],
      ["ListContainers", (bytes) => this.#listContainers(calls.listContainers.request.decode(bytes).filter)],
      ["ContainerStatus", (bytes) => this.#containerStatus(calls.containerStatus.request.decode(bytes).containerId)],
    ];
  }

  #otherCalls(): [string, Handler][] {
    const image = { id: IMAGE_ID, repoTags: [MEMORY_IMAGE], repoDigests: [], size: 1_000_000 };
    const conditions = ["RuntimeReady", "NetworkReady"].map((type) => ({ type, status: true }));
    return [
      [
        "Version",
        () =>
          RuntimeService.version.response.encode({
            ...{ version: "0.1.0", runtimeName: "memory", runtimeVersion: "1.0.0", runtimeApiVersion: "v1" },
          }),
      ],
      ["Status", () => RuntimeService.status.response.encode({ status: { conditions } })],
      ["ExecSync", () => RuntimeService.execSync.response.encode({ stdout: Buffer.from("done\n"), exitCode: 0 })],
      ["ImageStatus", () => ImageService.imageStatus.response.encode({ image })],
      ["ListImages", () => ImageService.listImages.response.encode({ images: [image] })],
      ["PullImage", () => ImageService.pullImage.response.encode({ imageRef: IMAGE_ID })],
      ["ReopenContainerLog", () => Buffer.alloc(0)],
      ["UpdateContainerResources", () => Buffer.alloc(0)],
    ];
  }

  #nextId(): string {
    this.#ids += 1;
    return this.#ids.toString(16).padStart(64, "0");
  }

  #runSandbox(config: SandboxConfig | undefined): Buffer {
    if (config === undefined) throw new Error("no config");
    const id = this.#nextId();
    this.#sandboxes.set(id, { id, config, createdAtMs: Date.now(), state: SandboxState.ready });
    this.#tell(id, id, EVENT.created);
    return RuntimeService.runPodSandbox.response.encode({ podSandboxId: id });
  }

  #stopSandbox(id: string): Buffer {
    const sandbox = this.#sandboxes.get(id);
    if (sandbox !== undefined) {
      for (const each of this.#containersOf(id)) if (each.state === ContainerState.running) this.#stop(each, 137);
      sandbox.state = SandboxState.notReady;
      this.#tell(id, id, EVENT.stopped);
    }
    return Buffer.alloc(0);
  }

  #removeSandbox(id: string): Buffer {
    for (const each of this.#containersOf(id)) this.#containers.delete(each.id);
    this.#tell(id, id, EVENT.deleted);
    this.#sandboxes.delete(id);
    return Buffer.alloc(0);
  }

  #sandboxStatus(id: string): Buffer {
    const { config, createdAtMs, state } = found(this.#sandboxes, id);
    const { metadata, labels, annotations } = config;
    const status = { id, metadata, state, createdAtMs, labels, annotations, network: { ip: "10.88.0.7" } };
    return RuntimeService.podSandboxStatus.response.encode({ status });
  }

  #listSandboxes(filter: MessageOf<typeof RuntimeService.listPodSandbox.request>["filter"]): Buffer {
    const items = [...this.#sandboxes.values()]
      .filter(({ id, config }) => fits(filter?.id, id) && selects(filter?.labelSelector, config.labels))
      .map(({ id, config: { metadata, labels, annotations }, createdAtMs, state }) => {
        return { id, metadata, state, createdAtMs, labels, annotations };
      });
    return RuntimeService.listPodSandbox.response.encode({ items });
  }

  #createContainer({ podSandboxId, config }: CreateContainer): Buffer {
    if (config === undefined) throw new Error("no config");
    found(this.#sandboxes, podSandboxId);
    const id = this.#nextId();
    const times = { createdAtMs: Date.now(), startedAtMs: 0, finishedAtMs: 0 };
    this.#containers.set(id, { id, podSandboxId, config, ...times, state: ContainerState.created, exitCode: 0 });
    this.#tell(podSandboxId, id, EVENT.created);
    return RuntimeService.createContainer.response.encode({ containerId: id });
  }

  #start(id: string): Buffer {
    const container = found(this.#containers, id);
    container.state = ContainerState.running;
    container.startedAtMs = Date.now();
    this.#tell(container.podSandboxId, id, EVENT.started);
    return Buffer.alloc(0);
  }

  #stopContainer(id: string): Buffer {
    const container = found(this.#containers, id);
    if (container.state === ContainerState.running) this.#stop(container, 143);
    return Buffer.alloc(0);
  }

  #stop(container: Container, exitCode: number): void {
    container.state = ContainerState.exited;
    container.exitCode = exitCode;
    container.finishedAtMs = Date.now();
    this.#tell(container.podSandboxId, container.id, EVENT.stopped);
  }

  #removeContainer(id: string): Buffer {
    const container = this.#containers.get(id);
    if (container !== undefined) this.#tell(container.podSandboxId, id, EVENT.deleted);
    this.#containers.delete(id);
    return Buffer.alloc(0);
  }

  #listContainers(filter: MessageOf<typeof RuntimeService.listContainers.request>["filter"]): Buffer {
    const containers = [...this.#containers.values()]
      .filter(({ id, podSandboxId }) => fits(filter?.id, id) && fits(filter?.podSandboxId, podSandboxId))
      .filter(({ config }) => selects(filter?.labelSelector, config.labels))
      .map(({ id, podSandboxId, config: { metadata, labels, annotations }, createdAtMs, state }) => {
        return { id, podSandboxId, metadata, imageRef: IMAGE_ID, state, createdAtMs, labels, annotations };
      });
    return RuntimeService.listContainers.response.encode({ containers });
  }

  #containerStatus(id: string): Buffer {
    const { config, createdAtMs, startedAtMs, finishedAtMs, state, exitCode } = found(this.#containers, id);
    const { metadata, labels, annotations } = config;
    const reason = state === ContainerState.exited ? (exitCode === 0 ? "Completed" : "Error") : "";
    const status: InputOf<typeof RuntimeService.containerStatus.response>["status"] = {
      ...{ id, metadata, state, createdAtMs, startedAtMs, finishedAtMs, exitCode, reason, labels, annotations },
      image: { image: MEMORY_IMAGE },
      imageRef: IMAGE_ID,
    };
    return RuntimeService.containerStatus.response.encode({ status });
  }

  *#containersOf(sandboxId: string): Iterable<Container> {
    for (const each of this.#containers.values()) if (each.podSandboxId === sandboxId) yield each;
  }

  #tell(sandboxId: string, containerId: string, containerEventType: number): void {
    const { metadata, labels } = this.#sandboxes.get(sandboxId)?.config ?? {};
    const podSandboxStatus = { id: sandboxId, metadata, labels };
    const createdAtMs = Date.now();
    const event = { containerId, containerEventType, createdAtMs, podSandboxStatus };
    const message = withPrefix(RuntimeService.getContainerEvents.response.encode(event));
    for (const listener of this.#listeners) listener.write(message);
  }
}

function found<T>(all: ReadonlyMap<string, T>, id: string): T {
  const one = all.get(id);
  if (one === undefined) throw new Error(`there is no ${id}`);
  return one;
}

const fits = (wanted: string | undefined, value: string): boolean =>
  wanted === undefined || wanted === "" || wanted === value;

type Labels = ReadonlyMap<string, string>;

const selects = (wanted: Labels | undefined, labels: Labels): boolean =>
  [...(wanted ?? [])].every(([name, value]) => labels.get(name) === value);
