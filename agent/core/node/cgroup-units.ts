/**
 * Cgroups that are systemd's: each a slice, made, changed and taken away by its service manager. `agent/node`
 * implements it.
 */

/** A property of a unit by D-Bus type: `t` a number (UINT64_MAX: no limit), `b`, `s`, `as`. */
export type UnitProperty =
  | { readonly name: string; readonly type: "t"; readonly value: bigint }
  | { readonly name: string; readonly type: "b"; readonly value: boolean }
  | { readonly name: string; readonly type: "s"; readonly value: string }
  | { readonly name: string; readonly type: "as"; readonly value: readonly string[] };

export interface CgroupUnits {
  /**
   * Starts the slice with what is above it, or gives one that runs these values; it is there then. @throws
   * PicoletError, retryable
   */
  ensureSlice(name: string, properties: readonly UnitProperty[]): Promise<void>;
  /** Again is harmless. It is gone then, with all units below it. @throws PicoletError, retryable */
  removeSlice(name: string): Promise<void>;
}
