/** A pod and its events in words, laid out as `kubectl describe pod` does. Pure. */
import type { EventObject, IsolationAnswer } from "@picolet/protocol/local-api/status.ts";
import { RUNTIME_CONDITION } from "@picolet/protocol/pod/condition-owners.ts";
import type { Container, ContainerStatus, ContainerStatusState, Pod, Probe } from "@picolet/protocol/pod/pod.ts";
import { summarizePod } from "@picolet/protocol/pod/pod-summary.ts";
import { age, humanDuration, printableLine, renderTable, wrap } from "../context/text-layout.ts";

/** The column of values. */
const VALUE_COLUMN = 18;
/** The column of a container's values. */
const INNER_COLUMN = 20;

/** What is shown beside the pod's object. */
export interface DescribePodInput {
  readonly events: readonly EventObject[];
  /** One entry for each running component. */
  readonly isolation: IsolationAnswer["containers"];
}

export function describePod(pod: Pod, { events, isolation }: DescribePodInput, width: number, nowMs: number): string {
  const page = new Page(width);
  describeHead(page, pod);
  const { spec, status } = pod;
  const describe = (
    title: string,
    containers: readonly AnyContainer[] = [],
    statuses: readonly ContainerStatus[] = [],
  ) => describeContainers(page, title, containers, { statuses, isolation });
  describe("Init Containers", spec.initContainers, status?.initContainerStatuses);
  describe("Containers", spec.containers, status?.containerStatuses);
  describe("Ephemeral Containers", spec.ephemeralContainers, status?.ephemeralContainerStatuses);
  describeConditions(page, pod);
  describeVolumes(page, pod);
  page.field(0, "QoS Class", pod.status?.qosClass ?? "<unknown>");
  describeEvents(page, events, nowMs);
  return page.text;
}

class Page {
  readonly width: number;
  text = "";

  constructor(width: number) {
    this.width = width;
  }

  line(text: string): void {
    this.text += `${text}\n`;
  }

  /** One line, or more when the value is long. Values of one depth stand below each other. */
  field(indent: number, name: string, value: string): void {
    const column = indent < 4 ? VALUE_COLUMN : INNER_COLUMN;
    const label = `${" ".repeat(indent)}${printableLine(name)}:`;
    const start = label.length < column ? column : label.length + 1;
    const wrapped = wrap(value, this.width, column, start);
    this.line(`${label.padEnd(start)}${wrapped}`.replace(/ +$/gm, ""));
  }

  /** The first beside the name, the others below it. */
  fields(indent: number, name: string, values: readonly string[]): void {
    const [first = "<none>", ...rest] = values;
    this.field(indent, name, first);
    const column = indent < 4 ? VALUE_COLUMN : INNER_COLUMN;
    for (const value of rest) this.line(`${" ".repeat(column)}${wrap(value, this.width, column + 2, column)}`);
  }
}

/** The event that says so is gone after a while; this stays. */
const LESS_ISOLATED = "dense: shares one process with other pods of its namespace; WebAssembly alone keeps them apart";

const isDense = ({ metadata, spec, status }: Pod): boolean =>
  metadata.annotations?.["wasm.picolet.io/mode"] === "dense" &&
  (spec.runtimeClassName === "wasm" ||
    status?.conditions?.some(({ type, reason }) => type === RUNTIME_CONDITION && reason === "Component") === true);

function describeHead(page: Page, pod: Pod): void {
  const { metadata, spec, status } = pod;
  page.field(0, "Name", metadata.name);
  page.field(0, "Namespace", metadata.namespace);
  if (spec.priority !== undefined) page.field(0, "Priority", String(spec.priority));
  if (spec.runtimeClassName !== undefined) page.field(0, "Runtime Class", spec.runtimeClassName);
  if (isDense(pod)) page.field(0, "Isolation", LESS_ISOLATED);
  if (spec.nodeName !== undefined) page.field(0, "Node", [spec.nodeName, status?.hostIP].filter(Boolean).join("/"));
  page.field(0, "UID", metadata.uid ?? "<unknown>");
  page.field(0, "Start Time", dateText(status?.startTime));
  page.fields(0, "Labels", pairs(metadata.labels, "="));
  page.fields(0, "Annotations", pairs(metadata.annotations, ": "));
  const summary = summarizePod(pod).status;
  const phase = status?.phase ?? "Pending";
  page.field(
    0,
    "Status",
    summary === "Terminating" ? `Terminating since ${dateText(metadata.deletionTimestamp)}` : phase,
  );
  if (status?.reason) page.field(0, "Reason", status.reason);
  if (status?.message) page.field(0, "Message", status.message);
  page.fields(0, "IPs", status?.podIPs?.map(({ ip }) => ip) ?? (status?.podIP === undefined ? [] : [status.podIP]));
}

