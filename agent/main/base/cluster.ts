/** The node's view of its cluster through its hub; empty without a hub. */
import { type Watch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Log, Random } from "@picolet/protocol/ports.ts";
import { unloadModules } from "../../budget/unload-modules.ts";
import type { ClusterObjects } from "../../core/hub/cluster-objects.ts";
import type { OutgoingTelemetry } from "../../core/hub/outgoing-telemetry.ts";
import type { DecisionRecorder } from "../../core/store/decisions.ts";
import type { CorrectedClock } from "../../security/corrected-clock.ts";
import type { PodParser } from "../../sources/api-source.ts";
import type { Store } from "../../store/store.ts";
import type { AgentInit } from "../node/agent-init.ts";
import type { HubLink } from "./hub-link.ts";

export interface NodeCluster {
  /** Undefined: this node belongs to no hub. */
  readonly link: HubLink | undefined;
  readonly objects: ClusterObjects;
  /** Fires when they may have changed. */
  readonly objectsChanged: Watch<unknown>;
  /** This node's object as the API server has it. */
  readonly node: Watch<Readonly<Record<string, unknown>> | undefined>;
  /** Unloads the parser of the API server's pods until the next one arrives. */
  readonly unloadParser: () => void;
}

export interface ClusterComponents {
  readonly clock: CorrectedClock;
  readonly random: Random;
  readonly log: Log;
  readonly store: Store;
  readonly decisions: DecisionRecorder;
  readonly telemetry: OutgoingTelemetry;
}

export async function makeCluster(components: ClusterComponents, init: AgentInit): Promise<NodeCluster> {
  const parser = new PodParserOnDemand();
  const link = await makeHubLink(components, init, parser);
  return {
    unloadParser: () => parser.release(),
    link,
    objects: link ?? WITHOUT_CLUSTER,
    objectsChanged: link?.changes ?? new WatchSource(undefined),
    node: link?.node ?? new WatchSource(undefined),
  };
}

/** Loaded only where a hub is configured. */
async function makeHubLink(
  components: ClusterComponents,
  { args, configuration }: AgentInit,
  parser: PodParser,
): Promise<HubLink | undefined> {
  const { hub } = configuration;
  if (hub === null) return undefined;
  const [{ HubLink }] = await Promise.all([import("./hub-link.ts"), parser.load()]);
  return new HubLink({ ...components, parser }, { configuration, hub, rootDir: args.rootDir });
}

/** The schema of pods and what it is made with take 0.8 MiB, for what comes once in a while. */
class PodParserOnDemand implements PodParser {
  #parse: PodParser["parse"];

  get parse(): PodParser["parse"] {
    return this.#parse;
  }

  async load(): Promise<void> {
    this.#parse = (await import("@picolet/protocol/pod/validation/parse-pod.ts")).parsePod;
  }

  release(): void {
    this.#parse = undefined;
    unloadModules("parse-pod");
  }
}

/** The cluster's objects for a node without a cluster. */
const WITHOUT_CLUSTER: ClusterObjects = {
  object: () => undefined,
  keys: () => [],
  requestToken: () => Promise.reject(new PicoletError("unavailable", "cannot ask for a token: no hub is configured")),
};
