import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { toPicoletError } from "@picolet/protocol/errors.ts";
import type { Log, Random } from "@picolet/protocol/ports.ts";
import { RELEASED_AT_MS } from "@picolet/protocol/version.ts";
import type { BlackBox } from "../../blackbox/black-box.ts";
import { NodeCounts } from "../../core/node/node-counts.ts";
import type { DataKeys } from "../../keys/data-keys.ts";
import { CorrectedClock } from "../../security/corrected-clock.ts";
import { Store } from "../../store/store.ts";
import type { AgentInit, AgentPorts } from "../node/agent-init.ts";
import { NodeTelemetry } from "../node/node-telemetry.ts";
import { unlockSecrets } from "../node/secrets-at-rest.ts";
import { detectNode, type ThisNode } from "../node/this-node.ts";
import { makeCluster, type NodeCluster } from "./cluster.ts";
import { makeBlackBox } from "./make-black-box.ts";

/** The base of every part of the agent: time, disk, the node's facts, and its cluster. */
export interface AgentBase {
  readonly ports: {
    readonly clock: CorrectedClock;
    readonly random: Random;
    readonly log: Log;
    readonly counts: NodeCounts;
  };
  readonly init: AgentInit;
  readonly startedAt: Date;
  /** Keys that encrypt Secrets on the disk; undefined: this node keeps none. */
  readonly keys: DataKeys | undefined;
  readonly store: Store;
  /** Where every part records what it decides. */
  readonly decisions: BlackBox;
  readonly node: ThisNode;
  readonly telemetry: NodeTelemetry;
  readonly cluster: NodeCluster;
}

export async function makeBase(machine: AgentPorts, init: AgentInit, signal: AbortSignal): Promise<AgentBase> {
  const { args, configuration } = init;
  const clock = new CorrectedClock(machine.clock, { floorMs: RELEASED_AT_MS });
  const { random, log } = machine;
  const ports = { clock, random, log, counts: new NodeCounts() };
  const startedAt = clock.wall();
  makeFolder(args.rootDir, "--root-dir");
  makeFolder(configuration.podLogsDir, "podLogsDir");
  const { nodeName, eventRecordQPS: perSecond, eventBurst: burst } = configuration;
  const database = { path: join(args.rootDir, "picolet.db"), nodeName, eventRate: { perSecond, burst } };
  const keys = await unlockSecrets({ clock, log }, { configuration, rootDir: args.rootDir }, signal);
  // Before the store: a power cut is dated by what was written last.
  const decisions = await makeBlackBox(clock, machine, init, signal);
  const store = new Store({ clock, log, sealer: keys }, database);
  const node = await detectNode(ports, init, signal);
  const telemetry = new NodeTelemetry({ clock, log }, { rootDir: args.rootDir, settings: configuration.telemetry });
  const cluster = await makeCluster({ ...ports, store, decisions, telemetry }, init);
  return { ports, init, startedAt, keys, store, decisions, node, telemetry, cluster };
}

/** @throws with the setting that names another folder */
function makeFolder(folder: string, setting: string): void {
  try {
    mkdirSync(folder, { recursive: true });
  } catch (error) {
    const help = `run picolet as root, or set ${setting} to a folder that this user may write to`;
    throw toPicoletError(error, "failed", `cannot make ${folder}: ${help}`);
  }
}
