/** Wipes the token from the text of `picolet.yaml`; not one other character changes. */
import { isDeepStrictEqual } from "node:util";
import { KUBERNETES_YAML } from "@picolet/protocol/kubernetes/kubernetes-yaml.ts";
import { isScalar, parseDocument } from "yaml";

const WIPED = '""';

/** @returns undefined when there is no token, or it cannot be taken out safely */
export function withoutToken(text: string): string | undefined {
  const document = parseDocument(text, KUBERNETES_YAML);
  if (document.errors.length > 0) return undefined;
  const node: unknown = document.getIn(["hub", "token"], true);
  if (!isScalar(node) || typeof node.value !== "string" || node.value === "" || !node.range) return undefined;
  const [start, end] = node.range;
  // A block's text ends with the line feed that the next field needs.
  const written = text.slice(start, end);
  const wiped = text.slice(0, start) + WIPED + (/\r?\n$/.exec(written)?.[0] ?? "") + text.slice(end);
  return meansTheSame(text, wiped) ? wiped : undefined;
}

/** But for the token. */
function meansTheSame(before: string, after: string): boolean {
  const [left, right] = [before, after].map((text) => parseDocument(text, KUBERNETES_YAML));
  if (left === undefined || right === undefined || right.errors.length > 0) return false;
  try {
    left.setIn(["hub", "token"], "");
    return isDeepStrictEqual(left.toJS(), right.toJS());
  } catch {
    return false;
  }
}
