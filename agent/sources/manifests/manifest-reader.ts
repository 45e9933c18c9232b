import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { unknownPodFields } from "@picolet/protocol/pod/validation/unknown-fields.ts";
import { type ManifestDocument, manifestDocuments, type Position, SyntaxProblem } from "./manifest-documents.ts";

/** A problem of a manifest. */
export interface ManifestProblem {
  readonly position: Position | undefined;
  /** It begins with the field's path, if there is one: `spec.containers[0].image: Required value`. */
  readonly message: string;
}

/** A pod as it was written, and parsed. */
export interface ManifestPod {
  readonly written: unknown;
  readonly pod: Pod;
  /** Undefined for a problem of the pod as a whole. */
  readonly position: Position | undefined;
}

export type Manifest =
  /** `warnings`: fields that no pod has, which are kept and do nothing. */
  | { readonly ok: true; readonly pods: readonly ManifestPod[]; readonly warnings: readonly ManifestProblem[] }
  | { readonly ok: false; readonly problems: readonly ManifestProblem[] };

/** Bounds the list for its readers. Further documents are not read. */
const MAX_PROBLEMS = 20;
const EMPTY = "holds no pod; to remove the pods of a file, delete the file";

/**
 * The pods of one text: Pod, List and PodList, in YAML documents or as JSON. A manifest is taken whole or not at all;
 * all problems at once. Never throws.
 * @param empty what is wrong with a text that holds nothing
 */
export function readManifest(text: string, empty = EMPTY): Manifest {
  const pods: ManifestPod[] = [];
  const problems: ManifestProblem[] = [];
  const warnings: ManifestProblem[] = [];
  try {
    let documents = 0;
    for (const document of manifestDocuments(text)) {
      if (document.value === undefined || document.value === null) continue;
      documents += 1;
      readObject({ document, path: "", value: document.value }, pods, { problems, warnings });
      if (problems.length >= MAX_PROBLEMS) break;
    }
    if (documents === 0) problems.push({ position: undefined, message: empty });
  } catch (error) {
    if (!(error instanceof SyntaxProblem)) throw error;
    problems.push({ position: error.position, message: error.message });
  }
  if (problems.length === 0) return { ok: true, pods, warnings: warnings.slice(0, MAX_PROBLEMS) };
  // A field that is missing may be one that is misspelt.
  return { ok: false, problems: [...problems, ...warnings].slice(0, MAX_PROBLEMS) };
}

interface Item {
  readonly document: ManifestDocument;
  /** Within the document; "" for the whole. */
  readonly path: string;
  readonly value: unknown;
}

interface Findings {
  readonly problems: ManifestProblem[];
  readonly warnings: ManifestProblem[];
}

function readObject(item: Item, pods: ManifestPod[], findings: Findings): void {
  const { problems } = findings;
  const { document, path, value } = item;
  const items = itemsOf(value);
  if (items === undefined) {
    readPod(item, pods, findings);
    return;
  }
  if (!Array.isArray(items)) {
    problems.push({ position: document.locate("items"), message: "items: Invalid value: must be a list" });
    return;
  }
  for (const [index, each] of items.entries()) {
    readPod({ document, path: `${path}items[${index}]`, value: asPod(value, each) }, pods, findings);
    if (problems.length >= MAX_PROBLEMS) return;
  }
}

/** @returns the items of a List or PodList; `undefined` for another kind */
function itemsOf(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  const { apiVersion, kind, items } = value as { apiVersion?: unknown; kind?: unknown; items?: unknown };
  return apiVersion === "v1" && (kind === "List" || kind === "PodList") ? (items ?? []) : undefined;
}

/** In a PodList the items may leave out what they are. */
function asPod(list: unknown, item: unknown): unknown {
  if ((list as { kind?: unknown }).kind !== "PodList" || typeof item !== "object" || item === null) return item;
  return Array.isArray(item) ? item : { apiVersion: "v1", kind: "Pod", ...item };
}

function readPod({ document, path, value }: Item, pods: ManifestPod[], { problems, warnings }: Findings): void {
  const result = parsePod(value);
  for (const unknown of isPod(value) ? unknownPodFields(value, path) : []) {
    if (warnings.length >= MAX_PROBLEMS) break;
    warnings.push({ position: document.locate(unknown.path), message: unknown.message });
  }
  if (result.ok) {
    pods.push({ written: value, pod: result.pod, position: document.locate(path) });
    return;
  }
  for (const problem of result.problems) {
    const field =
      problem.path.startsWith("[") || path === "" || problem.path === "" ? problem.path : `.${problem.path}`;
    const whole = `${path}${field}`;
    const message = whole === "" ? problem.message : `${whole}: ${problem.message}`;
    problems.push({ position: document.locate(whole), message });
  }
}

/** Only pods are searched for unknown fields, since in another kind each field would be unknown. */
const isPod = (value: unknown): boolean => (value as { readonly kind?: unknown } | null)?.kind === "Pod";
