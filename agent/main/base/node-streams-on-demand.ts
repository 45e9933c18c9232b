import type { StreamHandlers } from "../../core/hub/tunnel-ports.ts";
import { handlersOnDemand } from "../../streams/handlers-on-demand.ts";
import type { NodeStreams } from "../../streams/node-streams.ts";
import type { MadeStreams, NodeStreamsComponents, NodeStreamsInit } from "./make-node-streams.ts";

/** Handlers of streams for users who inspect this node or its pods; loaded with the first stream. */
export class NodeStreamsOnDemand {
  readonly #components: NodeStreamsComponents;
  readonly #init: NodeStreamsInit;
  #made: Promise<MadeStreams> | undefined;

  constructor(components: NodeStreamsComponents, init: NodeStreamsInit) {
    this.#components = components;
    this.#init = init;
  }

  /**
   * Handlers for one listener, with sessions of their own: clients of one listener take none from those of another.
   * @param maxSessions default: `MAX_SESSIONS`
   */
  handlers(maxSessions?: number): StreamHandlers {
    let streams: NodeStreams | undefined;
    return handlersOnDemand(async () => {
      const { sessions } = await this.#load();
      streams ??= sessions(maxSessions);
      return streams.handlers;
    });
  }

  #load(): Promise<MadeStreams> {
    const load = async (): Promise<MadeStreams> => {
      const { makeNodeStreams } = await import("./make-node-streams.ts");
      return makeNodeStreams(this.#components, this.#init);
    };
    this.#made ??= load().catch((error: unknown) => {
      this.#made = undefined;
      throw error;
    });
    return this.#made;
  }
}
