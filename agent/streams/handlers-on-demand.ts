import { describeError } from "@picolet/protocol/errors.ts";
import type { IncomingStream, StreamKind } from "@picolet/protocol/tunnel/stream.ts";
import type { StreamHandlers } from "../core/hub/tunnel-ports.ts";

const KINDS = ["logs", "exec", "attach", "portForward", "kubelet"] as const satisfies readonly StreamKind[];

/** @param load called for each stream; those that come meanwhile wait, and what they are sent waits with them */
export function handlersOnDemand(load: () => Promise<StreamHandlers>): StreamHandlers {
  const handle = async (kind: (typeof KINDS)[number], stream: IncomingStream): Promise<void> => {
    try {
      (await load())[kind]?.(stream);
    } catch (error) {
      if (!stream.closed.aborted) stream.reject({ code: "internal", message: describeError(error) });
    }
  };
  return Object.fromEntries(KINDS.map((kind) => [kind, (stream: IncomingStream) => void handle(kind, stream)]));
}
