/** The health of one runtime; the node's condition Ready follows from these. */
export interface RuntimeHealth {
  /** The adapter's name. */
  readonly name: string;
  readonly healthy: boolean;
  /** CamelCase; `RuntimeNotReady`: it is absent or not ready; `PLEGNotHealthy`: its lists fail. "" while healthy. */
  readonly reason: string;
  readonly message: string;
  /** The time of the last change of `healthy`, milliseconds since the epoch. */
  readonly sinceMs: number;
}
