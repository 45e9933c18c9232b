import type {
  KubeClient,
  ListOptions,
  ObjectRef,
  ResourceType,
  WatchEvent,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Random } from "@picolet/protocol/ports.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
/** Turns of the event loop by which watches may lag, and answers may be late. */
const MAX_LAG = 12;
/** The share of requests that fail, half of them after they were carried out. */
const FAILURE_RATE = 0.1;

type Write = "create" | "update" | "patch" | "delete";

/**
 * A client over a bad connection: its reads are late, and some writes get no answer although they may have been carried
 * out.
 */
export function unreliable(client: KubeClient, random: Random): KubeClient {
  const lag = async (): Promise<void> => {
    for (let left = Math.floor(random.next() * MAX_LAG); left > 0; left -= 1) await turn();
  };
  const fail = (): never => {
    throw new PicoletError("unavailable", "the connection broke", { retryable: true });
  };
  const write = <Name extends Write>(name: Name): KubeClient[Name] =>
    (async (...args: unknown[]) => {
      const lot = random.next();
      if (lot < FAILURE_RATE / 2) fail();
      await lag();
      const result = await (client[name] as (...all: unknown[]) => Promise<unknown>)(...args);
      if (lot < FAILURE_RATE) fail();
      return result;
    }) as KubeClient[Name];
  return {
    async get(type: ResourceType, ref: ObjectRef, signal: AbortSignal) {
      await lag();
      return await client.get(type, ref, signal);
    },
    list: (type, options, signal) => client.list(type, options, signal),
    async *watch(type: ResourceType, options: ListOptions, signal: AbortSignal): AsyncIterable<WatchEvent> {
      for await (const event of client.watch(type, options, signal)) {
        await lag();
        yield event;
      }
    },
    create: write("create"),
    update: write("update"),
    patch: write("patch"),
    delete: write("delete"),
    as: (user, groups) => unreliable(client.as(user, groups), random),
  };
}
