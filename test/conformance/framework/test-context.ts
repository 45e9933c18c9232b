/**
 * One test's environment: a namespace of its own, the node, images, and methods that create objects which go when the
 * test ends.
 */
import type { CoreV1Event, V1ConfigMap, V1Container, V1Pod, V1PodSpec, V1Secret } from "@kubernetes/client-node";
import type { KubeApi, PatchType } from "./kube-api.ts";
import { LiveSet } from "./live-set.ts";
import type { Images, Target } from "./target.ts";
import { TestPod } from "./test-pod.ts";

/** Thrown by a test that cannot be run against this target. */
export class Skipped extends Error {}

export interface PodManifest {
  readonly metadata?: V1Pod["metadata"];
  readonly spec: V1PodSpec;
}

export class TestContext {
  readonly api: KubeApi;
  readonly node: string;
  readonly namespace: string;
  readonly target: Target;
  /** Aborted when the test's time is over. */
  readonly signal: AbortSignal;
  readonly #cleanups: (() => Promise<unknown>)[] = [];
  #pods: LiveSet<V1Pod> | undefined;
  #events: LiveSet<CoreV1Event> | undefined;
  #count = 0;

  constructor(api: KubeApi, target: Target, namespace: string, signal: AbortSignal) {
    this.api = api;
    this.target = target;
    this.node = target.node;
    this.namespace = namespace;
    this.signal = signal;
  }

  /** A name that nothing else in the namespace has. */
  name(prefix: string): string {
    this.#count += 1;
    return `${prefix}-${this.#count}`;
  }

  /** A path of the core API in the test's namespace: `path("pods", "web", "status")`. */
  path(plural: string, ...more: readonly string[]): string {
    return ["/api/v1/namespaces", this.namespace, plural, ...more].join("/");
  }

  /** Skips the test when there is none. */
  image(key: keyof Images): string {
    const name = this.target.images[key];
    return name === "" ? this.skip(`no image "${key}" was given`) : name;
  }

  /** A container that runs a shell script. */
  sh(script: string, more: Partial<V1Container> = {}): V1Container {
    return { name: "test", image: this.image("busybox"), command: ["/bin/sh", "-c", script], ...more };
  }

  /** A container that runs our program: `tool(["http", "8080"])`. */
  tool(args: readonly string[], more: Partial<V1Container> = {}): V1Container {
    return { name: "test", image: this.image("tool"), command: ["/tool", ...args], ...more };
  }

  /** The upper limit of a duration on this target, in the unit of `amount`. */
  atMost(amount: number): number {
    return amount * this.target.slowness;
  }

  skip(reason: string): never {
    throw new Skipped(reason);
  }

  /** Runs when the test is over, however it and other cleanups ended; the last first. For what no namespace holds. */
  defer(cleanup: () => Promise<unknown>): void {
    this.#cleanups.push(cleanup);
  }

  async cleanUp(): Promise<void> {
    const failures: unknown[] = [];
    for (const cleanup of this.#cleanups.reverse()) {
      try {
        await cleanup();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, "cannot clean up after the test");
  }

  get pods(): LiveSet<V1Pod> {
    this.#pods ??= new LiveSet<V1Pod>(this.api, this.path("pods"), this.signal);
    return this.#pods;
  }

  get events(): LiveSet<CoreV1Event> {
    this.#events ??= new LiveSet<CoreV1Event>(this.api, this.path("events"), this.signal);
    return this.#events;
  }

  async create<T>(plural: string, object: unknown): Promise<T> {
    return await this.api.call<T>("POST", this.path(plural), object);
  }

  async patch<T>(plural: string, name: string, patch: unknown, type: PatchType = "merge"): Promise<T> {
    return await this.api.patch<T>(this.path(plural, name), patch, type);
  }

  async delete(plural: string, name: string): Promise<void> {
    await this.api.call("DELETE", this.path(plural, name));
  }

  /** @returns its name */
  async configMap(data: Readonly<Record<string, string>>, more: Partial<V1ConfigMap> = {}): Promise<string> {
    const name = more.metadata?.name ?? this.name("configmap");
    await this.create("configmaps", { ...more, metadata: { name }, data });
    return name;
  }

  /** @param data as text. @returns its name */
  async secret(data: Readonly<Record<string, string>>, more: Partial<V1Secret> = {}): Promise<string> {
    const name = more.metadata?.name ?? this.name("secret");
    await this.create("secrets", { ...more, metadata: { name }, stringData: data });
    return name;
  }

  /**
   * The pod as it is sent: on the node under test, ended within a second, and without a token unless it says otherwise.
   */
  manifest({ metadata, spec }: PodManifest): V1Pod {
    return {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { ...metadata, name: metadata?.name ?? this.name("pod") },
      spec: {
        nodeName: this.node,
        restartPolicy: "Never",
        terminationGracePeriodSeconds: 1,
        automountServiceAccountToken: false,
        enableServiceLinks: false,
        tolerations: [{ operator: "Exists" }],
        ...spec,
      },
    };
  }

  async start(spec: V1PodSpec, metadata: V1Pod["metadata"] = {}): Promise<TestPod> {
    return await this.submit(this.manifest({ metadata, spec }));
  }

  /** As it is. */
  async submit(pod: V1Pod): Promise<TestPod> {
    const { api, pods, signal } = this;
    const created = await this.create<V1Pod>("pods", pod);
    return new TestPod({ api, pods, signal, events: () => this.events }, created);
  }

  /** Runs the pod to its end. @returns the log of its first container @throws unless it succeeds */
  async output(spec: V1PodSpec, metadata: V1Pod["metadata"] = {}): Promise<string> {
    const pod = await this.start(spec, metadata);
    await pod.succeeded();
    return await pod.logs({ container: spec.containers[0]?.name ?? "" });
  }

  /** After `seconds`, for what should not happen within them. */
  async pause(seconds: number): Promise<void> {
    await this.pods.holds(seconds * 1000, () => undefined);
  }
}