const pairs = (map: Readonly<Record<string, string>> | undefined, joint: string): string[] =>
  Object.entries(map ?? {}).map(([key, value]) => `${key}${joint}${value}`);

/** As kubectl prints times, which are in UTC here. */
function dateText(time: string | undefined): string {
  const date = new Date(time ?? Number.NaN);
  return Number.isNaN(date.getTime()) ? "<unknown>" : date.toUTCString().replace("GMT", "+0000");
}

type AnyContainer = Pick<
  Container,
  | "name"
  | "image"
  | "ports"
  | "command"
  | "args"
  | "resources"
  | "env"
  | "envFrom"
  | "volumeMounts"
  | "livenessProbe"
  | "readinessProbe"
  | "startupProbe"
>;

function describeContainers(
  page: Page,
  title: string,
  containers: readonly AnyContainer[],
  { statuses, isolation }: { readonly statuses: readonly ContainerStatus[] } & Pick<DescribePodInput, "isolation">,
): void {
  if (containers.length === 0) return;
  page.line(`${title}:`);
  for (const container of containers) {
    const status = statuses.find((each) => each.name === container.name);
    page.line(`  ${printableLine(container.name)}:`);
    if (status?.containerID) page.field(4, "Container ID", status.containerID);
    page.field(4, "Image", container.image);
    if (status?.imageID) page.field(4, "Image ID", status.imageID);
    const ports = container.ports ?? [];
    if (ports.length > 0)
      page.field(4, "Ports", ports.map((each) => `${each.containerPort}/${each.protocol}`).join(", "));
    if (container.command !== undefined) page.field(4, "Command", commandText(container.command));
    if (container.args !== undefined) page.field(4, "Args", commandText(container.args));
    describeContainerStatus(page, status);
    const isolated = isolation.find((each) => each.container === container.name);
    if (isolated !== undefined) describeIsolation(page, isolated);
    describeContainerSpec(page, container);
    describeActualResources(page, container, status);
  }
}

const commandText = (words: readonly string[]): string =>
  words.map((word) => (/^[\w./:=@%+,-]+$/.test(word) ? word : JSON.stringify(word))).join(" ");

function describeContainerStatus(page: Page, status: ContainerStatus | undefined): void {
  if (status === undefined) return;
  describeState(page, "State", status.state);
  if (status.lastState.terminated !== undefined) describeState(page, "Last State", status.lastState);
  page.field(4, "Ready", status.ready ? "True" : "False");
  page.field(4, "Restart Count", String(status.restartCount));
}

function describeIsolation(page: Page, { measures, missing }: DescribePodInput["isolation"][number]): void {
  page.field(4, "Isolation", measures.join(", ") || "<none>");
  if (missing.length > 0) page.field(4, "Not Isolated", `without ${missing.join(", ")}`);
}

function describeState(page: Page, title: string, { running, terminated, waiting }: ContainerStatusState): void {
  if (running !== undefined) {
    page.field(4, title, "Running");
    page.field(6, "Started", dateText(running.startedAt));
    return;
  }
  if (terminated === undefined) {
    page.field(4, title, "Waiting");
    if (waiting?.reason) page.field(6, "Reason", waiting.reason);
    if (waiting?.message) page.field(6, "Message", waiting.message);
    return;
  }
  page.field(4, title, "Terminated");
  if (terminated.reason) page.field(6, "Reason", terminated.reason);
  if (terminated.message) page.field(6, "Message", terminated.message);
  page.field(6, "Exit Code", String(terminated.exitCode));
  if (terminated.signal) page.field(6, "Signal", String(terminated.signal));
  page.field(6, "Started", dateText(terminated.startedAt));
  page.field(6, "Finished", dateText(terminated.finishedAt));
}

function describeContainerSpec(page: Page, container: AnyContainer): void {
  const { limits, requests } = container.resources;
  if (limits !== undefined) page.field(4, "Limits", pairs(limits, " ").join(", "));
  if (requests !== undefined) page.field(4, "Requests", pairs(requests, " ").join(", "));
  for (const [name, probe] of [
    ["Liveness", container.livenessProbe],
    ["Readiness", container.readinessProbe],
    ["Startup", container.startupProbe],
  ] as const) {
    if (probe !== undefined) page.field(4, name, probeText(probe));
  }
  const from = (container.envFrom ?? []).map(({ configMapRef, secretRef, prefix }) => {
    const source = secretRef === undefined ? `config map ${configMapRef?.name ?? ""}` : `secret ${secretRef.name}`;
    return `all of ${source}${prefix ? ` as ${prefix}...` : ""}`;
  });
  const env = (container.env ?? []).map((each) => `${each.name}=${envText(each)}`);
  if (from.length + env.length > 0) page.fields(4, "Environment", [...from, ...env]);
  const mounts = (container.volumeMounts ?? []).map(
    ({ mountPath, name, readOnly, subPath }) =>
      `${mountPath} from ${name} (${readOnly === true ? "ro" : "rw"}${subPath ? `, path="${subPath}"` : ""})`,
  );
  if (mounts.length > 0) page.fields(4, "Mounts", mounts);
}

