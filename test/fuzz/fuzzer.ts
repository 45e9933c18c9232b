/**
 * A coverage-guided fuzzer for parsers in this process. An input that makes the code under test take a branch for the first time joins
 * the corpus, and the next inputs are mutations of the corpus. Coverage is V8's own (precise, by block), through the inspector, so
 * nothing is instrumented; without it (short runs) inputs are mutations of the committed corpus alone, by a seed.
 */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { Session } from "node:inspector";
import { join } from "node:path";
import type { Random } from "@picolet/protocol/ports.ts";

/** One parser, or several of one kind. */
export interface FuzzTarget {
  /** Names the folder of its corpus. */
  readonly name: string;
  /** Valid inputs to begin with. */
  readonly seeds: () => readonly Uint8Array[] | Promise<readonly Uint8Array[]>;
  /** Pieces that mutations put in: keywords, magic numbers. */
  readonly dictionary?: readonly string[];
  /** Longer inputs are not made. Default: 4096. */
  readonly maxBytes?: number;
  /** Returns for input that is understood; throws what `refuses` accepts for input that is refused; anything else is a fault. */
  readonly run: (input: Uint8Array) => void | Promise<void>;
  /** Whether an error is a proper refusal. */
  readonly refuses: (error: unknown) => boolean;
}

export interface FuzzFault {
  readonly target: string;
  readonly input: Uint8Array;
  readonly why: string;
}

export interface FuzzOutcome {
  readonly runs: number;
  readonly corpus: number;
  readonly branches: number;
  readonly fault: FuzzFault | undefined;
}

const DEFAULT_MAX_BYTES = 4096;
/** Mutations of one input that are stacked on each other. */
const MAX_MUTATIONS = 6;
/** Inputs of the corpus that are taken half of the time. */
const RECENT = 3;
/** Numbers at which parsers err: signs, lengths, limits. */
const INTERESTING = [0, 1, 2, 4, 7, 8, 16, 31, 32, 63, 64, 127, 128, 254, 255];
/** A slower input is a fault: parsers here are linear, and inputs have some KiB. A busy machine takes a tenth of it. */
const SLOW_MS = 5000;

/** Committed inputs of a target: what once went wrong, and what reaches far. */
export const corpusFolder = (target: string): string => join(import.meta.dirname, "corpus", target);

export function committedCorpus(target: string): readonly { readonly name: string; readonly input: Uint8Array }[] {
  const folder = corpusFolder(target);
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .sort()
    .map((name) => ({ name, input: readFileSync(join(folder, name)) }));
}

/** Writes an input down, under a name made of its content. @returns its path */
export function keepInput(target: string, input: Uint8Array, kind: "crash" | "found"): string {
  mkdirSync(corpusFolder(target), { recursive: true });
  const digest = createHash("sha256").update(input).digest("hex").slice(0, 16);
  const path = join(corpusFolder(target), `${kind}-${digest}`);
  writeFileSync(path, input);
  return path;
}

/** Why this input is a fault; undefined: it is understood, or properly refused. */
export async function faultOf({ run, refuses }: FuzzTarget, input: Uint8Array): Promise<string | undefined> {
  const startedAt = performance.now();
  try {
    await run(input);
  } catch (error) {
    if (!refuses(error)) return error instanceof Error ? (error.stack ?? error.message) : String(error);
  }
  const ms = performance.now() - startedAt;
  return ms > SLOW_MS ? `it took ${Math.round(ms)} ms` : undefined;
}

/** Mutations of what is committed, by a seed: the short form, the same on every machine. */
export async function replay(target: FuzzTarget, random: Random, runs: number): Promise<FuzzOutcome> {
  const corpus = [...(await target.seeds()), ...committedCorpus(target.name).map(({ input }) => input)];
  for (const input of corpus) {
    const why = await faultOf(target, input);
    if (why !== undefined) return { runs: 0, corpus: corpus.length, branches: 0, fault: faulty(target, input, why) };
  }
  for (let run = 1; run <= runs; run += 1) {
    const input = mutated(target, corpus, random);
    const why = await faultOf(target, input);
    if (why !== undefined) {
      const least = await minimized(target, input);
      return { runs: run, corpus: corpus.length, branches: 0, fault: faulty(target, least, why) };
    }
  }
  return { runs, corpus: corpus.length, branches: 0, fault: undefined };
}

