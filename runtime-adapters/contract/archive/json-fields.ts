/** Fields of JSON documents that come from elsewhere. Everything that is of another kind than expected is `corrupt`. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { isRecord } from "@picolet/protocol/guards.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

const damaged = (why: string, cause?: unknown): PicoletError => new PicoletError("corrupt", why, { cause });

/** @param what names the document in messages */
export function parseJson(content: Buffer, what: string): unknown {
  try {
    return JSON.parse(content.toString("utf8"));
  } catch (error) {
    throw damaged(`${what} is no JSON`, error);
  }
}

export function parseObject(content: Buffer, what: string): JsonObject {
  const value = parseJson(content, what);
  if (!isRecord(value)) throw damaged(`${what} is no JSON object`);
  return value;
}

/** Empty for a field that is none. */
export const objectOf = (object: JsonObject, field: string): JsonObject => {
  const value = object[field];
  return isRecord(value) ? value : {};
};

export const textOf = (object: JsonObject, field: string): string | undefined => {
  const value = object[field];
  return typeof value === "string" ? value : undefined;
};

/** @returns an empty list for a missing field */
export function listOf(object: JsonObject, field: string): JsonObject[] {
  const list = object[field] ?? [];
  if (!Array.isArray(list) || !list.every(isRecord)) throw damaged(`${field} is no list of objects`);
  return list;
}

export function textsOf(object: unknown, field: string): string[] {
  const list = (isRecord(object) ? object[field] : undefined) ?? [];
  if (!Array.isArray(list) || !list.every((each) => typeof each === "string")) {
    throw damaged(`${field} is no list of strings`);
  }
  return list;
}
