/** Decides which fields of a board's configuration a hub may change. Pure. */

type Fields = Readonly<Record<string, unknown>>;

/**
 * Fields that only the board's owner changes, with access to the board: which CA it trusts and as whom it shows itself,
 * what may be updated, how Secrets are sealed. `hub.server` and its times may change: a board that does not come back
 * to its hub takes the change back by itself.
 */
const OWNERS = [
  "apiVersion",
  "kind",
  "nodeName",
  "hub.caHash",
  "hub.caFile",
  "hub.token",
  "hub.tokenFile",
  "secretsAtRest",
  "updates",
] as const;

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** @returns names of the fields in `change` that a hub may not change */
export function ownersFields(change: Fields): readonly string[] {
  return OWNERS.filter((path) => {
    const parts = path.split(".");
    // A whole mapping that is taken away takes its fields with it.
    let value: unknown = change;
    for (const part of parts) {
      if (value === null) return true;
      if (!isFields(value) || !Object.hasOwn(value, part)) return false;
      value = value[part];
    }
    return true;
  });
}

export interface FieldChange {
  readonly path: readonly string[];
  /** Undefined: the field is taken away. */
  readonly value: unknown;
}

/** As a merge patch means it (RFC 7396): mappings are merged, everything else replaces, null takes a field away. */
export function* fieldChanges(change: Fields, path: readonly string[] = []): Generator<FieldChange> {
  for (const [name, value] of Object.entries(change)) {
    if (isFields(value)) yield* fieldChanges(value, [...path, name]);
    else yield { path: [...path, name], value: value === null ? undefined : value };
  }
}
