/**
 * The agent's services for components: the port behind those interfaces of `wit/board` that a runner cannot answer by
 * itself. A runner sends its calls over a unix socket (`runtime-adapters/wasm/adapter/services/`), which checks the
 * sender and passes the call to the `BoardService` of the interface. To add one: give the adapter an entry in
 * `BoardServices`, and call `ServiceClient.call("<interface>.<method>", …)` in the host.
 */

/** Interfaces of the package `picolet:board`, by the names that pods use. */
export const BOARD_INTERFACES = [
  "config",
  "keyvalue",
  "logging",
  "telemetry",
  "node-info",
  "gpio",
  "i2c",
  "serial",
  "nn",
] as const;

export type BoardInterface = (typeof BOARD_INTERFACES)[number];

/** A value of JSON. Integers beyond 53 bits are texts; bytes travel beside it. */
export type Plain = null | boolean | number | string | readonly Plain[] | { readonly [name: string]: Plain };

/** A call's arguments, or its result. All in all `MAX_FRAME_BYTES` at the most. */
export interface ServiceMessage {
  readonly value: Plain;
  /** What is too large or too binary for `value`, which may refer to them by index. 1,100 at the most. */
  readonly bytes: readonly Uint8Array[];
}

/** A bucket of the key-value store, with what its pod may put there. */
export interface BucketGrant {
  readonly name: string;
  /** Bounds the keys and values of one bucket together. */
  readonly maxBytes: number;
  readonly maxKeys: number;
}

/** A device of the board that a pod's components may open, by its path below /dev. */
export type DeviceGrant =
  | { readonly kind: "serial"; readonly path: string }
  | { readonly kind: "gpio"; readonly path: string; readonly lines: readonly number[] }
  /** Addresses of 10 bits have the bit 0x8000 set. */
  | { readonly kind: "i2c"; readonly path: string; readonly addresses: readonly number[] };

/** An interface whose devices a pod has to name. */
export type DeviceKind = DeviceGrant["kind"];

/** The calling container, as the agent knows it. Nothing of this comes from the runner. */
export interface ServicePeer {
  readonly containerId: string;
  readonly container: string;
  readonly pod: { readonly name: string; readonly namespace: string; readonly uid: string };
  readonly interfaces: readonly BoardInterface[];
  readonly buckets: readonly BucketGrant[];
  /** Missing in what an older agent has written down: none. */
  readonly devices?: readonly DeviceGrant[];
}

/** The error case of the interface's `result`, which the component is given: `{tag, val}` of its variant. */
export class ServiceRefusal extends Error {
  readonly tag: string;
  readonly val: string | number | undefined;

  constructor(tag: string, val?: string | number) {
    super(val === undefined ? tag : `${tag}: ${val}`);
    this.tag = tag;
    this.val = val;
  }
}

/** The agent's part of one interface. */
export interface BoardService {
  /**
   * Methods that may read out more than some KiB: each waits until there is room for the largest answer. So nothing
   * among them that waits for anything itself: few of them are under way at a time. What others answer is counted when
   * it is there.
   */
  readonly largeAnswers?: ReadonlySet<string>;
  /**
   * `peer` has been granted the interface; `request` comes from a possibly hostile runner and is bounded only by the
   * frame's limits: check all of it. Calls of one runner are serial; the next waits until this one has been answered.
   * @param method the part after the dot
   * @throws ServiceRefusal for the component; any other error is logged, and the component gets `unavailable`
   */
  call(peer: ServicePeer, method: string, request: ServiceMessage): ServiceMessage | Promise<ServiceMessage>;
}

/** Those that the agent has, each made when it is first called and asked for again with every call: keep it. */
export type BoardServices = Partial<Record<BoardInterface, () => BoardService | Promise<BoardService>>>;
