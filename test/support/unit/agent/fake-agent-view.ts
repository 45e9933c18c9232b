/** An agent as its local API sees it, made of plain values that a test may change; used for the API and for edgectl. */
import type { AgentView, ImageStore, NodeView } from "@picolet/agent/api/agent-view.ts";
import type { AgentPod } from "@picolet/agent/core/pods/agent-pod.ts";
import type { EventInput, EventRecord } from "@picolet/agent/core/store/store-ports.ts";
import { PodLogs } from "@picolet/agent/logs/pod-logs.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type {
  ConfigAnswer,
  FlashReport,
  IsolationAnswer,
  NodeCondition,
  ResourceReport,
  RuntimeReport,
  SecretsAtRestReport,
  SourceProblem,
  StatusAnswer,
  TelemetryReport,
  TunnelReport,
} from "@picolet/protocol/local-api/status.ts";
import type { Pod, PodStatus } from "@picolet/protocol/pod/pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { ImageInfo, ObservedContainer, SourceId } from "@picolet/runtime-contract/runtime-adapter.ts";

/** When "now" is in these tests; every other time counts back from it. */
export const NOW_MS = Date.parse("2026-11-20T12:00:00Z");

export class FakeAgentView implements AgentView {
  nodeName = "edge-1";
  nodeReady: { readonly status: "True" | "False"; readonly reason: string; readonly message: string } = {
    status: "True",
    reason: "KubeletReady",
    message: "kubelet is posting ready status",
  };
  isolations: IsolationAnswer["containers"] = [];
  runtimeReports: RuntimeReport[] = [
    { name: "cri", runtime: "containerd", version: "1.7.24", ready: true, message: "" },
    { name: "wasm", runtime: "picolet-wasm", version: "0.1.0", ready: true, message: "" },
  ];
  tunnelReport: TunnelReport = { state: "disabled", since: null, rttMs: null };
  agentReport: StatusAnswer["agent"] = {
    rssBytes: 52 * MEBIBYTE,
    budgetBytes: 64 * MEBIBYTE,
    anonBytes: 16 * MEBIBYTE,
    version: "0.1.0",
    // The clock was late when it started, and edgectl's still is.
    startedAt: "2027-11-17T08:00:00Z",
    upMs: 76 * 3_600_000,
  };
  flashReport: FlashReport = {
    disks: ["mmcblk0"],
    day: "2026-11-20",
    today: {
      bytes: 212 * MEBIBYTE,
      agentBytes: 2 * MEBIBYTE,
      pods: [
        { name: "default/logger", bytes: 120 * MEBIBYTE },
        { name: "default/db", bytes: 31 * MEBIBYTE },
      ],
    },
    dailyAverage: { bytes: 480 * MEBIBYTE, agentBytes: 3 * MEBIBYTE, days: 12 },
    budgetBytes: 1024 * MEBIBYTE,
    agentBudgetBytes: 5 * MEBIBYTE,
  };
  resourceReport: ResourceReport = {
    capacity: { cpu: "4", memory: "947272Ki", pods: "110", "ephemeral-storage": "14876416Ki" },
    allocatable: { cpu: "4", memory: "844872Ki", pods: "110", "ephemeral-storage": "13709304845" },
    memoryBytes: 925 * MEBIBYTE,
    memoryAvailableBytes: 611 * MEBIBYTE,
    diskBytes: 14528 * MEBIBYTE,
    diskAvailableBytes: 9216 * MEBIBYTE,
  };
  configAnswer: ConfigAnswer = {
    file: "/etc/picolet/config.yaml",
    configuration: {
      authentication: { anonymous: { enabled: false }, webhook: { cacheTTL: "2m0s", enabled: true } },
      clusterDNS: [],
      evictionHard: { "memory.available": "93Mi", "nodefs.available": "10%" },
      hub: { heartbeatInterval: "30s", server: ["https://hub.example"], token: "***" },
      kubeReserved: { memory: "153Mi", pid: "700" },
      maxPods: 20,
      registerWithTaints: [{ effect: "NoSchedule", key: "edge" }],
      syncFrequency: "1m0s",
    },
    given: ["maxPods", "hub", "hub.server", "hub.token", "registerWithTaints"],
    derived: [
      { path: "evictionHard[memory.available]", how: "a tenth of 925 MiB, at least 24 MiB and at most 100 MiB" },
      {
        path: "kubeReserved.memory",
        how: "96 MiB and a sixteenth of 925 MiB, at most a quarter of it and 256 MiB",
      },
    ],
  };
  conditions: readonly NodeCondition[] = [];
  sourceProblems: SourceProblem[] = [];
  sourceWarnings: SourceProblem[] = [];
  stores: ImageStore[] = [];
  kernelPanic: ReturnType<AgentView["facts"]>["kernelPanic"];
  readonly events = new FakeEvents();
  readonly podsChanged = new WatchSource(0);
  readonly logs = new PodLogs({ pods: this, clock: systemClock });
  #pods: readonly AgentPod[] = [];

