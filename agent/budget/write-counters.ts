/**
 * Reads the kernel's counts of written bytes. Pods: `io.stat` (cgroup v2), which counts what reaches the disk, later
 * writeback too. Elsewhere, and for components: their processes (`write_bytes` of proc(5), pages made dirty; a parent
 * includes children that it has waited for), because the blkio controller of v1 counts no writeback and, on newer
 * kernels, nothing in a cgroup without a limit.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";

const SECTOR_BYTES = 512;
/** Below a pod are its containers, and what those make themselves. */
const MAX_CGROUP_DEPTH = 6;

export interface DiskWrites {
  /** `major:minor`. */
  readonly numbers: string;
  /** Since the machine started. */
  readonly bytes: number;
}

/** The writes of this process: of its own threads, and with the children that it has waited for. */
export interface OwnWrites {
  readonly threads: number;
  readonly whole: number;
}

export interface WriteCountersInit {
  readonly cgroups: { readonly kind: "v1" | "v2" | "none"; readonly mountPoint: string };
  /** Only tests name another one. */
  readonly proc?: string;
}

export class WriteCounters {
  readonly #init: WriteCountersInit;
  readonly #proc: string;

  constructor(init: WriteCountersInit) {
    this.#init = init;
    this.#proc = init.proc ?? "/proc";
  }

  get bootId(): string {
    return (textOf(`${this.#proc}/sys/kernel/random/boot_id`) ?? "").trim();
  }

  /** The counters of `names` that exist, by name. */
  disks(names: readonly string[]): ReadonlyMap<string, DiskWrites> {
    const found = new Map<string, DiskWrites>();
    for (const line of (textOf(`${this.#proc}/diskstats`) ?? "").split("\n")) {
      const [major, minor, name = "", , , , , , , sectors] = line.trim().split(/ +/);
      const known = names.find((each) => each === name);
      const bytes = Number(sectors) * SECTOR_BYTES;
      if (known !== undefined && Number.isFinite(bytes)) found.set(known, { numbers: `${major}:${minor}`, bytes });
    }
    return found;
  }

  own(): OwnWrites {
    const tasks = `${this.#proc}/self/task`;
    let threads = 0;
    for (const id of namesIn(tasks)) threads += this.#writtenBy(`${tasks}/${id}`) ?? 0;
    return { threads, whole: this.#writtenBy(`${this.#proc}/self`) ?? threads };
  }

  /**
   * @param path the pod's cgroup
   * @param by `processes`: ignores the cgroup's count
   * @returns the count of now; undefined when the cgroup does not exist
   */
  pod(path: string, disks: ReadonlySet<string>, by: "cgroup" | "processes"): number | undefined {
    const { kind, mountPoint } = this.#init.cgroups;
    if (kind === "none") return undefined;
    const folder = `${mountPoint}${path}`;
    const stat = kind === "v2" && by === "cgroup" ? textOf(`${folder}/io.stat`) : undefined;
    return stat === undefined ? this.#writtenIn(folder, MAX_CGROUP_DEPTH) : writtenTo(stat, disks);
  }

  #writtenIn(folder: string, depth: number): number | undefined {
    const processes = textOf(`${folder}/cgroup.procs`);
    if (processes === undefined) return undefined;
    let bytes = 0;
    for (const pid of processes.split("\n")) if (pid !== "") bytes += this.#writtenBy(`${this.#proc}/${pid}`) ?? 0;
    if (depth === 0 || linksOf(folder) === LINKS_OF_LEAF) return bytes;
    for (const each of readdirSync(folder, { withFileTypes: true }))
      if (each.isDirectory()) bytes += this.#writtenIn(`${folder}/${each.name}`, depth - 1) ?? 0;
    return bytes;
  }

  /** Truncated before it was written back is not written. */
  #writtenBy(process: string): number | undefined {
    const text = textOf(`${process}/io`);
    if (text === undefined) return undefined;
    return Math.max(0, valueIn(text, "\nwrite_bytes: ") - valueIn(text, "\ncancelled_write_bytes: "));
  }
}

/** `8:0 rbytes=1 wbytes=2 …` lines; the same bytes are counted for a device mapper's disk and for the one below. */
function writtenTo(stat: string, disks: ReadonlySet<string>): number {
  let bytes = 0;
  for (const line of stat.split("\n")) {
    const [numbers = "", ...fields] = line.split(" ");
    const written = fields.find((field) => field.startsWith("wbytes="));
    if (written !== undefined && disks.has(numbers)) bytes += Number(written.slice("wbytes=".length)) || 0;
  }
  return bytes;
}

function valueIn(text: string, name: string): number {
  const at = text.indexOf(name);
  return at < 0 ? 0 : Number.parseInt(text.slice(at + name.length), 10) || 0;
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** A folder in which no other is has its name and its `.`: where the file system counts that, it need not be read. */
const LINKS_OF_LEAF = 2;
const linksOf = (folder: string): number | undefined => statSync(folder, { throwIfNoEntry: false })?.nlink;

/** Undefined: it is not there, or goes away while it is read. */
function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
