/** One pod of a test: what a test waits for, and what it asks of it. */
import assert from "node:assert/strict";
import { inspect } from "node:util";
import type { CoreV1Event, V1ContainerStatus, V1Pod } from "@kubernetes/client-node";
import type { ExecResult, KubeApi } from "./kube-api.ts";
import type { LiveSet } from "./live-set.ts";

export interface LogOptions {
  readonly container?: string;
  readonly previous?: boolean;
  readonly query?: Readonly<Record<string, string>>;
}

export interface TestPodParts {
  readonly api: KubeApi;
  readonly pods: LiveSet<V1Pod>;
  /** Opened when a test first asks for events. */
  readonly events: () => LiveSet<CoreV1Event>;
  readonly signal: AbortSignal;
}

export class TestPod {
  readonly name: string;
  readonly uid: string;
  readonly namespace: string;
  readonly path: string;
  readonly #parts: TestPodParts;

  constructor(parts: TestPodParts, created: V1Pod) {
    this.#parts = parts;
    this.name = created.metadata?.name ?? "";
    this.uid = created.metadata?.uid ?? "";
    this.namespace = created.metadata?.namespace ?? "";
    this.path = `/api/v1/namespaces/${this.namespace}/pods/${this.name}`;
  }

  /** As the watch last told it. */
  get latest(): V1Pod | undefined {
    const pod = this.#parts.pods.get(this.name);
    return pod?.metadata?.uid === this.uid ? pod : undefined;
  }

  /** Every state that the watch reported, oldest first. */
  get history(): readonly V1Pod[] {
    return this.#parts.pods.history(this.name).filter(({ metadata }) => metadata?.uid === this.uid);
  }

  /** @param what is said when the test's time runs out first */
  async until(what: string, holds: (pod: V1Pod) => boolean): Promise<V1Pod> {
    try {
      return await this.#parts.pods.find(() => {
        if (this.#parts.pods.isGone(this.uid)) throw new Error(`pod ${this.name} is gone`);
        return this.latest !== undefined && holds(this.latest) ? this.latest : undefined;
      });
    } catch (error) {
      throw new Error(`waited for pod ${this.name}: ${what}`, { cause: error });
    }
  }

  /** @throws when `holds` is not so now, or ceases to be so within `ms` */
  async stays(ms: number, what: string, holds: (pod: V1Pod) => boolean): Promise<void> {
    await this.#parts.pods.holds(ms, () => {
      const pod = this.latest;
      assert.ok(pod !== undefined && holds(pod), `pod ${this.name} should have stayed: ${what}`);
    });
  }

  async phase(...phases: readonly string[]): Promise<V1Pod> {
    const isFinal = (pod: V1Pod) => ["Succeeded", "Failed"].includes(pod.status?.phase ?? "");
    const pod = await this.until(`phase ${phases.join(" or ")}`, (each) => {
      return phases.includes(each.status?.phase ?? "") || isFinal(each);
    });
    const { status } = pod;
    assert.ok(phases.includes(status?.phase ?? ""), `phase ${status?.phase}: ${status?.reason} ${status?.message}`);
    return pod;
  }

  async succeeded(): Promise<V1Pod> {
    return await this.phase("Succeeded");
  }

  /** All containers started. */
  async running(): Promise<V1Pod> {
    await this.phase("Running");
    return await this.until("all containers to run", (pod) => {
      const statuses = pod.status?.containerStatuses ?? [];
      return statuses.length > 0 && statuses.every(({ state }) => state?.running !== undefined);
    });
  }

  async ready(): Promise<V1Pod> {
    return await this.until("the condition Ready", (pod) => conditionOf(pod, "Ready") === "True");
  }

  async logs({ container, previous = false, query = {} }: LogOptions = {}): Promise<string> {
    const all = {
      ...(container === undefined ? {} : { container }),
      ...(previous ? { previous: "true" } : {}),
      ...query,
    };
    return await this.#parts.api.text(`${this.path}/log`, all);
  }

  /** Follows the log until it holds `text`. @returns all of it up to there */
  async logged(text: string | RegExp, container?: string): Promise<string> {
    await this.until("a container whose log can be read", (pod) => {
      const status = statusOf(pod, container);
      return [status?.state, status?.lastState].some((state) => state?.running ?? state?.terminated);
    });
    const stop = new AbortController();
    const signal = AbortSignal.any([stop.signal, this.#parts.signal]);
    const query = { follow: "true", ...(container === undefined ? {} : { container }) };
    let seen = "";
    try {
      for await (const piece of this.#parts.api.stream(`${this.path}/log`, query, signal)) {
        seen += piece;
        if (typeof text === "string" ? seen.includes(text) : text.test(seen)) return seen;
      }
    } catch (error) {
      throw new Error(`waited for ${inspect(text)} in the log of ${this.name}, which says: ${seen}`, { cause: error });
    } finally {
      stop.abort();
    }
    throw new Error(`the log of ${this.name} ended without ${inspect(text)}: ${seen}`);
  }

  async exec(command: readonly string[], container?: string): Promise<ExecResult> {
    const first = this.latest?.spec?.containers[0]?.name ?? "";
    return await this.#parts.api.exec(this.namespace, this.name, container ?? first, command);
  }

  /** Runs a shell script in it. @returns what it printed @throws unless it ends with 0 */
  async shell(script: string, container?: string): Promise<string> {
    const { code, stdout, stderr } = await this.exec(["/bin/sh", "-c", script], container);
    assert.equal(code, 0, `${script} ended with ${code}: ${stderr}${stdout}`);
    return stdout;
  }

  async event(what: string, fits: (event: CoreV1Event) => boolean): Promise<CoreV1Event> {
    const events = this.#parts.events();
    try {
      return await events.find(() => events.all.find((each) => each.involvedObject.name === this.name && fits(each)));
    } catch (error) {
      throw new Error(`waited for an event of pod ${this.name}: ${what}`, { cause: error });
    }
  }

  /** @param gracePeriodSeconds undefined: the pod's own */
  async delete(gracePeriodSeconds?: number): Promise<void> {
    await this.#parts.api.call("DELETE", this.path, {
      apiVersion: "v1",
      kind: "DeleteOptions",
      ...(gracePeriodSeconds === undefined ? {} : { gracePeriodSeconds }),
    });
  }

  /** Deleted for good: its name is free. */
  async gone(): Promise<void> {
    await this.#parts.pods.find(() => (this.#parts.pods.isGone(this.uid) ? true : undefined));
  }

  async patch(patch: unknown, subresource = ""): Promise<V1Pod> {
    const path = subresource === "" ? this.path : `${this.path}/${subresource}`;
    return await this.#parts.api.patch<V1Pod>(path, patch, "strategic-merge");
  }
}

export const conditionOf = (pod: V1Pod | undefined, type: string): string | undefined =>
  pod?.status?.conditions?.find((each) => each.type === type)?.status;

export function statusOf(pod: V1Pod | undefined, container = ""): V1ContainerStatus | undefined {
  const { containerStatuses = [], initContainerStatuses = [], ephemeralContainerStatuses = [] } = pod?.status ?? {};
  const all = [...containerStatuses, ...initContainerStatuses, ...ephemeralContainerStatuses];
  return container === "" ? containerStatuses[0] : all.find(({ name }) => name === container);
}

export const restartsOf = (pod: V1Pod | undefined, container = ""): number =>
  statusOf(pod, container)?.restartCount ?? 0;

/** Milliseconds; times come as text. NaN when there is none. */
export const timeOf = (time: Date | string | undefined): number =>
  time === undefined ? Number.NaN : new Date(time).getTime();