/** Only while they are not what the pod is granted. */
function describeActualResources(page: Page, { resources }: AnyContainer, status: ContainerStatus | undefined): void {
  for (const [name, part] of [
    ["Limits", "limits"],
    ["Requests", "requests"],
  ] as const) {
    const actual = pairs(status?.resources?.[part], " ").join(", ");
    const isShown = status?.resources !== undefined && actual !== pairs(resources[part], " ").join(", ");
    if (isShown) page.field(4, `Actual ${name}`, actual === "" ? "<none>" : actual);
  }
}

function envText({ value, valueFrom }: NonNullable<AnyContainer["env"]>[number]): string {
  if (valueFrom?.secretKeyRef !== undefined)
    return `<key ${valueFrom.secretKeyRef.key} of secret ${valueFrom.secretKeyRef.name}>`;
  if (valueFrom?.configMapKeyRef !== undefined)
    return `<key ${valueFrom.configMapKeyRef.key} of config map ${valueFrom.configMapKeyRef.name}>`;
  if (valueFrom?.fieldRef !== undefined) return `<${valueFrom.fieldRef.fieldPath}>`;
  if (valueFrom?.resourceFieldRef !== undefined) return `<${valueFrom.resourceFieldRef.resource}>`;
  return value ?? "";
}

/** kubectl's own line for a probe. */
function probeText(probe: Probe): string {
  const { exec, httpGet, tcpSocket, grpc } = probe;
  let what = "unknown";
  if (exec !== undefined) what = `exec [${(exec.command ?? []).join(" ")}]`;
  else if (httpGet !== undefined) {
    what = `http-get ${httpGet.scheme.toLowerCase()}://${httpGet.host ?? ""}:${httpGet.port}${httpGet.path}`;
  } else if (tcpSocket !== undefined) what = `tcp-socket ${tcpSocket.host ?? ""}:${tcpSocket.port}`;
  else if (grpc !== undefined) what = `grpc <pod>:${grpc.port} ${grpc.service}`;
  return (
    `${what} delay=${probe.initialDelaySeconds ?? 0}s timeout=${probe.timeoutSeconds}s period=${probe.periodSeconds}s ` +
    `#success=${probe.successThreshold} #failure=${probe.failureThreshold}`
  );
}

function describeConditions(page: Page, { status }: Pod): void {
  const conditions = status?.conditions ?? [];
  if (conditions.length === 0) return;
  page.line("Conditions:");
  for (const { type, status: value, reason, message } of conditions) {
    // What is as it should be needs no reason; that it is resized is not.
    const isWell = value === "True" && !type.startsWith("PodResize");
    const why = isWell ? [] : [reason, message].filter((each) => each !== undefined && each !== "");
    const label = `  ${printableLine(type).padEnd(28)}`;
    page.line(`${label}${wrap([value, ...why].join(" "), page.width, 30, label.length)}`);
  }
}

function describeVolumes(page: Page, { spec }: Pod): void {
  const volumes = spec.volumes ?? [];
  if (volumes.length === 0) return;
  page.line("Volumes:");
  for (const { name, ...sources } of volumes) {
    page.line(`  ${printableLine(name)}:`);
    for (const [kind, source] of Object.entries(sources)) {
      if (typeof source !== "object" || source === null) continue;
      page.field(4, "Type", kind);
      for (const [key, value] of Object.entries(source)) {
        page.field(4, key, typeof value === "object" ? JSON.stringify(value) : String(value));
      }
    }
  }
}

function describeEvents(page: Page, events: readonly EventObject[], nowMs: number): void {
  if (events.length === 0) {
    page.field(0, "Events", "<none>");
    return;
  }
  page.line("Events:");
  const table = renderTable({
    headers: ["Type", "Reason", "Age", "Message"],
    rows: events.map((event) => [event.type, event.reason, eventAge(event, nowMs), event.message]),
    width: page.width - 2,
    withHeaders: true,
    textLast: true,
  });
  page.text += table.replace(/^(?=.)/gm, "  ");
}

/** `2m`, `2m (x5 over 10m)`: of kubectl too. */
function eventAge({ count, firstTimestamp, lastTimestamp }: EventObject, nowMs: number): string {
  const last = age(lastTimestamp, nowMs);
  if (count <= 1) return last;
  const span = nowMs - Date.parse(firstTimestamp);
  return `${last} (x${count} over ${Number.isNaN(span) ? "?" : humanDuration(span)})`;
}
