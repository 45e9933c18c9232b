/** Everything of images on a node, on a real containerd and with real registries; of pods their manifests alone. */

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LocalApi } from "@picolet/agent/api/local-api.ts";
import { runEdgectl } from "@picolet/agent/cli/run-edgectl.ts";
import { loadConfiguration } from "@picolet/agent/config/configuration.ts";
import { type Images, makeImages } from "@picolet/agent/main/pods/make-images.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { CriAdapter } from "@picolet/runtime-cri/cri-adapter.ts";
import { CapturedTerminal, NO_KEYBOARD, type Outcome } from "../unit/agent/edgectl-bench.ts";
import { FakeAgentView } from "../unit/agent/fake-agent-view.ts";
import { TestClusterObjects } from "../unit/agent/memory-cluster-objects.ts";
import { firstContainer, podOf } from "../unit/pods/sample-pods.ts";
import { endOfRun } from "../unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "../unit/ports/recorders.ts";
import { seededRandom } from "../unit/ports/seeded-random.ts";
import { MemoryDesiredStore } from "../unit/store/memory-desired-store.ts";

export interface PodWish {
  readonly name: string;
  readonly image: string;
  readonly policy?: "Always" | "IfNotPresent" | "Never";
  readonly secrets?: readonly string[];
  readonly annotations?: Readonly<Record<string, string>>;
  readonly serviceAccountName?: string;
}

/** A pod of the API server that was asked to have one container. */
export function podWith({
  name,
  image,
  policy = "IfNotPresent",
  secrets = [],
  annotations = {},
  ...spec
}: PodWish): DesiredPod {
  const pod = podOf(
    {
      ...spec,
      containers: [{ name: "app", image, imagePullPolicy: policy }],
      imagePullSecrets: secrets.map((each) => ({ name: each })),
    },
    { name, namespace: "shop", annotations: { ...annotations } },
  );
  return { uid: podUid(name), source: "api", origin: "", pod };
}

export const dockerConfig = (auths: Readonly<Record<string, readonly [user: string, password: string]>>): string =>
  JSON.stringify({
    auths: Object.fromEntries(
      Object.entries(auths).map(([location, pair]) => [
        location,
        { auth: Buffer.from(pair.join(":")).toString("base64") },
      ]),
    ),
  });

export class ImageBoard implements AsyncDisposable {
  readonly directory = mkdtempSync(join(tmpdir(), "picolet-images-"));
  readonly rootDir = join(this.directory, "root");
  readonly events = new RecordedEvents();
  readonly log = new RecordedLog();
  readonly desired = new MemoryDesiredStore();
  readonly objects = new TestClusterObjects(systemClock);
  readonly view = new FakeAgentView();
  readonly adapter: CriAdapter;
  readonly #clock: Clock;
  readonly #socketPath = join(this.directory, "picolet.sock");
  readonly #stop = new AbortController();
  #api: LocalApi | undefined;
  #running: Promise<void>[] = [];
  #images: Images | undefined;

  private constructor(adapter: CriAdapter, clock: Clock) {
    this.adapter = adapter;
    this.#clock = clock;
  }

  /**
   * Starts a board.
   * @param adapter disposed of by its creator
   * @param configuration of the agent, as YAML
   */
  static async start(adapter: CriAdapter, configuration = "", clock: Clock = systemClock): Promise<ImageBoard> {
    const board = new ImageBoard(adapter, clock);
    mkdirSync(board.rootDir);
    await board.startAgent(configuration);
    return board;
  }

  get images(): Images {
    if (this.#images === undefined) throw new Error("the board has not been started");
    return this.#images;
  }

  /** Starts another agent on the disk of the former one. */
  async startAgent(configuration = ""): Promise<void> {
    const result = loadConfiguration(`nodeName: edge-1\n${configuration}`);
    if (!result.ok) throw new Error(result.problems.map(({ path, message }) => `${path}: ${message}`).join());
    const { events, log, objects } = this;
    const { adapter } = this;
    const router = { adapters: [adapter], adapterFor: () => adapter };
    const args = {
      command: "run",
      configPath: undefined,
      rootDir: this.rootDir,
      socketPath: this.#socketPath,
    } as const;
    this.#images = await makeImages(
      {
        clock: this.#clock,
        random: seededRandom(1),
        ...{ events, log, objects, router },
        desired: this.desired.desired,
        objectsChanged: objects.changed,
        fingerprint: undefined,
        pods: () => this.view.pods(),
      },
      { args, configuration: result.configuration },
    );
  }

  /** Adds a Secret, by default of the type of a docker configuration. */
  secret(name: string, config: string, type = "kubernetes.io/dockerconfigjson"): void {
    const key = type.endsWith("json") ? ".dockerconfigjson" : ".dockercfg";
    const data = { [key]: Buffer.from(config).toString("base64") };
    this.objects.set(`Secret/shop/${name}`, { apiVersion: "v1", kind: "Secret", type, data });
  }

  /** Has it run when images are asked for credentials. @returns the folder it is in */
  plugin(name: string, script: string): string {
    const folder = join(this.directory, "plugins");
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, name), 0o755);
    return folder;
  }

  /** As a worker asks. @returns the image's id, or `Reason: message` of its refusal */
  async ensure(wish: PodWish, adapter: RuntimeAdapter = this.adapter, signal = this.#stop.signal): Promise<string> {
    const pod = podWith(wish);
    try {
      return (await this.images.puller.ensure(pod, firstContainer(pod), adapter, signal)).id;
    } catch (error) {
      if (!isPicoletError(error)) throw error;
      return `${error.reason ?? error.code}: ${describeError(error)}`;
    }
  }

  /** Runs the part that prefetches. */
  prefetch(): void {
    this.#running.push(endOfRun(this.images.prefetcher.run(this.#stop.signal)));
  }

  /** A command line on this board's agent. */
  async edgectl(words: readonly string[], terminal = new CapturedTerminal({ columns: undefined })): Promise<Outcome> {
    if (this.#api === undefined) {
      const { log, view, images } = this;
      const { adapter } = this;
      view.stores = [{ name: adapter.name, images: adapter.images }];
      const components = { clock: systemClock, log, view, logs: view.logs, images: images.images };
      this.#api = new LocalApi(components, { socketPath: this.#socketPath });
      await this.#api.listen();
      this.#running.push(endOfRun(this.#api.run(this.#stop.signal)));
    }
    const code = await runEdgectl(words, {
      terminal,
      clock: systemClock,
      environment: { PICOLET_SOCKET: this.#socketPath },
      workingDirectory: "/",
      readBeside: () => "[]",
      input: async function* () {},
      keyboard: NO_KEYBOARD,
    });
    return { code, out: terminal.out, error: terminal.error };
  }

  /** Reasons of what was recorded since the last call, with the fields they concern. */
  takeEvents(): string[] {
    return this.events.all.splice(0).map(({ reason, regarding }) => `${reason} ${regarding.kind}/${regarding.name}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running);
    rmSync(this.directory, { recursive: true });
  }
}
