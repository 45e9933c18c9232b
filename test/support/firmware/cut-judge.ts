/**
 * Judges the disk of a board after a power cut without a boot, by the real tools: the boot loader's own commands and
 * environment blocks, dm-verity's hashes, the file system checks of the image, and the agent's store.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, readSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { Store } from "@picolet/agent/store/store.ts";
import type { BuildTools } from "@picolet/firmware/image/build-tools.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { RecordedLog } from "../unit/ports/recorders.ts";
import { grubAsShell, STATE_SECTORS } from "./grub-shell.ts";
import type { DiskPiece, ReplayedDisk } from "./write-log.ts";

const SECTOR = 512;
const BLOCK = 4096;
/** Each slot is tried three times, and the order begins again once. */
const MAX_BOOTS = 10;

/** Facts from before the cut that must still be true after it. */
export interface Promised {
  /** Names of pods that the board had said to have. */
  readonly pods: readonly string[];
  readonly hasJoined: boolean;
  /** The data partition has what must not be lost. */
  readonly hasData: boolean;
}

export interface Verdict {
  /** Why the board would not come back; undefined: it boots. */
  readonly brick: string | undefined;
  readonly lost: readonly string[];
  readonly slot: string;
}

export class CutJudge implements Disposable {
  readonly #disk: ReplayedDisk;
  readonly #tools: BuildTools;
  readonly #pieces: ReadonlyMap<string, DiskPiece>;
  /** Hashes of the files that the firmware reads from the FAT partition. */
  readonly #loader: ReadonlyMap<string, string>;
  readonly #valid = new Map<string, string>();
  readonly #folder: string;

  /** @param pieces lie in the tools' work folder */
  constructor(disk: ReplayedDisk, tools: BuildTools, pieces: readonly DiskPiece[]) {
    this.#disk = disk;
    this.#tools = tools;
    this.#pieces = new Map(pieces.map((each) => [each.name, each]));
    this.#folder = join(tools.work, "judged");
    this.#loader = new Map(LOADER_FILES.map((path) => [path, this.#fatHash(this.#path("picolet"), path)]));
  }

