/** `picolet-hub rollout`: an administrator makes, follows and changes rollouts by requests to the API server. */
import { readFile } from "node:fs/promises";
import {
  CONFIG_MAPS,
  type KubeClient,
  type KubeObject,
  NODES,
  type ObjectRef,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { parseLabelSelector } from "@picolet/hub-embedded/api/selectors.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { dnsSubdomainProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { HUB_LABEL } from "../bridge/well-known.ts";
import { wishKey } from "../rollouts/board.ts";
import {
  BOARD_STATES,
  boardsOf,
  isFinished,
  listRollouts,
  parseRollout,
  ROLLOUT_LABEL,
  ROLLOUT_NAMESPACE,
  type Rollout,
  type RolloutAction,
  type RolloutSpec,
  rolloutData,
  specProblems,
} from "../rollouts/rollout.ts";
import type { RolloutArguments } from "./rollout-flags.ts";
import { tableText } from "./table-text.ts";

const PAGE = 500;
/** Lines of a list show this much of a message or a selector. */
const MAX_CELL = 60;

interface Components {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly print: (text: string) => void;
}

type Making = Extract<RolloutArguments, { readonly spec: unknown }>;
type Following = Extract<RolloutArguments, { readonly command: "rollout status" }>;

/** @throws `failed` from `status --watch` when the rollout has stopped */
export async function runRollout(components: Components, args: RolloutArguments, signal: AbortSignal): Promise<void> {
  const { client, print } = components;
  switch (args.command) {
    case "rollout list":
      print(listText(await listRollouts(client, signal), args.isJson));
      return;
    case "rollout status":
      await follow(components, args, signal);
      return;
    case "rollout pause":
    case "rollout resume":
    case "rollout stop":
    case "rollout undo":
      print(await change(client, args, signal));
      return;
    default:
      print(await make(components, args, signal));
  }
}

async function make({ client, clock }: Components, args: Making, signal: AbortSignal): Promise<string> {
  const { spec: flags, operand, command } = args;
  const target = command === "rollout configuration" ? await configurationIn(operand) : operand;
  const spec: RolloutSpec = { ...flags, target };
  const problems = specProblems(spec);
  if (problems !== undefined) throw new PicoletError("invalid", problems);
  const name = args.name ?? `${spec.kind}-${clock.wall().toISOString().replace(/\D/g, "").slice(0, 14)}`;
  const [nameProblem] = dnsSubdomainProblems(name);
  if (nameProblem !== undefined)
    throw new PicoletError("invalid", `${JSON.stringify(name)} is no name: ${nameProblem}`);
  const boards = await selectedBoards(client, spec, signal);
  if (boards.length === 0) {
    const message = `no board of the hub ${spec.hub} has the labels ${spec.selector}: kubectl get nodes --show-labels`;
    throw new PicoletError("not_found", message);
  }
  const blocker = (await listRollouts(client, signal)).find((each) => isShared(each, spec, boards));
  const metadata = { namespace: ROLLOUT_NAMESPACE, name, labels: { [ROLLOUT_LABEL]: spec.kind } };
  const object = { apiVersion: "v1", kind: "ConfigMap", metadata, data: rolloutData(spec) };
  await client.create(CONFIG_MAPS, metadata, object, {}, signal);
  const atOnce = boardsOf(spec.maxUnavailable, boards.length, "down");
  return [
    `rollout ${name}: ${countOf(boards.length)}, ${atOnce} at a time`,
    ...(blocker === undefined ? [] : [`it waits for rollout ${blocker.name}, which has some of these boards`]),
    `picolet-hub rollout status ${name} --watch shows how it goes`,
    "",
  ].join("\n");
}

const countOf = (boards: number): string => `${boards} ${boards === 1 ? "board" : "boards"}`;

async function configurationIn(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    throw new PicoletError("invalid", `cannot read the configuration ${path}`, { cause });
  }
}

type Labels = Readonly<Record<string, string>>;

