import { PicoletError } from "@picolet/protocol/errors.ts";
import { DEFAULT_NAMESPACE } from "@picolet/protocol/kubernetes/default-namespace.ts";
import type { WhyAnswer } from "@picolet/protocol/local-api/why.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { WhyQuestion } from "../../core/node/why-answers.ts";
import type { BlackBox } from "../black-box.ts";
import type { RingRecord } from "../ring-record.ts";
import { readRecords } from "./read-records.ts";
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
