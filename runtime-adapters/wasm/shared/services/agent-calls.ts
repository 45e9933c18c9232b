/** Calls of the agent's services from host functions: they wait for the answer, and fail as their interface does. */
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type Plain, type ServiceMessage, ServiceRefusal } from "@picolet/runtime-contract/board-services.ts";
import { Failure } from "../resources/failure.ts";
import type { Poller } from "../resources/polling.ts";
import type { ServiceClient } from "./service-client.ts";

export interface AgentCall {
  /** `<interface>.<method>` */
  readonly method: string;
  readonly value?: Plain;
  readonly bytes?: readonly Uint8Array[];
  /** True when a repeated call has the same effect as one call. */
  readonly repeatable: boolean;
}

/** A case of a variant, as it is in JavaScript. */
export interface ErrorCase {
  readonly tag: string;
  readonly val?: string | number | bigint;
}

export class AgentCalls {
  readonly #poller: Poller;
  readonly #client: ServiceClient;

  constructor(poller: Poller, client: ServiceClient) {
    this.#poller = poller;
    this.#client = client;
  }

  /**
   * Call it once in a host function, as its first effect, because the function is called again after the wait.
   * @throws Failure with the interface's error; `too-large` for a request that cannot be sent at all
   */
  ask({ method, value = null, bytes = [], repeatable }: AgentCall): ServiceMessage {
    try {
      return this.#poller.finish(() => this.#client.call(method, { value, bytes }, { repeatable }));
    } catch (error) {
      if (isPicoletError(error, "resource_exhausted")) throw new Failure<ErrorCase>({ tag: "too-large" });
      if (!(error instanceof ServiceRefusal)) throw error;
      const { tag, val } = error;
      throw new Failure<ErrorCase>(val === undefined ? { tag } : { tag, val });
    }
  }
}
