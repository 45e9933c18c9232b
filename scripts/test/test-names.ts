/**
 * `node scripts/test/test-names.ts [FILTER …]`: the names of all tests as the source has them, a line each; a name that
 * is made of variables is shown with its placeholders. Runs nothing: it shows what a move or a rename has lost.
 */
import { readFileSync } from "node:fs";
import { parseSync } from "oxc-parser";
import { testFiles } from "./test-files.ts";

const DECLARES = new Set(["test", "describe", "it", "suite"]);

type Node = Readonly<Record<string, unknown>> & { readonly type: string; readonly start: number; readonly end: number };

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && typeof (value as { type?: unknown }).type === "string";

/** "FILE: SUITE > NAME", for every call of `test` or `describe`, also of `t.test`. */
export function testNamesOf(file: string): readonly string[] {
  const source = readFileSync(file, "utf8");
  const names: string[] = [];
  const visit = (node: Node, suites: readonly string[]): void => {
    const name = nameOf(node, source);
    const inner = name === undefined ? suites : [...suites, name];
    if (name !== undefined) names.push(`${file}: ${inner.join(" > ")}`);
    for (const child of Object.values(node)) {
      if (Array.isArray(child)) for (const each of child) isNode(each) && visit(each, inner);
      else if (isNode(child)) visit(child, inner);
    }
  };
  visit(parseSync(file, source).program as unknown as Node, []);
  return names;
}

function nameOf({ type, callee, arguments: given }: Node, source: string): string | undefined {
  if (type !== "CallExpression" || !isNode(callee) || !Array.isArray(given)) return undefined;
  const called = callee.type === "MemberExpression" ? callee.property : callee;
  const [first] = given;
  if (!isNode(called) || !DECLARES.has(String(called.name)) || !isNode(first)) return undefined;
  // `/x/.test(text)` has one argument and is none.
  if (callee.type === "MemberExpression" && given.length < 2) return undefined;
  if (first.type === "Literal") return String(first.value);
  return source
    .slice(first.start, first.end)
    .replaceAll(/\s+/g, " ")
    .replace(/^`(.*)`$/, "$1");
}

if (import.meta.main) for (const each of testFiles(process.argv.slice(2)).flatMap(testNamesOf)) console.log(each);