export interface ExploreInit {
  readonly coverage: Coverage;
  readonly isOver: (runs: number) => boolean;
  /** Whether what is found is written down. */
  readonly keep: boolean;
}

/** Follows coverage until `isOver`; what reaches further than anything before joins the corpus on disk where `keep` says so. */
export async function explore(
  target: FuzzTarget,
  random: Random,
  { coverage, isOver, keep }: ExploreInit,
): Promise<FuzzOutcome> {
  coverage.forget();
  const corpus: Uint8Array[] = [];
  const consider = async (input: Uint8Array): Promise<string | undefined> => {
    const why = await faultOf(target, input);
    if (coverage.isNew()) {
      corpus.push(input);
      if (keep && why === undefined) keepInput(target.name, input, "found");
    }
    return why;
  };
  const first = [...(await target.seeds()), ...committedCorpus(target.name).map(({ input }) => input)];
  let runs = 0;
  for (;;) {
    const input = first[runs] ?? mutated(target, corpus.length > 0 ? corpus : first, random);
    const why = await consider(input);
    runs += 1;
    if (why !== undefined) {
      const least = await minimized(target, input);
      return { runs, corpus: corpus.length, branches: coverage.size, fault: faulty(target, least, why) };
    }
    if (runs >= first.length && isOver(runs)) break;
  }
  return { runs, corpus: corpus.length, branches: coverage.size, fault: undefined };
}

const faulty = ({ name }: FuzzTarget, input: Uint8Array, why: string): FuzzFault => ({ target: name, input, why });

/** The shortest part of it that still is a fault: halves, quarters … are left out as long as that helps. */
async function minimized(target: FuzzTarget, input: Uint8Array): Promise<Uint8Array> {
  let least = input;
  for (let size = Math.ceil(least.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < least.length; ) {
      const shorter = Buffer.concat([least.subarray(0, at), least.subarray(at + size)]);
      if ((await faultOf(target, shorter)) === undefined) at += size;
      else least = shorter;
    }
  }
  return least;
}

const below = (random: Random, limit: number): number => Math.floor(random.next() * limit);
const oneOf = <T>(random: Random, items: readonly T[]): T => {
  const item = items[below(random, items.length)];
  if (item === undefined) throw new Error("there is nothing to choose from");
  return item;
};

/** An input of the corpus with some bytes changed, cut out, doubled, or taken from another one. */
export function mutated(target: FuzzTarget, corpus: readonly Uint8Array[], random: Random): Uint8Array {
  // What came last reached furthest; few mutations at once are more often right than many.
  const recent = random.next() < 0.5 ? corpus.slice(-RECENT) : corpus;
  let input: Buffer = Buffer.from(oneOf(random, recent));
  const count = 1 + Math.floor(random.next() ** 3 * MAX_MUTATIONS);
  for (let index = 0; index < count; index += 1) input = mutate(input, target, corpus, random);
  return input.subarray(0, target.maxBytes ?? DEFAULT_MAX_BYTES);
}

type Mutation = (input: Buffer, target: FuzzTarget, corpus: readonly Uint8Array[], random: Random) => Buffer;

const spliced = (input: Buffer, at: number, gone: number, put: Uint8Array): Buffer =>
  Buffer.concat([input.subarray(0, at), put, input.subarray(at + gone)]);

function slice(from: Uint8Array, random: Random): Uint8Array {
  const at = below(random, from.length + 1);
  return from.subarray(at, at + 1 + below(random, 64));
}

