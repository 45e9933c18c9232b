/** The agent's request to the child that opens devices (`devices-main.ts`), and the answers. Each is a line of JSON. */
import type { DeviceKind, Plain } from "@picolet/runtime-contract/board-services.ts";

/** The device to open. Each kind adds fields of its own, in its `uapi.ts`. */
export interface DeviceTarget {
  readonly path: string;
}

export interface DeviceRequest {
  /** Path of koffi.node. */
  readonly addonPath: string;
  /** Made by the child; in a folder that runners see. */
  readonly socketPath: string;
  /** By which the runner is known, `SECRET_BYTES` characters. */
  readonly secret: string;
  readonly kind: DeviceKind;
  readonly target: DeviceTarget;
  /** Folder of the lock files that keep pods apart where the kernel does not. */
  readonly lockDirectory: string;
}

export type DeviceAnswer =
  /** The device is open, and is given to the first peer that comes to the socket with the secret. */
  | { readonly kind: "open" }
  /** It has been given, or no one came for it. */
  | { readonly kind: "over"; readonly given: boolean }
  | { readonly kind: "value"; readonly value: Plain }
  | { readonly kind: "refused"; readonly reason: RefusalKind; readonly message: string };

/** `missing`: `no-such-port`, `no-such-line` or `no-such-bus`; `failed`: `io`, or `other`. */
export type RefusalKind = "missing" | "busy" | "unsupported" | "failed";

/** Why a device cannot be had. */
export class DeviceRefusal extends Error {
  readonly kind: RefusalKind;

  constructor(kind: RefusalKind, message = "") {
    super(message);
    this.kind = kind;
  }
}
