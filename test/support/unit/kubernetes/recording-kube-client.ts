/** A client that remembers what was asked of the API server, and as whom: what its role has to allow. */
import type {
  DeleteOptions,
  KubeClient,
  KubeList,
  KubeObject,
  ListOptions,
  ObjectRef,
  PatchKind,
  ResourceType,
  WatchEvent,
  WriteOptions,
} from "@picolet/hub-core/kube-client/kube-client.ts";

export interface RecordedCall {
  /** "" : the hub itself. */
  readonly user: string;
  readonly verb: string;
  readonly group: string;
  /** `pods`, `pods/status` */
  readonly resource: string;
  /** "" : all, or none. */
  readonly namespace: string;
  readonly name: string;
}

interface Waiter<T> {
  readonly isMeant: (item: T) => boolean;
  readonly wake: () => void;
}

export class CallLog {
  readonly all: RecordedCall[] = [];
  /** The objects that the watcher has taken in, by `resource/namespace/name`; undefined: deleted. */
  readonly #taken = new Map<string, KubeObject | undefined>();
  readonly #calls = new Set<Waiter<RecordedCall>>();
  readonly #events = new Set<Waiter<string>>();

  record(call: RecordedCall): void {
    this.all.push(call);
    for (const each of this.#calls) if (each.isMeant(call)) each.wake();
  }

  took(type: ResourceType, event: WatchEvent): void {
    if (event.type === "BOOKMARK") return;
    const { namespace = "", name } = event.object.metadata;
    const key = `${type.plural}/${namespace}/${name}`;
    this.#taken.set(key, event.type === "DELETED" ? undefined : event.object);
    for (const each of this.#events) if (each.isMeant(key)) each.wake();
  }

  /** Resolves with the next such call. */
  next(isMeant: (call: RecordedCall) => boolean): Promise<void> {
    return added(this.#calls, isMeant);
  }

  /** Resolves when the watcher has taken in an object that fits. */
  async untilTaken(
    type: ResourceType,
    namespace: string,
    name: string,
    isReached: (object: KubeObject | undefined) => boolean,
  ): Promise<void> {
    const key = `${type.plural}/${namespace}/${name}`;
    while (!this.#taken.has(key) || !isReached(this.#taken.get(key))) await added(this.#events, (each) => each === key);
  }
}

function added<T>(waiters: Set<Waiter<T>>, isMeant: (item: T) => boolean): Promise<void> {
  return new Promise((resolve) => {
    const waiter: Waiter<T> = {
      isMeant,
      wake: () => {
        waiters.delete(waiter);
        resolve();
      },
    };
    waiters.add(waiter);
  });
}

export class RecordingKubeClient implements KubeClient {
  readonly calls: CallLog;
  readonly #client: KubeClient;
  readonly #user: string;

  constructor(client: KubeClient, calls = new CallLog(), user = "") {
    this.#client = client;
    this.calls = calls;
    this.#user = user;
  }

  as(user: string, groups: readonly string[]): KubeClient {
    return new RecordingKubeClient(this.#client.as(user, groups), this.calls, user);
  }

  get(type: ResourceType, ref: ObjectRef, signal: AbortSignal): Promise<KubeObject> {
    this.#record("get", type, ref.namespace, ref.name);
    return this.#client.get(type, ref, signal);
  }

  list(type: ResourceType, options: ListOptions, signal: AbortSignal): Promise<KubeList> {
    this.#record("list", type, options.namespace ?? "", "");
    return this.#client.list(type, options, signal);
  }

  async *watch(type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncGenerator<WatchEvent> {
    this.#record("watch", type, options.namespace ?? "", "");
    for await (const event of this.#client.watch(type, options, signal)) {
      yield event;
      this.calls.took(type, event);
    }
  }

  create(
    type: ResourceType,
    ref: ObjectRef,
    object: Readonly<Record<string, unknown>>,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    this.#record("create", type, ref.namespace, ref.name, options);
    return this.#client.create(type, ref, object, options, signal);
  }

  update(
    type: ResourceType,
    ref: ObjectRef,
    object: KubeObject,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    this.#record("update", type, ref.namespace, ref.name, options);
    return this.#client.update(type, ref, object, options, signal);
  }

  patch(
    type: ResourceType,
    ref: ObjectRef,
    kind: PatchKind,
    patch: unknown,
    options: WriteOptions,
    signal: AbortSignal,
  ): Promise<KubeObject> {
    this.#record("patch", type, ref.namespace, ref.name, options);
    return this.#client.patch(type, ref, kind, patch, options, signal);
  }

  delete(type: ResourceType, ref: ObjectRef, options: DeleteOptions, signal: AbortSignal): Promise<void> {
    this.#record("delete", type, ref.namespace, ref.name);
    return this.#client.delete(type, ref, options, signal);
  }

  #record(verb: string, type: ResourceType, namespace: string, name: string, { subresource }: WriteOptions = {}): void {
    const resource = subresource === undefined ? type.plural : `${type.plural}/${subresource}`;
    this.calls.record({ user: this.#user, verb, group: type.group, resource, namespace, name });
  }
}
