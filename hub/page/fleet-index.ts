/** The boards as the page of the fleet shows them: a few words each, kept while it has viewers. */
import { setImmediate as nextTurn } from "node:timers/promises";
import type { FleetBoardView, FleetNodes } from "@picolet/hub-core/fleet.ts";
import type {
  FleetBoard,
  FleetBoards,
  FleetCount,
  FleetLetter,
  FleetOverview,
} from "@picolet/protocol/page/fleet-data.ts";
import { parseReport } from "@picolet/protocol/updates/node-updates.ts";

/** Rows that are made between two turns of the event loop: a millisecond. */
const ROWS_PER_TURN = 500;
/** Versions and problems of the overview; a healthy fleet has a handful. */
const MAX_COUNTS = 12;
/** A condition's name and an update's state; longer ones are cut. */
const MAX_PROBLEM_LENGTH = 120;
const MAX_VERSION_LENGTH = 64;
const BAD_UPDATES: ReadonlySet<string> = new Set(["failed", "rolledBack"]);

interface Row extends FleetBoard {
  readonly revision: number;
}

export class FleetIndex implements Disposable {
  readonly #nodes: FleetNodes;
  readonly #epoch: string;
  readonly #rows = new Map<string, Row>();
  /** The revision in which each board went that is gone. */
  readonly #gone = new Map<string, number>();
  readonly #viewers = new Set<(name: string) => void>();
  readonly #following: Disposable;
  #revision = 0;

  /** @param epoch another one for each index */
  private constructor(nodes: FleetNodes, epoch: string) {
    this.#nodes = nodes;
    this.#epoch = epoch;
    this.#following = nodes.follow((name) => this.#changed(name));
  }

  static async open(nodes: FleetNodes, epoch: string): Promise<FleetIndex> {
    const index = new FleetIndex(nodes, epoch);
    let made = 0;
    for (const name of [...nodes.names()]) {
      index.#changed(name);
      made += 1;
      if (made % ROWS_PER_TURN === 0) await nextTurn();
    }
    return index;
  }

  [Symbol.dispose](): void {
    this.#following[Symbol.dispose]();
  }

  get viewers(): number {
    return this.#viewers.size;
  }

  overview(version: string): FleetOverview {
    const versions = new Map<string, number>();
    const problems = new Map<string, number>();
    let map = "";
    for (const row of this.#sorted()) {
      map += row.state;
      versions.set(row.version, (versions.get(row.version) ?? 0) + 1);
      if (row.problem !== "") problems.set(row.problem, (problems.get(row.problem) ?? 0) + 1);
    }
    return { version, map, versions: countsOf(versions), problems: countsOf(problems) };
  }

  boards(): FleetBoards {
    const rows = this.#sorted();
    const versions = new Map<string, number>();
    const versionOf = rows.map(({ version }) => {
      const known = versions.get(version) ?? versions.size;
      versions.set(version, known);
      return known;
    });
    return {
      revision: `${this.#epoch}.${this.#revision}`,
      names: rows.map(({ name }) => name).join("\n"),
      map: rows.map(({ state }) => state).join(""),
      versions: [...versions.keys()],
      versionOf,
      problems: Object.fromEntries(rows.flatMap(({ problem }, at) => (problem === "" ? [] : [[String(at), problem]]))),
    };
  }

  /** The names that have changed since; undefined for a revision of another index. */
  changedSince(revision: string): ReadonlySet<string> | undefined {
    const [epoch, text = ""] = revision.split(".");
    const since = Number(text);
    if (epoch !== this.#epoch || !Number.isSafeInteger(since)) return undefined;
    const rows = [...this.#rows.values()].filter((row) => row.revision > since).map(({ name }) => name);
    const gone = [...this.#gone].filter(([, at]) => at > since).map(([name]) => name);
    return new Set([...rows, ...gone]);
  }

  /** Undefined: gone. */
  board(name: string): FleetBoard | undefined {
    const row = this.#rows.get(name);
    if (row === undefined) return undefined;
    const { revision: _, ...board } = row;
    return board;
  }

  /** @param onChange called with the name of each board that changes */
  follow(onChange: (name: string) => void): Disposable {
    const viewer = (name: string): void => onChange(name);
    this.#viewers.add(viewer);
    return { [Symbol.dispose]: () => void this.#viewers.delete(viewer) };
  }

  #sorted(): readonly Row[] {
    return [...this.#rows.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  #changed(name: string): void {
    const board = this.#nodes.view(name);
    const next = board === undefined ? undefined : fleetBoard(name, board);
    const before = this.#rows.get(name);
    if (isSame(before, next)) return;
    this.#revision += 1;
    if (next === undefined) {
      this.#rows.delete(name);
      this.#gone.set(name, this.#revision);
    } else {
      this.#gone.delete(name);
      this.#rows.set(name, { ...next, revision: this.#revision });
    }
    for (const viewer of this.#viewers) viewer(name);
  }
}

const isSame = (one: FleetBoard | undefined, other: FleetBoard | undefined): boolean =>
  one?.state === other?.state && one?.version === other?.version && one?.problem === other?.problem && !one === !other;

const countsOf = (counts: ReadonlyMap<string, number>): readonly FleetCount[] =>
  [...counts]
    .map(([text, boards]) => ({ text, boards }))
    .sort((a, b) => b.boards - a.boards || (a.text < b.text ? -1 : 1))
    .slice(0, MAX_COUNTS);

/** The conditions are the board's own judgement, or of the hub that does not hear of it. Pure. */
export function fleetBoard(name: string, { conditions, version, updateReport }: FleetBoardView): FleetBoard {
  const all = conditions.split(",").map((each) => each.split("="));
  const ready = all.find(([type]) => type === "Ready")?.[1] ?? "Unknown";
  const wrong = all.flatMap(([type = "", status]) => (type !== "Ready" && status === "True" ? [type] : []));
  const updates = updateReport === undefined ? [] : (parseReport(updateReport)?.updates ?? []);
  const bad = updates.flatMap(({ kind, state }) => (BAD_UPDATES.has(state) ? [`update of ${kind} ${state}`] : []));
  const problem = [...(ready === "False" ? ["not ready"] : []), ...wrong, ...bad].join(", ");
  const state: FleetLetter = ready === "Unknown" ? "a" : ready !== "True" ? "n" : problem === "" ? "r" : "p";
  return {
    ...{ name, state },
    version: version.slice(0, MAX_VERSION_LENGTH),
    problem: problem.slice(0, MAX_PROBLEM_LENGTH),
  };
}
