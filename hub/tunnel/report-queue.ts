import type { NodeBackend } from "@picolet/hub-core/fleet.ts";
import { sha256 } from "@picolet/hub-core/sha256.ts";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { statusHash } from "@picolet/protocol/tunnel/digest.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import { applyDelta } from "@picolet/protocol/tunnel/encoding/json-delta.ts";
import { parseNodeReport } from "@picolet/protocol/tunnel/message-codec.ts";
import type { NodeAck, NodeReport, NodeReportContent } from "@picolet/protocol/tunnel/messages.ts";
import type { UpstreamQueue } from "./upstream-writer.ts";

interface Report {
  readonly hash: Uint8Array;
  readonly content: NodeReportContent;
}

/** The node's report on its way to the API server: the latest alone. */
export class ReportQueue implements UpstreamQueue<Report> {
  readonly #backend: NodeBackend;
  readonly #ack: (ack: NodeAck) => void;
  #pending: Report | undefined;
  /** Written, but maybe not shown yet by the hub's watch. */
  #recent: Report | undefined;

  constructor(backend: NodeBackend, ack: (ack: NodeAck) => void) {
    this.#backend = backend;
    this.#ack = ack;
  }

  /** Drops the bases of deltas: the API server shows them by now. @returns whether everything was written */
  forget(): boolean {
    if (this.#pending !== undefined) return false;
    this.#recent = undefined;
    return true;
  }

  push({ hash, body }: NodeReport): void {
    const content = body.kind === "full" ? body.report : this.#applied(body.base, body.delta, hash);
    if (content === undefined) this.#ack({ kind: "nodeAck", hash, wantFull: true });
    else this.#pending = { hash, content };
  }

  #applied(base: Uint8Array, delta: unknown, hash: Uint8Array): NodeReportContent | undefined {
    const content = this.#base(base);
    if (content === undefined) return undefined;
    try {
      const next = parseNodeReport(applyDelta(content, delta));
      return equalBytes(statusHash(sha256, next), hash) ? next : undefined;
    } catch (error) {
      if (error instanceof PicoletError) return undefined;
      throw error;
    }
  }

  #base(hash: Uint8Array): NodeReportContent | undefined {
    for (const report of [this.#pending, this.#recent]) {
      if (report !== undefined && equalBytes(report.hash, hash)) return report.content;
    }
    const content = this.#backend.nodeReport();
    return content !== undefined && equalBytes(statusHash(sha256, content), hash) ? content : undefined;
  }

  peek(): Report | undefined {
    return this.#pending;
  }

  /** A Node is larger than a pod's status, and is written with its labels and its taints. */
  costOf(): number {
    return 4;
  }

  write({ content }: Report, signal: AbortSignal): Promise<void> {
    return this.#backend.putNode(content, signal);
  }

  written(report: Report): void {
    if (this.#pending === report) this.#pending = undefined;
    this.#recent = report;
    this.#ack({ kind: "nodeAck", hash: report.hash, wantFull: false });
  }
}
