/**
 * Power cuts at random points of what a board writes. A boot of an emulated board takes minutes, so one run of it is
 * recorded, and each cut makes the disk that it may leave. All are judged by tools, some are booted.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BuildTools } from "@picolet/firmware/image/build-tools.ts";
import { currentLock } from "@picolet/firmware/image/debian-packages.ts";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { seededRandom } from "../unit/ports/seeded-random.ts";
import { type BoardFleet, NODE } from "./board-fleet.ts";
import { CutJudge, type Promised, type Verdict } from "./cut-judge.ts";
import { BOOT_LIMIT_MS, BoardRestarted, EmulatedBoard } from "./emulated-board.ts";
import { type DiskPiece, entriesAt, ReplayedDisk, readWriteLog } from "./write-log.ts";

const MIB_SECTORS = 2048;
/** The table of partitions at the end of a disk. */
const END_SECTORS = 33;

/** What is known of a recorded run; numbers are sizes of the log's file. */
interface Story {
  readonly phases: { readonly name: string; readonly from: number }[];
  /** From when on the board has that pod. */
  readonly pods: { readonly name: string; readonly from: number }[];
  /** From when on it has data that must stay. */
  dataFrom: number | undefined;
  /** From when on it has joined. */
  joinedFrom: number | undefined;
  /** The size at the end of the recording. */
  end: number;
}

/** A run of a board whose writes are recorded into a folder: `base.raw`, `log` and `story.json`. */
export class Recording {
  readonly folder: string;
  readonly #story: Story = { phases: [], pods: [], dataFrom: undefined, joinedFrom: undefined, end: 0 };

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Turns the board on. @param board is off */
  static async begin(folder: string, board: EmulatedBoard, hasJoined: boolean): Promise<Recording> {
    mkdirSync(folder, { recursive: true });
    const recording = new Recording(folder);
    board.exportCard(join(folder, "base.raw"));
    await board.turnOn({ writeLog: join(folder, "log") });
    recording.phase("boot");
    if (hasJoined) recording.joined();
    return recording;
  }