  node(): NodeView {
    const ready = { type: "Ready", ...this.nodeReady, lastTransitionTime: "2026-11-17T08:00:01Z" };
    return { name: this.nodeName, conditions: [...this.conditions, ready] };
  }
  facts = (): ReturnType<AgentView["facts"]> => {
    const { status, message } = this.nodeReady;
    const cri = { name: "cri", healthy: status === "True", reason: "RuntimeNotReady", message, sinceMs: 0 };
    return {
      ...{ runtimes: [cri], isShuttingDown: false, storeProblem: undefined, podsWithoutWorker: 0 },
      ...{ nowMs: NOW_MS, isMachineClockRight: true, kernelPanic: this.kernelPanic },
    };
  };
  runtimes = (): readonly RuntimeReport[] => this.runtimeReports;
  pods = (): readonly AgentPod[] => this.#pods;
  isolation = (): Promise<IsolationAnswer["containers"]> => Promise.resolve(this.isolations);
  problems = (): readonly SourceProblem[] => this.sourceProblems;
  warnings = (): readonly SourceProblem[] => this.sourceWarnings;
  tunnel = (): TunnelReport => this.tunnelReport;
  resources = (): ResourceReport => this.resourceReport;
  agent = (): StatusAnswer["agent"] => this.agentReport;
  configuration = (): Promise<ConfigAnswer> => Promise.resolve(this.configAnswer);
  flash = (): FlashReport => this.flashReport;
  telemetryReport: TelemetryReport = {
    ...{ queued: { records: 0, batches: 0, bytes: 0 }, maxBytes: 16_777_216, dropped: 0, refused: 0, forwarded: 0 },
    ...{ lastForwardedAt: null, problem: "" },
  };

  telemetry = (): TelemetryReport => this.telemetryReport;
  secrets: SecretsAtRestReport | null = null;
  secretsAtRest = (): SecretsAtRestReport | null => this.secrets;
  imageStores = (): readonly ImageStore[] => this.stores;

  setPods(...pods: readonly AgentPod[]): void {
    this.#pods = pods;
    this.podsChanged.set(this.podsChanged.current + 1);
  }
}

/** Keeps the two halves of EventStore that the API uses. */
export class FakeEvents {
  readonly latest = new WatchSource(0);
  #records: EventRecord[] = [];

  add(event: EventInput, secondsAgo = 0, count = 1, firstSecondsAgo = secondsAgo): void {
    const sequence = this.latest.current + 1;
    const [firstAtMs, lastAtMs] = [NOW_MS - firstSecondsAgo * 1000, NOW_MS - secondsAgo * 1000];
    this.#records.push({ ...event, sequence, count, firstAtMs, lastAtMs });
    this.latest.set(sequence);
  }

  /** As the store does it: the same event again gets a new number. */
  again(message: string): void {
    const found = this.#records.find((each) => each.message === message);
    if (found === undefined) throw new Error(`no event ${message}`);
    const sequence = this.latest.current + 1;
    this.#records = [...this.#records.filter((each) => each !== found), { ...found, sequence, count: found.count + 1 }];
    this.latest.set(sequence);
  }

  list(filter: { readonly namespace?: string; readonly name?: string; readonly limit: number }): EventRecord[] {
    const found = this.#records.filter(
      ({ regarding }) =>
        (filter.namespace === undefined || regarding.namespace === filter.namespace) &&
        (filter.name === undefined || regarding.name === filter.name),
    );
    return filter.limit === 0 ? [] : found.slice(-filter.limit);
  }
}

export interface FakePodInit {
  readonly uid?: string;
  readonly source?: SourceId;
  readonly status?: PodStatus;
  readonly terminatingSinceMs?: number;
  readonly endsAs?: "Succeeded" | "Failed";
  readonly runtime?: string;
  readonly containers?: readonly ObservedContainer[];
  readonly logDirectory?: string;
}

export function agentPod(pod: Pod, init: FakePodInit = {}): AgentPod {
  const { namespace, name } = pod.metadata;
  const uid = podUid(init.uid ?? `${name}-uid`);
  return {
    desired: { uid, source: init.source ?? "file", origin: `/etc/picolet/manifests/${name}.yaml`, pod },
    status: init.status,
    terminatingSinceMs: init.terminatingSinceMs,
    endsAs: init.endsAs,
    runtime: init.runtime ?? "cri",
    containers: init.containers ?? [],
    logDirectory: init.logDirectory ?? `/nonexistent/${namespace}_${name}_${uid}`,
  };
}

export function observedContainer(
  name: string,
  attempt: number,
  logPath: string,
  state: ObservedContainer["state"] = { kind: "running", startedAtMs: NOW_MS - 60_000 },
): ObservedContainer {
  return {
    id: `${name}-${attempt}`,
    name,
    attempt,
    sandboxId: "sandbox",
    createdAtMs: NOW_MS - 60_000,
    state,
    hash: "hash",
    backoff: millis(0),
    image: "example/app:1",
    imageId: "sha256:1",
    logPath,
  };
}

/** A store that holds `images`, and imports files that end in `ending` as one image. */
export function imageStore(name: string, images: readonly ImageInfo[], ending: string): ImageStore {
  return {
    name,
    images: {
      list: async () => images,
      import: async (path, tag) => {
        if (!path.endsWith(ending)) throw new PicoletError("unimplemented", `not a ${ending} file`);
        return [{ id: "sha256:2", tags: [tag ?? "imported:latest"], digests: [], sizeBytes: 1024, pinned: false }];
      },
    },
  };
}
