/** The pages of the hub, put together: the fleet's, where a flag asks for it, and the files of boards' pages. */
import { realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Fleet, FleetNodes } from "@picolet/hub-core/fleet.ts";
import type { KubeClient } from "@picolet/hub-core/kube-client/kube-client.ts";
import { ConnectionGate } from "@picolet/kubelet-api/fairness/connection-gate.ts";
import { httpFailure } from "@picolet/kubelet-api/serving/http-answers.ts";
import {
  type AccessQuestion,
  type KubeletUser,
  type ResourceQuestion,
  ReviewedAccess,
  type Reviews,
  unauthorized,
} from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { serveRequest } from "@picolet/kubelet-api/serving/node-requests.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { FleetRollout } from "@picolet/protocol/page/fleet-data.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { Serving } from "../identity/serving.ts";
import { FleetPagePort, PAGE_PORT_LIMITS, type PageQuestion } from "../page/fleet-page-port.ts";
import { listRollouts, ROLLOUT_NAMESPACE, type Rollout } from "../rollouts/rollout.ts";
import type { ServeArguments } from "./arguments.ts";
import type { HubPorts } from "./serve.ts";

type Question = AccessQuestion | ResourceQuestion;

export interface HubPageComponents extends HubPorts {
  readonly client: KubeClient;
  readonly fleet: Fleet;
  readonly nodes: FleetNodes;
  readonly reviews: Reviews<Question>;
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
  const access = new ReviewedAccess({ reviews, clock });
  return new FleetPagePort(
    {
      ...{ nodes, clock, log, tls: serving, statusOf: httpFailure },
      gate: new ConnectionGate({ clock, log }, PAGE_PORT_LIMITS),
      authorize: async (request, question, signal) => {
        const user = await access.bearer(request, signal);
        if (user === undefined) throw unauthorized();
        return await authorized(access, user, question, signal);
      },
      rollouts: async (signal) => ({ items: (await listRollouts(client, signal)).map(shownRollout) }),
      askBoard: async (node, path, response, signal) =>
        await serveRequest(
          { streams: { open: (kind, params, lane, stop) => fleet.open(node, kind, params, lane, stop) }, clock },
          { path: { kind: "get", path }, method: "GET" },
          response,
          signal,
        ),
    },
    { ...pageAddress, version: VERSION, folder: pageFolder("fleet") },
  );
}

/** @returns the user's name. @throws `permission_denied` */
async function authorized(
  access: ReviewedAccess<Question>,
  user: KubeletUser,
  question: PageQuestion,
  signal: AbortSignal,
): Promise<string> {
  for (const right of rightsOf(question)) if (await access.allows(user, right, signal)) return user.name;
  const what = question.kind === "board" ? `the page of ${question.node}` : `the ${question.kind}`;
  throw new PicoletError("permission_denied", `Forbidden (user=${user.name} may not read ${what})`);
}

/** The rights for the same by kubectl, of which one suffices: `get nodes`, the board's kubelet, rollouts' ConfigMaps. */
function rightsOf(question: PageQuestion): readonly Question[] {
  const list = { verb: "list", group: "", version: "v1", name: "" };
  switch (question.kind) {
    case "fleet":
      return [{ ...list, resource: "nodes", namespace: "" }];
    case "rollouts":
      return [{ ...list, resource: "configmaps", namespace: ROLLOUT_NAMESPACE }];
    case "board":
      return ["page", "proxy"].map((subresource) => ({ verb: "get", node: question.node, subresource }));
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
