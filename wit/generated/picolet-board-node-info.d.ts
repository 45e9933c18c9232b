// Generated from wit/board by `npm run wit-types`; do not edit.
/** @module Interface picolet:board/node-info@0.1.0 **/
/**
 * Of this container; never changes while it runs.
 */
export function thisPod(): Pod;
/**
 * As it is at this moment.
 */
export function thisNode(): Node;
export interface Pod {
  name: string,
  namespace: string,
  uid: string,
  /**
   * The container's name.
   */
  container: string,
}
/**
 * As the node's conditions tell Kubernetes, and with their delays.
 */
export interface Pressure {
  /**
   * Memory runs short: give back what can be made again.
   */
  memory?: boolean,
  disk?: boolean,
  processes?: boolean,
  /**
   * More is written to the flash than it stands.
   */
  flashWear?: boolean,
  /**
   * Tasks wait for a CPU; from the kernel's pressure stall information, of the last ten seconds.
   */
  cpu?: boolean,
}
/**
 * # Variants
 *
 * ## `"standalone"`
 *
 * The board has no hub: it works by itself.
 * ## `"disconnected"`
 *
 * Nothing goes out, and nothing comes in.
 * ## `"connected"`
 */
export type Connectivity = 'standalone' | 'disconnected' | 'connected';
export interface Node {
  name: string,
  /**
   * Those whose keys the board's owner has let components see.
   */
  labels: Array<[string, string]>,
  pressure: Pressure,
  /**
   * False: the board has not got the time yet, and its wall clock is somewhere between 1970 and now.
   */
  clockIsSet: boolean,
  hub: Connectivity,
}
export type Error =
  | {
    /**
     * The board's agent does not answer: it is restarting.
     */
    tag: 'unavailable',
  };
