import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import type { PodList, WatchLine } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { summarizePod } from "@picolet/protocol/pod/pod-summary.ts";
import { type Context, paintStatus, table } from "../context/context.ts";
import { EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import {
  DEFAULT_NAMESPACE,
  listObject,
  machineFormat,
  parsePodName,
  podPath,
  printObject,
  query,
  summaryColumns,
} from "../context/objects.ts";
import { age } from "../context/text-layout.ts";

const SOURCE_ANNOTATION = "kubernetes.io/config.source";

/** `edgectl get pods`, as kubectl prints them. */
export async function runGetPods(context: Context, input: Arguments, names: readonly string[]): Promise<number> {
  const namespace = input.text("namespace");
  const everywhere = input.flag("all-namespaces");
  if (everywhere && namespace !== undefined) throw usageError("only one of -A and -n may be given");
  if (everywhere && names.length > 0) throw usageError("a pod's name does not go with -A; use NAMESPACE/NAME");
  const wanted = names.map((name) => parsePodName(name, namespace));
  if (input.flag("watch")) {
    if (names.length > 1) throw usageError("only one pod can be watched by name; leave the name out to watch all");
    return await watch(context, input, everywhere, namespace, wanted[0]);
  }
  const pods =
    wanted.length === 0
      ? (await context.client.get<PodList>(podsPath(everywhere ? undefined : (namespace ?? DEFAULT_NAMESPACE)))).items
      : await getEach(context, wanted.map(podPath));
  await context.terminal.write(await podsText(context, input, pods, wanted.length === 1));
  return EXIT_HEALTHY;
}

const podsPath = (namespace: string | undefined): string =>
  namespace === undefined ? "/v1/pods" : `/v1/namespaces/${encodeURIComponent(namespace)}/pods`;

async function getEach(context: Context, paths: readonly string[]): Promise<Pod[]> {
  const pods: Pod[] = [];
  for (const path of paths) pods.push(await context.client.get<Pod>(path));
  return pods;
}

async function podsText(context: Context, input: Arguments, pods: readonly Pod[], single: boolean): Promise<string> {
  const format = machineFormat(input);
  if (format !== undefined) return printObject(single ? pods[0] : listObject(pods), format);
  if (input.text("output") === "name") return pods.map((pod) => `pod/${pod.metadata.name}\n`).join("");
  if (pods.length > 0) return podTable(context, input, pods);
  if (input.flag("all-namespaces")) {
    context.terminal.writeError("No resources found\n");
    return "";
  }
  const namespace = input.text("namespace") ?? DEFAULT_NAMESPACE;
  const elsewhere = (await context.client.get<PodList>("/v1/pods")).items.length;
  const hint = elsewhere === 0 ? "" : ` ${elsewhere} in others: edgectl get pods -A`;
  context.terminal.writeError(`No resources found in ${namespace} namespace.${hint}\n`);
  return "";
}

function rowOf(context: Context, input: Arguments, pod: Pod): string[] {
  const { namespace, name, creationTimestamp, annotations } = pod.metadata;
  const wide = input.text("output") === "wide";
  return [
    ...(input.flag("all-namespaces") ? [namespace] : []),
    name,
    ...summaryColumns(summarizePod(pod), context.now()),
    age(creationTimestamp ?? pod.status?.startTime, context.now()),
    ...(wide ? [pod.status?.podIP ?? "<none>", annotations?.[SOURCE_ANNOTATION] ?? "<unknown>", runtimeOf(pod)] : []),
  ];
}

/** The runtime of the first container that has run: the part of its id before `://`. */
function runtimeOf({ status }: Pod): string {
  const ids = (status?.containerStatuses ?? []).map(({ containerID = "" }) => containerID);
  return ids.find((id) => id !== "")?.replace(/:.*$/, "") ?? "<none>";
}

function podTable(
  context: Context,
  input: Arguments,
  pods: readonly Pod[],
  options: { readonly minWidths?: readonly number[]; readonly withHeaders?: boolean } = {},
): string {
  const everywhere = input.flag("all-namespaces");
  const names = everywhere ? 2 : 1;
  const wide = input.text("output") === "wide";
  return table(context, input, {
    headers: [
      ...(everywhere ? ["NAMESPACE"] : []),
      "NAME",
      "READY",
      "STATUS",
      "RESTARTS",
      "AGE",
      ...(wide ? ["IP", "SOURCE", "RUNTIME"] : []),
    ],
    rows: pods.map((pod) => rowOf(context, input, pod)),
    nameColumns: names,
    ...options,
    paint: (cell, column) => (column === names + 1 ? paintStatus(context, cell) : cell),
  });
}

/** Columns of rows that come one by one: room for what they usually hold, 80 together. */
const WATCH_WIDTHS = [30, 5, 17, 12, 6];

/** A row whenever something that is shown has changed; a pod that is gone is shown once more, as kubectl does. */
async function watch(
  context: Context,
  input: Arguments,
  everywhere: boolean,
  namespace: string | undefined,
  wanted: ReturnType<typeof parsePodName> | undefined,
): Promise<number> {
  // Asked first, so that a short name is resolved and an unknown one is an error.
  const only = wanted === undefined ? undefined : await context.client.get<Pod>(podPath(wanted));
  const within = only?.metadata.namespace ?? (everywhere ? undefined : (namespace ?? DEFAULT_NAMESPACE));
  const format = machineFormat(input);
  const widths = everywhere ? [11, 21, ...WATCH_WIDTHS.slice(1)] : WATCH_WIDTHS;
  const shown = new Map<string, string>();
  let isFirst = true;
  for await (const line of context.client.lines<WatchLine<Pod>>(`${podsPath(within)}${query({ watch: true })}`)) {
    if (line.type === "ERROR") continue;
    const pod = line.object;
    if (only !== undefined && pod.metadata.name !== only.metadata.name) continue;
    if (format !== undefined) {
      await context.terminal.write(`${format === "yaml" ? "---\n" : ""}${printObject(pod, format)}`);
      continue;
    }
    const uid = pod.metadata.uid ?? "";
    const { lastRestartAt: _, ...summary } = summarizePod(pod);
    const state = JSON.stringify([summary, pod.status?.podIP]);
    if (line.type !== "DELETED" && shown.get(uid) === state) continue;
    if (line.type === "DELETED") shown.delete(uid);
    else shown.set(uid, state);
    if (input.text("output") === "name") await context.terminal.write(`pod/${pod.metadata.name}\n`);
    else {
      await context.terminal.write(podTable(context, input, [pod], { minWidths: widths, withHeaders: isFirst }));
      isFirst = false;
    }
  }
  return EXIT_HEALTHY;
}
