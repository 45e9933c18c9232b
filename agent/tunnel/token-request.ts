import { PicoletError } from "@picolet/protocol/errors.ts";
import type { StreamOpener, TokenParams } from "@picolet/protocol/tunnel/stream.ts";
import type { IssuedToken } from "../core/hub/cluster-objects.ts";

/** @throws what the hub refuses it with, `unavailable` when the session ends, `cancelled` */
export async function requestToken(
  opener: StreamOpener,
  params: TokenParams,
  signal: AbortSignal,
): Promise<IssuedToken> {
  const stream = await opener.open("token", params, "status", signal);
  // Everything is in the reply.
  stream.end();
  const reply = stream.reply as Partial<Record<keyof IssuedToken, unknown>> | null;
  const { token, expirationTimestamp } = reply ?? {};
  if (typeof token !== "string" || token === "" || typeof expirationTimestamp !== "string") {
    throw new PicoletError("corrupt", "cannot read the token that the hub has answered with");
  }
  if (Number.isNaN(Date.parse(expirationTimestamp))) {
    throw new PicoletError("corrupt", "cannot read when the token of the hub expires");
  }
  return { token, expirationTimestamp };
}
