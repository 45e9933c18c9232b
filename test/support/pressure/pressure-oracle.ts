/**
 * Judges what became of a mix of pods on a board that ran short of something: from what was declared of the pods, and
 * from what the kernel and the API told over time. Written by what Kubernetes documents of node-pressure eviction,
 * apart from the code that evicts, of which it knows nothing.
 */
import { type MixedPod, PRIORITIES, type PressureMix, type Resource } from "./pressure-mixes.ts";

/** The node's reports, in their order. */
export interface Told {
  readonly reason: string;
  /** The name of the pod, or of the node. */
  readonly name: string;
  readonly atMs: number;
}

export interface PodAtEnd {
  readonly phase: string;
  readonly reason: string | undefined;
  readonly message: string | undefined;
  readonly restarts: number;
  /** The reason of its last end: OOMKilled, Error … */
  readonly terminated: string | undefined;
  /** The processes in its cgroup before a pod misbehaved, and at the end. */
  readonly processesBefore: readonly number[];
  readonly processesAfter: readonly number[];
}

export interface Observed {
  readonly told: readonly Told[];
  readonly pods: ReadonlyMap<string, PodAtEnd>;
  /** systemd's services that must not have ended: name → main process before and after. */
  readonly services: ReadonlyMap<string, readonly [before: number, after: number]>;
  /** Keys of all taints that the node had at some time, and at the end. */
  readonly taintsSeen: ReadonlySet<string>;
  readonly taintsAfter: ReadonlySet<string>;
  readonly transitionPeriodMs: number;
}

const CONDITIONS: Readonly<
  Record<Resource, { readonly begins: string; readonly ends: string; readonly taint: string }>
> = {
  memory: {
    begins: "NodeHasInsufficientMemory",
    ends: "NodeHasSufficientMemory",
    taint: "node.kubernetes.io/memory-pressure",
  },
  disk: { begins: "NodeHasDiskPressure", ends: "NodeHasNoDiskPressure", taint: "node.kubernetes.io/disk-pressure" },
  inodes: { begins: "NodeHasDiskPressure", ends: "NodeHasNoDiskPressure", taint: "node.kubernetes.io/disk-pressure" },
  pids: { begins: "NodeHasInsufficientPID", ends: "NodeHasSufficientPID", taint: "node.kubernetes.io/pid-pressure" },
};
const NAMES: Readonly<Record<Resource, string>> = {
  memory: "memory",
  disk: "ephemeral-storage",
  inodes: "inodes",
  pids: "pids",
};
const RESOURCES = Object.keys(NAMES) as readonly Resource[];
/** Events have times in whole seconds. */
const TOLERANCE_MS = 1_000;

/** @returns what was wrong, a sentence each; none: all was as it has to be */
export function judge(mix: PressureMix, seen: Observed): readonly string[] {
  const evicted = seen.told.filter(({ reason }) => reason === "Evicted").map(({ name }) => name);
  return [
    ...mix.pods.filter(({ usesUp }) => usesUp === undefined).flatMap((pod) => judgeBystander(pod, mix, seen)),
    ...mix.pods.filter(({ usesUp }) => usesUp !== undefined).flatMap((pod) => judgeCulprit(pod, mix, seen)),
    ...judgeOrder(mix, evicted),
    ...judgeConditions(mix, seen, evicted),
    ...[...seen.services]
      .filter(([, [before, after]]) => before !== after || after === 0)
      .map(([name, [before, after]]) => `${name} did not live on: process ${before}, then ${after}`),
  ];
}

/**
 * Decides if a pod must, may, or must not be evicted before another one that uses up a resource. Kubernetes: first
 * those that use more than they request (not for processes), among them the less important, among them the one that
 * uses most above it.
 */
export function goesBefore(pod: MixedPod, bad: MixedPod, resource: Resource): "surely" | "maybe" | "never" {
  if (pod.source === "static") return "never";
  if (PRIORITIES[pod.priority] >= PRIORITIES[bad.priority]) return "never";
  if (resource === "pids") return "surely";
  if (resource === "memory") {
    if (pod.requestMiB === undefined) return "surely";
    return pod.requestMiB > pod.holdMiB ? "never" : pod.holdMiB > pod.requestMiB + 4 ? "surely" : "maybe";
  }
  // It has a log and some files of its own; inodes cannot be requested.
  return resource === "disk" && pod.requestsDisk ? "never" : "maybe";
}

const mayGo = (pod: MixedPod, mix: PressureMix): boolean =>
  mix.pods.some((bad) => bad.usesUp !== undefined && goesBefore(pod, bad, bad.usesUp) !== "never");

