/**
 * Answers pods whose annotation `picolet.io/why` is "?": asks the board of the pod for its black box, and replaces the
 * question by the answer, once. Any user who may patch a pod may ask, so nodes and namespaces take turns.
 */
import type { AskingPod, Fleet, FleetNodes, PodQuestions } from "@picolet/hub-core/fleet.ts";
import { WHY_ANNOTATION, WHY_QUESTION } from "@picolet/hub-core/fleet.ts";
import { type KubeClient, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { ignoreCancelled, joinSignals } from "@picolet/protocol/async/abort.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, seconds } from "@picolet/protocol/ports.ts";
import type { KubeletParams, TunnelStream } from "@picolet/protocol/tunnel/stream.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { awayAnnotation, whyAnnotation } from "./why-annotation.ts";

/** A board reads its ring of 1 MiB for an answer, and sends some 4 KiB over a line that may be metered. */
const NODE_INTERVAL = seconds(10);
/** A namespace has one answer at a time and then waits: bounds a tenant, on however many boards its pods are. */
const NAMESPACE_INTERVAL = seconds(1);
/** Answers under way for the whole fleet. The next wait for the end of one, for the deadline of slow boards at most. */
const MAX_ANSWERING = 8;
/** A board of a slow line needs a second or two. */
const ANSWER_DEADLINE = seconds(10);
/** Twice the largest answer of an agent: 4,096 characters of up to four bytes. What is beyond is not read. */
const MAX_ANSWER_BYTES = 32 * KIBIBYTE;
/** After a failure of the API server. */
const RETRY = seconds(60);
/** Nodes change often in a large fleet. Their changes are considered together. */
const SETTLE = millis(500);

interface Components {
  readonly questions: PodQuestions;
  readonly fleet: Fleet;
  readonly nodes: Pick<FleetNodes, "view" | "follow">;
  /** As the hub itself: a node may not change its pods' metadata. */
  readonly client: Pick<KubeClient, "patch">;
  readonly clock: Clock;
  readonly log: Log;
}

interface Question extends AskingPod {
  /** Monotonic; not asked before, after a failure. */
  readonly notBefore: number;
}

export class WhyAnswerer implements Component {
  readonly name = "answers to why";
  readonly #components: Components;
  readonly #alarm: Alarm;
  /** By namespace, the one that was served last at the end; then by path. At most one for each cached pod. */
  readonly #waiting = new Map<string, Map<string, Question>>();
  /** Monotonic times of the next turn, of nodes and namespaces served within their interval. */
  readonly #nodeTurns = new Map<string, number>();
  readonly #namespaceTurns = new Map<string, number>();
  readonly #answering = new Set<Promise<void>>();
  readonly #followers: readonly Disposable[];

  constructor(components: Components) {
    this.#components = components;
    this.#alarm = new Alarm(components.clock);
    this.#followers = [
      components.questions.follow((path, asking) => this.#changed(path, asking)),
      components.nodes.follow(() => this.#settle()),
    ];
  }

  async run(signal: AbortSignal): Promise<void> {
    using life = joinSignals(signal);
    const following = this.#followFleet(life.signal);
    try {
      for (;;) {
        await this.#alarm.ring(life.signal);
        this.#turn(life.signal);
      }
    } finally {
      life.abort();
      await Promise.all([following, ...this.#answering]);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const follower of this.#followers) follower[Symbol.dispose]();
  }

  async #followFleet(signal: AbortSignal): Promise<void> {
    try {
      for await (const _ of this.#components.fleet.nodes.changes(signal)) this.#settle();
    } catch (error) {
      ignoreCancelled(error);
    }
  }

  #settle(): void {
    if (this.#waiting.size > 0) this.#alarm.set(SETTLE);
  }

  #changed(path: string, asking: AskingPod | undefined): void {
    const [namespace = ""] = path.split("/");
    const questions = this.#waiting.get(namespace);
    if (asking === undefined) {
      questions?.delete(path);
      if (questions?.size === 0) this.#waiting.delete(namespace);
      return;
    }
    const notBefore = questions?.get(path)?.notBefore ?? 0;
    this.#wait({ ...asking, notBefore });
  }

  #wait(question: Question): void {
    const { namespace, name } = question;
    const questions = this.#waiting.get(namespace) ?? new Map<string, Question>();
    this.#waiting.set(namespace, questions.set(`${namespace}/${name}`, question));
    this.#alarm.set(millis(0));
  }

  /** Begins every answer whose node and namespace have their turn: one of each namespace. */
  #turn(signal: AbortSignal): void {
    const now = this.#components.clock.monotonic();
    for (const turns of [this.#nodeTurns, this.#namespaceTurns]) {
      for (const [name, at] of turns) if (at <= now) turns.delete(name);
    }
    let next = Number.POSITIVE_INFINITY;
    for (const [namespace, questions] of [...this.#waiting]) {
      // The end of one of them is the next turn.
      if (this.#answering.size >= MAX_ANSWERING) return;
      const ownTurn = this.#namespaceTurns.get(namespace) ?? 0;
      const [question, due] = ownTurn > now ? [undefined, ownTurn] : this.#dueOf(questions, now);
      next = Math.min(next, due);
      if (question !== undefined) this.#begin(question, now, signal);
    }
    if (next !== Number.POSITIVE_INFINITY) this.#alarm.set(millis(next - now));
  }

  /** @returns the first question that may be answered now; without one, when the next may be */
  #dueOf(questions: ReadonlyMap<string, Question>, now: number): readonly [Question | undefined, number] {
    let next = Number.POSITIVE_INFINITY;
    for (const question of questions.values()) {
      const due = Math.max(question.notBefore, this.#nodeTurns.get(question.node) ?? 0);
      // A node that is on its way is another change: of the fleet, or of the Node.
      if (due <= now && !this.#isAnswerable(question.node)) continue;
      if (due <= now) return [question, Number.POSITIVE_INFINITY];
      next = Math.min(next, due);
    }
    return [undefined, next];
  }

  /** Another replica answers for a node that is connected there: its Node does not become Unknown. */
  #isAnswerable(node: string): boolean {
    return this.#components.fleet.has(node) || this.#isAway(node);
  }

  #isAway(node: string): boolean {
    const conditions = this.#components.nodes.view(node)?.conditions ?? "";
    return conditions.split(",").includes("Ready=Unknown");
  }

  #begin(question: Question, now: number, signal: AbortSignal): void {
    const { namespace, name, node } = question;
    const questions = this.#waiting.get(namespace);
    questions?.delete(`${namespace}/${name}`);
    // To the end of the line.
    this.#waiting.delete(namespace);
    if (questions !== undefined && questions.size > 0) this.#waiting.set(namespace, questions);
    this.#nodeTurns.set(node, now + NODE_INTERVAL);
    this.#namespaceTurns.set(namespace, Number.POSITIVE_INFINITY);
    const answering = this.#answer(question, signal).finally(() => {
      this.#answering.delete(answering);
      this.#namespaceTurns.set(namespace, now + NAMESPACE_INTERVAL);
      this.#settle();
    });
    this.#answering.add(answering);
  }

  async #answer(question: Question, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#components;
    const { namespace, name, node } = question;
    try {
      const text = await this.#textFor(question, signal);
      if (text === undefined) this.#wait(question);
      else await this.#write(question, text, signal);
    } catch (error) {
      if (isCancelled(error)) return;
      log.warn("cannot answer why a pod is as it is", { node, namespace, pod: name, error: describeError(error) });
      this.#wait({ ...question, notBefore: clock.monotonic() + RETRY });
    }
  }

  /** @returns undefined when the node has gone meanwhile */
  async #textFor(question: Question, signal: AbortSignal): Promise<string | undefined> {
    const { clock, fleet } = this.#components;
    const { namespace, node } = question;
    if (!fleet.has(node)) return awayAnnotation(node, clock.wall());
    try {
      const told = await withDeadline(clock, ANSWER_DEADLINE, "answer", (s) => this.#ask(question, s), signal);
      return whyAnnotation(told, namespace, clock.wall());
    } catch (error) {
      if (isCancelled(error) && signal.aborted) throw error;
      if (!fleet.has(node)) return undefined;
      return whyAnnotation(`${node} gave no answer: ${describeError(error)}`, namespace, clock.wall());
    }
  }

  async #ask({ namespace, name, node }: Question, signal: AbortSignal): Promise<string> {
    const path = `/why/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}?output=text`;
    const params: KubeletParams = { method: "GET", path };
    const stream = await this.#components.fleet.open(node, "kubelet", params, "bulk", signal);
    const text = await readText(stream, signal);
    const { status } = (stream.reply ?? {}) as { readonly status?: unknown };
    if (status === 200) return text;
    throw new PicoletError("failed", `status ${Number(status)}: ${text}`);
  }

  /** Only the question of that very pod is replaced: what a user has written since stays. */
  async #write({ namespace, name, uid }: Question, text: string, signal: AbortSignal): Promise<void> {
    const path = `/metadata/annotations/${WHY_ANNOTATION.replace("/", "~1")}`;
    const patch = [
      { op: "test", path: "/metadata/uid", value: uid },
      { op: "test", path, value: WHY_QUESTION },
      { op: "replace", path, value: text },
    ];
    try {
      await this.#components.client.patch(PODS, { namespace, name }, "json", patch, {}, signal);
    } catch (error) {
      const isOver = (["not_found", "conflict", "invalid"] as const).some((code) => isPicoletError(error, code));
      if (!isOver) throw error;
    }
  }
}

async function readText(stream: TunnelStream, signal: AbortSignal): Promise<string> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  try {
    stream.end();
    for (let piece = await stream.read(signal); piece !== undefined; piece = await stream.read(signal)) {
      pieces.push(piece);
      size += piece.byteLength;
      if (size > MAX_ANSWER_BYTES) throw new PicoletError("resource_exhausted", "the answer is too large");
    }
    return Buffer.concat(pieces).toString("utf8");
  } catch (error) {
    stream.reset({ code: "cancelled", message: "the answer is no longer read" });
    throw error;
  }
}