/** The labels of the boards, by name. */
async function selectedBoards(
  client: KubeClient,
  { selector, hub }: RolloutSpec,
  signal: AbortSignal,
): Promise<readonly Labels[]> {
  const boards: Labels[] = [];
  const labelSelector = [`${HUB_LABEL}=${hub}`, ...(selector === "" ? [] : [selector])].join(",");
  for (let token: string | undefined, isFirst = true; isFirst || token !== undefined; isFirst = false) {
    const more = token === undefined ? {} : { continue: token };
    const page = await client.list(NODES, { labelSelector, metadataOnly: true, limit: PAGE, ...more }, signal);
    boards.push(...page.items.map(({ metadata }) => metadata.labels ?? {}));
    token = page.continue;
  }
  return boards;
}

/** True for a rollout that keeps a new one from its boards. */
function isShared({ spec, status }: Rollout, { kind, hub }: RolloutSpec, boards: readonly Labels[]): boolean {
  if (spec?.kind !== kind || spec.hub !== hub) return false;
  const isOccupying = !isFinished({ status }) && status.phase !== "Stopped" && status.phase !== "Awaiting";
  return isOccupying && boards.some(parseLabelSelector(spec.selector));
}

const refOf = (name: string): ObjectRef => ({ namespace: ROLLOUT_NAMESPACE, name });

async function read(client: KubeClient, name: string, signal: AbortSignal): Promise<Rollout> {
  let object: KubeObject | undefined;
  try {
    object = await client.get(CONFIG_MAPS, refOf(name), signal);
  } catch (error) {
    if (!isPicoletError(error, "not_found")) throw error;
  }
  if (object?.metadata.labels?.[ROLLOUT_LABEL] !== undefined) return parseRollout(object);
  throw new PicoletError("not_found", `there is no rollout ${name}: picolet-hub rollout list shows them`);
}

type Change = "pause" | "resume" | "stop" | "undo";
const ACTION_OF: Readonly<Record<Change, RolloutAction>> = {
  pause: "pause",
  resume: "run",
  stop: "stop",
  undo: "undo",
};

async function change(
  client: KubeClient,
  { command, name }: Extract<RolloutArguments, { readonly command: `rollout ${Change}` }>,
  signal: AbortSignal,
): Promise<string> {
  const rollout = await read(client, name, signal);
  const what = command.slice("rollout ".length) as Change;
  const problem = problemOf(rollout, what);
  if (problem !== undefined) throw new PicoletError("conflict", `cannot ${what} rollout ${name}: ${problem}`);
  const accepted = what === "resume" ? { "accepted-failures": String(rollout.status.boards.failed) } : {};
  const data = { action: ACTION_OF[what], ...accepted };
  // The version: the hub may have stopped it since it was read.
  const metadata = { resourceVersion: rollout.resourceVersion };
  await client.patch(CONFIG_MAPS, refOf(name), "merge", { metadata, data }, {}, signal);
  return `rollout ${name}: ${DONE_TEXT[what]}\n`;
}

const DONE_TEXT: Readonly<Record<Change, string>> = {
  pause: "paused; boards in their turn go on",
  resume: "goes on",
  stop: "stopped; boards that have not restarted keep their version",
  undo: "its boards go back",
};

function problemOf(rollout: Rollout, what: Change): string | undefined {
  const { spec, problem, action, status } = rollout;
  if (spec === undefined) return problem;
  if (what === "undo") return action === "undo" ? "it is being undone already" : undefined;
  if (action === "undo") return "it is being undone";
  if (isFinished(rollout)) return `it is over: ${status.message}`;
  return action === ACTION_OF[what] ? `it is so already (${status.phase})` : undefined;
}

async function follow({ client, print }: Components, args: Following, signal: AbortSignal): Promise<void> {
  const { name, isJson, isWatched } = args;
  let rollout = await read(client, name, signal);
  if (!isWatched) {
    print(isJson ? jsonText(rollout) : statusText(rollout));
    return;
  }
  let shown = "";
  const show = (): boolean => {
    const line = isJson
      ? `${JSON.stringify(fieldsOf(rollout))}\n`
      : `${rollout.status.phase}: ${rollout.status.message}\n`;
    if (line !== shown) print(line);
    shown = line;
    return isFinished(rollout) || rollout.status.phase === "Stopped";
  };
  const options = { namespace: ROLLOUT_NAMESPACE, fieldSelector: `metadata.name=${name}` };
  while (!show()) rollout = await next(client, rollout, options, signal);
  const { phase, message, failures } = rollout.status;
  if (!isJson) print(failureText(failures));
  if (phase === "Stopped" || phase === "Invalid")
    throw new PicoletError("failed", `rollout ${name} stopped: ${message}`);
}

