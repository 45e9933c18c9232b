import { extname } from "node:path";
import { Worker } from "node:worker_threads";
import { ignore } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE, MEBIBYTE } from "@picolet/protocol/units.ts";
import { budgetOf } from "../admission/quotas.ts";
import { tooLarge } from "../api/limits.ts";
import { badRequest, StatusError } from "../api/status-error.ts";
import { readYaml, type YamlReading } from "./yaml-text.ts";

/** Kubernetes' own limit for the data of a ConfigMap. kubectl and client libraries send JSON, up to 3 MiB. */
export const MAX_YAML_BYTES = MEBIBYTE;
/** Smaller texts are read at once: up to 40 ms for the worst, 8 ms for an ordinary manifest of this size. */
const MAX_INLINE_BYTES = 4 * KIBIBYTE;
/** Far above the 2 s of `MAX_TOKENS`, for a text that finds a slow path in the parser. */
const DEADLINE = seconds(10);
/** Texts of one user that wait for the thread; further ones are answered with 429. */
const MAX_WAITING_PER_USER = 4;
/** The heap of the thread: 1 MiB of YAML becomes up to 120 MiB of nodes. */
const MAX_HEAP_MIB = 192;

interface Waiting {
  readonly text: string;
  readonly settle: (reading: Promise<YamlReading>) => void;
}

/**
 * Reads YAML bodies. Composing YAML cannot be interrupted and takes milliseconds for each KiB, so a thread reads those
 * that are not small. There is one at a time, started for one text and ended with it: YAML of that size is rare, and an
 * idle hub keeps no thread. Users take turns.
 */
export class YamlReader {
  readonly #clock: Clock;
  /** By budget, in the order of turns. */
  readonly #waiting = new Map<string, Waiting[]>();
  #isBusy = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @returns JSON text @throws StatusError 400, 413, 429 */
  async toJson(bytes: Buffer, user: string): Promise<string> {
    if (bytes.length > MAX_YAML_BYTES) throw tooLarge(`limit for YAML is ${MAX_YAML_BYTES}; send JSON`);
    const text = bytes.toString("utf8");
    const reading = bytes.length <= MAX_INLINE_BYTES ? readYaml(text) : await this.#inThread(text, user);
    if ("error" in reading) throw badRequest(`error decoding YAML: ${reading.error}`);
    return reading.json;
  }

  #inThread(text: string, user: string): Promise<YamlReading> {
    const budget = budgetOf(user);
    const own = this.#waiting.get(budget) ?? [];
    if (own.length >= MAX_WAITING_PER_USER) {
      throw new StatusError("TooManyRequests", "too many YAML bodies at one time; send JSON", { retryAfterSeconds: 1 });
    }
    this.#waiting.set(budget, own);
    const { promise, resolve } = Promise.withResolvers<YamlReading>();
    own.push({ text, settle: resolve });
    void this.#work();
    return promise;
  }

  async #work(): Promise<void> {
    if (this.#isBusy) return;
    this.#isBusy = true;
    for (let next = this.#take(); next !== undefined; next = this.#take()) {
      const reading = readInThread(this.#clock, next.text);
      next.settle(reading);
      await reading.catch(ignore("the request that waits for it gets the error"));
    }
    this.#isBusy = false;
  }

  #take(): Waiting | undefined {
    const [user, own] = this.#waiting.entries().next().value ?? [];
    if (user === undefined || own === undefined) return undefined;
    const next = own.shift();
    // Behind all others, if more of this user is waiting.
    this.#waiting.delete(user);
    if (own.length > 0) this.#waiting.set(user, own);
    return next;
  }
}

/** @throws StatusError 413 */
async function readInThread(clock: Clock, text: string, deadline: Millis = DEADLINE): Promise<YamlReading> {
  // Beside this file, or beside the program that it was built into.
  const file = new URL(`./yaml-worker${extname(import.meta.url)}`, import.meta.url);
  const worker = new Worker(file, { workerData: text, resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MIB } });
  const isOver = new AbortController();
  try {
    return await new Promise<YamlReading>((resolve, reject) => {
      const refuse = (cause: unknown): void => reject(tooLarge(`the YAML costs too much to read; send JSON`, cause));
      worker.once("message", resolve);
      worker.once("error", refuse);
      worker.once("exit", () => refuse(undefined));
      clock.sleep(deadline, isOver.signal).then(refuse, ignore("it was read before the deadline"));
    });
  } finally {
    isOver.abort();
    await worker.terminate();
  }
}
