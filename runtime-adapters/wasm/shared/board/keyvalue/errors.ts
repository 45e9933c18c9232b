/** wasi:keyvalue/store.error, and which of ours is which of those. */
import type * as Keyvalue from "@picolet/wit/generated/picolet-board-keyvalue.js";
import { Failure } from "../../resources/failure.ts";

export type WasiError =
  | { readonly tag: "no-such-store" | "access-denied" }
  | { readonly tag: "other"; readonly val: string };

/** The same with the fewer errors that wasi:keyvalue has. */
export function asWasi<R>(work: () => R): R {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    throw new Failure<WasiError>(wasiError(error.payload as Keyvalue.Error));
  }
}

export const wasiError = (error: Keyvalue.Error): WasiError => {
  if (error.tag === "no-such-bucket") return { tag: "no-such-store" };
  return { tag: "other", val: error.tag === "storage" ? `storage: ${error.val}` : error.tag };
};
