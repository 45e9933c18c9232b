import { PicoletError } from "@picolet/protocol/errors.ts";
import { parseCpuList } from "../plan/node/cpu-list.ts";
import { type CpuSet, formatCpuSet } from "./cpu-set.ts";
import {
  checksumOf,
  corrupt,
  type Fields,
  goJson,
  isFields,
  restoredState,
  SortedRecord,
  sortedKeys,
} from "./state-file.ts";

/** By container name. */
export type PodCpus = ReadonlyMap<string, CpuSet>;

/** The assignment of CPUs. */
export interface CpuState {
  /** The CPUs shared by all containers without exclusive ones. */
  readonly shared: CpuSet;
  /** By pod uid. */
  readonly exclusive: ReadonlyMap<string, PodCpus>;
}

/** The kubelet's name, in its root directory. */
export const CPU_STATE_FILE = "cpu_manager_state";

export function formatCpuState(policy: string, { shared, exclusive }: CpuState): string {
  const entries = Object.fromEntries(
    [...exclusive].map(([uid, containers]): [string, Record<string, string>] => [
      uid,
      Object.fromEntries([...containers].map(([name, cpus]) => [name, formatCpuSet(cpus)])),
    ]),
  );
  const defaultCpuSet = formatCpuSet(shared);
  const sorted = Object.fromEntries(Object.entries(entries).map(([uid, each]) => [uid, new SortedRecord(each)]));
  return goJson({
    policyName: policy,
    defaultCpuSet,
    ...(exclusive.size === 0 ? {} : { entries: new SortedRecord(sorted) }),
    checksum: checksumOf(printed({ policyName: policy, defaultCpuSet, entries })),
  });
}

interface Checkpoint {
  readonly policyName: string;
  readonly defaultCpuSet: string;
  readonly entries: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

/**
 * @param policy the configured one
 * @returns undefined when there is no file. @throws `conflict`, `corrupt`, with what the kubelet says of such a file
 */
export function readCpuState(path: string, policy: string): CpuState | undefined {
  return restoredState(path, "CPU", (fields) => stateOf(checkpointOf(fields), policy));
}

function stateOf({ policyName, defaultCpuSet, entries }: Checkpoint, policy: string): CpuState {
  if (policyName !== policy) {
    throw new PicoletError(
      "conflict",
      `configured policy ${JSON.stringify(policy)} differs from state checkpoint policy ${JSON.stringify(policyName)}`,
    );
  }
  const shared = parseCpuList(defaultCpuSet);
  if (shared === undefined) {
    throw new PicoletError("corrupt", `could not parse default cpu set ${JSON.stringify(defaultCpuSet)}`);
  }
  const exclusive = new Map<string, PodCpus>();
  for (const [uid, containers] of Object.entries(entries)) {
    const own = new Map<string, CpuSet>();
    for (const [name, text] of Object.entries(containers)) {
      const cpus = parseCpuList(text);
      if (cpus === undefined) {
        const [set, container, pod] = [text, name, uid].map((each) => JSON.stringify(each));
        throw new PicoletError("corrupt", `could not parse cpuset ${set} for container ${container} in pod ${pod}`);
      }
      own.set(name, new Set(cpus));
    }
    exclusive.set(uid, own);
  }
  return { shared: new Set(shared), exclusive };
}

/** @throws `corrupt`; `conflict` for a file from before Kubernetes 1.18, which has containers without their pods */
function checkpointOf(fields: Fields): Checkpoint {
  const { policyName = "", defaultCpuSet = "", entries = {}, checksum = 0 } = fields;
  if (typeof policyName !== "string" || typeof defaultCpuSet !== "string") throw corrupt();
  const own = entries ?? {};
  if (!isFields(own) || typeof checksum !== "number") throw corrupt();
  const [first] = Object.keys(own);
  if (first !== undefined && isTexts(own)) {
    verify(checksum, printedV1(policyName, defaultCpuSet, own));
    throw new PicoletError(
      "conflict",
      `error migrating v1 checkpoint state to v2 checkpoint state: containerID '${first}' not found in initial containers list`,
    );
  }
  const checkpoint = { policyName, defaultCpuSet, entries: podEntries(own) };
  verify(checksum, printed(checkpoint));
  return checkpoint;
}

function podEntries(entries: Fields): Checkpoint["entries"] {
  const pods: [string, Readonly<Record<string, string>>][] = [];
  for (const [uid, containers] of Object.entries(entries)) {
    if (!isFields(containers) || !isTexts(containers)) throw corrupt();
    pods.push([uid, containers]);
  }
  return Object.fromEntries(pods);
}

const isTexts = (fields: Fields): fields is Readonly<Record<string, string>> =>
  Object.values(fields).every((each) => typeof each === "string");

/** 0 is accepted: files from before there were checksums have none. */
function verify(checksum: number, text: string): void {
  if (checksum !== 0 && checksum !== checksumOf(text)) throw corrupt();
}

function printed({ policyName, defaultCpuSet, entries }: Checkpoint): string {
  const pods = sortedKeys(entries).map((uid) => `${uid}:${printedTexts(entries[uid] ?? {})}`);
  return printedWith(policyName, defaultCpuSet, `(map[string]map[string]string)map[${pods.join(" ")}]`);
}

const printedV1 = (policyName: string, defaultCpuSet: string, entries: Readonly<Record<string, string>>): string =>
  printedWith(policyName, defaultCpuSet, `(map[string]string)${printedTexts(entries)}`);

const printedTexts = (texts: Readonly<Record<string, string>>): string =>
  `map[${sortedKeys(texts)
    .map((key) => `${key}:${texts[key]}`)
    .join(" ")}]`;

const printedWith = (policyName: string, defaultCpuSet: string, entries: string): string =>
  `(*state.CPUManagerCheckpoint){PolicyName:(string)${policyName} DefaultCPUSet:(string)${defaultCpuSet} ` +
  `Entries:${entries} Checksum:(checksum.Checksum)0}`;
