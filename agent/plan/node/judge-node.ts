/**
 * The one judgement of the node. The condition Ready, /healthz, the headline and exit code of `edgectl status` and
 * `edgectl why node` all follow from its findings, by the table `NODE_STATES`. Pure.
 */
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { RuntimeHealth } from "../../core/node/runtime-health.ts";

export interface StateRow {
  /** A fault degrades the node, and `edgectl status` ends with 1. A notice is shown alone: the node copes with it. */
  readonly level: "fault" | "notice";
  /** True when the node is not Ready because of it. */
  readonly keepsFromReady: boolean;
  /** The check of /healthz that fails. `undefined`: a restart of the agent would not help. */
  readonly check?: HealthCheckName;
  /** The check's message, where it is not what is known of the state. */
  readonly checkMessage?: string;
  /** Begins the message of the condition Ready. */
  readonly prefix?: string;
}

/** As in `/healthz/NAME`, in the order in which `/healthz?verbose` lists them. */
export const HEALTH_CHECKS = ["ping", "PLEG", "runtime", "store", "syncloop"] as const;
export type HealthCheckName = (typeof HEALTH_CHECKS)[number];

const FAULT = { level: "fault", keepsFromReady: false } as const;
const NOTICE = { level: "notice", keepsFromReady: false } as const;
const RUNTIME = { level: "fault", keepsFromReady: true, check: "runtime" } as const;

/** All states in which a node can be that are not as they should be, the gravest first. */
export const NODE_STATES = {
  runtimeUnasked: { ...RUNTIME, checkMessage: "no runtime has answered yet" },
  runtimeNotReady: { ...RUNTIME, prefix: "RuntimeNotReady: " },
  runtimeDown: { ...RUNTIME, prefix: "container runtime is down: " },
  runtimeHangs: { level: "fault", keepsFromReady: true, check: "PLEG", prefix: "PLEG is not healthy: " },
  shuttingDown: { level: "fault", keepsFromReady: true },
  storeUnwritable: { ...FAULT, check: "store" },
  podsWithoutWorker: { ...FAULT, check: "syncloop" },
  /** Pressures, Secrets that cannot be read, and what is wrong with the board itself. */
  condition: FAULT,
  memoryOverBudget: FAULT,
  flashOverBudget: NOTICE,
  clockWrong: NOTICE,
  /** It is over, and the next one may come. Shown until the board starts again. */
  kernelPanicked: NOTICE,
  certificateEnding: FAULT,
  hubRefuses: FAULT,
  /** The node goes on without it for weeks. */
  hubAway: NOTICE,
  podsNotReady: FAULT,
  manifestsBroken: FAULT,
} as const satisfies Readonly<Record<string, StateRow>>;

export type NodeState = keyof typeof NODE_STATES;

export interface Finding {
  readonly state: NodeState;
  /** Completes "NODE is degraded: ". */
  readonly summary: string;
  /** What is known of it, a line each. */
  readonly details: readonly string[];
}

export interface AgentFacts {
  /** Empty: none has answered yet. */
  readonly runtimes: readonly RuntimeHealth[];
  readonly isShuttingDown: boolean;
  /** Why statuses and pods are not safe on the disk; `undefined`: they are. */
  readonly storeProblem: string | undefined;
  readonly podsWithoutWorker: number;
}

export interface NodeFacts extends AgentFacts {
  /** Without Ready, which follows from the judgement. */
  readonly conditions: readonly {
    readonly type: string;
    readonly status: string;
    readonly reason: string;
    readonly message: string;
  }[];
  readonly tunnel: {
    readonly state: "disabled" | "connecting" | "connected" | "disconnected";
    readonly refused?: boolean;
    readonly problem?: string;
    readonly hub?: string;
    readonly certificate?: Validity;
  };
  readonly nowMs: number;
  /** False when the machine's clock differs from the hub's, whose time the agent takes instead. */
  readonly isMachineClockRight: boolean;
  /** The panic that ended the boot before this one; undefined: none did. */
  readonly kernelPanic: { readonly message: string; readonly path: string } | undefined;
  readonly memory: { readonly anonBytes: number; readonly budgetBytes: number };
  readonly agentFlash: { readonly bytes: number; readonly budgetBytes: number };
  /** By `isPodWell`. */
  readonly pods: readonly { readonly isWell: boolean }[];
  /** `file:line: message` of each. */
  readonly manifestProblems: readonly string[];
}

