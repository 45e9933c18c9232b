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
import { servePodAction, serveRequest } from "@picolet/kubelet-api/serving/node-requests.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { PAGE_DATA_PATH } from "@picolet/protocol/page/board-data.ts";
import type { FleetRollout } from "@picolet/protocol/page/fleet-data.ts";
import { POD_ACTION_RIGHT, podActionRequest } from "@picolet/protocol/page/pod-actions.ts";
import type { StreamOpener } from "@picolet/protocol/tunnel/stream.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { Serving } from "../identity/serving.ts";
import { FleetPagePort, PAGE_PORT_LIMITS, type PageQuestion } from "../page/fleet-page-port.ts";
import { listRollouts, ROLLOUT_NAMESPACE, type Rollout } from "../rollouts/rollout.ts";
import type { ServeArguments } from "./arguments.ts";
import type { HubPorts } from "./cluster.ts";

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
      askBoard: async (node, request, response, signal) => {
        const streams: StreamOpener = {
          open: (kind, params, lane, stop) => fleet.open(node, kind, params, lane, stop),
        };
        if (request.kind === "read") {
          const path = { kind: "get", path: request.url } as const;
          return await serveRequest({ streams, clock }, { path, method: "GET" }, response, signal);
        }
        const { method, path } = podActionRequest(request.action);
        const params = { method, path: `${PAGE_DATA_PATH}${path}`, user: request.user.slice(0, MAX_USER_LENGTH) };
        await servePodAction(streams, params, response, signal);
      },
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
  throw new PicoletError("permission_denied", `Forbidden (user=${user.name} may not ${deedOf(question)})`);
}

function deedOf(question: PageQuestion): string {
  switch (question.kind) {
    case "board":
      return `read the page of ${question.node}`;
    case "pods":
      return `restart or delete pods in namespace ${question.namespace}: this needs delete on pods there`;
    default:
      return `read the ${question.kind}`;
  }
}

/** The rights for the same by kubectl, of which one suffices: `get nodes`, the board's kubelet, rollouts' ConfigMaps, pods. */
function rightsOf(question: PageQuestion): readonly Question[] {
  const list = { verb: "list", group: "", version: "v1", name: "" };
  switch (question.kind) {
    case "fleet":
      return [{ ...list, resource: "nodes", namespace: "" }];
    case "rollouts":
      return [{ ...list, resource: "configmaps", namespace: ROLLOUT_NAMESPACE }];
    case "pods":
      return [{ ...POD_ACTION_RIGHT, namespace: question.namespace, name: "" }];
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

/** Bounds what a board is sent and shows; names of service accounts have at most 331 characters. */
const MAX_USER_LENGTH = 340;
/** A configuration has 16 KiB; its first line says enough. */
const MAX_TARGET_LENGTH = 200;
