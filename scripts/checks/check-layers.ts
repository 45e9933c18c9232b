/**
 * The layer check: which folder may import which (ARCHITECTURE.md, "Layers"). Before it judges the tree it judges
 * canaries that break each rule; a check that lets one pass fails itself.
 */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { parseSync } from "oxc-parser";

interface Layer {
  /** Folder prefix, most specific first. */
  readonly folder: string;
  readonly mayImport: readonly string[];
  /** Whether `node:` modules are allowed. */
  readonly node: boolean;
}

const CONTRACT = "runtime-adapters/contract/";
/** Types alone, made from the WIT package. */
const WIT_TYPES = "wit/generated/";
const AGENT_BASE = ["protocol/", CONTRACT, "agent/core/", "agent/plan/"];

/** The first whose folder matches rules. `{self}` in `mayImport` is the module's own second-level folder. */
const LAYERS: readonly Layer[] = [
  { folder: WIT_TYPES, mayImport: [WIT_TYPES], node: false },
  { folder: "protocol/", mayImport: ["protocol/"], node: false },
  { folder: CONTRACT, mayImport: ["protocol/", CONTRACT], node: true },
  { folder: "runtime-adapters/", mayImport: ["protocol/", CONTRACT, WIT_TYPES, "{self}"], node: true },
  { folder: "agent/core/", mayImport: ["protocol/", CONTRACT, "agent/core/"], node: false },
  { folder: "agent/plan/", mayImport: AGENT_BASE, node: false },
  { folder: "agent/cli/", mayImport: ["protocol/", "agent/cli/"], node: true },
  { folder: "agent/main/", mayImport: ["protocol/", "runtime-adapters/", "agent/"], node: true },
  { folder: "agent/", mayImport: [...AGENT_BASE, "{self}"], node: true },
  { folder: "hub/", mayImport: ["protocol/", "hub/"], node: true },
];

/** Free to import anything: they are not part of the product. */
const FREE = ["test/", "scripts/", "examples/", "firmware/"];

export interface Violation {
  readonly from: string;
  readonly to: string;
}

/** Every module specifier of a source text: static, re-exported, dynamic and type imports. */
function specifiersOf(path: string, source: string): string[] {
  const parsed = parseSync(path, source);
  const [problem] = parsed.errors;
  if (problem !== undefined) throw new Error(`cannot parse ${path}: ${problem.message}`);
  const found = parsed.module.staticImports.map((each) => each.moduleRequest.value);
  for (const statement of parsed.module.staticExports) {
    for (const entry of statement.entries) if (entry.moduleRequest) found.push(entry.moduleRequest.value);
  }
  for (const dynamic of parsed.module.dynamicImports) {
    const text = source.slice(dynamic.moduleRequest.start, dynamic.moduleRequest.end);
    const literal = /^["'`](.*)["'`]$/.exec(text)?.[1];
    if (literal !== undefined) found.push(literal);
  }
  for (const match of source.matchAll(/\bimport\(\s*["']([^"']+)["']\s*\)/g)) if (match[1]) found.push(match[1]);
  return found;
}

/** What `path` (relative to the root, with forward slashes) imports against the rules. */
export function violationsOf(path: string, source: string): Violation[] {
  if (FREE.some((folder) => path.startsWith(folder))) return [];
  const layer = LAYERS.find((each) => path.startsWith(each.folder));
  if (layer === undefined) return [{ from: path, to: "(a folder that belongs to no layer)" }];
  const isTest = /\.test\.ts$/.test(path);
  const self = `${path.split("/").slice(0, 2).join("/")}/`;
  const allowed = layer.mayImport.map((prefix) => (prefix === "{self}" ? self : prefix));
  const violations: Violation[] = [];
  for (const specifier of specifiersOf(path, source)) {
    if (specifier.startsWith("node:")) {
      if (!layer.node && !isTest) violations.push({ from: path, to: specifier });
      continue;
    }
    if (!specifier.startsWith(".")) continue;
    const target = relative(".", resolve(dirname(path), specifier));
    const forTests = isTest && target.startsWith("test/support/");
    if (!forTests && !allowed.some((prefix) => target.startsWith(prefix))) violations.push({ from: path, to: target });
  }
  return violations;
}

/** One broken import for every rule; each must be found. */
const CANARIES: readonly (readonly [path: string, source: string])[] = [
  ["protocol/canary.ts", 'import type { X } from "@picolet/agent/core/store/store-ports.ts";'],
  ["protocol/canary.ts", 'import { readFileSync } from "node:fs";'],
  ["runtime-adapters/contract/canary.ts", 'export { x } from "../cri/adapter.ts";'],
  ["runtime-adapters/cri/canary.ts", 'import { x } from "../wasm/adapter.ts";'],
  ["runtime-adapters/cri/canary.ts", 'import type { X } from "../../agent/core/store.ts";'],
  ["agent/core/canary.ts", 'import { x } from "../store/x.ts";'],
  ["agent/core/canary.ts", 'import "node:os";'],
  ["agent/plan/canary.ts", 'const x = await import("../workers/x.ts");'],
  ["agent/plan/canary.ts", 'let x: import("../workers/x.ts").X;'],
  ["agent/workers/canary.ts", 'import { x } from "../store/x.ts";'],
  ["agent/workers/canary.ts", 'import { x } from "../../runtime-adapters/cri/adapter.ts";'],
  ["agent/workers/canary.ts", 'import { x } from "../../test/support/x.ts";'],
  ["agent/cli/canary.ts", 'import { x } from "../core/store.ts";'],
  ["agent/main/canary.ts", 'import { x } from "../../hub/x.ts";'],
  ["hub/canary.ts", 'import { x } from "@picolet/agent/core/store/store-ports.ts";'],
  ["elsewhere/canary.ts", 'import { x } from "../protocol/x.ts";'],
];

function sourceFiles(): string[] {
  const roots = readdirSync(".", { withFileTypes: true })
    .filter(
      (entry) => entry.isDirectory() && !entry.name.startsWith(".") && !["node_modules", "dist"].includes(entry.name),
    )
    .map((entry) => entry.name);
  return roots.flatMap((root) =>
    readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && /\.m?[jt]s$/.test(entry.name) && !entry.parentPath.includes("node_modules"))
      .map((entry) => join(entry.parentPath, entry.name)),
  );
}

const blind = CANARIES.filter(([path, source]) => violationsOf(path, source).length === 0);
for (const [path, source] of blind) console.error(`the layer check does not see: ${path}: ${source}`);

const files = sourceFiles();
const violations = files.flatMap((path) => violationsOf(path, readFileSync(path, "utf8")));
for (const { from, to } of violations) console.error(`${from} must not import ${to}`);
if (files.length === 0) console.error("the layer check found no source file");
if (blind.length > 0 || violations.length > 0 || files.length === 0) process.exit(1);
console.log(`layers: ${files.length} files, ${CANARIES.length} canaries caught`);
