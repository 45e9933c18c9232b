import { TOKEN_SECONDS } from "@picolet/hub-core/access-table.ts";
import type { NodeBackend } from "@picolet/hub-core/fleet.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { dnsSubdomainProblems } from "@picolet/protocol/kubernetes/name-rules.ts";
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

/** Answers a stream of the agent's: there is one kind, `token`. Never throws. */
export function answerAgentStream(stream: IncomingStream, backend: NodeBackend, slots: NodeSlots): void {
  if (stream.kind !== "token") {
    stream.reject({ code: "unimplemented", message: `an agent cannot open ${stream.kind}` });
    return;
  }
  requestToken(stream, backend, slots).catch((error: unknown) => {
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

const streamErrorOf = (error: unknown): StreamError => ({
  code: error instanceof PicoletError ? error.code : "internal",
  message: describeError(error),
});
