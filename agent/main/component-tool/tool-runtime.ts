/** The component runtime of one call of the tool: the adapter that agents have, in a folder that goes with it. */
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { ConsoleLog } from "@picolet/protocol/async/console-log.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { podCgroupValues } from "@picolet/protocol/cgroup/cgroup-values.ts";
import type { ComponentToolRequest } from "@picolet/protocol/local-api/component-tool-messages.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { type Log, millis } from "@picolet/protocol/ports.ts";
import { checkRecords } from "@picolet/protocol/telemetry/records.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { BoardServices } from "@picolet/runtime-contract/board-services.ts";
import type { ContainerLaunch, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { WasmAdapter } from "@picolet/runtime-wasm/adapter/wasm-adapter.ts";
import { NodeInfoService } from "../../node/node-info-service.ts";
import { type CgroupHierarchies, detectCgroups } from "../../resources/cgroup-hierarchies.ts";
import { CgroupTree } from "../../resources/cgroup-tree.ts";
import { KeyvalueService } from "../../store/keyvalue/keyvalue-service.ts";
import { TelemetryService } from "../../telemetry/telemetry-service.ts";
import { componentPrograms } from "../node/component-programs.ts";
import { nameFrom, type ToolPod, toolPod } from "./tool-pod.ts";

const FOLDER_PREFIX = "edgectl-wasm-";
const SETTINGS = { cpuCFSQuota: true, cpuPeriodUs: 100_000, podPidsLimit: -1 };
/** `wasm.maxComponentSize`'s own. */
const DEFAULT_MAX_COMPONENT_BYTES = 32 * MEBIBYTE;
/** Bounds the end of running components when the tool ends. */
const KILL_TIMEOUT_MS = 10_000;

const complain = (line: string): void => void process.stderr.write(`edgectl: ${line}\n`);

interface Ports {
  readonly log: Log;
  readonly cgroups: CgroupTree;
}

export const maxComponentBytes = ({ maxComponentBytes: bytes }: ComponentToolRequest): number =>
  bytes ?? DEFAULT_MAX_COMPONENT_BYTES;

const imageOf = ({ file }: ComponentToolRequest): string => `localhost/${nameFrom(file)}:edgectl`;

/** Every user may write there, or the pod's `fsGroup`, as an agent makes it. */
function makeEmptyDir(path: string, { pod }: DesiredPod): void {
  mkdirSync(path, { recursive: true });
  const { fsGroup } = pod.spec.securityContext;
  const isOwned = fsGroup !== undefined && process.getuid?.() === 0;
  if (isOwned) chownSync(path, 0, fsGroup);
  chmodSync(path, isOwned ? 0o2777 : 0o777);
}

export class ToolRuntime implements AsyncDisposable {
  readonly adapter: WasmAdapter;
  readonly pod: ToolPod;
  readonly #folder: string;
  readonly #cgroups: CgroupTree;
  readonly #cgroup: string;
  readonly #services: ToolServices;
  #image: { readonly requested: string; readonly id: string };

  private constructor(request: ComponentToolRequest, programs: string, folder: string, { log, cgroups }: Ports) {
    this.#folder = folder;
    this.#cgroups = cgroups;
    // Not by the process ID, which comes again: a tool that was killed can leave a cgroup that is frozen.
    this.#cgroup = `/picolet-wasm-run-${basename(folder).slice(FOLDER_PREFIX.length)}`;
    this.#services = new ToolServices(log, join(folder, "keyvalue.db"));
    this.#image = { requested: imageOf(request), id: "" };
    this.pod = toolPod(request, this.#image.requested, join(folder, "volumes"));
    this.adapter = new WasmAdapter(
      {
        ...{ clock: systemClock, log, cgroups },
        hostIps: () => ["127.0.0.1"],
        warn: (_, reason, message) => complain(`${reason}: ${message}`),
        services: this.#services.services,
      },
      {
        rootDirectory: join(folder, "root"),
        stateDirectory: join(folder, "state"),
        nodePath: process.execPath,
        ...componentPrograms(programs),
        cgroupSettings: SETTINGS,
        // What is killed at the end.
        denseCgroup: join(this.#cgroup, "dense"),
        caFile: request.caFile,
        p3: request.p3,
        // It runs once.
        limits: { spareRunners: 0, maxComponentBytes: maxComponentBytes(request) },
      },
    );
  }

  /** @throws what is wrong with the file or the pod */
  static async create(request: ComponentToolRequest, signal: AbortSignal): Promise<ToolRuntime> {
    const folder = mkdtempSync(join(tmpdir(), FOLDER_PREFIX));
    const log = new ConsoleLog({ format: "text", level: "error", write: complain, now: () => new Date() });
    const hierarchies = await detectCgroups();
    const cgroups = new CgroupTree({ clock: systemClock, log }, { hierarchies });
    try {
      const runtime = new ToolRuntime(request, dirname(process.argv[1] ?? ""), folder, { log, cgroups });
      await runtime.#import(request.file, signal);
      return runtime;
    } catch (error) {
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }

  get launch(): ContainerLaunch {
    const { container, env, args, mounts } = this.pod;
    return {
      name: container.name,
      attempt: 0,
      hash: "",
      backoff: millis(0),
      image: this.#image,
      command: container.command ?? [],
      args,
      env,
      workingDir: container.workingDir ?? "",
      mounts,
      logPath: "log",
    };
  }

  get desired(): DesiredPod {
    return this.pod.desired;
  }

  async createSandbox(signal: AbortSignal): Promise<void> {
    const logDirectory = join(this.#folder, "logs");
    mkdirSync(logDirectory);
    for (const { name, emptyDir } of this.desired.pod.spec.volumes ?? []) {
      if (emptyDir !== undefined) makeEmptyDir(join(this.#folder, "volumes", name), this.desired);
    }
    const cgroup = await this.#cgroups.create(this.#cgroup, podCgroupValues(this.desired.pod, SETTINGS));
    const { hierarchies } = this.#cgroups;
    const unkept = cgroup === undefined && unkeptLimits(this.pod.container, hierarchies, process.getuid?.() ?? 0);
    if (unkept) complain(`Warning: ${unkept}`);
    const sandbox = {
      attempt: 0,
      logDirectory,
      cgroupParent: cgroup === undefined ? "" : this.#cgroup,
      hostname: this.desired.pod.metadata.name,
      dns: undefined,
    };
    await this.adapter.apply(this.desired, { kind: "createSandbox", sandbox }, signal);
  }

  async #import(file: string, signal: AbortSignal): Promise<void> {
    const { requested } = this.#image;
    const [image] = await this.adapter.images.import(file, requested, signal);
    this.#image = { requested, id: image?.id ?? "" };
  }

  /** Ends all running components. */
  async [Symbol.asyncDispose](): Promise<void> {
    const signal = AbortSignal.timeout(KILL_TIMEOUT_MS);
    const { sandboxes } = await this.adapter.inspect(this.desired.uid, signal);
    for (const { id } of sandboxes) {
      await this.adapter.apply(this.desired, { kind: "stopSandbox", sandboxId: id }, signal);
      await this.adapter.apply(this.desired, { kind: "removeSandbox", sandboxId: id }, signal);
    }
    await this.adapter[Symbol.asyncDispose]();
    this.#services[Symbol.dispose]();
    await this.#cgroups.kill(this.#cgroup, signal);
    await this.#cgroups.remove(this.#cgroup);
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/**
 * The container's limits that are not enforced without a cgroup. A node enforces them. @param uid of this process.
 * @returns one line; undefined: nothing is asked for that is not kept
 */
export function unkeptLimits(
  { resources }: Pick<Container, "resources">,
  hierarchies: CgroupHierarchies,
  uid: number,
): string | undefined {
  const { cpu, memory } = resources?.limits ?? {};
  const unkept = [
    ...(cpu === undefined ? [] : [`cpu ${cpu} is not kept`]),
    ...(memory === undefined
      ? []
      : [`memory ${memory} is kept of the component's own memory alone, not of its process`]),
  ];
  if (unkept.length === 0) return undefined;
  const refusal = uid === 0 ? "they cannot be changed here" : "it takes root";
  const why = hierarchies.kind === "none" ? hierarchies.why : refusal;
  return `no cgroup can be made for its limits (${why}): ${unkept.join("; ")}`;
}

/** Services for a component without an agent: a store that is empty at first, and a node without a hub. */
class ToolServices implements Disposable {
  readonly services: BoardServices;
  readonly #log: Log;
  readonly #path: string;
  #keyvalue: KeyvalueService | undefined;

  /** @param path of the file that values are in, as long as the tool lives */
  constructor(log: Log, path: string) {
    this.#log = log;
    this.#path = path;
    const nodeInfo = new NodeInfoService(
      { conditions: () => [], labels: () => ({}), isClockSet: () => true, hub: () => "standalone" },
      { nodeName: hostname(), shownLabels: [] },
    );
    // Validated as on a node, and then dropped.
    const telemetry = new TelemetryService({
      put: async ({ number, records }) => {
        checkRecords(records.map(({ record }) => record));
        return { taken: number, kept: number };
      },
      labelsOf: () => [],
    });
    this.services = {
      keyvalue: () => this.#store(),
      "node-info": () => nodeInfo,
      telemetry: () => telemetry,
    };
  }

  #store(): KeyvalueService {
    const onDamage = (reason: string): void => this.#log.error("the values of the component are lost", { reason });
    this.#keyvalue ??= new KeyvalueService(
      { clock: systemClock, log: this.#log, namedBy: () => [], isClockSet: () => true, onDamage },
      { path: this.#path },
    );
    return this.#keyvalue;
  }

  [Symbol.dispose](): void {
    this.#keyvalue?.[Symbol.dispose]();
  }
}
