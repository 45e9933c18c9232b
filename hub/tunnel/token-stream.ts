import { TOKEN_SECONDS } from "@picolet/hub-core/access-table.ts";
import type { NodeBackend } from "@picolet/hub-core/fleet.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { dnsLabelProblems, dnsSubdomainProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
import { MAX_REQUEST_BYTES } from "@picolet/protocol/pki/certificate-request.ts";
import type { IncomingStream, StreamError } from "@picolet/protocol/tunnel/stream.ts";
import * as z from "zod";

const name = z.string().refine((value) => dnsSubdomainProblems(value).length === 0, "is no name");

/** TokenRequest's own limits. What the board gets is the API server's to say. */
const tokenParams = z.object({
  namespace: name,
  serviceAccount: name,
  audiences: z.array(z.string().max(1024)).max(32),
  expirationSeconds: z.int().min(TOKEN_SECONDS.shortest).max(TOKEN_SECONDS.longestRequest),
  podName: name,
  podUid: z.string().min(1).max(128),
});

/** The write slots, taken for one node. */
export interface NodeSlots {
  run<T>(write: () => Promise<T>, signal: AbortSignal): Promise<T>;
}

/** A verb or subresource of the kubelet's API has 10 characters or so. */
const word = z.string().min(1).max(64);

const reviewedUser = {
  user: z.string().min(1).max(1024),
  groups: z.array(z.string().max(1024)).max(128),
};

/** Bounds what the API server is sent; a service account token has some 1,200 characters. */
const reviewParams = z.discriminatedUnion("review", [
  z.object({
    review: z.literal("token"),
    token: z
      .string()
      .min(1)
      .max(16 * 1024),
  }),
  z.object({
    review: z.literal("podDeletion"),
    ...reviewedUser,
    namespace: z.string().refine((value) => dnsLabelProblems(value).length === 0, "is no name of a namespace"),
  }),
  z.object({
    review: z.literal("access"),
    ...reviewedUser,
    verb: word,
    subresource: word,
  }),
  z.object({
    review: z.literal("serving"),
    request: z.string().min(1).max(MAX_REQUEST_BYTES),
  }),
]);

/** @returns 0, or the milliseconds until the node may ask again */
export type ReviewLimit = () => number;

/** Answers a stream of the agent's: there is one kind, `token`. Never throws. */
export function answerAgentStream(
  stream: IncomingStream,
  backend: NodeBackend,
  { slots, reviewLimit }: { readonly slots: NodeSlots; readonly reviewLimit: ReviewLimit },
): void {
  if (stream.kind !== "token") {
    stream.reject({ code: "unimplemented", message: `an agent cannot open ${stream.kind}` });
    return;
  }
  const isReview = typeof stream.params === "object" && stream.params !== null && "review" in stream.params;
  const answered = isReview ? review(stream, backend, reviewLimit) : requestToken(stream, backend, slots);
  answered.catch((error: unknown) => {
    if (!isCancelled(error)) stream.reject(streamErrorOf(error));
  });
}

async function requestToken(stream: IncomingStream, backend: NodeBackend, slots: NodeSlots): Promise<void> {
  const parsed = tokenParams.safeParse(stream.params);
  if (!parsed.success) {
    throw new PicoletError("invalid", "cannot read the token request", { cause: z.prettifyError(parsed.error) });
  }
  const token = await slots.run(() => backend.requestToken(parsed.data, stream.closed), stream.closed);
  stream.accept({ token: token.token, expirationTimestamp: token.expirationTimestamp }).end();
}

/** Takes none of the node's writes: its statuses must not wait for its clients. */
async function review(stream: IncomingStream, backend: NodeBackend, limit: ReviewLimit): Promise<void> {
  const parsed = reviewParams.safeParse(stream.params);
  if (!parsed.success) {
    throw new PicoletError("invalid", "cannot read the review", { cause: z.prettifyError(parsed.error) });
  }
  const waitMs = limit();
  if (waitMs > 0) throw new PicoletError("resource_exhausted", `this node asks too often; again in ${waitMs} ms`);
  stream.accept(await backend.review(parsed.data, stream.closed)).end();
}

const streamErrorOf = (error: unknown): StreamError => ({
  code: error instanceof PicoletError ? error.code : "internal",
  message: describeError(error),
});
