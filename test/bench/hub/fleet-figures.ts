/** A hub process with a fleet: memory, reconnects, statuses, pods on their way down. */
import { join } from "node:path";
import { loadAuthority } from "@picolet/hub/identity/certificate-authority.ts";
import { FilePemStore } from "@picolet/hub/identity/pem-store.ts";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import { openClient } from "@picolet/hub/main/hub-client.ts";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type { StatusItem } from "@picolet/protocol/tunnel/messages.ts";
import { HubProcess } from "@picolet/scripts/start/hub-process.ts";
import { TempFolder } from "../../support/unit/machine/temp-folder.ts";
import { memoryOf, percentile, round } from "../measure/process-usage.ts";
import { bareKiBPerConnection } from "./bare-tunnels.ts";
import { FleetSimulator } from "./fleet-simulator.ts";
import type { SimulatedBoard } from "./simulated-board.ts";

export interface FleetBenchInit {
  readonly agents: number;
  /** Pods that are made one after the other, each on a board of its own. */
  readonly pods: number;
  /** How long statuses are reported. */
  readonly statusWindowMs: number;
  readonly progress: (text: string) => void;
  /** Ends it, and the hub. */
  readonly signal: AbortSignal;
}

export interface FleetFigures {
  readonly agents: number;
  /** The memory that all agents added to the hub, divided by their number, with registered nodes and their caches. */
  readonly rssMiBPerAgent: number;
  readonly rssKiBPerAgent: number;
  /** The same for a server that only holds as many connections, in the same run. */
  readonly floorKiBPerAgent: number;
  /** The hub's beside that. */
  readonly timesFloor: number;
  /** From the hub's SIGKILL until the last agent was welcomed by the next one. */
  readonly reconnectStormSeconds: number;
  /** The part of it until the next hub served. */
  readonly hubStartSeconds: number;
  /** Acknowledged, which is written. */
  readonly statusPerSecond: number;
  /** From the POST to the board having it, while statuses are at rest. */
  readonly podApplyP50Ms: number;
  readonly podApplyP99Ms: number;
}

/** Bounds each part for five thousand agents on a busy machine: a part that takes longer never ends. */
const PART_LIMIT = seconds(300);
/** A fleet that is switched on by and by. */
const CONNECTS_PER_SECOND = 500;
const SETTLE = millis(10_000);
/** Concurrent creates of the API's clients. */
const CREATES_AT_A_TIME = 4;

export async function fleetFigures(init: FleetBenchInit): Promise<FleetFigures> {
  const { agents, progress, signal } = init;
  const within = <T>(what: string, task: () => Promise<T>): Promise<T> =>
    withDeadline(systemClock, PART_LIMIT, what, task, signal);
  const floorKiBPerAgent = await within("measure bare connections", () => bareKiBPerConnection(agents, SETTLE));
  using folder = new TempFolder();
  const dataDir = join(folder.path, "hub");
  let hub = await HubProcess.start({ dataDir });
  const { tunnel, api } = hub.ready;
  const ports = { tunnelPort: Number(new URL(tunnel).port), apiPort: Number(new URL(api).port) };
  const stored = await new FilePemStore({ path: join(dataDir, "hub-ca.json") }).load();
  const { "ca.crt": ca = "", "ca.key": caKey = "" } = stored?.files ?? {};
  const clientCa = loadAuthority(ca, caKey);
  const fleet = FleetSimulator.create({ hub: tunnel, hubCa: ca, clientCa, count: agents, prefix: "edge-" });
  try {
    const before = memoryOf(hub.pid).rssMiB;
    const startedAt = performance.now();
    await within("connect all agents", () => fleet.connect(CONNECTS_PER_SECOND));
    progress(`${agents} agents joined in ${secondsSince(startedAt)} s`);
    await within("register all nodes", () => Promise.all(fleet.boards.map((board) => board.reportNode())));
    progress(`their nodes are registered after ${secondsSince(startedAt)} s`);
    await systemClock.sleep(SETTLE, signal);
    const added = memoryOf(hub.pid).rssMiB - before;
    const [rssMiBPerAgent, rssKiBPerAgent] = [round(added / agents), Math.round((added * 1024) / agents)];
    progress(`the hub has ${rssKiBPerAgent} KiB for each, ${floorKiBPerAgent} of them for the connection`);

    const killedAt = performance.now();
    await hub.end("SIGKILL");
    hub = await HubProcess.start({ dataDir, ...ports });
    const hubStartSeconds = secondsSince(killedAt);
    await within("welcome all agents again", () => fleet.allWelcomed());
    const reconnectStormSeconds = secondsSince(killedAt);
    progress(
      `all were back ${reconnectStormSeconds} s after the hub was killed, which served after ${hubStartSeconds} s`,
    );

    const applied = await within("apply pods", () => applyPods(fleet, hub.ready.kubeconfig, init));
    progress(`a pod is with its board after ${round(percentile(applied.delays, 0.5))} ms`);
    const statusPerSecond = await within("report statuses", () => reportStatuses(applied.pods, init.statusWindowMs));
    progress(`${statusPerSecond} statuses a second`);
    for (const [reason, count] of fleet.ends) progress(`${count} connections ended: ${reason}`);
    progress(`welcomes: ${JSON.stringify(fleet.welcomes)}`);
    return {
      agents,
      rssMiBPerAgent,
      rssKiBPerAgent,
      floorKiBPerAgent,
      timesFloor: Math.round((rssKiBPerAgent / floorKiBPerAgent) * 100) / 100,
      reconnectStormSeconds,
      hubStartSeconds,
      statusPerSecond,
      podApplyP50Ms: round(percentile(applied.delays, 0.5)),
      podApplyP99Ms: round(percentile(applied.delays, 0.99)),
    };
  } finally {
    fleet.end();
    await hub.end("SIGKILL");
  }
}

