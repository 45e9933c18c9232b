/** The hands of the conformance suite: the steps that its cases are made of. */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import type { Pod, ResourceRequirements } from "@picolet/protocol/pod/pod.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { type Millis, millis, type PodUid, podUid } from "@picolet/protocol/ports.ts";
import type {
  Cpuset,
  DesiredPod,
  ObservedContainer,
  ObservedPod,
  RuntimeAdapter,
  SandboxLaunch,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ConformanceFeature, ConformanceFixture, Program, ProgramLine } from "./conformance-fixture.ts";

export interface ConformanceCase {
  readonly name: string;
  readonly needs?: ConformanceFeature;
  readonly run: (bench: Bench, context: TestContext) => Promise<void>;
}

/** Real time. Generous: on a loaded machine a container start has been seen to take seconds. */
const WAIT_TIMEOUT_MS = 45_000;

const CRI_LINE = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([PF]) (.*)$/;

/** One case's fixture, with what every case does to it. */
export class Bench {
  readonly fixture: ConformanceFixture;
  readonly signal: AbortSignal;
  adapter: RuntimeAdapter;
  readonly #folders = new Map<PodUid, Pick<SandboxLaunch, "logDirectory" | "cgroupParent">>();

  constructor(fixture: ConformanceFixture, signal: AbortSignal) {
    this.fixture = fixture;
    this.signal = signal;
    this.adapter = fixture.adapter;
  }

  async restartAgent(meanwhile?: () => Promise<void>): Promise<void> {
    this.adapter = await this.fixture.restartAgent(meanwhile);
  }

  async createSandbox(pod: DesiredPod, attempt = 0): Promise<string> {
    let folders = this.#folders.get(pod.uid);
    if (folders === undefined) {
      folders = await this.fixture.preparePod(pod);
      this.#folders.set(pod.uid, folders);
    }
    const hostname = pod.pod.metadata.name;
    const sandbox: SandboxLaunch = { attempt, ...folders, hostname, dns: undefined };
    await this.adapter.apply(pod, { kind: "createSandbox", sandbox }, this.signal);
    const newest = (await this.inspect(pod)).sandboxes[0];
    assert.ok(newest, "a created sandbox is seen");
    return newest.id;
  }

  async start(pod: DesiredPod, program: Program, run: StartOptions = {}): Promise<ObservedContainer> {
    const attempt = run.attempt ?? 0;
    const name = run.name ?? "main";
    await this.#launch(pod, program, name, attempt, run);
    const made = (await this.inspect(pod)).containers.find((each) => each.name === name && each.attempt === attempt);
    assert.ok(made, "a started container is seen");
    return made;
  }

