import { hash } from "node:crypto";
import { backoffDelay, type Jitter } from "@picolet/protocol/async/backoff.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import type { SourceProblem } from "@picolet/protocol/local-api/status.ts";
import { type Clock, type Log, type Millis, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { DecisionRecorder } from "../core/store/decisions.ts";
import type { DesiredStore, EventRecorder } from "../core/store/store-ports.ts";
import { type FetchAnswer, HttpFetch } from "./http-fetch.ts";
import type { ManifestProblem } from "./manifests/manifest-reader.ts";
import { findCollisions, podLimitProblem } from "./manifests/pod-collisions.ts";
import { type PathProblem, type ProblemReason, ProblemReport, WARNING_REASON } from "./manifests/problem-report.ts";
import { configSeen } from "./manifests/static-pod.ts";

/** A server that is down for days is tried every few minutes; running pods do not depend on it. */
const MAX_BACKOFF = seconds(300);
/** Boards that lost their server together do not come back to it together. */
const JITTER: Jitter = [0.75, 1.25];
const EMPTY = "holds no pod; to remove all pods, answer with a List without items";

export interface HttpSourceComponents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly store: DesiredStore;
  readonly events: EventRecorder;
  /** Missing: no decision is recorded. */
  readonly decisions?: DecisionRecorder | undefined;
}

export interface HttpSourceInit {
  /** `staticPodURL` */
  readonly url: string;
  /** `staticPodURLHeader` */
  readonly headers: Readonly<Record<string, readonly string[]>>;
  /** `httpCheckFrequency` */
  readonly checkFrequency: Millis;
  readonly nodeName: string;
  /** Certificate authorities of https servers, the first file that is there. */
  readonly caFiles: readonly string[];
}

/** The identity of the last accepted answer of the server. */
interface Known {
  readonly etag: string;
  readonly lastModified: string;
  readonly digest: string;
}

const NOTHING_KNOWN: Known = { etag: "", lastModified: "", digest: "" };

/**
 * The pods that a web server has for this node: asked for again and again, with the tag of the last answer. An answer
 * is taken whole or not at all; without a good one everything stays as it was, over restarts of the agent too.
 */
export class HttpSource implements Component {
  readonly name = "http-source";
  readonly #components: HttpSourceComponents;
  readonly #init: HttpSourceInit;
  readonly #fetch: HttpFetch;
  readonly #report: ProblemReport;
  /** The URL for messages, without name and password. */
  readonly #origin: string;
  #known = NOTHING_KNOWN;
  /** The warnings of the last accepted answer. */
  #warnings: readonly PathProblem[] = [];
  /** In a row. */
  #failures = 0;

  constructor(components: HttpSourceComponents, init: HttpSourceInit) {
    const { clock, log, events } = components;
    this.#components = components;
    this.#init = init;
    this.#fetch = new HttpFetch({ clock }, init);
    this.#report = new ProblemReport(
      { log, events, decisions: components.decisions },
      { nodeName: init.nodeName, source: "http" },
    );
    this.#origin = shown(init.url);
  }

  /** Parts of the answer that have no effect. */
  get warnings(): Watch<readonly SourceProblem[]> {
    return this.#report.warnings;
  }

  /** The current problems of the server or of its answer. */
  get problems(): Watch<readonly SourceProblem[]> {
    return this.#report.problems;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        const problem = await this.#check(signal);
        this.#report.update(problem === undefined ? this.#warnings : [problem, ...this.#warnings]);
        this.#failures = problem === undefined ? 0 : this.#failures + 1;
        await this.#components.clock.sleep(this.#pause(), signal);
      }
    } finally {
      this.#fetch[Symbol.dispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#fetch[Symbol.dispose]();
  }

  #pause(): Millis {
    const { checkFrequency } = this.#init;
    if (this.#failures === 0) return checkFrequency;
    const max = millis(Math.max(MAX_BACKOFF, checkFrequency));
    return backoffDelay({ first: checkFrequency, max, jitter: JITTER }, this.#failures, this.#components.random.next());
  }

  /** @returns what is wrong */
  async #check(signal: AbortSignal): Promise<PathProblem | undefined> {
    try {
      const url = new URL(this.#init.url);
      const answer = await this.#fetch.fetch({ ...this.#known, url, headers: this.#init.headers }, signal);
      return answer.kind === "same" ? undefined : await this.#take(answer);
    } catch (error) {
      if (signal.aborted || !isPicoletError(error)) throw error;
      return this.#problem("ManifestsUnavailable", [{ position: undefined, message: describeError(error) }]);
    }
  }

  async #take({ text, etag, lastModified }: Extract<FetchAnswer, { kind: "text" }>): Promise<PathProblem | undefined> {
    const known = { etag, lastModified, digest: hash("sha256", text, "base64") };
    if (known.digest === this.#known.digest) {
      this.#known = known;
      return undefined;
    }
    const { podsOf } = await import("./manifests/manifest-pods.ts");
    const { clock, log, store } = this.#components;
    const { pods: wanted, removed } = store.desired.current;
    const init = {
      source: "http",
      origin: this.#origin,
      nodeName: this.#init.nodeName,
      now: clock.wall(),
      seenBefore: (uid: DesiredPod["uid"]) => {
        const seen = wanted.get(uid) ?? removed.get(uid);
        return seen === undefined ? undefined : configSeen(seen);
      },
    } as const;
    const { pods, problems, warnings } = podsOf(text, init, EMPTY);
    const others = [...wanted.values()].filter(({ source }) => source !== "http");
    const refusals = [...findCollisions(pods, others), ...podLimitProblem(pods)];
    const all = [...problems, ...refusals.map((message): ManifestProblem => ({ position: undefined, message }))];
    if (all.length > 0) return this.#problem("InvalidManifest", all);
    try {
      const before = store.desired.current;
      this.#replace(pods);
      if (store.desired.current !== before) log.info("the pods of the URL have changed", { pods: pods.length });
    } catch (error) {
      if (!isPicoletError(error)) throw error;
      const message = `${describeError(error)}; it will be tried again`;
      return this.#problem("FailedToStorePods", [{ position: undefined, message }]);
    }
    // A refused answer is not remembered, so that it is read again: the pods it collides with may be gone by then.
    this.#known = known;
    this.#warnings = warnings.length === 0 ? [] : [this.#problem(WARNING_REASON, warnings)];
    return undefined;
  }

  /** Equal content has the same revision, which writes nothing. */
  #replace(pods: readonly DesiredPod[]): void {
    const { store } = this.#components;
    const revision = store.revision("http");
    if (store.replace("http", revision, pods) === "accepted") return;
    store.replace("http", revision + 1, pods);
  }

  #problem(reason: ProblemReason, problems: readonly ManifestProblem[]): PathProblem {
    const { pods } = this.#components.store.desired.current;
    const own = [...pods.values()].filter(({ source }) => source === "http");
    return { path: this.#origin, reason, problems, pods: own };
  }
}

function shown(text: string): string {
  const url = URL.parse(text);
  if (url === null) return text;
  url.username = "";
  url.password = "";
  return url.href;
}
