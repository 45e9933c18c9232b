/** The boards in the browser: by name, with what is searched. */
import type { FleetBoard, FleetBoards, FleetChange, FleetLetter } from "@picolet/protocol/page/fleet-data.ts";

export type { FleetLetter } from "@picolet/protocol/page/fleet-data.ts";

/** By urgency. */
export const LETTERS: readonly FleetLetter[] = ["n", "p", "a", "r"];

export class FleetModel {
  #boards: FleetBoard[] = [];

  /** By name. */
  get boards(): readonly FleetBoard[] {
    return this.#boards;
  }

  reset({ names, map, versions, versionOf, problems }: FleetBoards): void {
    const all = names === "" ? [] : names.split("\n");
    this.#boards = all.map((name, at) => {
      const state = letterOf(map[at]);
      return { name, state, version: versions[versionOf[at] ?? 0] ?? "", problem: problems[String(at)] ?? "" };
    });
  }

  apply({ boards, gone }: Extract<FleetChange, { readonly boards: unknown }>): void {
    for (const board of boards) {
      const at = this.#find(board.name);
      const isKnown = this.#boards[at]?.name === board.name;
      this.#boards.splice(at, isKnown ? 1 : 0, { ...board, state: letterOf(board.state) });
    }
    for (const name of gone) {
      const at = this.#find(name);
      if (this.#boards[at]?.name === name) this.#boards.splice(at, 1);
    }
  }

  /** Those whose name, version or problem has every word, the most urgent first. @param state undefined: any */
  search(text: string, state: FleetLetter | undefined): readonly FleetBoard[] {
    const words = text
      .toLowerCase()
      .split(/\s+/)
      .filter((word) => word !== "");
    const found = this.#boards.filter((board) => {
      if (state !== undefined && board.state !== state) return false;
      const { name, version, problem } = board;
      return words.every((word) => name.includes(word) || `${version} ${problem}`.toLowerCase().includes(word));
    });
    return LETTERS.flatMap((letter) => found.filter((board) => board.state === letter));
  }

  #find(name: string): number {
    let [from, to] = [0, this.#boards.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((this.#boards[middle]?.name ?? "") < name) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}

/** A state of a later hub is shown as one that is not known. */
export const letterOf = (text: string | undefined): FleetLetter => LETTERS.find((each) => each === text) ?? "a";

export function countsOf(map: Iterable<FleetLetter>): Readonly<Record<FleetLetter, number>> {
  const counts = { r: 0, p: 0, n: 0, a: 0 };
  for (const letter of map) counts[letter] += 1;
  return counts;
}