  get #size(): number {
    return statSync(join(this.folder, "log")).size;
  }

  phase(name: string): void {
    this.#story.phases.push({ name, from: this.#size });
  }

  hasPod(name: string): void {
    this.#story.pods.push({ name, from: this.#size });
  }

  hasData(): void {
    this.#story.dataFrom ??= this.#size;
  }

  joined(): void {
    this.hasData();
    this.#story.joinedFrom ??= this.#size;
  }

  /** Ends the recording; the board may go on. */
  finish(): void {
    this.#story.end = this.#size;
    writeFileSync(join(this.folder, "story.json"), JSON.stringify(this.#story));
  }
}

/** Pods that no runtime can start: the board keeps them, and does little else. */
const heldPod = (name: string): Readonly<Record<string, unknown>> => ({
  metadata: { name },
  spec: {
    nodeName: NODE,
    runtimeClassName: "wasm",
    terminationGracePeriodSeconds: 1,
    containers: [{ name: "main", image: "localhost/nothing:1", imagePullPolicy: "Never" }],
  },
});

/**
 * Gives the board one pod after the other until `signal`.
 * @param atMost pods: each one's status is written again whenever it changes
 */
export async function givePods(
  recording: Recording,
  fleet: BoardFleet,
  atMost: number,
  signal: AbortSignal,
): Promise<void> {
  for (let count = 0; count < atMost && !signal.aborted; count += 1) {
    const name = `held-${count}`;
    await fleet.admin.create(PODS, heldPod(name));
    // A board reports what is on its disk.
    await fleet.untilPod(name, ({ status }) => status?.startTime !== undefined, 4 * BOOT_LIMIT_MS);
    recording.hasPod(name);
  }
}

export interface Cut {
  readonly seed: number;
  readonly phase: string;
  /** Entries of the log before the cut. */
  readonly count: number;
}

export interface JudgedCut extends Cut {
  readonly verdict: Verdict;
}

export interface CutOptions {
  readonly cuts: number;
  readonly seed: number;
  /** Boots every one whose turn it is, after it was judged. */
  readonly boots: number;
  readonly onJudged?: (cut: JudgedCut) => void;
  readonly boot?: (disk: string, cut: JudgedCut, promised: Promised) => Promise<void>;
}

/** Judges disks of the recorded run. @returns those that do not boot or have lost something */
export async function judgeCuts(folder: string, options: CutOptions): Promise<readonly JudgedCut[]> {
  const story = JSON.parse(readFileSync(join(folder, "story.json"), "utf8")) as Story;
  const log = readWriteLog(join(folder, "log"));
  const cuts = planCuts(story, (bytes) => entriesAt(log, bytes), entriesAt(log, story.end), options);
  using tools = new BuildTools(currentLock(), 0);
  const pieces = splitDisk(join(folder, "base.raw"), tools.work);
  using disk = new ReplayedDisk(log, pieces);
  using judge = new CutJudge(disk, tools, pieces);
  const bad: JudgedCut[] = [];
  const every = Math.max(1, Math.floor(cuts.length / Math.max(1, options.boots)));
  for (const [index, cut] of cuts.entries()) {
    const random = seededRandom(cut.seed);
    disk.cut(cut.count, () => random.next());
    const isPast = (bytes: number | undefined): boolean => bytes !== undefined && entriesAt(log, bytes) <= cut.count;
    const pods = story.pods.filter(({ from }) => isPast(from)).map(({ name }) => name);
    const promised = { pods, hasJoined: isPast(story.joinedFrom), hasData: isPast(story.dataFrom) };
    const judged = { ...cut, verdict: await judge.judge(promised) };
    options.onJudged?.(judged);
    if (judged.verdict.brick !== undefined || judged.verdict.lost.length > 0) bad.push(judged);
    if (options.boot !== undefined && options.boots > 0 && index % every === every - 1) {
      const path = join(tools.work, "assembled.raw");
      judge.assemble(path);
      await options.boot(path, judged, promised);
    }
    disk.restore();
  }
  return bad;
}

/** As many in each phase; within it at any of its writes. In the order of the log. */
function planCuts(
  story: Story,
  at: (bytes: number) => number,
  end: number,
  { cuts, seed }: CutOptions,
): readonly Cut[] {
  const starts = story.phases.map(({ name, from }) => ({ name, from: at(from) }));
  return Array.from({ length: cuts }, (_, index): Cut => {
    const random = seededRandom(seed + index);
    const turn = index % starts.length;
    const { name, from } = starts[turn] ?? { name: "", from: 0 };
    const to = starts[turn + 1]?.from ?? end;
    return { seed: seed + index, phase: name, count: from + Math.floor(random.next() * (to - from + 1)) };
  }).sort((one, other) => one.count - other.count);
}

/** A file for each partition, and for what is before and behind them. */
function splitDisk(path: string, folder: string): readonly DiskPiece[] {
  const dump = execFileSync("sfdisk", ["--json", path], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  const { partitiontable } = JSON.parse(dump) as { partitiontable: { partitions: Partition[] } };
  const whole = statSync(path).size / 512;
  const table = { name: "table", start: 0, size: MIB_SECTORS };
  const behind = { name: "end", start: whole - END_SECTORS, size: END_SECTORS };
  // The data partition grows to the end of the card at the first boot.
  const partitions = partitiontable.partitions.map(({ name, start, size }) =>
    name === "data" ? { name, start, size: behind.start - start } : { name, start, size },
  );
  return [table, ...partitions, behind].map(({ name, start, size }) => {
    const piece = { name, start, sectors: size, path: join(folder, `piece-${name}`) };
    const bytes = [`skip=${start * 512}`, `count=${size * 512}`, "iflag=skip_bytes,count_bytes,fullblock"];
    execFileSync("dd", [`if=${path}`, `of=${piece.path}`, "bs=1M", ...bytes, "conv=sparse", "status=none"]);
    execFileSync("truncate", [`--size=${size * 512}`, piece.path]);
    return piece;
  });
}

interface Partition {
  readonly name: string;
  readonly start: number;
  readonly size: number;
}

/** Boots a disk that a cut has left. @throws when the board does not come back with all that it had */
export async function bootCut(
  path: string,
  { pods }: Promised,
  { killAfterMs }: { readonly killAfterMs?: number | undefined } = {},
): Promise<void> {
  const cardMiB = Math.ceil(statSync(path).size / 2 ** 20);
  await using board = EmulatedBoard.create({ image: path, cardMiB });
  // A hub would bring back what is lost, and take away what it wants no more.
  await board.turnOn({ isPluggedIn: false });
  if (killAfterMs !== undefined) {
    await board.serial.waitFor(/picolet: slot [AB], try/, BOOT_LIMIT_MS);
    await new Promise((resolve) => setTimeout(resolve, killAfterMs));
    await board.cutPower();
    await board.turnOn({ isPluggedIn: false });
  }
  await hasPods(board, pods).catch(async (error: unknown) => {
    // An agent whose way into the trial of an update was cut goes that way again.
    const slots = [...board.serial.text.matchAll(/picolet: slot ([AB]), try/g)].map(([, slot]) => slot);
    if (!(error instanceof BoardRestarted) || slots.length !== 2 || slots[0] === slots[1]) throw error;
    await hasPods(board, pods);
  });
  await board.plugIn();
  // An update that was on trial is judged first.
  const slots = "/usr/lib/picolet-image/boot-slots";
  await board.until(`test "$(${slots} get-state $(${slots} get-current))" = good`, 3 * BOOT_LIMIT_MS);
}

async function hasPods(board: EmulatedBoard, pods: readonly string[]): Promise<void> {
  await board.shellReady();
  await board.until("systemctl is-active picolet");
  const shown = (await board.until("edgectl get pods -o name")).split("\n");
  const missing = pods.filter((name) => !shown.includes(`pod/${name}`));
  assert.deepEqual(missing, [], "pods that are lost");
}
