/**
 * A node's report as it is kept in an annotation of its Node, so that every replica knows what the agent has said last.
 */
import { deflateRawSync, inflateRawSync } from "node:zlib";
import { parseNodeReport } from "@picolet/protocol/tunnel/message-codec.ts";
import type { NodeReportContent } from "@picolet/protocol/tunnel/messages.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";

/** All annotations of an object may take 256 KiB. A report that would be larger is not kept: it is asked for again. */
const MAX_ANNOTATION_LENGTH = 128 * 1024;
const MAX_REPORT_BYTES = MEBIBYTE;

/** A third of its JSON in size. @returns undefined when it is too long to be kept */
export function packReport(report: NodeReportContent): string | undefined {
  const packed = deflateRawSync(JSON.stringify(report)).toString("base64");
  return packed.length > MAX_ANNOTATION_LENGTH ? undefined : packed;
}

/** @returns undefined for what is no report: any user with the right to write Nodes may write the annotation */
export function unpackReport(annotation: string): NodeReportContent | undefined {
  try {
    const json = inflateRawSync(Buffer.from(annotation, "base64"), { maxOutputLength: MAX_REPORT_BYTES });
    return parseNodeReport(JSON.parse(json.toString("utf8")));
  } catch {
    return undefined;
  }
}
