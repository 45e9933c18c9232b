/** Days of an agent on virtual time, in which pods come, crash, are probed and go, lived in a thread of their own. */
import { join } from "node:path";
import { FlashMeter } from "@picolet/agent/budget/flash-meter.ts";
import { WriteCounters } from "@picolet/agent/budget/write-counters.ts";
import type { EventRecorder } from "@picolet/agent/core/store/store-ports.ts";
import { ImagePuller } from "@picolet/agent/images/pulls/image-puller.ts";
import { Pleg } from "@picolet/agent/observe/pleg.ts";
import { HttpGetter } from "@picolet/agent/probes/handlers/http-getter.ts";
import { PodProber } from "@picolet/agent/probes/pod-prober.ts";
import { StatusManager } from "@picolet/agent/status/status-manager.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { PodWorkers } from "@picolet/agent/workers/pod-workers.ts";
import { PodEvents } from "@picolet/agent/workers/ports/pod-events.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { type Log, millis, podUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { FakeAdapter } from "@picolet/runtime-test-kit/fake/fake-adapter.ts";
import { FakeRuntime } from "@picolet/runtime-test-kit/fake/fake-runtime.ts";
import { FakeAdmission } from "../support/unit/agent/fake-lifecycle.ts";
import { FakePodEnvironment } from "../support/unit/agent/fake-pod-environment.ts";
import { IMAGE } from "../support/unit/agent/small-agent.ts";
import { heldMemory } from "../support/unit/machine/held-memory.ts";
import { serve } from "../support/unit/machine/own-thread.ts";
import { podOf } from "../support/unit/pods/sample-pods.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { TemporaryFolder } from "../support/unit/store/store-samples.ts";

/** As many as a small board runs at once. */
const MAX_PODS = 5;
/** Until then it has seen everything once, its rings are full, and its code is compiled. */
const WARM_UP_SHARE = 0.3;
const SEED = Number(process.env.PICOLET_SEED ?? 20_261_120);
const DAY_MS = 24 * 3_600_000;

// Stacks of errors that are there to be caught.
Error.stackTraceLimit = 0;

const SILENT: Log = { debug: nothing, info: nothing, warn: nothing, error: nothing, child: () => SILENT };

function nothing(): void {
  // A reference kept by a test would count.
}

