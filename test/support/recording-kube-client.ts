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
} from "../../hub/core/kube-client.ts";

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

export class CallLog {
  readonly all: RecordedCall[] = [];
  readonly #waiting = new Set<{ readonly isMeant: (call: RecordedCall) => boolean; readonly wake: () => void }>();

  record(call: RecordedCall): void {
    this.all.push(call);
    for (const each of this.#waiting) if (each.isMeant(call)) each.wake();
  }

  /** Resolves with the next such call. */
  next(isMeant: (call: RecordedCall) => boolean): Promise<void> {
    return new Promise((resolve) => {
      const entry = {
        isMeant,
        wake: (): void => {
          this.#waiting.delete(entry);
          resolve();
        },
      };
      this.#waiting.add(entry);
    });
  }
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

  watch(type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncIterable<WatchEvent> {
    this.#record("watch", type, options.namespace ?? "", "");
    return this.#client.watch(type, options, signal);
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