function judgeBystander(pod: MixedPod, mix: PressureMix, seen: Observed): readonly string[] {
  const end = seen.pods.get(pod.name);
  if (end === undefined) return [`${pod.name} is gone`];
  if (end.phase === "Failed" && mayGo(pod, mix)) return judgeEvicted(pod.name, mix, seen, end);
  const problems: string[] = [];
  if (end.phase !== "Running")
    problems.push(`${pod.name} is ${end.phase} (${end.reason}: ${end.message}), and had done nothing`);
  if (end.restarts !== 0) problems.push(`${pod.name} was started again, ${end.restarts} times (${end.terminated})`);
  const isSame = String(end.processesBefore) === String(end.processesAfter) && end.processesAfter.length > 0;
  if (!isSame) problems.push(`${pod.name} had the processes ${end.processesBefore}, and has ${end.processesAfter}`);
  if (seen.told.some(({ name, reason }) => name === pod.name && reason === "Evicted"))
    problems.push(`${pod.name} was told to be evicted`);
  return problems;
}

/** Each of two misbehaving pods may be evicted for what the other one uses up. */
function judgeCulprit(pod: MixedPod, mix: PressureMix, seen: Observed): readonly string[] {
  const end = seen.pods.get(pod.name);
  if (end === undefined) return [`${pod.name} is gone`];
  const { usesUp } = pod;
  const wasKilled = usesUp === "memory" && end.phase === "Failed" && end.terminated === "OOMKilled";
  if (wasKilled && end.reason !== "Evicted") return stillRuns(pod.name, end);
  const reasons = mix.pods.filter(
    (bad) => bad === pod || (bad.usesUp !== undefined && goesBefore(pod, bad, bad.usesUp) !== "never"),
  );
  return judgeEvicted(pod.name, { ...mix, pods: reasons }, seen, end);
}

/** It has ended for good, and says for what. */
function judgeEvicted(name: string, mix: PressureMix, seen: Observed, end: PodAtEnd): readonly string[] {
  const problems = [...stillRuns(name, end)];
  if (end.phase !== "Failed" || end.reason !== "Evicted")
    problems.push(`${name} was to be evicted, and is ${end.phase} (${end.reason}: ${end.message})`);
  const resource = evictedFor(end);
  if (resource === undefined || !mix.pods.some(({ usesUp }) => usesUp === resource))
    problems.push(`${name} does not say for what: ${end.message}`);
  const count = seen.told.filter((each) => each.name === name && each.reason === "Evicted").length;
  if (count !== 1) problems.push(`${name} was told to be evicted ${count} times`);
  return problems;
}

/** By what the pod says; undefined: it says nothing of the kind. */
function evictedFor({ message = "" }: PodAtEnd): Resource | undefined {
  const [, named] =
    /^The node was low on resource: (\S+)\. Threshold quantity: \d\S*, available: \d\S*\. /.exec(message) ?? [];
  return RESOURCES.find((each) => NAMES[each] === named);
}

const stillRuns = (name: string, end: PodAtEnd): readonly string[] =>
  end.processesAfter.length === 0 ? [] : [`${name} has ended, but ${end.processesAfter} are still there`];

/** None goes while one that has to go before it is there. */
function judgeOrder(mix: PressureMix, evicted: readonly string[]): readonly string[] {
  const bad = mix.pods.filter(({ usesUp }) => usesUp !== undefined);
  // With two misbehaving pods the cause of an eviction cannot be seen from outside.
  if (bad.length !== 1) return [];
  return bad.flatMap((culprit) => {
    const place = evicted.indexOf(culprit.name);
    if (place < 0 || culprit.usesUp === undefined) return [];
    const { usesUp } = culprit;
    const before = mix.pods.filter((pod) => pod !== culprit && goesBefore(pod, culprit, usesUp) === "surely");
    const late = before.filter(({ name }) => !evicted.slice(0, place).includes(name));
    const after = evicted
      .slice(place + 1)
      .map((name) => `${name} was evicted after ${culprit.name}, with which all was over`);
    return [
      ...late.map(({ name }) => `${culprit.name} was evicted while ${name} was there, which comes first`),
      ...after,
    ];
  });
}

function judgeConditions(mix: PressureMix, seen: Observed, evicted: readonly string[]): readonly string[] {
  const problems: string[] = [];
  const resources = mix.pods.flatMap(({ name, usesUp }) => {
    const end = seen.pods.get(name);
    if (usesUp === undefined || end === undefined || !evicted.includes(name)) return [];
    return [evictedFor(end) ?? usesUp];
  });
  for (const resource of new Set(resources)) {
    const { begins, ends, taint } = CONDITIONS[resource];
    const began = seen.told.find(({ reason }) => reason === begins);
    const ended = seen.told.findLast(({ reason }) => reason === ends);
    if (began === undefined) problems.push(`a pod was evicted for ${resource}, but ${begins} was never told`);
    if (ended === undefined || (began !== undefined && ended.atMs < began.atMs))
      problems.push(`${ends} was never told`);
    else if (began !== undefined && ended.atMs - began.atMs < seen.transitionPeriodMs - TOLERANCE_MS)
      problems.push(`${begins} lasted ${ended.atMs - began.atMs} ms, less than the transition period`);
    if (!seen.taintsSeen.has(taint)) problems.push(`the node never had the taint ${taint}`);
    if (seen.taintsAfter.has(taint)) problems.push(`the node still has the taint ${taint}`);
  }
  return problems;
}