class Month implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly random = seededRandom(SEED);
  readonly runtime = new FakeRuntime({ clock: this.clock });
  readonly store: Store;
  readonly statuses: StatusManager;
  readonly #folder = new TemporaryFolder();
  readonly #stop = new AbortController();
  readonly #tasks: Promise<void>[];
  readonly #faults: unknown[] = [];
  #wanted: DesiredPod[] = [];
  #revision = 0;
  made = 0;

  constructor() {
    const { clock, random } = this;
    const log = SILENT;
    this.runtime.addImage(IMAGE);
    this.store = new Store({ clock, log }, { path: this.#folder.file("picolet.db") });
    const { desired, events, kept } = this.store;
    const adapter = new FakeAdapter(this.runtime);
    const pleg = new Pleg({ adapters: [adapter], clock, random, log });
    this.statuses = new StatusManager({ outbox: this.store.statuses, log });
    const prober = this.#prober(events);
    const hooks = { run: async () => undefined };
    const images = new ImagePuller(
      { events, clock, random },
      { serializeImagePulls: true, maxParallelImagePulls: undefined },
    );
    const workers = new PodWorkers({
      ...{ clock, random, log, events, images, prober, hooks },
      store: desired,
      router: { adapters: [adapter], adapterFor: () => adapter },
      environment: new FakePodEnvironment(),
      observer: pleg,
      statuses: this.statuses,
      admission: new FakeAdmission(),
    });
    const meter = new FlashMeter(
      {
        ...{ clock, log, events, kept },
        counters: new WriteCounters({ cgroups: { kind: "v1", mountPoint: join(this.#folder.path, "cgroup") } }),
        findDisks: async () => ["sda"],
        pods: () => this.#wanted.map((each) => ({ desired: each, runtime: "cri" })),
        podCgroup: ({ uid }) => `/pod${uid}`,
        stretch: nothing,
      },
      { nodeName: "node", budgetBytes: 1, agentBudgetBytes: 1 },
    );
    const parts: readonly Pick<Component, "run">[] = [this.store, pleg, prober, workers, meter];
    this.#tasks = parts.map((part) =>
      part.run(this.#stop.signal).catch((error: unknown) => {
        if (!isCancelled(error)) this.#faults.push(error);
      }),
    );
  }

  /** One pod more or fewer, some crashes, a hub that takes what there is to tell; then time passes. */
  async step(durationMs: number): Promise<void> {
    const { random } = this;
    if (this.#wanted.length < MAX_PODS * random.next()) this.#wanted.push(this.#pod());
    else this.#wanted.splice(Math.floor(random.next() * this.#wanted.length), 1);
    this.#revision += 1;
    this.store.desired.replace("file", this.#revision, this.#wanted);
    await this.clock.advance(millis(durationMs * 0.5));
    for (const { uid } of this.#wanted) if (random.next() < 0.05) this.#crash(uid);
    const told = this.store.statuses.pending(100).at(-1);
    if (told !== undefined) this.store.statuses.ack(told.sequence, new Set());
    const event = this.store.events.pending(100).at(-1);
    if (event !== undefined) this.store.events.ack(event.sequence);
    await this.clock.advance(millis(durationMs * 0.5));
  }

  async end(): Promise<void> {
    this.#wanted = [];
    this.store.desired.replace("file", this.#revision + 1, []);
    await this.clock.advance(seconds(600));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#tasks);
    await this.store[Symbol.asyncDispose]();
    this.runtime[Symbol.dispose]();
    this.#folder[Symbol.dispose]();
    if (this.#faults.length > 0) throw this.#faults[0];
  }

  #crash(uid: DesiredPod["uid"]): void {
    const run = this.runtime.inspect(uid).containers.find(({ state }) => state.kind === "running");
    if (run !== undefined) this.runtime.kill(run.id, "SIGKILL");
  }

  #pod(): DesiredPod {
    this.made += 1;
    const name = `pod-${this.made}`;
    const probe = { exec: { command: ["ready"] }, periodSeconds: 3600 };
    const isProbed = this.random.next() < 0.5;
    const containers = [{ name: "app", image: IMAGE, command: ["run"], ...(isProbed && { readinessProbe: probe }) }];
    const pod = podOf({ containers, terminationGracePeriodSeconds: 1 }, { name });
    return { uid: podUid(name), source: "file", origin: `/manifests/${name}.yaml`, pod };
  }

  #prober(events: EventRecorder): PodProber {
    const { clock, random } = this;
    const grpc = { check: () => Promise.reject(new PicoletError("unimplemented", "nobody asks")) };
    return new PodProber({
      ...{ clock, random, grpc, http: new HttpGetter(), events: new PodEvents(events) },
      expand: (text) => text,
      hostIps: () => [],
      runtimeRequestTimeout: seconds(120),
    });
  }
}

export interface Lived {
  readonly days: number;
  readonly pods: number;
  /** Since it had seen everything once. */
  readonly grownBytes: number;
  /** Counts of all pods, after the last one has gone. */
  readonly left: { readonly statuses: number; readonly desired: number };
}

const lives = {
  async live(days: number, pods: number): Promise<Lived> {
    await using month = new Month();
    // Half of the steps make a pod, the others end one.
    const step = (days * DAY_MS) / (2 * pods);
    while (month.made < pods * WARM_UP_SHARE) await month.step(step);
    const before = heldMemory().heap;
    const madeBefore = month.made;
    while (month.made < pods) await month.step(step);
    const grownBytes = heldMemory().heap - before;
    const lived = Math.round(month.clock.monotonic() / DAY_MS);
    await month.end();
    const { pods: wanted, removed } = month.store.desired.desired.current;
    const left = { statuses: month.statuses.pods.size, desired: wanted.size + removed.size };
    return { days: lived, pods: month.made - madeBefore, grownBytes, left };
  },
};

export type Lives = typeof lives;

serve(lives);
