/** The pages of the hub, put together: the fleet's, where a flag asks for it, and the files of boards' pages. */
import { realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { ConnectionGate } from "@picolet/hub-core/fairness/connection-gate.ts";
import type { Fleet, FleetNodes } from "@picolet/hub-core/fleet.ts";
import type { KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { FleetRollout } from "@picolet/protocol/page/fleet-data.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { Serving } from "../identity/serving.ts";
import { httpFailure } from "../kubelet-proxy/http-answers.ts";
import { type AccessReview, KubeletAccess, type KubeletReviews } from "../kubelet-proxy/kubelet-access.ts";
import { serveRequest } from "../kubelet-proxy/node-requests.ts";
import { FleetPagePort, PAGE_PORT_LIMITS, type PageQuestion } from "../page/fleet-page-port.ts";
import { listRollouts, ROLLOUT_NAMESPACE, type Rollout } from "../rollouts/rollout.ts";
import type { ServeArguments } from "./arguments.ts";
import type { HubPorts } from "./serve.ts";

export interface HubPageComponents extends HubPorts {
  readonly client: KubeClient;
  readonly fleet: Fleet;
  readonly nodes: FleetNodes;
  readonly reviews: KubeletReviews;
  readonly serving: Serving;
}

/** Beside the program, as `scripts/build/build.ts` writes them. */
export const pageFolder = (name: "board" | "fleet"): string =>
  join(dirname(realpathSync(process.argv[1] ?? "")), "page", name);

/** Undefined without the flag. */
export function makeFleetPage(
  components: HubPageComponents,
  { pageAddress }: Pick<ServeArguments, "pageAddress">,
): FleetPagePort | undefined {
  if (pageAddress === undefined) return undefined;
  const { clock, log, client, fleet, nodes, reviews, serving } = components;
  const access = new KubeletAccess({ reviews, clock });
  return new FleetPagePort(
    {
      ...{ nodes, clock, log, tls: serving, statusOf: httpFailure },
      gate: new ConnectionGate({ clock, log }, PAGE_PORT_LIMITS),
      authorize: async (request, question, signal) => (await access.review(request, reviewOf(question), signal)).name,
      rollouts: async (signal) => ({ items: (await listRollouts(client, signal)).map(shownRollout) }),
      askBoard: async (node, path, response, signal) =>
        await serveRequest({ fleet, clock }, { node, path: { kind: "get", path }, method: "GET" }, response, signal),
    },
    { ...pageAddress, version: VERSION, folder: pageFolder("fleet") },
  );
}

/** The rights for the same by kubectl: `get nodes`, the board's kubelet, the ConfigMaps of rollouts. */
function reviewOf(question: PageQuestion): AccessReview {
  switch (question.kind) {
    case "fleet":
      return { verb: "list", node: "", subresources: [""] };
    case "rollouts":
      return { verb: "list", node: "", subresources: [""], resource: "configmaps", namespace: ROLLOUT_NAMESPACE };
    case "board":
      return { verb: "get", node: question.node, subresources: ["page", "proxy"] };
  }
}

function shownRollout({ name, spec, status, problem }: Rollout): FleetRollout {
  const { phase, message, selected, boards } = status;
  return {
    ...{ name, phase, selected, kind: spec?.kind ?? "", target: spec?.target.slice(0, MAX_TARGET_LENGTH) ?? "" },
    message: problem === "" ? message : problem,
    boards: Object.fromEntries(Object.entries(boards).filter(([, count]) => count > 0)),
  };
}

/** A configuration has 16 KiB; its first line says enough. */
const MAX_TARGET_LENGTH = 200;