  #path(name: string): string {
    const piece = this.#pieces.get(name);
    if (piece === undefined) throw new Error(`the disk has no ${name}`);
    return piece.path;
  }

  /** The disk is not changed. */
  async judge(promised: Promised): Promise<Verdict> {
    rmSync(this.#folder, { recursive: true, force: true });
    mkdirSync(this.#folder);
    let slot = "none";
    let brick: string | undefined;
    try {
      this.#checkTable();
      this.#checkLoader();
      slot = this.#bootedSlot();
    } catch (error) {
      brick = describeError(error);
    }
    return { brick, slot, lost: await this.#losses(promised) };
  }

  /** The kernel takes the table behind the first sector, or with `gpt` on its command line the one at the disk's end. */
  #checkTable(): void {
    if (isTable(readFileSync(this.#path("table")), SECTOR, 2 * SECTOR)) return;
    const end = readFileSync(this.#path("end"));
    if (!isTable(end, end.length - SECTOR, end.length - 33 * SECTOR)) throw new Error("the partition table is damaged");
    if (!/\bgpt\b/.test(this.#slotCommands())) throw new Error("the kernel does not take the second partition table");
  }

  /** The kernel's command line of the slot that ran when the log began. */
  #slotCommands(): string {
    return this.#debugfs("root-a", "cat /boot/slot.cfg");
  }

  #checkLoader(): void {
    const path = this.#path("picolet");
    for (const [name, hash] of this.#loader)
      if (this.#fatHash(path, name) !== hash) throw new Error(`the firmware cannot read ${name}`);
  }

  #fatHash(path: string, name: string): string {
    const content = execFileSync("mcopy", ["-i", path, `::${name}`, "-"], { maxBuffer: 64 * 2 ** 20, stdio: "pipe" });
    return createHash("sha256").update(content).digest("hex");
  }

  /** Runs the boot loader's commands until they come to a slot that is whole. */
  #bootedSlot(): string {
    const state = readFileSync(this.#path("boot-state"));
    for (const [name, sector] of Object.entries(STATE_SECTORS))
      writeFileSync(join(this.#folder, name), state.subarray(sector * SECTOR, (sector + 1) * SECTOR));
    writeFileSync(join(this.#folder, "grub.sh"), grubAsShell());
    const tried: string[] = [];
    for (let boot = 0; boot < MAX_BOOTS; boot += 1) {
      const slot = this.#tools.shell("cd judged && sh grub.sh").trim();
      const problem = this.#slotProblem(`root-${slot.toLowerCase()}`);
      if (problem === "") return slot;
      tried.push(`${slot}: ${problem}`);
    }
    throw new Error(`no slot boots (${[...new Set(tried)].join("; ")})`);
  }

  /** "" for a slot whose every block is what the root hash says. */
  #slotProblem(name: string): string {
    const version = `${name} ${this.#disk.versionOf(name)}`;
    const known = this.#valid.get(version);
    if (known !== undefined) return known;
    const problem = this.#verify(name);
    this.#valid.set(version, problem);
    return problem;
  }

  #verify(name: string): string {
    const path = this.#path(name);
    const read = (at: number, length: number): Buffer => readAt(path, at, length);
    const blocks = read(1028, 4).readUInt32LE();
    if (read(1048, 4).readUInt32LE() !== 2) return "it has no file system";
    const line =
      read(blocks * BLOCK, BLOCK)
        .toString("latin1")
        .split("\n")[0] ?? "";
    const [mark, , count, , , hash] = line.split(" ");
    if (mark !== "picolet-verity" || count !== String(blocks) || hash === undefined) return "it has no root hash";
    const inside = path.slice(this.#tools.work.length + 1);
    try {
      this.#tools.run("veritysetup", ["verify", inside, inside, hash, `--hash-offset=${(blocks + 1) * BLOCK}`]);
      return "";
    } catch (error) {
      return `veritysetup: ${complaintOf(error)}`;
    }
  }

  async #losses({ pods, hasJoined, hasData }: Promised): Promise<readonly string[]> {
    const data = this.#copy("data");
    const fat = this.#copy("picolet");
    this.#tryRun("fsck.fat", ["-a", fat]);
    const problem = this.#mend(data);
    if (problem !== "") return hasData ? [`the data partition: ${problem}`] : [];
    const fatFile = this.#tryRun("mtype", ["-i", fat, "::picolet.yaml"]);
    const lost = fatFile === undefined ? ["picolet.yaml cannot be read"] : [];
    const folder = join(this.#folder, "picolet");
    this.#tools.run("debugfs", ["-R", "rdump /picolet judged", data]);
    const hasToken = /token: *['"]?[a-z0-9]{6}\.[a-z0-9]{16}/.test(fatFile ?? "");
    const hasIdentity = existsSync(join(folder, "identity/identity.pem"));
    if (hasJoined && !hasIdentity && !hasToken) lost.push("the board has neither its certificate nor a token");
    return [...lost, ...(await storeLosses(folder, pods, hasData)), ...recordProblems(join(folder, "updates"))];
  }

  /** As `prepare-data` does. @returns what is wrong, "" when it can be mounted */
  #mend(data: string): string {
    const probe = ["-p", "-s", "TYPE", "-o", "value", join(this.#tools.work, data)];
    const { stdout: type } = spawnSync("/usr/sbin/blkid", probe, { encoding: "utf8" });
    if (type.trim() !== "ext4") return "it has no file system";
    // 0 to 3: it is mended.
    const code = Number(this.#tools.shell(`code=0; e2fsck -p ${data} >/dev/null 2>&1 || code=$?; echo $code`));
    if (code < 4) return "";
    const again = Number(this.#tools.shell(`code=0; e2fsck -y ${data} >judged/fsck 2>&1 || code=$?; echo $code`));
    return again < 4 ? "" : `e2fsck cannot mend it: ${readFileSync(join(this.#folder, "fsck"), "utf8").slice(-500)}`;
  }

  #debugfs(name: string, command: string): string {
    const path = this.#path(name).slice(this.#tools.work.length + 1);
    return this.#tools.run("debugfs", ["-R", command, path]).toString("utf8");
  }

  /** @returns its path in the tools' work folder */
  #copy(name: string): string {
    execFileSync("cp", ["--sparse=always", this.#path(name), join(this.#folder, `${name}.img`)]);
    return `judged/${name}.img`;
  }

  #tryRun(program: string, args: readonly string[]): string | undefined {
    try {
      return this.#tools.run(program, args).toString("utf8");
    } catch {
      return undefined;
    }
  }

  /** Writes the whole disk, for a board. */
  assemble(path: string): void {
    rmSync(path, { force: true });
    for (const { path: piece, start } of this.#pieces.values())
      execFileSync("dd", [
        `if=${piece}`,
        `of=${path}`,
        "bs=1M",
        `seek=${start * SECTOR}`,
        "oflag=seek_bytes",
        "conv=sparse,notrunc",
        "status=none",
      ]);
    const end = Math.max(...[...this.#pieces.values()].map(({ start, sectors }) => start + sectors));
    execFileSync("truncate", [`--size=${end * SECTOR}`, path]);
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

const LOADER_FILES = ["EFI/BOOT/BOOTX64.EFI", "EFI/BOOT/grub.cfg"];

function readAt(path: string, at: number, length: number): Buffer {
  const file = openSync(path, "r");
  try {
    const content = Buffer.alloc(length);
    readSync(file, content, 0, length, at);
    return content;
  } finally {
    closeSync(file);
  }
}

/** UEFI 2.10, 5.3.2: header and entries have a CRC each. */
function isTable(bytes: Buffer, headerAt: number, entriesAt: number): boolean {
  const header = Buffer.from(bytes.subarray(headerAt, headerAt + 92));
  if (header.toString("latin1", 0, 8) !== "EFI PART") return false;
  const [own, entries] = [header.readUInt32LE(16), header.readUInt32LE(88)];
  header.writeUInt32LE(0, 16);
  return crc32(header) === own && crc32(bytes.subarray(entriesAt, entriesAt + 128 * 128)) === entries;
}

async function storeLosses(folder: string, pods: readonly string[], hasData: boolean): Promise<readonly string[]> {
  const path = join(folder, "picolet.db");
  if (!existsSync(path)) return hasData ? ["the agent's store"] : [];
  try {
    await using store = new Store({ clock: systemClock, log: new RecordedLog() }, { path });
    const { kind, opening } = store.state.current as { kind: string; opening?: { kind: string } };
    if (kind !== "durable" || (hasData && opening?.kind !== "opened"))
      return [`the agent's store: ${JSON.stringify(store.state.current)}`];
    const held = new Set([...store.desired.desired.current.pods.values()].map(({ pod }) => pod.metadata.name));
    return pods.filter((name) => !held.has(name)).map((name) => `the pod ${name}`);
  } catch (error) {
    return [`the agent's store: ${describeError(error)}`];
  }
}

/** The files that agent and boot check pass each other are whole or not there. */
function recordProblems(folder: string): readonly string[] {
  const read = (name: string): string | undefined =>
    existsSync(join(folder, name)) ? readFileSync(join(folder, name), "utf8") : undefined;
  const problems: string[] = [];
  const trial = read("trial");
  if (trial !== undefined && !/^id=\S+\n(.*\n)*kind=os\n(.*\n)*slot=[AB]\n/m.test(trial))
    problems.push(`the record of the trial: ${JSON.stringify(trial)}`);
  const result = read("result");
  if (result !== undefined && !/^id=\S+\noutcome=(good|rolledBack|failed)\nreason=.*\n$/.test(result))
    problems.push(`the record of its result: ${JSON.stringify(result)}`);
  for (const name of ["starts", "switches"])
    if (!/^(\d+\n)?$/.test(read(name) ?? "")) problems.push(`the count of ${name}: ${JSON.stringify(read(name))}`);
  try {
    JSON.parse(read("progress.json") ?? "[]");
  } catch {
    problems.push("the progress of updates is no JSON");
  }
  return problems;
}

function complaintOf(error: unknown): string {
  const { stderr } = error as { readonly stderr?: Buffer };
  return stderr?.toString("utf8").trim().slice(0, 200) ?? describeError(error);
}
