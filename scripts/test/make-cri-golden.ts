/**
 * Writes test/golden/cri-fields.txt from CRI's published definition: `node scripts/test/make-cri-golden.ts api.proto`,
 * with the file pkg/apis/runtime/v1/api.proto of k8s.io/cri-api in the version that `cri-messages.ts` names. Only
 * names, numbers and types are kept.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { PublishedApi, type PublishedField } from "@picolet/test/support/unit/cri/published-api.ts";

const GOLDEN = "test/golden/cri-fields.txt";
const SCALARS = new Set(["double", "int64", "uint64", "int32", "bool", "string", "bytes", "uint32"]);
const MAP = /^map\s*<\s*string\s*,\s*string\s*>\s+(\w+)\s*=\s*(\d+)/;
const FIELD = /^(repeated\s+)?([\w.]+)\s+(\w+)\s*=\s*(\d+)/;
const VALUE = /^(\w+)\s*=\s*(\d+)/;
const CALL = /^rpc\s+(\w+)\s*\(\s*(\w+)\s*\)\s*returns\s*\(\s*(?:stream\s+)?(\w+)\s*\)/;

/** One statement each, in order; a block's end is `}`. */
const statementsOf = (text: string): string[] =>
  text
    .replace(/\/\/[^\n]*|\/\*[\s\S]*?\*\//g, "")
    .split(/(?<=[{};])/)
    .map((each) => each.trim())
    .filter((each) => each !== "" && each !== ";");

function readDefinition(text: string): PublishedApi {
  const api = new PublishedApi();
  const statements = statementsOf(text);
  const space = /^package ([\w.]+);$/.exec(statements.find((each) => each.startsWith("package ")) ?? "")?.[1] ?? "";
  const blocks: (readonly [kind: string, name: string])[] = [];
  const enums = new Set<string>();
  const fields: (readonly [owner: string, field: PublishedField])[] = [];
  for (const statement of statements) {
    const [, kind = "", name = ""] = /^(message|enum|service)\s+(\w+)\s*\{$/.exec(statement) ?? [];
    if (kind !== "") {
      blocks.push([kind, [...blocks.map(([, each]) => each), name].slice(-2).join(".")]);
      if (kind === "enum") enums.add(name);
      if (kind === "message") api.addField(`${space}.${name}`, undefined);
      continue;
    }
    if (statement.endsWith("{")) {
      const [, call, request, response] = CALL.exec(statement) ?? [];
      const service = blocks.at(-1)?.[1];
      if (call !== undefined)
        api.calls.set(`/${space}.${service}/${call}`, {
          request: `${space}.${request}`,
          response: `${space}.${response}`,
        });
      blocks.push(["other", ""]);
      continue;
    }
    if (statement === "}") {
      blocks.pop();
      continue;
    }
    const [inside, owner] = blocks.at(-1) ?? [];
    const full = `${space}.${owner}`;
    if (inside === "enum") {
      const [, value = "", number] = VALUE.exec(statement) ?? [];
      api.addValue(full, value, Number(number));
    } else if (inside === "message") {
      const [, mapName = "", mapNumber] = MAP.exec(statement) ?? [];
      if (mapName !== "") {
        fields.push([full, { number: Number(mapNumber), name: mapName, label: "map", type: "string" }]);
        continue;
      }
      const [, many, type = "", field = "", number] = FIELD.exec(statement) ?? [];
      if (field === "") throw new Error(`cannot read ${JSON.stringify(statement)}`);
      fields.push([
        full,
        { number: Number(number), name: field, label: many === undefined ? "single" : "repeated", type },
      ]);
    }
  }
  for (const [owner, field] of fields) {
    const type = SCALARS.has(field.type) ? field.type : enums.has(field.type) ? "enum" : `${space}.${field.type}`;
    api.addField(owner, { ...field, type });
  }
  return api;
}

const [path] = process.argv.slice(2);
if (path === undefined) throw new Error("usage: node scripts/test/make-cri-golden.ts api.proto");
const lines = readDefinition(readFileSync(path, "utf8")).lines();
writeFileSync(GOLDEN, `${lines.join("\n")}\n`);
console.log(`${GOLDEN}: ${lines.length} facts`);
