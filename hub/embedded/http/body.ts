import type { IncomingMessage } from "node:http";
import { parse } from "yaml";
import { describeError } from "../../../protocol/errors.ts";
import { PROTOBUF_TYPE, type ProtobufReader, readEnvelope } from "../schema/protobuf.ts";
import { scanJson } from "../schema/scan-json.ts";
import { badRequest, StatusError } from "../status-error.ts";

/** As Kubernetes: the largest object that its storage takes, and some. */
export const MAX_BODY_BYTES = 3 * 1024 * 1024;

const tooLarge = (): StatusError =>
  new StatusError("RequestEntityTooLarge", `Request entity too large: limit is ${MAX_BODY_BYTES}`);

/** @throws StatusError 413, 400 when the client goes away */
export async function readBody(message: IncomingMessage): Promise<Buffer> {
  if (Number(message.headers["content-length"] ?? 0) > MAX_BODY_BYTES) throw tooLarge();
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of message as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > MAX_BODY_BYTES) throw tooLarge();
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof StatusError) throw error;
    throw new StatusError("BadRequest", "cannot read the body of the request", undefined, error);
  }
  return Buffer.concat(chunks);
}

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

/**
 * @param model of the message, should it be protobuf
 * @throws StatusError 400
 */
export function parseObjectBody(body: Buffer, type: string, reader: ProtobufReader, model: string): ParsedBody {
  if (type !== PROTOBUF_TYPE) return parseBody(body, type);
  try {
    const { apiVersion, kind, raw } = readEnvelope(body);
    return { value: { apiVersion, kind, ...reader.read(model, raw) }, duplicates: [] };
  } catch (error) {
    throw badRequest(describeError(error));
  }
}

/** @param type its media type @throws StatusError 400 */
export function parseBody(body: Buffer, type: string): ParsedBody {
  const text = body.toString("utf8");
  // An apply's body may be JSON, which is YAML, but much faster to read.
  const isYaml = YAML_TYPES.has(type) && !text.trimStart().startsWith("{");
  return isYaml ? parseYamlText(text) : parseJsonText(text);
}

/** What a client of this process hands in, as it would come over HTTP: `undefined` is left out, the same limits hold. */
export function asBody(value: unknown): unknown {
  const text = JSON.stringify(value);
  if (text.length > MAX_BODY_BYTES) throw tooLarge();
  return parseJsonText(text).value;
}

function parseJsonText(text: string): ParsedBody {
  const { isTooDeep, isPoisoned, duplicates } = scanJson(text);
  if (isTooDeep) throw badRequest("json: exceeded max depth");
  if (isPoisoned) throw badRequest('json: the field name "__proto__" is not allowed');
  try {
    return { value: JSON.parse(text) as unknown, duplicates };
  } catch (error) {
    throw badRequest(`couldn't get version/kind; json parse error: ${error instanceof Error ? error.message : ""}`);
  }
}

function parseYamlText(text: string): ParsedBody {
  let json: string | undefined;
  try {
    // Aliases are counted, so that a few lines cannot become gigabytes.
    json = JSON.stringify(parse(text, { maxAliasCount: 100, version: "1.1", schema: "core", logLevel: "error" }));
  } catch (error) {
    throw badRequest(`error decoding YAML: ${error instanceof Error ? error.message : ""}`);
  }
  if (json === undefined) throw badRequest("error decoding YAML: there is no document");
  if (json.length > MAX_BODY_BYTES) throw tooLarge();
  return parseJsonText(json);
}
