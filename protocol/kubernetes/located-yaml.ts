/** YAML whose values know their lines, and problems of a configuration file with the lines that they are in. */
import { isMap, isNode, isScalar, isSeq, LineCounter, parseDocument } from "yaml";
import { describeError } from "../errors.ts";
import { type FieldProblem, formatProblem } from "./field-problems.ts";
import { KUBERNETES_YAML } from "./kubernetes-yaml.ts";

export interface LocatedProblem extends FieldProblem {
  /** The line in the file, from 1, where it is known. */
  readonly line?: number;
  /** The flag that set the value in place of the file, as it was given. */
  readonly flag?: string;
}

/** One line for each problem: `/etc/picolet/config.yaml:12: maxPods: Invalid value: …`, or `--max-pods=x: maxPods: …`. */
export function formatLocatedProblem(origin: string, problem: LocatedProblem): string {
  const { flag, line } = problem;
  return `${flag ?? `${origin}${line === undefined ? "" : `:${line}`}`}: ${formatProblem(problem)}`;
}

/** `a.b[0][c/d]` as its steps. */
export const pathSteps = (path: string): string[] =>
  [...path.matchAll(/\[([^\]]*)\]|[^.[\]]+/g)].map(([step, bracketed]) => bracketed ?? step);

/** In the order of their lines; those without one, and those of flags, are last. */
export function locateProblems(
  problems: readonly LocatedProblem[],
  yaml: Pick<Extract<LocatedYaml, { ok: true }>, "lineOf">,
): LocatedProblem[] {
  const located = problems.map((problem): LocatedProblem => {
    const line = problem.flag === undefined ? yaml.lineOf(pathSteps(problem.path)) : undefined;
    return line === undefined ? problem : { ...problem, line };
  });
  return located.sort((left, right) => (left.line ?? Infinity) - (right.line ?? Infinity) || 0);
}

/** Keys from the document down; an index of a list as text. */
type YamlPath = readonly string[];

export type LocatedYaml =
  | {
      readonly ok: true;
      /** `undefined` for an empty document. */
      readonly value: unknown;
      /** The line, from 1, of the value at `path`, or of the nearest value above it. */
      lineOf(path: YamlPath): number | undefined;
    }
  | { readonly ok: false; readonly problems: readonly LocatedProblem[] };

/** Reads one YAML (or JSON) document as Kubernetes does, and keeps the lines of its values. Never throws. */
export function parseLocatedYaml(text: string): LocatedYaml {
  const lines = new LineCounter();
  const document = parseDocument(text, { ...KUBERNETES_YAML, lineCounter: lines });
  const lineAt = (offset: number): number => Math.max(1, lines.linePos(offset).line);
  if (document.errors.length > 0) {
    return {
      ok: false,
      problems: document.errors.map(({ message, pos }) => ({ path: "", message, line: lineAt(pos[0]) })),
    };
  }
  try {
    // Throws for aliases that expand too much (the package counts them) or that are not defined.
    const value: unknown = document.toJS();
    return { ok: true, value: value ?? undefined, lineOf: (path) => lineOf(document.contents, path, lineAt) };
  } catch (error) {
    return { ok: false, problems: [{ path: "", message: describeError(error), line: 1 }] };
  }
}

function lineOf(root: unknown, path: YamlPath, lineAt: (offset: number) => number): number | undefined {
  let node = root;
  let offset: number | undefined;
  for (const step of path) {
    if (isMap(node)) {
      const pair = node.items.find(({ key }) => (isScalar(key) ? String(key.value) : String(key)) === step);
      if (pair === undefined) break;
      if (isNode(pair.key) && pair.key.range) offset = pair.key.range[0];
      node = pair.value;
    } else if (isSeq(node)) {
      node = node.items[Number(step)];
      if (isNode(node) && node.range) offset = node.range[0];
    } else break;
  }
  return offset === undefined ? undefined : lineAt(offset);
}