/** @returns the rollout after its next change; a watch that the server ends is opened again by the caller */
async function next(
  client: KubeClient,
  rollout: Rollout,
  options: { readonly namespace: string; readonly fieldSelector: string },
  signal: AbortSignal,
): Promise<Rollout> {
  try {
    for await (const event of client.watch(
      CONFIG_MAPS,
      { ...options, resourceVersion: rollout.resourceVersion },
      signal,
    )) {
      if (event.type === "DELETED") throw new PicoletError("not_found", `rollout ${rollout.name} was deleted`);
      if (event.type !== "BOOKMARK") return parseRollout(event.object);
    }
  } catch (error) {
    if (!isPicoletError(error) || error.reason !== "Expired") throw error;
  }
  return await read(client, rollout.name, signal);
}

function listText(rollouts: readonly Rollout[], isJson: boolean): string {
  if (isJson) return `${JSON.stringify(rollouts.map(fieldsOf), undefined, 2)}\n`;
  if (rollouts.length === 0) return "there are no rollouts\n";
  const rows = rollouts.map(({ name, spec, status }) => [
    name,
    spec?.kind ?? "",
    status.phase,
    String(status.selected),
    String(status.boards.done),
    String(status.boards.failed),
    String(status.boards.away),
    cell(spec === undefined ? "" : targetOf(spec)),
  ]);
  return tableText([["NAME", "KIND", "PHASE", "BOARDS", "DONE", "FAILED", "AWAY", "TARGET"], ...rows]);
}

const cell = (text: string): string => (text.length > MAX_CELL ? `${text.slice(0, MAX_CELL - 3)}...` : text);

const targetOf = ({ kind, target }: RolloutSpec): string =>
  kind === "configuration" ? `sha256:${wishKey(kind, target)}...` : target;

function statusText({ name, spec, problem, status }: Rollout): string {
  const { phase, message, selected, boards, failures } = status;
  if (spec === undefined) return `${name} is no rollout: ${problem}\n`;
  const limits = [
    `${spec.maxUnavailable} at a time`,
    `stops at ${spec.maxFailures} failed`,
    ...(spec.canary > 0 ? [`${spec.canary} first`] : []),
    ...(spec.window === undefined ? [] : [`within ${spec.window}`]),
    ...(spec.bandwidth === undefined ? [] : [`${spec.bandwidth} a second`]),
    ...(spec.allowDowngrade ? ["older versions too"] : []),
  ];
  const facts = [
    ["Rollout", name],
    [spec.kind, targetOf(spec)],
    ["Boards", `${selected}, ${spec.selector === "" ? "all of the hub" : spec.selector}`],
    ["Limits", limits.join(", ")],
    ["Phase", `${phase}: ${message}`],
  ];
  const counts = BOARD_STATES.filter((state) => boards[state] > 0).map((state) => [state, String(boards[state])]);
  const table = counts.length === 0 ? "" : `\n${tableText([["STATE", "BOARDS"], ...counts])}`;
  return `${tableText(facts)}${table}${failureText(failures)}`;
}

const failureText = (failures: Rollout["status"]["failures"]): string =>
  failures.length === 0 ? "" : `\n${failures.map(({ node, reason }) => `${node}: ${reason}\n`).join("")}`;

/** Stable: scripts read it. */
const fieldsOf = ({ name, spec, problem, action, status }: Rollout): object => ({
  name,
  ...(spec === undefined ? { problem } : { spec }),
  action,
  ...status,
});

const jsonText = (rollout: Rollout): string => `${JSON.stringify(fieldsOf(rollout), undefined, 2)}\n`;
