/** The users of the page with a token that is not the board's: who they are, and what they may, by the hub's answer. */
import type { IncomingMessage } from "node:http";
import { networkOf } from "@picolet/kubelet-api/fairness/network-of.ts";
import { type AccessQuestion, ReviewedAccess, type Reviews } from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { RateLimits } from "@picolet/protocol/async/rate-limits.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock } from "@picolet/protocol/ports.ts";

/** A right to delete the pods of a namespace. */
interface PodDeletionQuestion {
  readonly podsIn: string;
}

export type PageReviews = Reviews<AccessQuestion | PodDeletionQuestion>;

export interface PageUsersComponents {
  readonly reviews: PageReviews;
  readonly clock: Clock;
}

export interface PageUsersInit {
  readonly nodeName: string;
}

/** How often a network without an answer in the cache may have the hub asked. A further request gets 429. */
export const PAGE_REVIEWS = { burst: 12, perSecond: 0.5 };
const MAX_NETWORKS = 64;
/** Answers that are kept, 0.5 KiB each: some users with three rights. */
const MAX_ANSWERS = 64;

export class PageUsers {
  readonly #access: ReviewedAccess<AccessQuestion | PodDeletionQuestion>;
  readonly #node: string;

  constructor({ reviews, clock }: PageUsersComponents, { nodeName }: PageUsersInit) {
    this.#node = nodeName;
    const limits = new RateLimits({ clock }, PAGE_REVIEWS, MAX_NETWORKS);
    const beforeReview = ({ socket }: IncomingMessage): void => {
      const waitMs = limits.take(networkOf(socket.remoteAddress ?? ""));
      if (waitMs > 0) throw new PicoletError("resource_exhausted", `too many unknown users: try again in ${waitMs} ms`);
    };
    this.#access = new ReviewedAccess({ reviews, clock }, { maxAnswers: MAX_ANSWERS, beforeReview });
  }

  /**
   * @param podsIn undefined: the user wants to read; else to change pods of this namespace
   * @returns the user's name
   * @throws `permission_denied`, with the reason `Unauthorized` for an unknown token; `unavailable` while the hub cannot
   * be asked; `unimplemented` for a hub that is too old for changes of pods; `resource_exhausted`
   */
  async check(request: IncomingMessage, podsIn: string | undefined, signal: AbortSignal): Promise<string> {
    try {
      return await this.#check(request, podsIn, signal);
    } catch (error) {
      const { cause } = error as { readonly cause?: unknown };
      if (!isPicoletError(cause, "unavailable")) throw error;
      throw new PicoletError("unavailable", "the hub, which knows users and their rights, cannot be asked now", {
        cause,
      });
    }
  }

  async #check(request: IncomingMessage, podsIn: string | undefined, signal: AbortSignal): Promise<string> {
    const user = await this.#access.bearer(request, signal);
    if (user === undefined)
      throw new PicoletError("permission_denied", "neither the board nor its hub knows this token", {
        reason: "Unauthorized",
      });
    const allows = (question: AccessQuestion | PodDeletionQuestion): Promise<boolean> =>
      this.#access.allows(user, question, signal, request);
    const reading = { verb: "get", node: this.#node };
    const mayRead =
      (await allows({ ...reading, subresource: "page" })) || (await allows({ ...reading, subresource: "proxy" }));
    if (!mayRead)
      throw new PicoletError("permission_denied", `user ${user.name} may not read it: this needs get on nodes/page`);
    if (podsIn !== undefined && !(await allows({ podsIn }))) {
      const needs = `this needs delete on pods in namespace ${podsIn}`;
      throw new PicoletError("permission_denied", `user ${user.name} may not restart or delete pods here: ${needs}`);
    }
    return user.name;
  }
}
