/** picolet:board/node-info. */
import type * as NodeInfo from "@picolet/wit/generated/picolet-board-node-info.js";
import type { AgentCalls } from "../../services/agent-calls.ts";

export function nodeInfoImports(pod: NodeInfo.Pod, calls: AgentCalls): { "picolet:board/node-info": typeof NodeInfo } {
  const thisNode = (): NodeInfo.Node => {
    const { value } = calls.ask({ method: "node-info.get", repeatable: true });
    // The agent's answer is trusted: its service and this interface have the same types.
    return value as unknown as NodeInfo.Node;
  };
  return { "picolet:board/node-info": { thisPod: () => pod, thisNode } };
}
