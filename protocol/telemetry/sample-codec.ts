/**
 * The messages of a stream of kind `samples`, which an agent opens to a hub whose welcome says how often it wants one.
 * Up, each with its length before it: a sample as the difference to the one before it in this stream. Down: acks as
 * those of telemetry. A stream is ordered, so the hub has what a difference starts from; what is not acknowledged when
 * it ends comes again in the next, which begins from nothing.
 *
 *     [sequence, time, estimated, life?, node, [file system?, …], board, [roster row, …], [pod row?, …]]
 *     life: [boot id, agent's beginning]; null: as before
 *     node, file system, board: a difference for each figure of its table, or null; missing at the end: null
 *     roster row: [slot, namespace, name, uid, beginning, container, beginning …]; [slot]: free
 *     pod row: [CPU, memory, CPU, memory …] of the pod and its containers, for each slot in use, in ascending order
 *
 * Times are milliseconds, beginnings seconds, bytes KiB. A roster row sets its pod's figures to 0, from which the next
 * differences start.
 */
import { PicoletError } from "../errors.ts";
import { decodeCbor, encodeCbor } from "../tunnel/encoding/cbor.ts";
import { ListReader } from "../tunnel/encoding/list-reader.ts";
import { packText } from "../tunnel/encoding/wire-json.ts";
import { KIBIBYTE } from "../units.ts";
import { MAX_TIME_US } from "./records.ts";
import { framed } from "./stream-messages.ts";
import {
  BOARD_FIGURES,
  type CpuAndMemory,
  FILESYSTEM_FIGURES,
  FILESYSTEMS,
  type Figures,
  type FilesystemFigures,
  type FilesystemName,
  MAX_POD_CONTAINERS,
  MAX_SAMPLED_CONTAINERS,
  MAX_SAMPLED_PODS,
  NODE_FIGURES,
  type PodSample,
  type SampledContainer,
  type SampledPod,
  type UsageSample,
} from "./usage-sample.ts";

const MAX_NAME = 253;
const MAX_LABEL = 63;
const MAX_UID = 128;
/** Figures of a row, with those that newer boards may add. */
const MAX_FIGURES = 64;
const MAX_TIME_MS = MAX_TIME_US / 1000;
const MAX_TIME_SECONDS = MAX_TIME_US / 1e6;
/** Characters of new roster rows in one message, so that it stays below 64 KiB: the other pods wait for the next. */
const ROSTER_CHARACTERS = 24 * 1024;
/** A row of figures: at most 1,024 containers and 512 pods of two figures with nine bytes are 27 KiB. */
const ROW_OVERHEAD = 24;

interface Slot {
  readonly pod: SampledPod;
  /** CPU and memory of the pod and its containers as they were sent last. */
  readonly last: number[];
}

/** The state that both ends share after each message. */
interface Position {
  atMs: number;
  bootId: string;
  agentSinceSeconds: number;
  readonly node: number[];
  readonly filesystems: number[][];
  readonly board: number[];
}

const zeros = (count: number): number[] => new Array<number>(count).fill(0);

const beginning = (): Position => ({
  ...{
    atMs: 0,
    bootId: "",
    agentSinceSeconds: 0,
    node: zeros(NODE_FIGURES.length),
    board: zeros(BOARD_FIGURES.length),
  },
  filesystems: FILESYSTEMS.map(() => zeros(FILESYSTEM_FIGURES.length)),
});

/** The unit on the wire. */
const inUnits = (name: string, value: number): number => Math.floor(name.endsWith("Bytes") ? value / KIBIBYTE : value);
const fromUnits = (name: string, value: number): number => (name.endsWith("Bytes") ? value * KIBIBYTE : value);

/** Encodes the samples of one stream. */
export class SampleEncoder {
  readonly #last = beginning();
  /** By slot. */
  readonly #slots: (Slot | undefined)[] = [];
  readonly #slotOf = new Map<string, number>();

