/**
 * What the agent asks of the child that opens devices (`devices-main.ts`), and what it answers, a line of JSON each.
 */
import type { Plain } from "@picolet/runtime-contract/board-services.ts";

export type DeviceTarget =
  | { readonly kind: "serial"; readonly path: string }
  | {
      readonly kind: "i2c";
      readonly path: string;
      readonly address: number;
      /** Where pods' locks are: a file for each address that is in use. */
      readonly lockDirectory: string;
    }
  | { readonly kind: "gpio-lines"; readonly path: string; readonly lines: readonly number[] }
  | {
      readonly kind: "gpio";
      readonly path: string;
      /** Of the lines that are granted the one with this number or name. */
      readonly lines: readonly number[];
      readonly wanted: number | string;
      readonly line: LineConfig;
    };

/** How a line is opened, in the kernel's flags (`gpio-uapi.ts`). */
export interface LineConfig {
  readonly flags: number;
  readonly debounceMicroseconds: number | undefined;
  /** Of an output. */
  readonly initial: boolean;
}

export interface DeviceRequest {
  /** Of koffi.node. */
  readonly addonPath: string;
  /** Made by the child; in a folder that runners see. */
  readonly socketPath: string;
  /** By which the runner is known, `SECRET_BYTES` characters. */
  readonly secret: string;
  readonly wish: DeviceTarget;
}

export type DeviceAnswer =
  /** The device is open, and given to who comes to the socket with the secret. */
  | { readonly kind: "open" }
  /** It has been given; or nobody came. */
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
