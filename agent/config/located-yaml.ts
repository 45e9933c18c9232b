/** YAML as Kubernetes reads it, with the line of each value. */
import { describeError } from "@picolet/protocol/errors.ts";
import { KUBERNETES_YAML } from "@picolet/protocol/kubernetes/kubernetes-yaml.ts";
import { isMap, isNode, isScalar, isSeq, LineCounter, parseDocument } from "yaml";

/** `a.b[0][c/d]` as its steps. */
export const pathSteps = (path: string): string[] =>
  [...path.matchAll(/\[([^\]]*)\]|[^.[\]]+/g)].map(([step, bracketed]) => bracketed ?? step);

/** Keys from the document down; an index of a list as text. */
type YamlPath = readonly string[];

type LocatedYaml =
  | {
      readonly ok: true;
      /** `undefined` for an empty document. */
      readonly value: unknown;
      /** The line, from 1, of the value at `path`, or of the nearest value above it. */
      lineOf(path: YamlPath): number | undefined;
    }
  | { readonly ok: false; readonly problems: readonly { readonly message: string; readonly line: number }[] };

/** Reads one YAML (or JSON) document as Kubernetes does, and keeps the lines of its values. Never throws. */
export function parseLocatedYaml(text: string): LocatedYaml {
  const lines = new LineCounter();
  const document = parseDocument(text, { ...KUBERNETES_YAML, lineCounter: lines });
  const lineAt = (offset: number): number => Math.max(1, lines.linePos(offset).line);
  if (document.errors.length > 0) {
    return { ok: false, problems: document.errors.map(({ message, pos }) => ({ message, line: lineAt(pos[0]) })) };
  }
  try {
    // Throws for aliases that expand too much (the package counts them) or that are not defined.
    const value: unknown = document.toJS();
    return { ok: true, value: value ?? undefined, lineOf: (path) => lineOf(document.contents, path, lineAt) };
  } catch (error) {
    return { ok: false, problems: [{ message: describeError(error), line: 1 }] };
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
