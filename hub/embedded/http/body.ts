import { describeError } from "@picolet/protocol/errors.ts";
import { bodyTooLarge, MAX_BODY_BYTES, tooLarge } from "../api/limits.ts";
import { badRequest, StatusError } from "../api/status-error.ts";
import { PROTOBUF_TYPE, type ProtobufReader, readEnvelope } from "../schema/protobuf.ts";
import { scanJson } from "../schema/scan-json.ts";
import type { YamlReader } from "./yaml-reader.ts";

export interface ParsedBody {
  readonly value: unknown;
  /** `duplicate field "a.b"`. */
  readonly duplicates: readonly string[];
}

const YAML_TYPES: ReadonlySet<string> = new Set(["application/yaml", "application/apply-patch+yaml"]);

export const mediaType = (header: string | undefined): string =>
  (header ?? "").split(";")[0]?.trim().toLowerCase() ?? "";

const ACCEPTED = "application/json, application/yaml";

/** @throws StatusError 415 unless it is of `accepted` */
export function requireMediaType(type: string, accepted: readonly string[]): void {
  if (accepted.includes(type)) return;
  throw new StatusError(
    "UnsupportedMediaType",
    `the body of the request was in an unknown format - accepted media types include: ${accepted.filter((each) => each !== "").join(", ") || ACCEPTED}`,
  );
}

/** The readers of each encoding. */
export interface BodyReaders {
  readonly protobuf: ProtobufReader;
  readonly yaml: YamlReader;
}

/** A body that came in whole. */
export interface RawBody {
  readonly bytes: Buffer;
  /** Its media type. */
  readonly type: string;
  /** Name of the sender: users take turns where reading takes long. */
  readonly user: string;
}

/**
 * @param model of the message, should it be protobuf
 * @throws StatusError 400, 413, 429
 */
export async function parseObjectBody(readers: BodyReaders, body: RawBody, model: string): Promise<ParsedBody> {
  if (body.type !== PROTOBUF_TYPE) return parseBody(readers, body);
  try {
    const { apiVersion, kind, raw } = readEnvelope(body.bytes);
    return { value: { apiVersion, kind, ...readers.protobuf.read(model, raw) }, duplicates: [] };
  } catch (error) {
    if (error instanceof StatusError) throw error;
    throw badRequest(describeError(error));
  }
}

/** @throws StatusError 400, 413, 429 */
export async function parseBody({ yaml }: BodyReaders, { bytes, type, user }: RawBody): Promise<ParsedBody> {
  // An apply's body may be JSON, which is YAML, but much faster to read.
  if (YAML_TYPES.has(type) && !startsAsJson(bytes)) return parseJsonText(await yaml.toJson(bytes, user));
  return parseJsonText(bytes.toString("utf8"));
}

/** Blanks, tabs and line breaks before an object or a list. */
function startsAsJson(bytes: Buffer): boolean {
  const first = bytes.find((byte) => byte > 0x20);
  return first === 0x7b || first === 0x5b;
}

/** Converts a body from a client of this process as HTTP would: `undefined` is left out, the same limits hold. */
export function asBody(value: unknown): unknown {
  const text = JSON.stringify(value);
  if (text.length > MAX_BODY_BYTES) throw bodyTooLarge();
  return parseJsonText(text).value;
}

function parseJsonText(text: string): ParsedBody {
  const { isTooDeep, isPoisoned, duplicates, excess } = scanJson(text);
  if (excess !== undefined) throw tooLarge(excess);
  if (isTooDeep) throw badRequest("json: exceeded max depth");
  if (isPoisoned) throw badRequest('json: the field name "__proto__" is not allowed');
  try {
    return { value: JSON.parse(text) as unknown, duplicates };
  } catch (error) {
    throw badRequest(`couldn't get version/kind; json parse error: ${error instanceof Error ? error.message : ""}`);
  }
}
