import { PicoletError } from "@picolet/protocol/errors.ts";

/** The outcome of one attempt of a probe. Texts are the kubelet's. */
export type ProbeOutcome =
  | { readonly kind: "success" }
  /** A success with something to say. */
  | { readonly kind: "warning"; readonly message: string }
  | { readonly kind: "failure"; readonly message: string }
  /**
   * It could not be carried out, which says nothing of the container.
   * @param state what the kubelet's message calls it.
   */
  | {
      readonly kind: "error";
      readonly state: "unknown" | "failure";
      readonly message: string;
      /** No other attempt can end in another way. */
      readonly final?: boolean;
    };

export const SUCCESS: ProbeOutcome = { kind: "success" };

/**
 * The reason of an attempt's signal when its time is over; any other reason means that the result is not needed. It is
 * created on demand: an error that is created while the program loads keeps, with its stack, the code that loads all
 * modules, 0.2 MiB.
 */
export class ProbeTimeout extends PicoletError {
  constructor() {
    super("deadline_exceeded", "context deadline exceeded");
  }
}

export const isProbeTimeout = (signal: AbortSignal): boolean => signal.reason instanceof ProbeTimeout;
