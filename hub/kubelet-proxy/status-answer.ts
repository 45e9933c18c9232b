/** A kubelet's refusal, which is text, made a Kubernetes Status as API servers make it. */

import { Readable } from "node:stream";
import type { KubeletResponse } from "@picolet/hub-core/kubelet-connector.ts";
import { kubeStatus } from "@picolet/kubelet-api/serving/kube-status.ts";
import { ignore } from "@picolet/protocol/errors.ts";

/** A kubelet says what is wrong in a sentence; of a longer text the rest is dropped. */
const MAX_TEXT_BYTES = 16 * 1024;

export const isRefused = ({ status }: Pick<KubeletResponse, "status">): boolean => status >= 400;

export async function statusAnswer({ status, body }: KubeletResponse): Promise<KubeletResponse> {
  const text = await readText(body);
  const answer = isStatus(text) ? text : JSON.stringify(kubeStatus(status, text.trim()));
  const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(answer) };
  return { status, headers, body: Readable.from([Buffer.from(answer)]) };
}

async function readText(body: Readable): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const piece of body as AsyncIterable<Buffer>) {
      bytes += piece.length;
      if (bytes > MAX_TEXT_BYTES) break;
      pieces.push(piece);
    }
  } catch {
    ignore("the part that arrived is enough");
  }
  return Buffer.concat(pieces).toString("utf8");
}

function isStatus(text: string): boolean {
  if (!text.startsWith("{")) return false;
  try {
    return (JSON.parse(text) as { readonly kind?: unknown }).kind === "Status";
  } catch {
    return false;
  }
}
