/** How a pod grants its components one interface of the board. Pure. */
import type { DeviceSyntax } from "./device-syntax.ts";

/** A value read from an annotation, with all problems of its text. */
export interface Parsed<T> {
  readonly value: T;
  readonly problems: readonly string[];
}

/** The part of an interface that the agent and the transpiler need: `grant.ts` of its folder in `shared/board/`. */
export interface InterfaceGrant {
  /** True when the host part asks the agent. Its runner then gets a connection to the agent. */
  readonly asksAgent: boolean;
  /** Interfaces of WASI that the same host part answers: for each path the versions that it knows, "" for none. */
  readonly proposals?: Readonly<Record<string, RegExp>>;
  /** Annotations `wasm.picolet.io/NAME` that configure the interface. Each check returns the problems of a value. */
  readonly annotations?: Readonly<Record<string, (value: string) => readonly string[]>>;
  /**
   * Functions that may wait although their WIT type is synchronous, by path of the interface. A component of WASI 0.3
   * is transpiled so that its stack is set aside in these functions, and can wait in no others.
   */
  readonly waiting?: Readonly<Record<string, readonly string[]>>;
  /** True when its host part computes models. Its runner then loads the library that does. */
  readonly infers?: boolean;
  /** For an interface whose devices the pod names in `wasm.picolet.io/devices`. */
  readonly device?: DeviceSyntax;
}

/** Splits a list at its commas. Empty entries are dropped. */
export const listOf = (text: string): string[] =>
  text
    .split(",")
    .map((each) => each.trim())
    .filter((each) => each !== "");

/** Names of a resource's methods, as WIT encodes them. */
export const methods = (resource: string, names: readonly string[]): string[] =>
  names.map((name) => `[method]${resource}.${name}`);