  async #launch(pod: DesiredPod, program: Program, name: string, attempt: number, run: StartOptions): Promise<void> {
    const id = run.imageId ?? (await this.adapter.images.status(program.image, this.signal))?.id;
    assert.ok(id, `the image ${program.image} is on the runtime`);
    const container = {
      name,
      attempt,
      hash: run.hash ?? "hash-0",
      backoff: run.backoff ?? millis(10_000),
      image: { requested: program.image, id },
      command: program.command,
      args: program.args,
      env: run.env ?? [],
      workingDir: "",
      mounts: run.mounts ?? [],
      cpuset: run.cpuset,
      logPath: `${name}/${attempt}.log`,
    };
    await this.adapter.apply(pod, { kind: "startContainer", container }, this.signal);
  }

  inspect(pod: DesiredPod): Promise<ObservedPod> {
    return this.adapter.inspect(pod.uid, this.signal);
  }

  async container(pod: DesiredPod, id: string): Promise<ObservedContainer> {
    const found = (await this.inspect(pod)).containers.find((each) => each.id === id);
    assert.ok(found, `container ${id} is seen`);
    return found;
  }

  stop(pod: DesiredPod, containerId: string, gracePeriod: Millis, signal = this.signal): Promise<void> {
    return this.letting(this.adapter.apply(pod, { kind: "stopContainer", containerId, gracePeriod }, signal));
  }

  /** Awaits a task that needs time to pass, on a virtual clock as well. */
  async letting<T>(task: Promise<T>): Promise<T> {
    let settled = false;
    const settle = (): void => {
      settled = true;
    };
    task.then(settle, settle);
    while (!settled) await Promise.race([task, this.fixture.settle()]);
    return task;
  }

  update(pod: DesiredPod, containerId: string, resources?: ResourceRequirements, cpuset?: Cpuset): Promise<void> {
    const action = { kind: "updateContainer", containerId, resources, cpuset } as const;
    return this.letting(this.adapter.apply(pod, action, this.signal));
  }

  remove(pod: DesiredPod, containerId: string): Promise<void> {
    return this.adapter.apply(pod, { kind: "removeContainer", containerId }, this.signal);
  }

  stopSandbox(pod: DesiredPod, sandboxId: string): Promise<void> {
    return this.adapter.apply(pod, { kind: "stopSandbox", sandboxId }, this.signal);
  }

  removeSandbox(pod: DesiredPod, sandboxId: string): Promise<void> {
    return this.adapter.apply(pod, { kind: "removeSandbox", sandboxId }, this.signal);
  }

  /** Samples until a sample is not `undefined`; the fixture advances between two samples. */
  async until<T>(what: string, check: () => Promise<T | undefined>): Promise<T> {
    const deadline = AbortSignal.timeout(WAIT_TIMEOUT_MS);
    for (;;) {
      const found = await check();
      if (found !== undefined) return found;
      assert.ok(!deadline.aborted, `gave up waiting for: ${what}`);
      this.signal.throwIfAborted();
      await this.fixture.settle();
    }
  }

  exited(pod: DesiredPod, id: string): Promise<Exited> {
    return this.until(`container ${id} to exit`, async () => {
      const container = await this.container(pod, id);
      return container.state.kind === "exited" ? { ...container, state: container.state } : undefined;
    });
  }

  running(pod: DesiredPod, id: string): Promise<Running> {
    return this.until(`container ${id} to run`, async () => {
      const container = await this.container(pod, id);
      assert.notEqual(container.state.kind, "exited", "it was to run, not to exit");
      return container.state.kind === "running" ? { ...container, state: container.state } : undefined;
    });
  }

  async version(pod: DesiredPod): Promise<string | undefined> {
    return (await this.adapter.list(this.signal)).find((each) => each.uid === pod.uid)?.version;
  }

  /** The log's whole lines, pieces joined. */
  async log(path: string): Promise<ProgramLine[]> {
    return parseCriLog(await this.fixture.readLog(path));
  }

  logOf(path: string, atLeast: number): Promise<ProgramLine[]> {
    return this.until(`${atLeast} lines in ${path}`, async () => {
      const lines = await this.log(path);
      return lines.length >= atLeast ? lines : undefined;
    });
  }
}

export type Exited = ObservedContainer & { readonly state: Extract<ObservedContainer["state"], { kind: "exited" }> };
export type Running = ObservedContainer & { readonly state: Extract<ObservedContainer["state"], { kind: "running" }> };

export interface StartOptions {
  readonly name?: string;
  readonly attempt?: number;
  readonly hash?: string;
  readonly backoff?: Millis;
  readonly imageId?: string;
  readonly cpuset?: Cpuset;
  readonly env?: readonly { readonly name: string; readonly value: string }[];
  readonly mounts?: readonly {
    readonly containerPath: string;
    readonly hostPath: string;
    readonly readOnly: boolean;
    readonly propagation: "private";
  }[];
}

/** A last line without its newline is still being written and left out. */
function parseCriLog(content: string): ProgramLine[] {
  const lines: ProgramLine[] = [];
  const pieces = { stdout: "", stderr: "" };
  for (const raw of content.split("\n").slice(0, -1)) {
    const match = CRI_LINE.exec(raw);
    assert.ok(match, `a log line in the CRI format, not ${JSON.stringify(raw.slice(0, 200))}`);
    const stream = match[2] === "stderr" ? "stderr" : "stdout";
    assert.ok(!Number.isNaN(Date.parse(match[1] ?? "")), "its time is one");
    pieces[stream] += match[4] ?? "";
    if (match[3] === "P") continue;
    lines.push({ stream, text: pieces[stream] });
    pieces[stream] = "";
  }
  return lines;
}

interface PodOptions {
  readonly name?: string;
  readonly containers?: readonly string[];
  readonly resources?: Pod["spec"]["containers"][number]["resources"];
}

/** A pod as the agent hands it over: defaulted, with the program as its containers' spec. */
export function desiredPod(program: Program, options: PodOptions = {}): DesiredPod {
  const name = options.name ?? "conformance";
  const uid = `${name}-1f0e6a52`;
  const containers = (options.containers ?? ["main"]).map((container) => ({
    name: container,
    image: program.image,
    command: [...program.command],
    args: [...program.args],
    ...(options.resources === undefined ? {} : { resources: options.resources }),
  }));
  const result = parsePod({ apiVersion: "v1", kind: "Pod", metadata: { name, uid }, spec: { containers } });
  assert.ok(result.ok, "the suite's own pod is a valid one");
  return { uid: podUid(uid), source: "file", origin: `/manifests/${name}.yaml`, pod: result.pod };
}
