/** Manifests for tests: the smallest pod that is valid, with changes. */
import { formatProblems } from "@picolet/protocol/kubernetes/field-problems.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";

type Fields = Readonly<Record<string, unknown>>;

/** A manifest with one container `app`; `spec` and `metadata` are merged over it. */
export const podManifest = (spec: Fields = {}, metadata: Fields = {}): Fields => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "web", ...metadata },
  spec: { containers: [{ name: "app", image: "example.com/app:1" }], ...spec },
});

/** The same, parsed. @throws when it is not valid. */
export function parsedPod(spec: Fields = {}, metadata: Fields = {}): Pod {
  const result = parsePod(podManifest(spec, metadata));
  if (result.ok) return result.pod;
  throw new Error(formatProblems(result.problems));
}

/** A pod of one container with `fields`. */
export const podOfContainer = (fields: Fields): Pod =>
  parsedPod({ containers: [{ name: "app", image: "example.com/app:1", ...fields }] });
