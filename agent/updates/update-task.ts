/** Tasks of the update program, and its answers: lines of JSON between two programs of one version. */
import type { ErrorCode } from "@picolet/protocol/errors.ts";
import type { RegistryAccess } from "@picolet/runtime-wasm/shared/messages/pull-request.ts";

/** Where a bundle or a package comes from. */
export type UpdateSource =
  | {
      readonly kind: "registry";
      readonly access: RegistryAccess;
      /** Tag or digest. */
      readonly reference: string;
    }
  /** On this board, absolute. */
  | { readonly kind: "file"; readonly path: string };

interface CommonTask {
  /** The folder of updates, absolute. */
  readonly directory: string;
  /** False: only find out whether it could be installed. */
  readonly install: boolean;
}

export interface FetchedTask extends CommonTask {
  readonly source: UpdateSource;
  /** 0: as fast as it comes. */
  readonly bytesPerSecond: number;
  readonly allowDowngrade: boolean;
  /** The version that runs. */
  readonly version: string;
}

/** One line on standard input, because it has secrets. */
export type UpdateTask =
  | (FetchedTask & { readonly want: "os"; readonly compatible: string; readonly slot: string })
  | (FetchedTask & { readonly want: "agent"; readonly keysDirectory: string; readonly architecture: string })
  | (CommonTask & {
      readonly want: "configuration";
      readonly text: string;
      /** The configuration in force. */
      readonly path: string;
    });

export type UpdateAnswer =
  | { readonly kind: "installing" }
  /** `bytes` were fetched of `totalBytes`. */
  | {
      readonly kind: "prepared";
      readonly version: string;
      /** The slot that was written; "" but for a system. */
      readonly slot: string;
      readonly bytes: number;
      readonly totalBytes: number;
    }
  | { readonly kind: "current"; readonly version: string }
  | { readonly kind: "failed"; readonly code: ErrorCode; readonly message: string; readonly retryable: boolean };

/** Files in the folder of updates, which `firmware/updates/boot-check` reads and writes too. */
export const NEXT_PACKAGE = "next.deb";
export const CURRENT_PACKAGE = "current.deb";
export const PREVIOUS_PACKAGE = "previous.deb";
export const NEXT_CONFIGURATION = "next.yaml";
export const PREVIOUS_CONFIGURATION = "previous.yaml";
