import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type ManifestPod, type ManifestProblem, readManifest } from "./manifest-reader.ts";
import { type StaticPodInit, staticPod } from "./static-pod.ts";

/**
 * Reads the pods of a text. With the YAML parser it is a part of its own, which the agent unloads when no more
 * manifests come.
 * @param empty the problem of a text without pods; that of a file unless given
 */
export function podsOf(
  text: string,
  init: StaticPodInit,
  empty?: string,
): {
  readonly pods: readonly DesiredPod[];
  readonly problems: readonly ManifestProblem[];
  /** Parts of the text that have no effect. The pods run all the same. */
  readonly warnings: readonly ManifestProblem[];
} {
  const manifest = readManifest(text, empty);
  if (!manifest.ok) return { pods: [], problems: manifest.problems, warnings: [] };
  const pods: DesiredPod[] = [];
  const problems: ManifestProblem[] = [];
  for (const written of manifest.pods) {
    const made = staticPod(written.written, written.pod, init);
    if (made.ok) pods.push(made.desired);
    else problems.push({ position: written.position, message: `${made.path}: ${made.message}` });
  }
  return { pods, problems: [...problems, ...duplicatesIn(manifest.pods, pods)], warnings: manifest.warnings };
}

/** Within one file; only asked when all of its pods could be made. */
function duplicatesIn(written: readonly ManifestPod[], pods: readonly DesiredPod[]): readonly ManifestProblem[] {
  const problems: ManifestProblem[] = [];
  const seen = new Set<string>();
  for (const [index, { uid, pod }] of pods.entries()) {
    const { namespace, name } = pod.metadata;
    const field = seen.has(`${namespace}/${name}`) ? "metadata.name" : seen.has(uid) ? "metadata.uid" : undefined;
    const shown = JSON.stringify(field === "metadata.uid" ? uid : written[index]?.pod.metadata.name);
    const message = `${field}: Duplicate value: ${shown}: another pod of this file has it`;
    if (field !== undefined) problems.push({ position: written[index]?.position, message });
    seen.add(`${namespace}/${name}`).add(uid);
  }
  return problems;
}
