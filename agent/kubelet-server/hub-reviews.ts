import {
  type AccessQuestion,
  type KubeletReviews,
  type KubeletUser,
  type Reviews,
  unauthorized,
} from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { AccessReply, ReviewParams, TokenReply } from "@picolet/protocol/tunnel/stream.ts";
import type { ClientReviews } from "../core/hub/cluster-objects.ts";

/** Bounds what of a user is kept, against an API server that answers with more. */
const MAX_GROUPS = 128;

/** A right to delete the pods of a namespace, which the board's page asks for. */
interface PodDeletionQuestion {
  readonly podsIn: string;
}

const HUB_TOO_OLD =
  "the board's hub is too old to say who may restart or delete pods: update the hub, or use edgectl on the board";

/** Asks the API server through the tunnel, as a kubelet asks it over its webhooks. */
export class HubReviews implements KubeletReviews, Reviews<AccessQuestion | PodDeletionQuestion> {
  readonly #hub: ClientReviews | undefined;

  /** @param hub undefined: this node belongs to none */
  constructor({ hub }: { readonly hub: ClientReviews | undefined }) {
    this.#hub = hub;
  }

  async userOfToken(token: string, signal: AbortSignal): Promise<KubeletUser | undefined> {
    try {
      const reply = (await this.#ask({ review: "token", token }, signal)) as Partial<TokenReply> | null;
      const { name, groups = [] } = reply?.user ?? {};
      if (typeof name !== "string" || name === "" || !Array.isArray(groups)) return undefined;
      return { name, groups: groups.filter((each) => typeof each === "string").slice(0, MAX_GROUPS) };
    } catch (error) {
      // As a kubelet: without an answer no client is known.
      throw isPicoletError(error, "unavailable") || isPicoletError(error, "invalid") ? unauthorized(error) : error;
    }
  }

  async allows(
    { name, groups }: KubeletUser,
    question: Pick<AccessQuestion, "verb" | "subresource"> | PodDeletionQuestion,
    signal: AbortSignal,
  ): Promise<boolean> {
    const user = { user: name, groups: groups.slice(0, MAX_GROUPS) };
    const [params, what]: readonly [ReviewParams, string] =
      "podsIn" in question
        ? [{ review: "podDeletion", ...user, namespace: question.podsIn }, "verb=delete, resource=pods"]
        : [
            { review: "access", ...user, verb: question.verb, subresource: question.subresource },
            `verb=${question.verb}, resource=nodes`,
          ];
    try {
      return ((await this.#ask(params, signal)) as Partial<AccessReply> | null)?.allowed === true;
    } catch (error) {
      // An older hub does not know the question, and a namespace of this board's pods is never invalid.
      if ("podsIn" in question && isPicoletError(error, "invalid"))
        throw new PicoletError("unimplemented", HUB_TOO_OLD, { cause: error });
      // As a kubelet: 500 with the reason.
      if (!isPicoletError(error, "unavailable")) throw error;
      throw new PicoletError("failed", `Authorization error (user=${name}, ${what})`, {
        cause: error,
      });
    }
  }

  #ask(params: ReviewParams, signal: AbortSignal): Promise<unknown> {
    if (this.#hub !== undefined) return this.#hub.review(params, signal);
    throw new PicoletError("unavailable", "this node belongs to no hub that knows users and their rights");
  }
}
