/** Runs tests, several at a time, each in a namespace of its own, and tells what became of them. */
import { setTimeout as pause } from "node:timers/promises";
import { inspect } from "node:util";
import type { CoreV1Event, V1Namespace, V1Node, V1Pod, V1ServiceAccount } from "@kubernetes/client-node";
import type { ConformanceTest } from "./conformance-test.ts";
import type { KubeApi } from "./kube-api.ts";
import { LiveSet } from "./live-set.ts";
import type { Target } from "./target.ts";
import { Skipped, TestContext } from "./test-context.ts";

/** How long the namespaces of all tests may take to go after the last test. */
const CLEANUP_LIMIT_MS = 90_000;
/** A namespace is there, with its service account, after milliseconds; a controller that is down never makes it. */
const NAMESPACE_LIMIT_MS = 30_000;
const LAST_WORD_MS = 1_000;
const NODE_GROUP = "node";
const NAMESPACE_PREFIX = "conformance-";

export interface TestResult {
  readonly name: string;
  readonly group: string;
  readonly result: "passed" | "failed" | "skipped";
  readonly seconds: number;
  /** Why it failed or was skipped. */
  readonly message?: string;
  /** The missing feature that explains a known failure. */
  readonly gap?: string;
}

export interface GroupCount {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

export interface Report {
  readonly passed: number;
  readonly failed: number;
  /** The failed tests that need a feature that picolet is known to lack. */
  readonly known: number;
  readonly skipped: number;
  readonly groups: Readonly<Record<string, GroupCount>>;
  readonly tests: readonly TestResult[];
}

export interface RunnerInit {
  readonly parallel: number;
  /** Multiplies all time limits: 1 on a real machine, more on an emulated one. Default 1. */
  readonly slowness?: number;
  /** Progress, and what is known of a failure. */
  readonly say: (line: string) => void;
}

/** The environment of one test. */
export interface Stage {
  /** @throws what the test throws, or the signal's reason when its time is over */
  play(test: ConformanceTest, signal: AbortSignal): Promise<void>;
  /** What is known of a failed test's pods and events. */
  diagnose(test: ConformanceTest): Promise<string>;
  /** Called after each test; what it makes go may go later. */
  clear(test: ConformanceTest): Promise<void>;
  /** After all of them. @throws with what has not gone */
  settle(): Promise<void>;
}

export async function runTests(tests: readonly ConformanceTest[], stage: Stage, init: RunnerInit): Promise<Report> {
  const results = new Map<ConformanceTest, TestResult>();
  const runOne = async (test: ConformanceTest): Promise<void> => {
    const result = await resultOf(test, stage, init);
    results.set(test, result);
    const { name, seconds } = result;
    init.say(`${results.size}/${tests.length} ${result.result.toUpperCase()} ${seconds} s  ${name}`);
    if (result.message !== undefined) init.say(result.message);
  };
  const queue = tests.filter(({ serial }) => !serial);
  const lanes = Array.from({ length: Math.max(1, init.parallel) }, async () => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) await runOne(next);
  });
  await Promise.all(lanes);
  for (const test of tests.filter(({ serial }) => serial)) await runOne(test);
  return reportOf([...tests.flatMap((test) => results.get(test) ?? []), await settled(stage, init.say)]);
}

/** A test has not passed while the node still runs something of it. */
async function settled(stage: Stage, say: (line: string) => void): Promise<TestResult> {
  const startedAt = performance.now();
  const name = "[sig-node] Namespaces should be gone with all their pods after their tests";
  const seconds = () => secondsSince(startedAt);
  try {
    await stage.settle();
    return { name, group: NODE_GROUP, result: "passed", seconds: seconds() };
  } catch (error) {
    const message = inspect(error);
    say(message);
    return { name, group: NODE_GROUP, result: "failed", seconds: seconds(), message };
  }
}

const secondsSince = (startedAt: number): number => Math.round((performance.now() - startedAt) / 100) / 10;

async function resultOf(test: ConformanceTest, stage: Stage, { say, slowness = 1 }: RunnerInit): Promise<TestResult> {
  const startedAt = performance.now();
  const stop = new AbortController();
  const limitSeconds = test.limitSeconds * slowness;
  const tooLong = new Error(`it took longer than ${limitSeconds} s`);
  const timer = setTimeout(() => stop.abort(tooLong), limitSeconds * 1000);
  const { name, group = NODE_GROUP } = test;
  const seconds = () => secondsSince(startedAt);
  try {
    await Promise.race([stage.play(test, stop.signal), rejectsAfter(stop.signal)]);
    return { name, group, result: "passed", seconds: seconds() };
  } catch (error) {
    if (error instanceof Skipped) return { name, group, result: "skipped", seconds: seconds(), message: error.message };
    const took = seconds();
    const message = `${inspect(error)}\n${await stage.diagnose(test)}`;
    return {
      name,
      group,
      result: "failed",
      seconds: took,
      message,
      ...(test.gap === undefined ? {} : { gap: test.gap }),
    };
  } finally {
    clearTimeout(timer);
    await stage.clear(test).catch((error: unknown) => say(`cannot clear up after ${name}: ${inspect(error)}`));
    stop.abort(new Error("the test is over"));
  }
}