  /** @param sequence above those before. @returns one message; of pods that do not fit nothing is in it yet */
  encode(sequence: number, sample: UsageSample): Uint8Array {
    const { isEstimated, node, filesystems, board } = sample;
    const atMs = Math.round(sample.atMs);
    const time = atMs - this.#last.atMs;
    this.#last.atMs = atMs;
    const life = this.#life(sample);
    const nodeRow = figureRow(NODE_FIGURES, node, this.#last.node);
    const filesystemRows = FILESYSTEMS.map((name, index) => {
      const figures = filesystems[name];
      return figures === undefined ? null : figureRow(FILESYSTEM_FIGURES, figures, this.#last.filesystems[index] ?? []);
    });
    const boardRow = figureRow(BOARD_FIGURES, board, this.#last.board);
    const roster = this.#updateRoster(sample.pods);
    const pods = this.#podRows(sample.pods);
    return framed(encodeCbor([sequence, time, isEstimated, life, nodeRow, filesystemRows, boardRow, roster, pods]));
  }

  #life({ bootId, agentSinceSeconds }: UsageSample): unknown {
    if (bootId === this.#last.bootId && agentSinceSeconds === this.#last.agentSinceSeconds) return null;
    this.#last.bootId = bootId;
    this.#last.agentSinceSeconds = agentSinceSeconds;
    return [packText(bootId), agentSinceSeconds];
  }

  #updateRoster(pods: readonly PodSample[]): unknown[] {
    const present = new Set(pods.map(({ pod }) => keyOf(pod)));
    const rows: unknown[] = [];
    for (const [key, slot] of this.#slotOf) {
      if (present.has(key)) continue;
      this.#free(key, slot);
      rows.push([slot]);
    }
    let containers = this.#slots.reduce((sum, slot) => sum + (slot?.pod.containers.length ?? 0), 0);
    let room = ROSTER_CHARACTERS;
    for (const { pod } of pods) {
      const known = this.#slotOf.get(keyOf(pod));
      const before = known === undefined ? undefined : this.#slots[known]?.pod;
      if (before !== undefined && isSame(before, pod)) continue;
      const added = pod.containers.length - (before?.containers.length ?? 0);
      const size = sizeOf(pod);
      const slot = known ?? this.#freeSlot();
      const fits = slot < MAX_SAMPLED_PODS && pod.containers.length <= MAX_POD_CONTAINERS;
      if (!fits || containers + added > MAX_SAMPLED_CONTAINERS || size > room) {
        // A row that is no longer true must not stay: its figures would count for another container.
        if (known !== undefined) {
          this.#free(keyOf(pod), known);
          rows.push([known]);
          containers -= before?.containers.length ?? 0;
        }
        continue;
      }
      room -= size;
      containers += added;
      this.#slots[slot] = { pod, last: figuresFrom(pod) };
      this.#slotOf.set(keyOf(pod), slot);
      rows.push(rosterRow(slot, pod));
    }
    return rows;
  }

  #free(key: string, slot: number): void {
    this.#slotOf.delete(key);
    this.#slots[slot] = undefined;
  }

  #freeSlot(): number {
    const free = this.#slots.indexOf(undefined);
    return free < 0 ? this.#slots.length : free;
  }

  #podRows(pods: readonly PodSample[]): unknown[] {
    const samples = new Map(pods.map((each) => [this.#slotOf.get(keyOf(each.pod)), each]));
    return this.#slots.flatMap((slot, index) => {
      const sample = samples.get(index);
      if (slot === undefined || sample === undefined) return [];
      const row = [sample.usage, ...sample.containers].flatMap((usage, at) => {
        if (usage === undefined) return [null, null];
        const cpu = difference(slot.last, 2 * at, Math.floor(usage.cpuMs));
        return [cpu, difference(slot.last, 2 * at + 1, inUnits("Bytes", usage.workingSetBytes))];
      });
      return [row];
    });
  }
}

const keyOf = ({ namespace, name, uid }: SampledPod): string => `${namespace}/${name}/${uid}`;

const figuresFrom = ({ containers }: SampledPod): number[] => zeros(2 * (containers.length + 1));

const sizeOf = ({ namespace, name, uid, containers }: SampledPod): number =>
  containers.reduce(
    (sum, container) => sum + container.name.length + ROW_OVERHEAD,
    namespace.length + name.length + uid.length + ROW_OVERHEAD,
  );

function isSame(one: SampledPod, other: SampledPod): boolean {
  if (one.sinceSeconds !== other.sinceSeconds || one.containers.length !== other.containers.length) return false;
  return one.containers.every(({ name, sinceSeconds }, index) => {
    const its = other.containers[index];
    return name === its?.name && sinceSeconds === its.sinceSeconds;
  });
}

