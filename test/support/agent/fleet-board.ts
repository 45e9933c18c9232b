/** A hub and one board of it, `node-a`: what most tests from kubectl's end have. */

import type { Containerd } from "../containerd/containerd.ts";
import { Fleet } from "../hub/test-fleet.ts";
import type { AgentNode } from "./agent-process.ts";
import { nodeWith } from "./node-fixtures.ts";

export const BOARD = "node-a";

export class FleetBoard implements AsyncDisposable {
  readonly fleet: Fleet;
  readonly node: AgentNode;

  private constructor(fleet: Fleet, node: AgentNode) {
    this.fleet = fleet;
    this.node = node;
  }

  /**
   * @returns when the board is Ready. @param containerd undefined: components alone. @param config beside its name and
   * its hub
   */
  static async start(
    containerd: Containerd | undefined,
    config: Readonly<Record<string, unknown>> = {},
  ): Promise<FleetBoard> {
    const fleet = await Fleet.start();
    const board = new FleetBoard(
      fleet,
      nodeWith(containerd, { config: { nodeName: BOARD, hub: await fleet.joinConfig(), ...config } }),
    );
    try {
      await board.node.start();
      await fleet.untilNodeReady(BOARD);
      return board;
    } catch (error) {
      await board[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Ends the pods before what they run on. */
  async [Symbol.asyncDispose](): Promise<void> {
    await using all = new AsyncDisposableStack();
    all.use(this.fleet);
    all.use(this.node);
    await this.fleet.tryKubectl(["delete", "pods", "--all", "--wait=true", "--timeout=60s"]);
  }
}
