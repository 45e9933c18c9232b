/** Restarts and deletes a pod for a user of the page, as edgectl does. Loaded with the first request for it. */
import { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { podChangeSentence } from "@picolet/protocol/local-api/pod-change.ts";
import { type PodAction, pageStatus } from "@picolet/protocol/page/pod-actions.ts";
import type { Clock, Log } from "@picolet/protocol/ports.ts";
import type { AgentView } from "../api/agent-view.ts";
import { HTTP_STATUS } from "../api/api-answers.ts";
import { changePod, type PodChangesComponents } from "../api/pod-changes.ts";
import { findPod } from "../api/pod-objects.ts";
import type { PageAnswer } from "./page-answers.ts";

export interface PageActionsComponents extends Omit<PodChangesComponents, "find"> {
  readonly view: AgentView;
  readonly clock: Clock;
  readonly log: Log;
}

/** A person confirms each. More from all users together get 429. */
export const ACTION_RATE = { burst: 10, perSecond: 0.2 };
const OK = 200;

export class PageActions {
  readonly #components: PageActionsComponents;
  readonly #limits: RateLimits;

  constructor(components: PageActionsComponents) {
    this.#components = components;
    this.#limits = new RateLimits(components, ACTION_RATE, 1);
  }

  /**
   * Begins the change in one turn of the event loop, so that there is one at a time, and answers before the containers
   * have ended. Never throws, but what is cancelled. @param user may do it
   */
  async change(action: PodAction, user: string, signal: AbortSignal): Promise<PageAnswer> {
    const { verb, namespace, name } = action;
    const { view, workers, pushed, log } = this.#components;
    const waitMs = this.#limits.take("");
    if (waitMs > 0)
      return statusAnswer(HTTP_STATUS.resource_exhausted, `too many pods are changed: try again in ${waitMs} ms`);
    try {
      const find = () => findPod(view, namespace, name);
      const { change } = await changePod({ workers, pushed, find }, verb, { user, waits: false }, signal);
      log.info("a user of the page has changed a pod", { user, verb, namespace, pod: name });
      return statusAnswer(OK, podChangeSentence(change, `${namespace}/${name}`, false));
    } catch (error) {
      if (signal.aborted) throw error;
      if (error instanceof PicoletError) return statusAnswer(HTTP_STATUS[error.code], error.message);
      log.error("cannot change a pod for a user of the page", { verb, namespace, pod: name, error });
      return statusAnswer(HTTP_STATUS.internal, "the agent cannot change the pod; its log says why");
    }
  }
}

/** @param code of HTTP. @param message a sentence */
const statusAnswer = (code: number, message: string): PageAnswer => ({
  ...{ status: code, contentType: "application/json", isStream: false },
  body: [`${JSON.stringify(pageStatus(code, message))}\n`],
});