function rosterRow(slot: number, { namespace, name, uid, sinceSeconds, containers }: SampledPod): unknown[] {
  const each = containers.flatMap((container) => [packText(container.name), container.sinceSeconds]);
  return [slot, packText(namespace), packText(name), packText(uid), sinceSeconds, ...each];
}

function difference(last: number[], index: number, value: number): number {
  const change = value - (last[index] ?? 0);
  last[index] = value;
  return change;
}

function figureRow<Name extends string>(
  names: readonly Name[],
  figures: Figures<Name>,
  last: number[],
): (number | null)[] {
  const row = names.map((name, index) => {
    const value = figures[name];
    return value === undefined ? null : difference(last, index, inUnits(name, value));
  });
  while (row.length > 0 && row.at(-1) === null) row.pop();
  return row;
}

/** A sample as it came, with its place in the stream. */
export interface SequencedSample {
  readonly sequence: number;
  readonly sample: UsageSample;
}

/**
 * A pod between two samples. A hub has one for each pod of its boards: as an object with its containers a pod takes
 * more than twice the memory.
 */
interface PackedSlot {
  /** Namespace, name, names of containers, UID. Names have no slash. */
  readonly text: string;
  /** As `last` of `Slot`, then the beginnings of the pod and its containers. */
  readonly numbers: number[];
}

/** CPU, memory and beginning. */
const PACKED_NUMBERS = 3;

function packed(pod: SampledPod): PackedSlot {
  const { namespace, name, uid, containers } = pod;
  const beginnings = [pod, ...containers].map(({ sinceSeconds }) => sinceSeconds);
  return {
    text: [namespace, name, ...containers.map((container) => container.name), uid].join("/"),
    numbers: figuresFrom(pod).concat(beginnings),
  };
}

const containersIn = ({ numbers }: PackedSlot): number => numbers.length / PACKED_NUMBERS - 1;

function unpacked(slot: PackedSlot): SampledPod {
  const { text, numbers } = slot;
  const [sinceSeconds = 0, ...beginnings] = numbers.slice(-1 - containersIn(slot));
  const [namespace = "", name = "", ...rest] = text.split("/");
  const containers = beginnings.map((each, index) => ({ name: rest[index] ?? "", sinceSeconds: each }));
  return { namespace, name, uid: rest.slice(containers.length).join("/"), sinceSeconds, containers };
}

/** Decodes the samples of one stream. After an error it cannot go on, and the stream must be reset. */
export class SampleDecoder {
  readonly #last = beginning();
  readonly #slots: (PackedSlot | undefined)[] = [];
  #containers = 0;
  #sequence = 0;

