/** The data of the fleet's page: JSON below `/page/data/` of the hub. Readers let unknown fields pass. */

/** `ready`; `problem`: Ready, and a condition says that something is wrong; `notReady`; `away`: not heard of. */
export const FLEET_STATES = { r: "ready", p: "problem", n: "notReady", a: "away" } as const;
/** A board's state as one letter, so that a map of 10,000 has 10 KB. */
export type FleetLetter = keyof typeof FLEET_STATES;

/** GET overview: the first answer, before any board's name. */
export interface FleetOverview {
  readonly version: string;
  /** A letter for each board, by name. */
  readonly map: string;
  /** The agents' versions, most boards first. */
  readonly versions: readonly FleetCount[];
  /** What is wrong, most boards first. */
  readonly problems: readonly FleetCount[];
}

export interface FleetCount {
  readonly text: string;
  readonly boards: number;
}

/** GET boards: all of them by name, in columns. */
export interface FleetBoards {
  /** For `changes?since=`. */
  readonly revision: string;
  /** A line each. */
  readonly names: string;
  readonly map: string;
  readonly versions: readonly string[];
  /** The index in `versions` of each board. */
  readonly versionOf: readonly number[];
  /** By the board's index; most have none. */
  readonly problems: Readonly<Record<string, string>>;
}

export interface FleetBoard {
  readonly name: string;
  readonly state: FleetLetter;
  readonly version: string;
  /** "": none. */
  readonly problem: string;
}

/** GET changes?since=REVISION: a line for each. A reader that is slow misses states in between, and no board. */
export type FleetChange =
  | { readonly boards: readonly FleetBoard[]; readonly gone: readonly string[] }
  /** The revision is not known any more: `boards` must be read again. */
  | { readonly reset: true };

/** GET rollouts */
export interface FleetRollouts {
  readonly items: readonly FleetRollout[];
}

export interface FleetRollout {
  readonly name: string;
  /** `os`, `agent`, `configuration`; "": its ConfigMap cannot be understood. */
  readonly kind: string;
  readonly target: string;
  readonly phase: string;
  readonly message: string;
  readonly selected: number;
  /** Boards by state, those with none left out. */
  readonly boards: Readonly<Record<string, number>>;
}
