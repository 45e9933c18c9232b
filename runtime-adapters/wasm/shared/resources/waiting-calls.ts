/**
 * Connects a component to functions of the host that may have to wait. V8 sets a stack aside for every call of a
 * `Suspending` import, even if it returns no promise, and continues in a microtask. Hardly any call waits. So a few
 * instructions of WebAssembly call such a function directly, and only when it has to wait they call the `Suspending`
 * import, and then the function again:
 *
 *     (func (export "0") (type $type) (local $begun externref)
 *       (loop $again (result …)
 *         (call $attempt0 (local.get 0) … (local.get $begun))
 *         (if (global.get $blocked) (then (local.set $begun (call $wait)) (br $again)))))
 */
import { paddedU32 } from "../binary/byte-reader.ts";
import type { FunctionType } from "../binary/function-types.ts";

/**
 * @param begun result of the wait of the previous attempt
 * @returns its result, or a promise: it has to wait for that, and the next attempt gets the promise's result as `begun`
 */
export type Attempt = (args: never[], begun: unknown) => unknown;

export interface WaitingCall {
  readonly attempt: Attempt;
  readonly type: FunctionType;
}

const EXTERNREF = 0x6f;
const I32 = 0x7f;
const I64 = 0x7e;
const FROM = "";

/** The waiting calls of one component. Code that is compiled for one instance is shared with the others. */
export class WaitingCalls {
  readonly #modules = new Map<string, WebAssembly.Module>();

  /** @returns replacements for the component's imports, in the same order. Only one of its calls may run at a time. */
  wrapped(calls: readonly WaitingCall[]): unknown[] {
    if (calls.length === 0) return [];
    const blocked = new WebAssembly.Global({ value: "i32", mutable: true }, 0);
    let waits: Promise<unknown> | undefined;
    const wait = (): unknown => {
      blocked.value = 0;
      return waits;
    };
    const imports: Record<string, unknown> = { blocked, wait: new WebAssembly.Suspending(wait) };
    for (const [index, { attempt, type }] of calls.entries()) {
      const nothing = numbersOf(type).results[0] === I64 ? 0n : 0;
      imports[index] = (...args: never[]) => {
        const begun = args.pop() ?? undefined;
        const result = attempt(args, begun);
        if (!(result instanceof Promise)) return result;
        waits = result;
        blocked.value = 1;
        return nothing;
      };
    }
    const { exports } = new WebAssembly.Instance(this.#module(calls.map(({ type }) => type)), { [FROM]: imports });
    return calls.map((_, index) => exports[index]);
  }

  #module(types: readonly FunctionType[]): WebAssembly.Module {
    const key = types.join();
    const module = this.#modules.get(key) ?? new WebAssembly.Module(Uint8Array.from(moduleBytes(types)));
    this.#modules.set(key, module);
    return module;
  }
}

function numbersOf(type: FunctionType): {
  readonly parameters: readonly number[];
  readonly results: readonly number[];
} {
  const [parameters, results] = type.split(">").map((each) => [...Buffer.from(each, "hex")]);
  return { parameters: parameters ?? [], results: results ?? [] };
}

/** In the binary format (WebAssembly core specification, "Modules"). */
function moduleBytes(types: readonly FunctionType[]): number[] {
  const functions = types.map(numbersOf);
  const { length } = functions;
  const typeOf = (index: number): number => 1 + 2 * index;
  return [
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, [
      functionType([], [EXTERNREF]),
      ...functions.flatMap(({ parameters, results }) => [
        functionType(parameters, results),
        functionType([...parameters, EXTERNREF], results),
      ]),
    ]),
    ...section(2, [
      [...name(FROM), ...name("blocked"), 0x03, I32, 0x01],
      [...name(FROM), ...name("wait"), 0x00, ...paddedU32(0)],
      ...functions.map((_, index) => [...name(FROM), ...name(`${index}`), 0x00, ...paddedU32(typeOf(index) + 1)]),
    ]),
    ...section(
      3,
      functions.map((_, index) => [...paddedU32(typeOf(index))]),
    ),
    ...section(
      7,
      functions.map((_, index) => [...name(`${index}`), 0x00, ...paddedU32(1 + length + index)]),
    ),
    ...section(
      10,
      functions.map(({ parameters, results }, index) => body(index, parameters.length, results)),
    ),
  ];
}

const LOOP = 0x03;
const IF = 0x04;
const END = 0x0b;
const BRANCH = 0x0c;
const CALL = 0x10;
const LOCAL_GET = 0x20;
const LOCAL_SET = 0x21;
const GLOBAL_GET = 0x23;
const NO_RESULT = 0x40;

function body(index: number, parameters: number, [result = NO_RESULT]: readonly number[]): number[] {
  const code = [
    ...[0x01, 0x01, EXTERNREF],
    ...[LOOP, result],
    ...Array.from({ length: parameters + 1 }, (_, each) => [LOCAL_GET, ...paddedU32(each)]).flat(),
    ...[CALL, ...paddedU32(1 + index)],
    ...[GLOBAL_GET, 0x00, IF, NO_RESULT],
    ...[CALL, 0x00, LOCAL_SET, ...paddedU32(parameters), BRANCH, 0x01],
    ...[END, END, END],
  ];
  return [...paddedU32(code.length), ...code];
}

function section(id: number, entries: readonly (readonly number[])[]): number[] {
  const content = [...paddedU32(entries.length), ...entries.flat()];
  return [id, ...paddedU32(content.length), ...content];
}

const functionType = (parameters: readonly number[], results: readonly number[]): number[] => [
  0x60,
  ...[...paddedU32(parameters.length), ...parameters],
  ...[...paddedU32(results.length), ...results],
];

/** @param text fewer than 128 ASCII characters */
const name = (text: string): number[] => [text.length, ...Buffer.from(text, "latin1")];
