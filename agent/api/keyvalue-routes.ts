/** `/v1/keyvalue` and what is below it: what components keep. */
import type { IncomingMessage } from "node:http";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { KeyvalueBucketList, KeyvalueChangeAnswer } from "@picolet/protocol/local-api/status.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import type { BucketName, KeyvalueBuckets } from "../core/store/keyvalue-buckets.ts";
import type { Answer } from "./api-answers.ts";
import { type ApiRequest, type Query, readBytes } from "./request-input.ts";

export type KeyvalueVerb = "list" | "keys" | "get" | "set" | "delete" | "drop";

/** As `wit/board/keyvalue.wit` says; a longer body is not read to its end. */
const MAX_VALUE_BYTES = MEBIBYTE;
/** Bounds one answer; a key has at most 1 KiB. */
const MAX_LISTED = 1000;

/** @param message of the verb `set` */
export async function answerKeyvalue(
  service: () => Promise<KeyvalueBuckets>,
  verb: KeyvalueVerb,
  { segments, query }: ApiRequest,
  message: IncomingMessage | undefined,
): Promise<Answer> {
  const [, namespace = "", name = ""] = segments;
  const bucket = { namespace, name };
  switch (verb) {
    case "list": {
      query.end();
      return { kind: "json", body: { items: (await service()).list() } satisfies KeyvalueBucketList };
    }
    case "keys": {
      const limit = Math.min(Math.max(query.count("limit") ?? MAX_LISTED, 1), MAX_LISTED);
      const range = { prefix: query.text("prefix") ?? "", after: query.text("after") ?? "", limit };
      query.end();
      return { kind: "json", body: (await service()).keys(bucket, range) };
    }
    case "get": {
      const key = keyOf(query);
      return { kind: "bytes", body: (await service()).get(bucket, key) };
    }
    case "set": {
      const key = keyOf(query);
      if (message === undefined) throw new PicoletError("internal", "a value without a body");
      await (await service()).set(bucket, key, await readBytes(message, MAX_VALUE_BYTES));
      return changed(bucket, key);
    }
    case "delete": {
      const key = keyOf(query);
      await (await service()).delete(bucket, key);
      return changed(bucket, key);
    }
    case "drop":
      query.end();
      await (await service()).drop(bucket);
      return changed(bucket);
  }
}

function keyOf(query: Query): string {
  const key = query.text("key");
  query.end();
  if (key === undefined) throw new PicoletError("invalid", "parameter key is missing");
  return key;
}

const changed = (bucket: BucketName, key?: string): Answer => ({
  kind: "json",
  body: { ...bucket, ...(key === undefined ? {} : { key }) } satisfies KeyvalueChangeAnswer,
});
