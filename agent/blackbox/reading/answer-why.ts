import { describeError, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { DEFAULT_NAMESPACE } from "@picolet/protocol/kubernetes/default-namespace.ts";
import type { WhyAnswer } from "@picolet/protocol/local-api/why.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { WhyQuestion } from "../../core/node/why-answers.ts";
import type { BlackBox } from "../black-box.ts";
import { readLines } from "../ring-file.ts";
import type { RingRecord } from "../ring-record.ts";
import { explainWhy, isNodeTurn } from "./why.ts";

export interface PodNow {
  readonly namespace: string;
  readonly name: string;
  /** How it is, in one sentence. */
  readonly now: string;
  readonly isWell: boolean;
}

export interface WhyComponents {
  readonly box: Pick<BlackBox, "path" | "pending">;
  readonly node: { readonly name: string; readonly judge: () => Pick<PodNow, "now" | "isWell"> };
  /** @returns the pod that the node has by that name. @throws `conflict` */
  readonly findPod: (pod: NonNullable<WhyQuestion["pod"]>) => PodNow | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** A pod that is meant to be gone is no fault. */
const GONE = { now: "it is no longer on this node", isWell: true };

export async function answerWhy(components: WhyComponents, { pod, topic }: WhyQuestion): Promise<WhyAnswer> {
  const { box, node, clock, log } = components;
  const nowMs = clock.wall().getTime();
  if (pod === undefined) {
    const records = await readRecords(box, (record) => record.p === undefined, log);
    return explainWhy({ pod: undefined, topic }, records, { node: node.name, ...node.judge(), nowMs });
  }
  const present = components.findPod(pod);
  const names = present === undefined ? [pod.name, `${pod.name}-${node.name}`] : [present.name];
  const namespace = present?.namespace ?? pod.namespace;
  const isMeant = ({ p }: RingRecord): boolean => {
    const [space = "", name = ""] = p?.split("/") ?? [];
    return names.includes(name) && (namespace === undefined || space === namespace);
  };
  const records = await readRecords(box, (record) => isNodeTurn(record) || isMeant(record), log);
  const labels = present === undefined ? labelsOf(records) : [`${present.namespace}/${present.name}`];
  const label = labels.find((each) => each.startsWith(`${DEFAULT_NAMESPACE}/`)) ?? labels[0];
  if (label === undefined) {
    const where = namespace === undefined ? "" : ` in namespace "${namespace}"`;
    const message = `pod "${pod.name}" not found${where}, and the black box has no record of it`;
    throw new PicoletError("not_found", message);
  }
  if (labels.length > 1 && !label.startsWith(`${DEFAULT_NAMESPACE}/`)) {
    throw new PicoletError("conflict", `pod name "${pod.name}" is ambiguous: ${labels.join(", ")}`);
  }
  const [space = "", name = ""] = label.split("/");
  const own = records.filter(({ p }) => p === undefined || p === label);
  const { now, isWell } = present ?? GONE;
  const init = { node: node.name, now, isWell, nowMs };
  return explainWhy({ pod: { namespace: space, name }, topic }, own, init);
}

const labelsOf = (records: readonly RingRecord[]): readonly string[] => [
  ...new Set(records.flatMap(({ p }) => p ?? [])),
];

/** Keeps only what is asked for in memory: a full ring has some 5,000 records. */
type Wanted = (record: RingRecord) => boolean;

/** The wanted records of disk and memory, oldest first; of those that count equal decisions the newest alone. */
export async function readRecords(
  box: Pick<BlackBox, "path" | "pending">,
  wanted: Wanted,
  log: Log,
): Promise<readonly RingRecord[]> {
  // Before the file: what is written meanwhile is found twice, and not missed.
  const pending = box.pending().filter(wanted);
  const latest = new Map<number, RingRecord>();
  const add = (record: RingRecord): void => {
    const first = record.r ?? record.n;
    const known = latest.get(first);
    if (known === undefined || (known.c ?? 1) <= (record.c ?? 1)) latest.set(first, record);
  };
  try {
    for await (const { json } of readLines(box.path)) {
      const record = recordOf(json);
      if (record !== undefined && wanted(record)) add(record);
    }
  } catch (error) {
    log.warn("cannot read the black box", { path: box.path, error: describeError(error) });
  }
  for (const record of pending) add(record);
  return [...latest.values()].toSorted(inOrder);
}

/** By boot, then by the time since it, then as they were written. */
const inOrder = (left: RingRecord, right: RingRecord): number =>
  left.b[0] - right.b[0] || left.t[0] - right.t[0] || (left.r ?? left.n) - (right.r ?? right.n);

/** @returns `undefined` for a line of another format, which a later version may have written */
function recordOf(json: string): RingRecord | undefined {
  try {
    const record = JSON.parse(json) as Partial<RingRecord>;
    const { n, b, t, d } = record;
    const isWhole = typeof n === "number" && isPair(b) && isPair(t) && typeof d === "object" && d !== null;
    return isWhole && typeof d.kind === "string" ? (record as RingRecord) : undefined;
  } catch {
    ignore("a line with a right checksum and no JSON is of another format");
    return undefined;
  }
}

const isPair = (value: unknown): boolean => Array.isArray(value) && value.length === 2 && typeof value[0] === "number";
