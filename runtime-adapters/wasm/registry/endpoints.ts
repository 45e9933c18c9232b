/** A registry with its mirrors: each is asked in turn. */
import { describeError, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { RegistryAccess } from "../shared/messages/pull-request.ts";
import type { RegistryEndpoint } from "../shared/oci/registries.ts";
import { RegistryClient } from "./registry-client.ts";

/** What is wrong with the image itself is so on every mirror. */
const isFinal = (error: unknown): boolean =>
  isPicoletError(error, "invalid") || isPicoletError(error, "resource_exhausted") || isPicoletError(error, "cancelled");

/** The registry and its mirrors in turn, until one does what is asked. @throws what the last one says */
export async function atAnyEndpoint<T>(
  request: RegistryAccess,
  act: (registry: RegistryClient) => Promise<T>,
): Promise<T> {
  const failures: unknown[] = [];
  for (const endpoint of request.endpoints) {
    try {
      return await atEndpoint(endpoint, request, act);
    } catch (error) {
      if (isFinal(error)) throw error;
      failures.push(error);
    }
  }
  throw failures.length === 1 ? failures[0] : ofSeveral(failures, request.endpoints);
}

/**
 * By itself: in a loop, what esbuild 0.28 makes of `await using` throws the error of one turn at the end of the next
 * one too.
 */
async function atEndpoint<T>(
  endpoint: RegistryEndpoint,
  request: RegistryAccess,
  act: (registry: RegistryClient) => Promise<T>,
): Promise<T> {
  await using registry = new RegistryClient(endpoint, request);
  return await act(registry);
}

/** The registry's own failure is the last, and decides the code; those of its mirrors are only listed. */
function ofSeveral(failures: readonly unknown[], endpoints: readonly RegistryEndpoint[]): PicoletError {
  const own = failures.at(-1);
  const texts = failures.slice(0, -1).map((each, index) => `${endpoints[index]?.url}: ${describeError(each)}`);
  const message = `${describeError(own)} (mirrors: ${texts.join("; ")})`;
  if (!isPicoletError(own)) return new PicoletError("failed", message, { retryable: true });
  return new PicoletError(own.code, message, { retryable: own.retryable });
}
