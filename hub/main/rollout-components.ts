/** The parts of `picolet-hub serve` that carry rollouts out. */
import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import type { FleetNodes } from "@picolet/hub-core/fleet.ts";
import type { KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import { parseLabelSelector } from "@picolet/hub-embedded/api/selectors.ts";
import { EventRecorder } from "@picolet/hub-embedded/controllers/event-recorder.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { NODE_GROUPS, nodeUser } from "../bridge/well-known.ts";
import { Leadership, onlyReplica } from "../rollouts/leadership.ts";
import { RolloutController } from "../rollouts/rollout-controller.ts";
import type { ServeArguments } from "./arguments.ts";
import type { HubPorts } from "./cluster.ts";
import { HUB_NAMESPACE } from "./hub-client.ts";

/** Replicas of one hub share the Lease; hubs of other names have their own. */
const leaseName = (hub: string): string => `picolet-rollouts-${hub.toLowerCase().replace(/[^a-z0-9.-]/g, "-")}`;
const IDENTITY_BYTES = 4;

export function makeRollouts(
  ports: HubPorts & { readonly client: KubeClient; readonly nodes: FleetNodes },
  { hubName, cluster }: Pick<ServeArguments, "hubName" | "cluster">,
): readonly [events: Component, controller: RolloutController] {
  const { client } = ports;
  const events = new EventRecorder(ports);
  const identity = `${hostname()}_${randomBytes(IDENTITY_BYTES).toString("hex")}`;
  const lease = { namespace: HUB_NAMESPACE, name: leaseName(hubName), identity };
  const controller = new RolloutController(
    {
      ...ports,
      clientOf: (node) => client.as(nodeUser(node), NODE_GROUPS),
      // The embedded API server has one hub.
      leadership: cluster.kind === "embedded" ? onlyReplica : new Leadership(ports, lease),
      events,
      parseSelector: parseLabelSelector,
    },
    { hub: hubName },
  );
  return [events, controller];
}