  /**
   * @param message one of `LengthPrefixedReader`; it may be reused afterwards
   * @throws `invalid` for anything that an encoder does not make of the samples of a board
   */
  decode(message: Uint8Array): SequencedSample {
    const list = decodeCbor(message);
    if (!Array.isArray(list)) throw new PicoletError("invalid", "cannot read sample: it is no list");
    const fields = new ListReader("sample", list);
    const sequence = fields.count("sequence");
    if (sequence <= this.#sequence) throw fields.wrong("sequence", `${sequence} comes after ${this.#sequence}`);
    this.#sequence = sequence;
    const atMs = this.#last.atMs + fields.integer("time");
    if (!(atMs >= 0 && atMs <= MAX_TIME_MS)) throw fields.wrong("time", "is out of range");
    this.#last.atMs = atMs;
    const isEstimated = fields.flag("estimated");
    this.#readLife(fields);
    const { bootId, agentSinceSeconds } = this.#last;
    const node = readFigures(fields.list("node", MAX_FIGURES), NODE_FIGURES, this.#last.node);
    const filesystems = this.#readFilesystems(fields);
    const board = readFigures(fields.list("board", MAX_FIGURES), BOARD_FIGURES, this.#last.board);
    for (const row of fields.lists("roster", 2 * MAX_SAMPLED_PODS)) this.#readRosterRow(row);
    const pods = this.#readPods(fields);
    return { sequence, sample: { atMs, isEstimated, bootId, agentSinceSeconds, node, filesystems, board, pods } };
  }

  #readLife(fields: ListReader): void {
    const value = fields.value();
    if (value === null) {
      if (this.#last.bootId === "") throw fields.wrong("life", "is missing in the first sample");
      return;
    }
    if (!Array.isArray(value)) throw fields.wrong("life", "is no list");
    const life = new ListReader("sample.life", value);
    this.#last.bootId = life.uid("boot", MAX_UID);
    this.#last.agentSinceSeconds = beginningOf(life, "agent");
  }

  #readFilesystems(fields: ListReader): UsageSample["filesystems"] {
    const list = fields.list("filesystems", MAX_FIGURES);
    const found: Partial<Record<FilesystemName, FilesystemFigures>> = {};
    for (const [index, name] of FILESYSTEMS.entries()) {
      const value = list.value();
      if (value === null || value === undefined) continue;
      if (!Array.isArray(value) || value.length > MAX_FIGURES) throw list.wrong(name, "is no row of figures");
      const row = new ListReader(`sample.filesystems.${name}`, value);
      found[name] = readFigures(row, FILESYSTEM_FIGURES, this.#last.filesystems[index] ?? []);
    }
    return found;
  }

  #readRosterRow(row: ListReader): void {
    const index = row.count("slot");
    if (index >= MAX_SAMPLED_PODS || index > this.#slots.length) throw row.wrong("slot", "is out of range");
    const before = this.#slots[index];
    if (before !== undefined) this.#containers -= containersIn(before);
    this.#slots[index] = undefined;
    if (row.isAtEnd) return;
    const namespace = shortName(row, "namespace", MAX_LABEL);
    const name = shortName(row, "name", MAX_NAME);
    const uid = row.uid("uid", MAX_UID);
    const sinceSeconds = beginningOf(row, "since");
    const containers: SampledContainer[] = [];
    while (!row.isAtEnd) {
      if (containers.length === MAX_POD_CONTAINERS) throw row.wrong("containers", `are over ${MAX_POD_CONTAINERS}`);
      containers.push({
        name: shortName(row, "container", MAX_LABEL),
        sinceSeconds: beginningOf(row, "container since"),
      });
    }
    this.#containers += containers.length;
    if (this.#containers > MAX_SAMPLED_CONTAINERS)
      throw row.wrong("containers", `of all pods are over ${MAX_SAMPLED_CONTAINERS}`);
    this.#slots[index] = packed({ namespace, name, uid, sinceSeconds, containers });
  }

  #readPods(fields: ListReader): PodSample[] {
    const rows = fields.list("pods", MAX_SAMPLED_PODS);
    const samples: PodSample[] = [];
    for (const slot of this.#slots) {
      if (slot === undefined) continue;
      const pod = unpacked(slot);
      const row = rows.list(pod.name, 2 * (MAX_POD_CONTAINERS + 1));
      samples.push({
        pod,
        usage: readUsage(row, slot.numbers, 0),
        containers: pod.containers.map((_, index) => readUsage(row, slot.numbers, index + 1)),
      });
    }
    return samples;
  }
}

function shortName(row: ListReader, what: string, max: number): string {
  const name = row.name(what);
  if (name.length > max) throw row.wrong(what, `is longer than ${max} characters`);
  return name;
}

function beginningOf(row: ListReader, what: string): number {
  const seconds = row.count(what);
  if (seconds > MAX_TIME_SECONDS) throw row.wrong(what, "is out of range");
  return seconds;
}

/** @returns undefined for a figure that is not there */
function readFigure(row: ListReader, name: string, last: number[], index: number): number | undefined {
  if (row.isAtEnd) return undefined;
  const change = row.value();
  if (change === null) return undefined;
  const value = (last[index] ?? 0) + (typeof change === "number" ? change : Number.NaN);
  const isFigure = Number.isSafeInteger(value) && value >= 0 && Number.isSafeInteger(fromUnits(name, value));
  if (!isFigure) throw row.wrong(name, "is no figure");
  last[index] = value;
  return fromUnits(name, value);
}

function readFigures<Name extends string>(row: ListReader, names: readonly Name[], last: number[]): Figures<Name> {
  const figures: Partial<Record<Name, number>> = {};
  for (const [index, name] of names.entries()) {
    const value = readFigure(row, name, last, index);
    if (value !== undefined) figures[name] = value;
  }
  return figures;
}

function readUsage(row: ListReader, last: number[], at: number): CpuAndMemory | undefined {
  const cpuMs = readFigure(row, "cpuMs", last, 2 * at);
  const workingSetBytes = readFigure(row, "workingSetBytes", last, 2 * at + 1);
  if (cpuMs === undefined || workingSetBytes === undefined) return undefined;
  return { cpuMs, workingSetBytes };
}
