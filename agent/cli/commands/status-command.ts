import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import type { PodReport, StatusAnswer, StatusReport } from "@picolet/protocol/local-api/status.ts";
import { NEVER } from "@picolet/protocol/ports.ts";
import { INTERVAL } from "../context/command.ts";
import { type Context, paintStatus, table, widthOf } from "../context/context.ts";
import { EXIT_DEGRADED, EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { machineFormat, podLabel, printObject, summaryColumns } from "../context/objects.ts";
import { Screen } from "../context/screen.ts";
import { age, formatShare, humanBytes, humanDuration, printableLine, wrap } from "../context/text-layout.ts";

/** `edgectl status`: the worst first, then what runs. */
export async function runStatus(context: Context, input: Arguments): Promise<number> {
  const format = machineFormat(input);
  if (input.flag("watch")) return await watchStatus(context, input);
  const answer = await context.client.get<StatusAnswer>("/v1/status");
  const text = format === undefined ? statusText(context, input, answer) : printObject(stableShape(answer), format);
  const code = answer.health.healthy ? EXIT_HEALTHY : EXIT_DEGRADED;
  await context.terminal.write(text);
  return code;
}

/** Until it is interrupted, or no agent answers any more. */
async function watchStatus(context: Context, input: Arguments): Promise<never> {
  if (machineFormat(input) !== undefined) throw usageError("--watch shows tables; -o does not go with it");
  const screen = new Screen(context.terminal);
  for (;;) {
    await screen.show(statusText(context, input, await context.client.get<StatusAnswer>("/v1/status")));
    // Ctrl-C ends the program itself.
    await context.sleep(input.value(INTERVAL), NEVER);
  }
}

/** What is promised to scripts, and no more of it. */
function stableShape(answer: StatusAnswer): StatusReport {
  const pods = answer.pods.map(({ summary: _, createdAt: __, isWell: ____, ...report }): PodReport => report);
  const { startedAt: ___, upMs: _____, ...agent } = answer.agent;
  return { ...answer, pods, agent };
}

/** Named in the one line there is for what is written. */
const MAX_WRITERS = 3;

const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? "" : "s"}`;

function statusText(context: Context, input: Arguments, answer: StatusAnswer): string {
  const width = widthOf(context);
  const field = (name: string, value: string): string => `${name.padEnd(10)}${wrap(value, width, 10, 10)}\n`;
  const { node, health, runtimes, agent, resources, tunnel } = answer;
  let text = `${wrap(`${node} is ${health.summary}`, width, 2)}\n`;
  for (const each of health.details) text += `${wrap(each, width, 4)}\n`;
  for (const { state, details } of health.findings)
    if (state === "kernelPanicked") for (const each of details) text += `${wrap(`note: ${each}`, width, 4)}\n`;
  for (const each of answer.warnings ?? []) text += `${wrap(`warning: ${placeOf(each)}: ${each.message}`, width, 4)}\n`;
  const up = agent.upMs === undefined ? age(agent.startedAt, context.now()) : humanDuration(agent.upMs);
  text += field(
    "Agent",
    `${agent.version}, up ${up}, anon ${formatShare(agent.anonBytes, agent.budgetBytes)}, RSS ${humanBytes(agent.rssBytes)}`,
  );
  text += field("Runtimes", runtimes.map(runtimeText).join("; ") || "none");
  text += field("Tunnel", tunnelText(context, tunnel));
  text += field("Memory", free(resources.memoryAvailableBytes, resources.memoryBytes) + forPods(answer, "memory"));
  text += field("Disk", free(resources.diskAvailableBytes, resources.diskBytes) + forPods(answer, "ephemeral-storage"));
  text += field("Written", writtenText(answer.flash));
  if (answer.secretsAtRest) text += field("Secrets", secretsText(context, answer.secretsAtRest));
  const telemetry = telemetryText(context, answer.telemetry);
  if (telemetry !== "") text += field("Telemetry", telemetry);
  if (answer.pods.length === 0) return `${text}No pods.\n`;
  return `${text}\n${podsOnPage(context, input, answer.pods, linesIn(text) + 1)}`;
}

const linesIn = (text: string): number => text.split("\n").length - 1;

/** A serial console does not say how many lines it has; a VT100 has these. */
const DEFAULT_ROWS = 24;

/**
 * Fits a terminal's page, so that the first line stays in view: pods that are well are left out first, then messages,
 * then other pods. A pipe and `-o wide` get all of them.
 * @param above the lines before it
 */
function podsOnPage(context: Context, input: Arguments, pods: StatusAnswer["pods"], above: number): string {
  const { columns, rows = DEFAULT_ROWS } = context.terminal;
  const all = podTable(context, input, pods, pods.length);
  // The prompt stands below the last line.
  const room = rows - 1 - above;
  if (columns === undefined || input.text("output") === "wide" || linesIn(all) <= room) return all;
  const unwell = pods.filter(({ isWell }) => !isWell).length;
  // Each takes a line at least.
  const most = Math.max(0, room);
  const kept = { well: Math.min(pods.length - unwell, most), unwell: Math.min(unwell, most), messages: most };
  for (;;) {
    const left = pods.length - kept.well - kept.unwell;
    const note = kept.unwell < unwell ? `, ${unwell - kept.unwell} of them not well` : "";
    const last = left === 0 ? "" : `... ${count(left, "more pod")}${note}; edgectl get pods -A lists all\n`;
    const shown = firstOf(pods, kept);
    const text = (shown.length === 0 ? "" : podTable(context, input, shown, kept.messages)) + last;
    const excess = linesIn(text) - room;
    if (excess <= 0 || shown.length === 0) return text;
    // A row takes one or two lines, so that this many are too much.
    const dropped = Math.ceil(excess / 2);
    if (kept.well > 0) kept.well = Math.max(0, kept.well - dropped);
    else if (kept.messages > 0) kept.messages -= 1;
    else kept.unwell = Math.max(0, kept.unwell - dropped);
  }
}

/** The first pods of both kinds, in their order. */
function firstOf(
  pods: StatusAnswer["pods"],
  most: { readonly well: number; readonly unwell: number },
): StatusAnswer["pods"] {
  const seen = { well: 0, unwell: 0 };
  return pods.filter(({ isWell }) => {
    const kind = isWell ? "well" : "unwell";
    seen[kind] += 1;
    return seen[kind] <= most[kind];
  });
}

const placeOf = ({ origin, line }: StatusAnswer["problems"][number]): string =>
  line === null ? origin : `${origin}:${line}`;

function free(available: number | null, total: number | null): string {
  if (total === null) return "unknown";
  return available === null ? humanBytes(total) : `${formatShare(available, total)} free`;
}

/** To flash, today and on other days. */
function writtenText({ today, dailyAverage, budgetBytes, agentBudgetBytes }: StatusAnswer["flash"]): string {
  const sum = today.bytes === null ? "unknown" : humanBytes(today.bytes);
  const whole = today.bytes !== null && budgetBytes !== null ? formatShare(today.bytes, budgetBytes) : sum;
  const average = dailyAverage?.bytes ?? null;
  const others = [...today.pods.map(({ name, bytes }) => `${name} ${humanBytes(bytes)}`)];
  return [
    `${whole} today${average === null ? "" : ` (${humanBytes(average)} a day)`}`,
    `agent ${formatShare(today.agentBytes, agentBudgetBytes)}`,
    ...others.slice(0, MAX_WRITERS),
  ].join(", ");
}

/** How they lie on the disk. */
function secretsText(context: Context, secrets: NonNullable<StatusAnswer["secretsAtRest"]>): string {
  const { provider, protectsAgainst, keyGeneration, keyCreatedAt, unreadable, problem } = secrets;
  const now = context.now();
  return [
    `encrypted on disk, key in ${PROVIDERS[provider]}: protects against ${protectsAgainst}`,
    keyGeneration === 0 ? "" : `key ${keyGeneration} is ${age(keyCreatedAt, now)} old`,
    unreadable === 0 ? "" : `${count(unreadable, "Secret")} unreadable until the hub sends them`,
    problem,
  ]
    .filter((each) => each !== "")
    .join("; ");
}

const PROVIDERS: Readonly<Record<NonNullable<StatusAnswer["secretsAtRest"]>["provider"], string>> = {
  tpm2: "the TPM 2.0",
  "systemd-creds": "a systemd credential",
  "rpi-otp": "the Raspberry Pi's OTP",
  file: "a file",
  memory: "memory",
};

/** Empty where no component has any. */
function telemetryText(context: Context, telemetry: StatusAnswer["telemetry"]): string {
  const { queued, maxBytes, dropped, refused, lastForwardedAt, problem } = telemetry;
  if (queued.records + dropped + refused === 0 && lastForwardedAt === null && problem === "") return "";
  return [
    `${queued.records} waiting, ${formatShare(queued.bytes, maxBytes)}`,
    lastForwardedAt === null ? "none sent" : `last sent ${age(lastForwardedAt, context.now())} ago`,
    dropped === 0 ? "" : `${dropped} dropped`,
    refused === 0 ? "" : `${refused} refused`,
    problem,
  ]
    .filter((each) => each !== "")
    .join(", ");
}

/** The resources that pods may request together. */
function forPods({ resources }: StatusAnswer, resource: string): string {
  const parsed = parseQuantity(resources.allocatable[resource] ?? "");
  return parsed.ok ? `, ${humanBytes(Number(quantityValue(parsed.quantity)))} for pods` : "";
}

function runtimeText(report: StatusAnswer["runtimes"][number]): string {
  const { name, runtime, version, ready, message, isolation = "" } = report;
  const what = runtime === "" ? name : `${runtime} ${version}`;
  const notes = [message, isolation === "" ? "" : `isolation: ${isolation}`].filter((each) => each !== "");
  return `${what} ${ready ? "ready" : "NOT READY"}${notes.length === 0 ? "" : ` (${notes.join("; ")})`}`;
}

function tunnelText(context: Context, tunnel: StatusAnswer["tunnel"]): string {
  const { state, since, rttMs, refused = false, nextTry = null, pendingStatuses = 0 } = tunnel;
  // That of a refusal is above.
  const problem = refused ? "" : (tunnel.problem ?? "");
  const now = context.now();
  const duration = since === null ? "" : ` for ${age(since, now)}`;
  const distance = rttMs === null ? "" : `, ${Math.round(rttMs)} ms away`;
  const next = nextTry === null ? "" : `, next try in ${humanDuration(Math.max(0, Date.parse(nextTry) - now))}`;
  // A few are on their way at any time; without a connection it is what the cluster does not know yet.
  const unsent = state === "connected" || pendingStatuses === 0 ? "" : `, ${count(pendingStatuses, "pod")} to report`;
  return `${refused ? "refused" : state}${duration}${distance}${problem === "" ? "" : `: ${problem}`}${next}${unsent}`;
}

/** @param most the messages shown at most */
function podTable(context: Context, input: Arguments, pods: StatusAnswer["pods"], most: number): string {
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
  const messages = pods.filter((pod) => !pod.isWell && pod.message !== "").slice(0, most);
  if (messages.length === 0) return text;
  const lines = messages.map((pod) => {
    const line = `${podLabel(pod.namespace, pod.name)}: ${pod.message}`;
    return wide ? printableLine(line) : wrap(line, widthOf(context), 4);
  });
  return `${text}\n${lines.join("\n")}\n`;
}
