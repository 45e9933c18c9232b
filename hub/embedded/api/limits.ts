/**
 * Bounds the cost of one request. Every walk over a body or an object is linear in the number of its values, so these
 * limits bound the time that a request keeps the event loop. The worst body that they let through, a server-side apply
 * of 4,096 keys over another manager's, takes 80 ms on one core of 2.5 GHz, in two parts.
 */
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { StatusError } from "./status-error.ts";

/** As Kubernetes: twice what its storage takes, so that an object and its patch fit. */
export const MAX_BODY_BYTES = 3 * MEBIBYTE;
/** An object as it is stored, in UTF-8: etcd's `--max-request-bytes`, which bounds every object in Kubernetes. */
export const MAX_OBJECT_BYTES = 1.5 * MEBIBYTE;
/**
 * Objects, lists and scalars in one body: those of the longest JSON patch, 10,000 operations with path, from and value.
 */
export const MAX_BODY_VALUES = 65_536;
/**
 * Objects, lists and scalars in one object, its managedFields too. Kubernetes bounds bytes alone: this is one value for
 * each 48 bytes of the largest object. A pod has 150, one for 33 bytes; the bulk of large objects is long texts.
 */
export const MAX_VALUES = MAX_OBJECT_BYTES / 48;
/**
 * Items of one list in a body: more than a JSON patch may have operations, which is refused in Kubernetes' own words.
 */
export const MAX_BODY_ITEMS = 16_384;
/** Items of one list in an object. The longest list that a Kubernetes controller writes has 1,000 (EndpointSlice). */
export const MAX_LIST_ITEMS = 1024;
/** Keys of one object or map: the data of a ConfigMap of 1 MiB with 256 bytes to a key. */
export const MAX_KEYS = 4096;
/**
 * Levels of objects and lists in each other. Go's decoder stops at 10,000; Kubernetes' types need 40, and 256 levels of
 * recursion are far from what a stack holds.
 */
export const MAX_DEPTH = 256;
/**
 * Steps that a patch may take besides reading its body: comparisons, copied values, blocks of shifted list items. A
 * step is 20 to 50 ns.
 */
export const MAX_PATCH_STEPS = 1_000_000;

/** 413, worded as Kubernetes words it. */
export const tooLarge = (why: string, cause?: unknown): StatusError =>
  new StatusError("RequestEntityTooLarge", `Request entity too large: ${why}`, undefined, cause);

export const bodyTooLarge = (): StatusError => tooLarge(`limit is ${MAX_BODY_BYTES}`);

/** Counts the work of one request and refuses it at a limit. */
export class StepBudget {
  readonly #limit: number;
  readonly #work: string;
  spent = 0;

  constructor(limit = MAX_PATCH_STEPS, work = "the patch") {
    this.#limit = limit;
    this.#work = work;
  }

  /** @throws StatusError 413 */
  spend(steps: number): void {
    this.spent += steps;
    if (this.spent > this.#limit) throw tooLarge(`${this.#work} takes more than ${this.#limit} steps`);
  }
}
