/**
 * The agent's state as the local API reads it; `main` wires it. Every getter except `configuration` and `isolation`
 * answers at once, from memory.
 */

import type { Watch } from "@picolet/protocol/async/watch.ts";
import type {
  ConfigAnswer,
  FlashReport,
  IsolationAnswer,
  NodeCondition,
  ResourceReport,
  RuntimeReport,
  SecretsAtRestReport,
  SourceProblem,
  StatusAnswer,
  TelemetryReport,
  TunnelReport,
} from "@picolet/protocol/local-api/status.ts";
import type { ImageService } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { AgentPod } from "../core/pods/agent-pod.ts";
import type { EventStore } from "../core/store/store-ports.ts";
import type { AgentFacts, NodeFacts } from "../plan/node/judge-node.ts";

export interface AgentView {
  node(): NodeView;
  /** Facts for the judgement of the node that no other answer has. */
  facts(): AgentFacts & Pick<NodeFacts, "nowMs" | "isMachineClockRight" | "kernelPanic">;
  runtimes(): readonly RuntimeReport[];
  /** Every pod that is wanted, and those that are being ended. */
  pods(): readonly AgentPod[];
  /** As the kernel says; empty where the runtime cannot tell. */
  isolation(pod: AgentPod, signal: AbortSignal): Promise<IsolationAnswer["containers"]>;
  problems(): readonly SourceProblem[];
  warnings(): readonly SourceProblem[];
  tunnel(): TunnelReport;
  resources(): ResourceReport;
  agent(): StatusAnswer["agent"];
  configuration(): Promise<ConfigAnswer>;
  flash(): FlashReport;
  telemetry(): TelemetryReport;
  /** Null: this node keeps no Secrets. */
  secretsAtRest(): SecretsAtRestReport | null;
  /** In the order in which they are asked to import a file. */
  imageStores(): readonly ImageStore[];
  readonly events: Pick<EventStore, "list" | "latest">;
  /** Changes whenever `pods()` may answer something new. */
  readonly podsChanged: Watch<unknown>;
}

export interface NodeView {
  readonly name: string;
  /** With one of type Ready. */
  readonly conditions: readonly NodeCondition[];
}

export interface ImageStore {
  /** The adapter's name. */
  readonly name: string;
  readonly images: Pick<ImageService, "list" | "import">;
}
