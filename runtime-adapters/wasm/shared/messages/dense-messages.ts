/** Between the agent and a process of several components: lines of JSON over a socket that the process listens on. */
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import type { RunnerEnd, RunnerLaunch } from "./launch.ts";

/** The launch of the process itself, in `host.json`. Paths are those inside its jail. */
export interface DenseHostLaunch {
  readonly identity: RunnerLaunch["identity"];
  /** Listened on. */
  readonly socketPath: string;
  /** Holds the container whose stack ran last, and nothing else. */
  readonly turnPath: string;
}

export type DenseRequest =
  | {
      readonly kind: "start";
      readonly id: string;
      /** The same for all containers of one component: its code is compiled once. */
      readonly code: string;
      readonly launch: RunnerLaunch;
    }
  /** Ends it with this exit code. A container that does not exist has ended already. */
  | { readonly kind: "stop"; readonly id: string; readonly exitCode: number }
  | { readonly kind: "ping"; readonly number: number }
  | { readonly kind: "usage" };

export type DenseReport =
  /** The first message of every connection: the containers that exist. */
  | { readonly kind: "hello"; readonly containers: readonly string[] }
  | { readonly kind: "started"; readonly id: string }
  /**
   * It never ran. `stale`: it may in another process, for this one does not see what the node has mounted for it, or
   * has no addresses left for its memory.
   */
  | { readonly kind: "refused"; readonly id: string; readonly message: string; readonly stale: boolean }
  /** It has ended; how is in its end file. */
  | { readonly kind: "ended"; readonly id: string }
  | { readonly kind: "pong"; readonly number: number }
  | { readonly kind: "usage"; readonly containers: readonly DenseUsage[] };

export interface DenseUsage {
  readonly id: string;
  /** The size of its linear memories. */
  readonly memoryBytes: number;
  /** That its stacks have run, of all time. */
  readonly ranMs: number;
}

/** The content of a container's end file. */
export interface DenseEnd extends Partial<RunnerEnd> {
  readonly exitCode: number;
}

/**
 * A launch holds arguments and environment, each up to Linux' own limit of 128 KiB a string; Kubernetes keeps a pod
 * below 1.5 MiB.
 */
export const MAX_REQUEST_BYTES = 4 * MEBIBYTE;
/** Usage of as many containers as a process may have, some 120 bytes each, or a message of 4 KiB. */
export const MAX_REPORT_BYTES = 128 * KIBIBYTE;

/** Bounds the pieces of an incomplete line. */
const MAX_PIECES = 64;

/** Splits input into lines. @throws RangeError for a line that is too long */
export class LineReader {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  push(chunk: Buffer): string[] {
    const lines: string[] = [];
    let rest = chunk;
    for (let end = rest.indexOf(NEWLINE); end >= 0; end = rest.indexOf(NEWLINE)) {
      this.#keep(rest.subarray(0, end));
      lines.push(Buffer.concat(this.#chunks).toString("utf8"));
      this.#chunks = [];
      this.#bytes = 0;
      rest = rest.subarray(end + 1);
    }
    if (rest.length > 0) this.#keep(rest);
    return lines;
  }

  #keep(bytes: Buffer): void {
    this.#bytes += bytes.length;
    if (this.#bytes > this.#maxBytes) throw new RangeError(`a line of more than ${this.#maxBytes} bytes`);
    this.#chunks.push(bytes);
    // Each takes some hundred bytes by itself, and it may be one byte.
    if (this.#chunks.length > MAX_PIECES) this.#chunks = [Buffer.concat(this.#chunks)];
  }
}

const NEWLINE = 0x0a;

export const line = (message: DenseRequest | DenseReport): string => `${JSON.stringify(message)}\n`;

/** Reads a report of a process that one of its components may have taken over. Undefined for anything else. */
export function readReport(text: string): DenseReport | undefined {
  const value = parsed(text);
  if (value === undefined) return undefined;
  const { kind, id, number, message, stale, containers } = value;
  switch (kind) {
    case "hello":
      return isListOf(containers, isText) ? { kind, containers } : undefined;
    case "started":
    case "ended":
      return isText(id) ? { kind, id } : undefined;
    case "refused":
      return isText(id) && isText(message) && typeof stale === "boolean" ? { kind, id, message, stale } : undefined;
    case "pong":
      return isFigure(number) ? { kind, number } : undefined;
    case "usage":
      return isListOf(containers, isUsage) ? { kind, containers } : undefined;
    default:
      return undefined;
  }
}

function parsed(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

const isText = (value: unknown): value is string => typeof value === "string";
const isFigure = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value) && value >= 0;
const isListOf = <T>(value: unknown, is: (each: unknown) => each is T): value is T[] =>
  Array.isArray(value) && value.every(is);
const isUsage = (value: unknown): value is DenseUsage => {
  const { id, memoryBytes, ranMs } = Object(value) as Record<string, unknown>;
  return isText(id) && isFigure(memoryBytes) && isFigure(ranMs);
};
