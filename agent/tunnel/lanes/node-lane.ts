import { statusHash } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { diffJson, equalJson } from "@picolet/protocol/tunnel/encoding/json-delta.ts";
import type { AgentMessage, NodeAck, NodeReportContent } from "@picolet/protocol/tunnel/messages.ts";
import { sha256 } from "./sent-statuses.ts";

interface Known {
  readonly hash: Uint8Array;
  readonly report: NodeReportContent;
}

const known = (report: NodeReportContent): Known => ({ hash: statusHash(sha256, report), report });

/** The parts of the node's report that the hub has acknowledged; outlives the session. */
export class AcknowledgedReport {
  #known: Known | undefined;

  get known(): Known | undefined {
    return this.#known;
  }

  set(value: Known | undefined): void {
    this.#known = value;
  }
}

interface NodeLaneComponents {
  readonly report: () => NodeReportContent;
  readonly acknowledged: AcknowledgedReport;
  readonly send: (message: AgentMessage) => void;
}

/** The way up for the node's report, of one session: one at a time, against the one acknowledged before. */
export class NodeLane {
  readonly #components: NodeLaneComponents;
  /** The report named in the hello. */
  readonly #hello: Known;
  #underWay: Known | undefined;

  /**
   * After a start nothing is known to be acknowledged. What the node would report now is named then: a hub that has the
   * very same needs nothing, any other asks for all of it.
   */
  constructor(components: NodeLaneComponents) {
    this.#components = components;
    this.#hello = components.acknowledged.known ?? known(components.report());
  }

  /** 8 bytes. */
  get helloHash(): Uint8Array {
    return this.#hello.hash;
  }

  onWelcome(wantsNode: boolean): void {
    this.#components.acknowledged.set(wantsNode ? undefined : this.#hello);
  }

  /** True when something must be sent and may be sent now. */
  get isDue(): boolean {
    if (this.#underWay !== undefined) return false;
    const base = this.#components.acknowledged.known;
    const report = this.#components.report();
    return base === undefined || (base.report !== report && !equalJson(base.report, report));
  }

  /** @returns whether there was anything */
  flush(): boolean {
    if (!this.isDue) return false;
    const { acknowledged, send } = this.#components;
    const base = acknowledged.known;
    const next = known(this.#components.report());
    this.#underWay = next;
    const { hash, report } = next;
    if (base === undefined) send({ kind: "node", hash, body: { kind: "full", report } });
    else {
      send({ kind: "node", hash, body: { kind: "delta", base: base.hash, delta: diffJson(base.report, report) } });
    }
    return true;
  }

  onAck({ hash, wantFull }: NodeAck): void {
    const sent = this.#underWay;
    if (sent === undefined || !equalBytes(sent.hash, hash)) return;
    this.#underWay = undefined;
    this.#components.acknowledged.set(wantFull ? undefined : sent);
  }
}