/** A moment after the signal: what the test itself was waiting for says more. */
async function rejectsAfter(signal: AbortSignal): Promise<never> {
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  await pause(LAST_WORD_MS, undefined, { ref: false });
  throw signal.reason;
}

function reportOf(tests: readonly TestResult[]): Report {
  const countIn = (some: readonly TestResult[]): GroupCount => {
    const count = (kind: TestResult["result"]): number => some.filter(({ result }) => result === kind).length;
    return { passed: count("passed"), failed: count("failed"), skipped: count("skipped") };
  };
  const { passed, failed, skipped } = countIn(tests);
  const known = tests.filter(({ gap }) => gap !== undefined).length;
  const byGroup = Object.entries(Object.groupBy(tests, ({ group }) => group));
  const groups = Object.fromEntries(byGroup.map(([group, some = []]) => [group, countIn(some)]));
  return { passed, failed, known, skipped, groups, tests };
}

/** A namespace for each test. */
export class ClusterStage implements Stage {
  readonly #api: KubeApi;
  readonly #target: Target;
  readonly #contexts = new Map<ConformanceTest, TestContext>();
  readonly #made: string[] = [];
  readonly #run = Math.random().toString(36).slice(2, 7);

  constructor(api: KubeApi, target: Target) {
    this.#api = api;
    this.#target = target;
  }

  async play(test: ConformanceTest, signal: AbortSignal): Promise<void> {
    await this.#checkNode();
    const namespace = `${NAMESPACE_PREFIX}${this.#run}-${this.#made.length}`;
    this.#made.push(namespace);
    const labels = { "pod-security.kubernetes.io/enforce": "privileged" };
    await this.#api.call<V1Namespace>("POST", "/api/v1/namespaces", { metadata: { name: namespace, labels } });
    const context = new TestContext(this.#api, this.#target, namespace, signal);
    this.#contexts.set(test, context);
    await this.#untilUsable(context);
    await test.run(context);
  }

  /** Without this check each test would wait to the end of its time. */
  async #checkNode(): Promise<void> {
    const { status } = await this.#api.get<V1Node>(`/api/v1/nodes/${this.#target.node}`);
    const ready = status?.conditions?.find(({ type }) => type === "Ready");
    if (ready?.status !== "True") throw new Error(`the node is not ready: ${ready?.reason}: ${ready?.message}`);
  }

  /** Pods are refused until there is a service account to run them as. */
  async #untilUsable(context: TestContext): Promise<void> {
    const stop = new AbortController();
    const signal = AbortSignal.any([stop.signal, context.signal, AbortSignal.timeout(NAMESPACE_LIMIT_MS)]);
    try {
      const accounts = new LiveSet<V1ServiceAccount>(this.#api, context.path("serviceaccounts"), signal);
      await accounts.find(() => accounts.get("default"));
    } finally {
      stop.abort(new Error("the namespace can be used"));
    }
  }

  async diagnose(test: ConformanceTest): Promise<string> {
    const context = this.#contexts.get(test);
    if (context === undefined) return "";
    try {
      const pods = await this.#api.get<{ items: V1Pod[] }>(context.path("pods"));
      const events = await this.#api.get<{ items: CoreV1Event[] }>(context.path("events"));
      const lines = pods.items.map(({ metadata, status }) => `  pod ${metadata?.name}: ${JSON.stringify(status)}`);
      for (const { type, reason, message, involvedObject, count } of events.items)
        lines.push(`  ${type} ${involvedObject.kind} ${involvedObject.name} ${reason} x${count ?? 1}: ${message}`);
      return lines.join("\n");
    } catch (error) {
      return `  nothing more is known: ${error}`;
    }
  }

  async clear(test: ConformanceTest): Promise<void> {
    const context = this.#contexts.get(test);
    if (context === undefined) return;
    this.#contexts.delete(test);
    try {
      await context.cleanUp();
    } finally {
      await this.#api.call("DELETE", `/api/v1/namespaces/${context.namespace}`);
    }
  }

  async settle(): Promise<void> {
    const stop = new AbortController();
    const limitMs = CLEANUP_LIMIT_MS * this.#target.slowness;
    const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(limitMs)]);
    const all = new LiveSet<V1Namespace>(this.#api, "/api/v1/namespaces", signal);
    const left = (): string[] => this.#made.filter((name) => all.get(name) !== undefined);
    try {
      await all.find(() => (all.listed && left().length === 0 ? true : undefined));
    } catch (error) {
      throw new Error(`still there after ${limitMs / 1000} s: ${left().join(", ")}`, { cause: error });
    } finally {
      stop.abort(new Error("all is cleared up"));
    }
  }
}

/** Those whose name fits `focus`, but for those whose name fits `skip`. */
export const chosen = (tests: readonly ConformanceTest[], focus?: RegExp, skip?: RegExp): readonly ConformanceTest[] =>
  tests.filter(({ name }) => (focus?.test(name) ?? true) && !(skip?.test(name) ?? false));
