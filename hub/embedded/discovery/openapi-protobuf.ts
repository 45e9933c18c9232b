/**
 * An OpenAPI 2 document in gnostic's protobuf messages (openapi.v2.Document), which kubectl before 1.27 insists on.
 * Only what our documents hold; field numbers are those of gnostic's OpenAPIv2.proto.
 */
import type { Schema } from "./openapi-schemas.ts";

type Part = Buffer;

const NONE = Buffer.alloc(0);

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  while (left >= 0x80) {
    bytes.push((left & 0x7f) | 0x80);
    left = Math.floor(left / 128);
  }
  bytes.push(left);
  return Buffer.from(bytes);
}

const message = (number: number, content: Buffer): Part =>
  Buffer.concat([varint(number * 8 + 2), varint(content.length), content]);

const text = (number: number, value: unknown): Part =>
  typeof value === "string" && value !== "" ? message(number, Buffer.from(value)) : NONE;

const flag = (number: number, value: unknown): Part =>
  value === true ? Buffer.concat([varint(number * 8), varint(1)]) : NONE;

const join = (...parts: readonly Part[]): Buffer => Buffer.concat(parts);

const asSchema = (value: unknown): Schema => (typeof value === "object" && value !== null ? (value as Schema) : {});
const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** NamedX { name = 1; value = 2 }, one for each entry. */
function named(number: number, entries: Schema, encode: (value: Schema) => Buffer): Part {
  const parts = Object.entries(entries).map(([name, value]) =>
    message(number, join(text(1, name), message(2, encode(asSchema(value))))),
  );
  return join(...parts);
}

/** Extensions travel as YAML, of which JSON is a part. */
function extensions(number: number, object: Schema): Part {
  const parts = Object.entries(object)
    .filter(([name]) => name.startsWith("x-"))
    .map(([name, value]) => message(number, join(text(1, name), message(2, text(2, JSON.stringify(value))))));
  return join(...parts);
}

function encodeSchema(schema: Schema): Buffer {
  const { additionalProperties, items, properties, type } = schema;
  return join(
    text(1, schema.$ref),
    text(2, schema.format),
    text(4, schema.description),
    ...asList(schema.required).map((each) => text(19, each)),
    additionalProperties === undefined ? NONE : message(21, message(1, encodeSchema(asSchema(additionalProperties)))),
    type === undefined ? NONE : message(22, text(1, type)),
    items === undefined ? NONE : message(23, message(1, encodeSchema(asSchema(items)))),
    properties === undefined ? NONE : message(25, named(1, asSchema(properties), encodeSchema)),
    extensions(31, schema),
  );
}

/** Query parameters are the only ones. ParametersItem > Parameter > NonBodyParameter > QueryParameterSubSchema. */
function encodeParameter(parameter: Schema): Buffer {
  const query = join(
    text(2, parameter.in),
    text(4, parameter.name),
    text(6, parameter.type),
    flag(20, parameter.uniqueItems),
  );
  return message(1, message(2, message(3, query)));
}

function encodeResponse(response: Schema): Buffer {
  const { schema } = response;
  const content = join(
    text(1, response.description),
    schema === undefined ? NONE : message(2, message(1, encodeSchema(asSchema(schema)))),
  );
  return message(1, content);
}

function encodeOperation(operation: Schema): Buffer {
  return join(
    ...asList(operation.parameters).map((each) => message(8, encodeParameter(asSchema(each)))),
    message(9, named(1, asSchema(operation.responses), encodeResponse)),
    extensions(13, operation),
  );
}

const METHOD_FIELDS = { get: 2, put: 3, post: 4, delete: 5, patch: 8 } as const;

function encodePath(path: Schema): Buffer {
  const parts = Object.entries(METHOD_FIELDS).map(([method, number]) =>
    path[method] === undefined ? NONE : message(number, encodeOperation(asSchema(path[method]))),
  );
  return join(...parts);
}

export function encodeOpenApiV2(document: Schema): Buffer {
  const info = asSchema(document.info);
  return join(
    text(1, document.swagger),
    message(2, join(text(1, info.title), text(2, info.version))),
    message(8, named(2, asSchema(document.paths), encodePath)),
    message(9, named(1, asSchema(document.definitions), encodeSchema)),
  );
}
