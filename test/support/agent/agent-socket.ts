/** A client of an agent's local socket, wherever the agent runs. */
import type { IncomingMessage } from "node:http";
import type { EventObject, StatusAnswer, WatchLine } from "@picolet/protocol/local-api/status.ts";
import {
  byName,
  followPods,
  linesOf,
  type PodsByName,
  requestAgent,
  textOf,
} from "@picolet/scripts/start/follow-pods.ts";

/** Generous: the machine is shared, and a loaded one has been seen ten times slower. */
export const WAIT_LIMIT_MS = 120_000;

export abstract class AgentClient {
  abstract readonly socketPath: string;
  protected readonly waitLimitMs: number = WAIT_LIMIT_MS;

  /** The end of the agent's log, which a failed wait shows. */
  protected abstract latestLog(): string | Promise<string>;

  async status(): Promise<StatusAnswer> {
    return JSON.parse(await textOf(await this.request("/v1/status"))) as StatusAnswer;
  }

  request(path: string): Promise<IncomingMessage> {
    return requestAgent(this.socketPath, path);
  }

  /**
   * Follows the pods' watch until `condition` holds of all pods by name; fails with the agent's log after two minutes.
   */
  async waitForPods(what: string, condition: (pods: PodsByName) => boolean): Promise<PodsByName> {
    const { reached, pods } = await followPods(this.socketPath, this.waitLimitMs, condition);
    if (reached) return byName(pods);
    const shown = pods.map((pod) => `${pod.metadata.name}: ${JSON.stringify(pod.status)}`).join("\n");
    throw new Error(`${what} did not come about\n${shown}\n${await this.latestLog()}`);
  }

  /** Asks again whenever the pods or the events may have changed, until `condition` holds. */
  async waitForStatus(what: string, condition: (status: StatusAnswer) => boolean): Promise<StatusAnswer> {
    const response = await this.request("/v1/events?watch=true");
    const timer = setTimeout(() => response.destroy(new Error("waited too long")), this.waitLimitMs);
    try {
      let status = await this.status();
      if (condition(status)) return status;
      for await (const _ of linesOf(response)) {
        status = await this.status();
        if (condition(status)) return status;
      }
      throw new Error("the watch ended");
    } catch (error) {
      throw new Error(`${what} did not come about\n${JSON.stringify(await this.status())}\n${await this.latestLog()}`, {
        cause: error,
      });
    } finally {
      clearTimeout(timer);
      response.destroy();
    }
  }

  /** The first event, old or new, of which `condition` holds. */
  async waitForEvent(what: string, condition: (event: EventObject) => boolean): Promise<EventObject> {
    const response = await this.request("/v1/events?watch=true");
    const timer = setTimeout(() => response.destroy(new Error("waited too long")), this.waitLimitMs);
    const seen: string[] = [];
    try {
      for await (const line of linesOf(response)) {
        const change = JSON.parse(line) as WatchLine<EventObject>;
        if (change.type === "ERROR") throw new Error(change.error.message);
        const { object } = change;
        if (condition(object)) return object;
        seen.push(`${object.involvedObject.name} ${object.reason}: ${object.message}`);
      }
      throw new Error("the watch ended");
    } catch (error) {
      throw new Error(`${what} did not come about\n${seen.join("\n")}\n${await this.latestLog()}`, { cause: error });
    } finally {
      clearTimeout(timer);
      response.destroy();
    }
  }
}