const secondsSince = (since: number): number => round((performance.now() - since) / 1000);

interface AppliedPod {
  readonly board: SimulatedBoard;
  readonly name: string;
  readonly uid: string;
}

async function applyPods(
  fleet: FleetSimulator,
  kubeconfig: string,
  { pods: count, signal }: FleetBenchInit,
): Promise<{ readonly pods: readonly AppliedPod[]; readonly delays: readonly number[] }> {
  const access = await loadKubeconfigAccess({ kubeconfig });
  await using client = openClient({ clock: systemClock, random: { next: Math.random } }, access);
  const arrivals = new Map<string, () => void>();
  fleet.onObject = (_, key) => arrivals.get(key)?.();
  const pods: AppliedPod[] = [];
  const delays: number[] = [];
  const one = async (index: number): Promise<void> => {
    const board = fleet.boards[index % fleet.boards.length];
    if (board === undefined) throw new Error("there is no board");
    const name = `bench-${index}`;
    const arrived = new Promise<void>((resolve) => arrivals.set(`Pod/default/${name}`, resolve));
    const container = { name: "app", image: "example/app:1" };
    const pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, namespace: "default" },
      spec: { nodeName: board.node, containers: [container] },
    };
    const startedAt = performance.now();
    const created = await client.create(PODS, { namespace: "default", name }, pod, {}, signal);
    await arrived;
    delays.push(performance.now() - startedAt);
    pods.push({ board, name, uid: created.metadata.uid ?? "" });
  };
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) await one(next++);
  };
  await Promise.all(Array.from({ length: CREATES_AT_A_TIME }, worker));
  return { pods, delays };
}

/** Every board reports its pod's status again as soon as the one before is acknowledged. */
async function reportStatuses(pods: readonly AppliedPod[], windowMs: number): Promise<number> {
  const endsAt = performance.now() + windowMs;
  let acknowledged = 0;
  const loop = async ({ board, name, uid }: AppliedPod): Promise<void> => {
    for (let round = 0; performance.now() < endsAt; round += 1) {
      const status = { phase: "Running", message: `round ${round}`, startTime: "2026-01-31T12:00:00Z" };
      const item: StatusItem = { namespace: "default", name, uid, body: { kind: "full", status } };
      try {
        await board.reportStatus([item]);
      } catch (error) {
        // This board has lost its connection: what the others do is the figure.
        if (isPicoletError(error, "unavailable")) return;
        throw error;
      }
      if (performance.now() < endsAt) acknowledged += 1;
    }
  };
  await Promise.all(pods.map(loop));
  return Math.round(acknowledged / (windowMs / 1000));
}
