/** How the agent encrypts what it keeps of Secrets and tokens on disk. `agent/keys` implements it. */

/**
 * Seals bytes under the current data key. A box can be opened only with the identity that it was sealed with, so a box
 * that is copied to another row or file does not open there.
 */
export interface Sealer {
  /** Number of the data key that `seal` uses. A box of another generation should be sealed again. */
  readonly generation: number;
  /** False: the data key is lost with this process, and what it seals with it. */
  readonly isDurable: boolean;
  /** True when the plain rows of an older version are overwritten on the disk. */
  readonly isScrubbed: boolean;
  /** Rotates the data key first when it is due. @param identity where the box is kept, in a form that never changes */
  seal(identity: readonly string[], plain: Uint8Array): Buffer;
  /** @returns undefined for a damaged box, one of another place, and one whose key is lost */
  open(identity: readonly string[], box: Uint8Array): Buffer | undefined;
  /** @returns the generation of the key that sealed `box`; 0 when it cannot be read */
  generationOf(box: Uint8Array): number;
  /** No older box than of these generations is on the disk, and no plain row: keys that nothing needs are dropped. */
  settle(generations: ReadonlySet<number>): void;
}
