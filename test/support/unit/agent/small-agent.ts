/**
 * An agent of store, PLEG, workers and statuses over one fake runtime, on virtual time; nothing goes wrong by itself.
 */
import type { RuntimeRouter } from "@picolet/agent/core/pods/pod-ports.ts";
import { isComponentPod } from "@picolet/agent/core/pods/pod-runtime.ts";
import { ImagePuller } from "@picolet/agent/images/pulls/image-puller.ts";
import { Pleg } from "@picolet/agent/observe/pleg.ts";
import { StatusManager } from "@picolet/agent/status/status-manager.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { PodWorkers, type PodWorkersComponents, type PodWorkersInit } from "@picolet/agent/workers/pod-workers.ts";
import { isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import type { PodManifest, PodStatus } from "@picolet/protocol/pod/pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { FakeAdapter } from "@picolet/runtime-test-kit/fake/fake-adapter.ts";
import type { FakeCall } from "@picolet/runtime-test-kit/fake/fake-faults.ts";
import { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import { podOf } from "../pods/sample-pods.ts";
import { RecordedEvents, RecordedLog } from "../ports/recorders.ts";
import { seededRandom } from "../ports/seeded-random.ts";
import { VirtualClock } from "../ports/virtual-clock.ts";
import { FakeAdmission, FakeHooks, FakeProber } from "./fake-lifecycle.ts";
import { FakePodEnvironment } from "./fake-pod-environment.ts";

export const IMAGE = "registry.example/program:1";

/** The parts that outlive an agent. */
export class SmallBoard implements Disposable {
  readonly clock = new VirtualClock();
  readonly runtime: FakeRuntime;
  /** Every call to the runtime, in order: `createSandbox web`. */
  readonly calls: string[] = [];
  /** Answers a call instead of the runtime's own readiness to do it; set by a test. */
  onCall: (call: FakeCall) => ReturnType<FakeRuntime["faults"]["fault"]> = () => undefined;

  constructor() {
    this.runtime = new FakeRuntime({ clock: this.clock });
    this.runtime.addImage(IMAGE);
    this.runtime.faults.fault = (call) => {
      if (call.kind !== "list") this.calls.push(call.uid === undefined ? call.kind : `${call.kind} ${call.uid}`);
      return this.onCall(call);
    };
  }

  /** The calls since the last time. */
  takeCalls(): string[] {
    return this.calls.splice(0);
  }

  [Symbol.dispose](): void {
    this.runtime[Symbol.dispose]();
  }
}

export class SmallAgent implements AsyncDisposable {
  readonly board: SmallBoard;
  readonly store: Store;
  readonly pleg: Pleg;
  readonly statuses: StatusManager;
  readonly workers: PodWorkers;
  readonly environment = new FakePodEnvironment();
  readonly prober = new FakeProber();
  readonly hooks: FakeHooks;
  readonly admission = new FakeAdmission();
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly #stop = new AbortController();
  readonly #tasks: Promise<unknown>[];
  #revision = 0;
  #faults: unknown[] = [];

  constructor(
    board: SmallBoard,
    init: PodWorkersInit &
      Pick<PodWorkersComponents, "objectsChanged" | "podResources" | "choices" | "devices"> & {
        readonly store?: Store;
        /** A second runtime, of components. */
        readonly components?: FakeRuntime;
      } = {},
  ) {
    this.board = board;
    const { clock, runtime } = board;
    const { log, events } = this;
    this.hooks = new FakeHooks(clock);
    const random = seededRandom(1);
    this.store = init.store ?? new Store({ clock, log }, { path: ":memory:" });
    const adapter = new FakeAdapter(runtime);
    const components = init.components && new FakeAdapter(init.components, "wasm");
    const adapters = components === undefined ? [adapter] : [adapter, components];
    this.pleg = new Pleg({ adapters, clock, random, log });
    this.statuses = new StatusManager({ outbox: this.store.statuses, log });
    this.workers = new PodWorkers(
      {
        ...{ clock, random, log, events },
        images: new ImagePuller(
          { events, clock, random },
          { serializeImagePulls: true, maxParallelImagePulls: undefined },
        ),
        store: this.store.desired,
        router: components === undefined ? routerOf(adapter) : dualRouter(adapter, components),
        choices: init.choices,
        environment: this.environment,
        observer: this.pleg,
        statuses: this.statuses,
        ...{ prober: this.prober, hooks: this.hooks, admission: this.admission },
        podResources: init.podResources,
        objectsChanged: init.objectsChanged,
        devices: init.devices,
      },
      init,
    );
    const { signal } = this.#stop;
    this.#tasks = [this.pleg.run(signal), this.workers.run(signal)].map((task) =>
      task.catch((error: unknown) => {
        if (!isCancelled(error)) this.#faults.push(error);
      }),
    );
  }

  /** Everything the file source wants from now on. */
  want(...pods: readonly DesiredPod[]): Promise<void> {
    this.#revision = Math.max(this.#revision, this.store.desired.revision("file")) + 1;
    this.store.desired.replace("file", this.#revision, pods);
    return this.board.clock.settle();
  }

  /** Everything the API server wants from now on. */
  order(...pods: readonly DesiredPod[]): Promise<void> {
    this.store.desired.replace("api", this.store.desired.revision("api") + 1, pods);
    return this.board.clock.settle();
  }

  pass(durationMs: number): Promise<void> {
    return this.board.clock.advance(millis(durationMs));
  }

  status(pod: DesiredPod): PodStatus | undefined {
    return this.statuses.pods.get(pod.uid)?.status;
  }

  /** `app/0 running`, newest first. */
  containers(pod: DesiredPod): string[] {
    return this.board.runtime
      .inspect(pod.uid)
      .containers.map(({ name, attempt, state }) => `${name}/${attempt} ${state.kind}`);
  }

  /** kill -9 of the container's newest run. */
  kill(pod: DesiredPod, name = "app"): void {
    const run = this.board.runtime.inspect(pod.uid).containers.find((each) => each.name === name);
    if (run !== undefined) this.board.runtime.kill(run.id, "SIGKILL");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#tasks);
    await this.workers[Symbol.asyncDispose]();
    const [fault] = this.#faults;
    if (fault !== undefined) throw fault;
  }
}

function routerOf(adapter: RuntimeAdapter): RuntimeRouter {
  return {
    adapters: [adapter],
    adapterFor: ({ pod: { spec } }) => {
      if (spec.runtimeClassName === undefined) return adapter;
      throw new PicoletError("invalid", `RuntimeClass "${spec.runtimeClassName}" not found`);
    },
  };
}

const dualRouter = (containers: RuntimeAdapter, components: RuntimeAdapter): RuntimeRouter => ({
  adapters: [containers, components],
  adapterFor: (pod) => (isComponentPod(pod) ? components : containers),
});

type Spec = NonNullable<PodManifest["spec"]>;

/** A pod of the file source named `name`, of one container `app` that runs `command`. */
export function filePod(name: string, command: readonly string[] = ["run"], spec: Partial<Spec> = {}): DesiredPod {
  const containers = [{ name: "app", image: IMAGE, command: [...command] }];
  const pod = podOf({ containers, ...spec }, { name });
  return { uid: podUid(name), source: "file", origin: `/manifests/${name}.yaml`, pod };
}
