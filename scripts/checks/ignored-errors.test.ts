/** An error that is ignored on purpose has one name, `ignore("why")`, so that all others are faults. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type Argument, parseSync, Visitor } from "oxc-parser";
import { sourceFilesOf } from "./source-tree.ts";

/** A function that does nothing with its argument and returns nothing. */
function isEmpty(handler: Argument | undefined): boolean {
  if (handler?.type !== "ArrowFunctionExpression" && handler?.type !== "FunctionExpression") return false;
  const { body } = handler;
  if (body?.type === "BlockStatement") return body.body.length === 0;
  return (
    (body?.type === "Identifier" && body.name === "undefined") ||
    (body?.type === "Literal" && body.value === null) ||
    (body?.type === "UnaryExpression" && body.operator === "void")
  );
}

/** A text without these holds no empty handler. To parse all of the source would take ten seconds. */
const CANDIDATE = /=>\s*(?:undefined|null|void)\b|(?:=>|\)|\bcatch)\s*\{\s*(?:\}|\/[/*])/;

function swallows(source: string): readonly string[] {
  if (!CANDIDATE.test(source)) return [];
  const found: string[] = [];
  const add = ({ start, end }: { readonly start: number; readonly end: number }): void => {
    found.push(source.slice(start, end));
  };
  new Visitor({
    CallExpression(call) {
      if (call.callee.type !== "MemberExpression" || call.callee.property.type !== "Identifier") return;
      const { name } = call.callee.property;
      const [first, second] = call.arguments;
      const isOfError = first?.type === "Literal" && first.value === "error";
      const isListener = isOfError && /^(?:on|once)$/.test(name);
      const handler = name === "catch" ? first : name === "then" || isListener ? second : undefined;
      if (isEmpty(handler)) add(call);
    },
    CatchClause(clause) {
      if (clause.body.body.length === 0) add(clause);
    },
  }).visit(parseSync("source.ts", source).program);
  return found;
}

test("an error is ignored by its name alone, with the reason", () => {
  const found = sourceFilesOf(".")
    .filter((path) => /\.ts$/.test(path) && !/^test\/|\.test\.ts$/.test(path))
    .flatMap((path) => swallows(readFileSync(path, "utf8")).map((text) => `${path}: ${text}`));
  assert.deepEqual(found, [], 'write ignore("why") of @picolet/protocol/errors.ts');
});

test("every way to ignore an error without a reason is found", () => {
  for (const text of [
    "work.catch(() => undefined);",
    "work.catch(() => {});",
    "work.catch((_error) => {\n});",
    "work\n  .catch(\n    () => undefined,\n  );",
    "sleep().then(wake, () => undefined);",
    "sleep().then(\n  () => wake(),\n  () => undefined, // It was aborted.\n);",
    'socket.on("error", () => undefined);',
    'socket.once("error", function () {});',
    "try { work(); } catch {\n  // It does not matter.\n}",
    "try { work(); } catch (error) {}",
  ])
    assert.equal(swallows(text).length, 1, text);
});

test("a reason, a value and a decision are left", () => {
  for (const text of [
    'work.catch(ignore("it is awaited below"));',
    "work.catch(() => 0);",
    "try { work(); } catch {\n  return undefined;\n}",
    'try { work(); } catch {\n  ignore("it has ended");\n}',
    'socket.on("close", () => undefined);',
    "work.then(() => undefined, report);",
  ])
    assert.deepEqual(swallows(text), [], text);
});