/** Milliseconds since 1970. */
export interface Validity {
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

export interface PodFacts {
  readonly ready: boolean;
  readonly phase: string;
  readonly isTerminating: boolean;
  /** The node ends it against the wish of its source: it may still be ready. */
  readonly isFailing: boolean;
}

/** The node renews at 70 to 90 % of the life, so that what is left then shows that each attempt has failed. */
const CERTIFICATE_REST = 0.1;

/** Completed pods are done, terminating ones are meant to go: neither is a fault. */
export const isPodWell = ({ ready, phase, isTerminating, isFailing }: PodFacts): boolean =>
  (ready && !isFailing) || phase === "Succeeded" || isTerminating;

/** Judges the agent and its runtimes: enough for Ready and /healthz. */
export function judgeAgent(facts: AgentFacts): readonly Finding[] {
  const { runtimes, isShuttingDown, storeProblem, podsWithoutWorker: idle } = facts;
  const found = runtimes.length === 0 ? [finding("runtimeUnasked", NOT_READY, UNASKED)] : [];
  for (const { name, healthy, reason, message } of runtimes) {
    if (!healthy) found.push(finding(STATE_OF_REASON.get(reason) ?? "runtimeDown", NOT_READY, `${name}: ${message}`));
  }
  if (isShuttingDown) found.push(finding("shuttingDown", NOT_READY, "node is shutting down"));
  if (storeProblem !== undefined)
    found.push(finding("storeUnwritable", "its store does not keep anything", storeProblem));
  if (idle > 0)
    found.push(finding("podsWithoutWorker", "a part of the agent hangs", `${idle} wanted pods have no worker`));
  return found;
}

/** All findings, in the order of `NODE_STATES`. */
export function judgeNode(facts: NodeFacts): readonly Finding[] {
  const { conditions, tunnel, nowMs, memory, agentFlash, pods, manifestProblems } = facts;
  const found = [...judgeAgent(facts)];
  for (const { type, status, reason, message } of conditions) {
    if (type === "Ready" || status !== "True") continue;
    found.push(finding("condition", CONDITIONS[type] ?? "", `${type} is ${status}: ${reason}: ${message}`));
  }
  if (memory.anonBytes > memory.budgetBytes) {
    const detail = `the agent has ${mebibytes(memory.anonBytes)} of a budget of ${mebibytes(memory.budgetBytes)}`;
    found.push(finding("memoryOverBudget", "the agent exceeds its memory budget", detail));
  }
  if (agentFlash.bytes > agentFlash.budgetBytes) {
    const detail = `the agent has written ${mebibytes(agentFlash.bytes)} today, of ${mebibytes(agentFlash.budgetBytes)}`;
    found.push(finding("flashOverBudget", "the agent exceeds its flash budget", detail));
  }
  if (!facts.isMachineClockRight) {
    found.push(finding("clockWrong", "its clock is wrong", "the machine's clock differs from the hub's, which counts"));
  }
  if (facts.kernelPanic !== undefined) {
    const { message, path } = facts.kernelPanic;
    const detail = `the kernel panicked before this start: ${message}; its last words are in ${path}`;
    found.push(finding("kernelPanicked", "its kernel panicked", detail));
  }
  if (tunnel.certificate !== undefined) found.push(...judgeCertificate(tunnel.certificate, nowMs));
  if (tunnel.refused === true) {
    found.push(finding("hubRefuses", "it cannot join its hub", `${tunnel.hub ?? "hub"}: ${tunnel.problem ?? ""}`));
  } else if (tunnel.state === "disconnected") {
    found.push(finding("hubAway", "its hub is away", `${tunnel.hub ?? "hub"}: ${tunnel.problem ?? ""}`));
  }
  const unwell = pods.filter(({ isWell }) => !isWell).length;
  if (unwell > 0) found.push(finding("podsNotReady", `${unwell} of ${count(pods.length, "pod")} not ready`));
  if (manifestProblems.length > 0) {
    found.push(finding("manifestsBroken", count(manifestProblems.length, "manifest problem"), ...manifestProblems));
  }
  return found;
}

function judgeCertificate({ notBeforeMs, notAfterMs }: Validity, nowMs: number): readonly Finding[] {
  const left = notAfterMs - nowMs;
  if (left > (notAfterMs - notBeforeMs) * CERTIFICATE_REST) return [];
  const ends = new Date(notAfterMs).toISOString();
  const detail = left < 0 ? `it ended at ${ends}` : `it ends at ${ends}, and was not renewed in time`;
  return [finding("certificateEnding", "its certificate ends", detail)];
}

export const isFault = ({ state }: Finding): boolean => NODE_STATES[state].level === "fault";

/** Messages of the condition Ready that is not True; none when it is. */
export const notReadyReasons = (found: readonly Finding[]): readonly string[] =>
  found.flatMap(({ state, details }) => {
    const { keepsFromReady, prefix = "" }: StateRow = NODE_STATES[state];
    return keepsFromReady ? details.map((each) => `${prefix}${each}`) : [];
  });

/** Why a check of /healthz fails; `undefined`: it passes. */
export function checkProblem(found: readonly Finding[], check: HealthCheckName): string | undefined {
  const messages = found.flatMap(({ state, details }) => {
    const { check: own, checkMessage }: StateRow = NODE_STATES[state];
    if (own !== check) return [];
    return checkMessage ?? details;
  });
  return messages.length === 0 ? undefined : messages.join(", ");
}

/** `healthy: 3 pods`, or `degraded: the node is not ready, 1 of 3 pods not ready`. */
export function summaryOf(found: readonly Finding[], pods: number): string {
  const faults = found.filter((each) => isFault(each) && each.summary !== "").map(({ summary }) => summary);
  return faults.length === 0 ? `healthy: ${count(pods, "pod")}` : `degraded: ${[...new Set(faults)].join(", ")}`;
}

const NOT_READY = "the node is not ready";
/** The kubelet's, before the first list of the runtimes. */
export const UNASKED = "container runtime status check may not have completed yet";

const STATE_OF_REASON: ReadonlyMap<string, NodeState> = new Map([
  ["RuntimeNotReady", "runtimeNotReady"],
  ["PLEGNotHealthy", "runtimeHangs"],
]);

const CONDITIONS: Readonly<Record<string, string>> = {
  MemoryPressure: "it is short of memory",
  DiskPressure: "it is short of disk space",
  PIDPressure: "it is short of processes",
  FlashWearPressure: "it wears out its flash",
  SecretsUnreadable: "it cannot read its stored Secrets",
  "picolet.io/UnderVoltage": "its supply voltage is too low",
  "picolet.io/Throttled": "its firmware slows it down",
  "picolet.io/Overheated": "it is too hot",
  "picolet.io/StorageWorn": "its storage is worn out",
  "picolet.io/StorageErrors": "its storage has errors",
  ReadonlyFilesystem: "its file system is read-only",
  "picolet.io/ClockNotSet": "its clock is not set",
};

const finding = (state: NodeState, summary: string, ...details: readonly string[]): Finding => ({
  state,
  summary,
  details,
});
const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? "" : "s"}`;
const mebibytes = (bytes: number): string => `${(bytes / MEBIBYTE).toFixed(1)} MiB`;