const MUTATIONS: readonly Mutation[] = [
  (input, _target, _corpus, random) => {
    const at = below(random, input.length);
    return spliced(input, at, 1, Uint8Array.of((input[at] ?? 0) ^ (1 << below(random, 8))));
  },
  (input, _target, _corpus, random) =>
    spliced(input, below(random, input.length), 1, Uint8Array.of(oneOf(random, INTERESTING))),
  (input, _target, _corpus, random) =>
    spliced(input, below(random, input.length + 1), 0, Uint8Array.of(below(random, 256))),
  (input, _target, _corpus, random) =>
    spliced(input, below(random, input.length + 1), 1 + below(random, 16), new Uint8Array()),
  (input, _target, _corpus, random) => spliced(input, below(random, input.length + 1), 0, slice(input, random)),
  (input, _target, corpus, random) => {
    const other = oneOf(random, corpus);
    return spliced(input, below(random, input.length + 1), below(random, 32), slice(other, random));
  },
  // The same piece many times: depth and length.
  (input, _target, _corpus, random) => {
    const piece = Buffer.from(slice(input, random)).subarray(0, 1 + below(random, 8));
    return spliced(
      input,
      below(random, input.length + 1),
      0,
      Buffer.concat(new Array(1 + below(random, 200)).fill(piece)),
    );
  },
  (input, { dictionary = [] }, _corpus, random) => {
    if (dictionary.length === 0) return input;
    return spliced(
      input,
      below(random, input.length + 1),
      below(random, 8),
      Buffer.from(oneOf(random, dictionary), "latin1"),
    );
  },
];

const mutate: Mutation = (input, target, corpus, random) => oneOf(random, MUTATIONS)(input, target, corpus, random);

interface BlockCoverage {
  readonly result: readonly {
    readonly scriptId: string;
    readonly url: string;
    readonly functions: readonly {
      readonly ranges: readonly { readonly startOffset: number; readonly endOffset: number; readonly count: number }[];
    }[];
  }[];
}

type Range = readonly [start: number, end: number];

/**
 * Which blocks of the project's own code have not run yet, and about how often functions have: powers of two, as AFL counts. One for a
 * process, made before anything runs that it is to see: V8 counts blocks only of functions that it compiles afterwards.
 */
export class Coverage implements Disposable {
  readonly #session = new Session();
  /** By function: V8 names a block only where it ran more or less often than what is around it, so what is left is kept. */
  readonly #left = new Map<string, readonly Range[]>();
  readonly #counts = new Set<string>();
  #blocks = 0;

  constructor() {
    this.#session.connect();
    this.#session.post("Profiler.enable");
    this.#session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
    this.isNew();
  }

  /** From here on everything is new again. */
  forget(): void {
    this.isNew();
    this.#left.clear();
    this.#counts.clear();
    this.#blocks = 0;
  }

  /** How often something ran for the first time. */
  get size(): number {
    return this.#blocks;
  }

  /** Whether anything has run, or run about twice as often, for the first time since the last call. */
  isNew(): boolean {
    const before = this.#blocks + this.#counts.size;
    // The inspector answers before it returns.
    this.#session.post("Profiler.takePreciseCoverage", (error, answer) => {
      if (error === null) this.#add(answer as BlockCoverage);
    });
    return this.#blocks + this.#counts.size > before;
  }

  #add({ result }: BlockCoverage): void {
    for (const { scriptId, url, functions } of result) {
      if (!url.startsWith("file:") || url.includes("/node_modules/") || url === import.meta.url) continue;
      for (const { ranges } of functions) {
        const [whole, ...inner] = ranges;
        if (whole === undefined || whole.count === 0) continue;
        const name = `${scriptId}:${whole.startOffset}`;
        this.#counts.add(`${name}:${Math.floor(Math.log2(whole.count))}`);
        const idle = inner.filter(({ count }) => count === 0).map((each): Range => [each.startOffset, each.endOffset]);
        const left = this.#left.get(name);
        const now = left === undefined ? idle : common(left, idle);
        if (left === undefined || lengthOf(now) < lengthOf(left)) this.#blocks += 1;
        this.#left.set(name, now);
      }
    }
  }

  [Symbol.dispose](): void {
    this.#session.disconnect();
  }
}

const lengthOf = (ranges: readonly Range[]): number => ranges.reduce((sum, [start, end]) => sum + end - start, 0);

/** What is in both. */
const common = (left: readonly Range[], right: readonly Range[]): readonly Range[] =>
  left.flatMap(([start, end]) =>
    right
      .map(([other, until]): Range => [Math.max(start, other), Math.min(end, until)])
      .filter(([from, to]) => from < to),
  );
