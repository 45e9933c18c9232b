/** What this node has of a cluster: through the hub that it belongs to, or nothing. */
import { type Watch, WatchSource } from "../../protocol/async/watch.ts";
import { PicoletError } from "../../protocol/errors.ts";
import type { Log, Random } from "../../protocol/ports.ts";
import type { ClusterObjects } from "../core/cluster-objects.ts";
import type { OutgoingTelemetry } from "../core/outgoing-telemetry.ts";
import type { CorrectedClock } from "../security/corrected-clock.ts";
import type { Store } from "../store/store.ts";
import type { AgentInit } from "./agent-init.ts";
import type { HubLink } from "./hub-link.ts";

export interface NodeCluster {
  /** Undefined: this node belongs to no hub. */
  readonly link: HubLink | undefined;
  readonly objects: ClusterObjects;
  /** Fires when they may have changed. */
  readonly objectsChanged: Watch<unknown>;
  /** This node's object as the API server has it. */
  readonly node: Watch<Readonly<Record<string, unknown>> | undefined>;
}

export interface ClusterComponents {
  readonly clock: CorrectedClock;
  readonly random: Random;
  readonly log: Log;
  readonly store: Store;
  readonly telemetry: OutgoingTelemetry;
}

export async function makeCluster(components: ClusterComponents, init: AgentInit): Promise<NodeCluster> {
  const link = await makeHubLink(components, init);
  return {
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
): Promise<HubLink | undefined> {
  const { hub } = configuration;
  if (hub === null) return undefined;
  const { HubLink } = await import("./hub-link.ts");
  return new HubLink(components, { configuration, hub, rootDir: args.rootDir });
}

/** What pods get of a cluster that the node is not part of. */
const WITHOUT_CLUSTER: ClusterObjects = {
  object: () => undefined,
  keys: () => [],
  requestToken: () => Promise.reject(new PicoletError("unavailable", "cannot ask for a token: no hub is configured")),
};
