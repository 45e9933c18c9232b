import type { PodReport, StatusAnswer, StatusReport } from "../../protocol/local-api.ts";
import type { Arguments } from "./command-line.ts";
import { type Context, paintStatus, table, widthOf } from "./context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY } from "./failures.ts";
import { machineFormat, podLabel, printObject, summaryColumns } from "./objects.ts";
import { age, humanBytes, humanDuration, partOf, plain, wrap } from "./text-layout.ts";

/** `edgectl status`: the worst first, then what runs. */
export async function runStatus(context: Context, input: Arguments): Promise<number> {
  const answer = await context.client.get<StatusAnswer>("/v1/status");
  const format = machineFormat(input);
  const text = format === undefined ? statusText(context, input, answer) : printObject(stableShape(answer), format);
  const code = isHealthy(answer) ? EXIT_HEALTHY : EXIT_DEGRADED;
  await context.terminal.write(text);
  return code;
}

/** What is promised to scripts, and no more of it. */
function stableShape(answer: StatusAnswer): StatusReport {
  const pods = answer.pods.map(({ summary: _, createdAt: __, ...report }): PodReport => report);
  const { startedAt: ___, ...agent } = answer.agent;
  return { ...answer, pods, agent };
}

type StatusPod = StatusAnswer["pods"][number];

/** Completed pods are done, terminating ones are meant to go: neither is a fault. */
const isPodWell = (pod: StatusPod): boolean =>
  pod.ready || pod.phase === "Succeeded" || pod.summary.status === "Terminating";

const isHealthy = (answer: StatusAnswer): boolean =>
  answer.ready && answer.pods.every(isPodWell) && answer.problems.length === 0;

const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? "" : "s"}`;

function headline({ node, ready, pods, problems }: StatusAnswer): string {
  const unwell = pods.filter((each) => !isPodWell(each)).length;
  const faults = [
    ready ? "" : "the node is not ready",
    unwell === 0 ? "" : `${unwell} of ${count(pods.length, "pod")} not ready`,
    problems.length === 0 ? "" : `${count(problems.length, "manifest problem")}`,
  ].filter((each) => each !== "");
  return faults.length === 0
    ? `${node} is healthy: ${count(pods.length, "pod")}`
    : `${node} is degraded: ${faults.join(", ")}`;
}

function statusText(context: Context, input: Arguments, answer: StatusAnswer): string {
  const width = widthOf(context);
  const field = (name: string, value: string): string => `${name.padEnd(10)}${wrap(value, width, 10, 10)}\n`;
  const { runtimes, agent, resources, tunnel, conditions, problems } = answer;
  let text = `${wrap(headline(answer), width, 2)}\n`;
  for (const each of conditions) {
    // Ready is well when true, the pressures when false.
    if ((each.type === "Ready") !== (each.status === "True")) {
      text += `${wrap(`${each.type} is ${each.status}: ${each.reason}: ${each.message}`, width, 4)}\n`;
    }
  }
  for (const { origin, line, message } of problems) {
    text += `${wrap(`${origin}${line === null ? "" : `:${line}`}: ${message}`, width, 4)}\n`;
  }
  text += field(
    "Agent",
    `${agent.version}, up ${age(agent.startedAt, context.now())}, ${partOf(agent.rssBytes, agent.budgetBytes)}`,
  );
  text += field("Runtimes", runtimes.map(runtimeText).join("; ") || "none");
  text += field("Tunnel", tunnelText(context, tunnel));
  text += field("Memory", free(resources.memoryAvailableBytes, resources.memoryBytes));
  text += field("Disk", free(resources.diskAvailableBytes, resources.diskBytes));
  return text + (answer.pods.length === 0 ? "No pods.\n" : `\n${podTable(context, input, answer)}`);
}

function free(available: number | null, total: number | null): string {
  if (total === null) return "unknown";
  return available === null ? humanBytes(total) : `${partOf(available, total)} free`;
}

function runtimeText({ name, runtime, version, ready, message }: StatusAnswer["runtimes"][number]): string {
  const what = runtime === "" ? name : `${runtime} ${version}`;
  return ready ? `${what} ready` : `${what} NOT READY${message === "" ? "" : ` (${message})`}`;
}

function tunnelText(context: Context, tunnel: StatusAnswer["tunnel"]): string {
  const { state, since, rttMs, problem = "", nextTry = null, pendingStatuses = 0 } = tunnel;
  const now = context.now();
  const duration = since === null ? "" : ` for ${age(since, now)}`;
  const distance = rttMs === null ? "" : `, ${Math.round(rttMs)} ms away`;
  const next = nextTry === null ? "" : `, next try in ${humanDuration(Math.max(0, Date.parse(nextTry) - now))}`;
  // A few are on their way at any time; without a connection it is what the cluster does not know yet.
  const unsent = state === "connected" || pendingStatuses === 0 ? "" : `, ${count(pendingStatuses, "pod")} to report`;
  return `${state}${duration}${distance}${problem === "" ? "" : `: ${problem}`}${next}${unsent}`;
}

function podTable(context: Context, input: Arguments, { pods }: StatusAnswer): string {
  const wide = input.text("output") === "wide";
  const rows = pods.map((pod) => {
    return [
      podLabel(pod.namespace, pod.name),
      ...summaryColumns(pod.summary, context.now()),
      age(pod.createdAt, context.now()),
      pod.runtime || "none",
      ...(wide ? [pod.source, pod.uid] : []),
    ];
  });
  const headers = ["POD", "READY", "STATUS", "RESTARTS", "AGE", "RUNTIME", ...(wide ? ["SOURCE", "UID"] : [])];
  const paint = (cell: string, column: number): string => (column === 2 ? paintStatus(context, cell) : cell);
  const text = table(context, input, { headers, rows, nameColumns: 1, paint });
  // Each message below its pod would tear the table apart: they follow, each with its pod's name.
  const messages = pods.filter((pod) => !isPodWell(pod) && pod.message !== "");
  if (messages.length === 0) return text;
  const lines = messages.map((pod) => {
    const line = `${podLabel(pod.namespace, pod.name)}: ${pod.message}`;
    return wide ? plain(line) : wrap(line, widthOf(context), 4);
  });
  return `${text}\n${lines.join("\n")}\n`;
}
