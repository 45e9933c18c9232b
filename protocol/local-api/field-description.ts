/** A field of the agent's configuration as people read of it: in docs/configuration.md and by `edgectl explain`. */
export interface FieldDescription {
  /** `wasm.registries[].host`. */
  readonly path: string;
  /** The type in words, with its range or choices. */
  readonly type: string;
  /** Missing: none. */
  readonly default?: string | undefined;
  readonly meaning: string;
  /** Otherwise it is accepted, and reported as ignored when it says something else than its default. */
  readonly isActedUpon: boolean;
}

/** Holds all of them as JSON; beside edgectl's own file. */
export const FIELD_DESCRIPTIONS_FILE = "configuration-fields.json";
