/** ControllerRevisions of a DaemonSet: which of them its template is, and which are too many. Pure. */

import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { stableHash } from "../stable-hash.ts";
import { type DaemonSet, ownerOf, REVISION_LABEL } from "./daemon-set.ts";

export interface ControllerRevision extends KubeObject {
  readonly data?: unknown;
  readonly revision: number;
}

/** The patch that `kubectl rollout undo` sends: it takes the template back as a whole. */
const templatePatch = ({ spec }: DaemonSet): object => ({
  spec: { template: { ...spec.template, $patch: "replace" } },
});

const revisionHash = ({ metadata }: ControllerRevision): string =>
  metadata.labels?.[REVISION_LABEL] ?? metadata.name.slice(metadata.name.lastIndexOf("-") + 1);

export function newRevision(
  set: DaemonSet,
  revision: number,
  collisions: number,
): { readonly hash: string; readonly object: Readonly<Record<string, unknown>> } {
  const hash = stableHash(`${canonicalJson(set.spec.template)}${collisions === 0 ? "" : collisions}`);
  return {
    hash,
    object: {
      apiVersion: "apps/v1",
      kind: "ControllerRevision",
      metadata: {
        name: `${set.metadata.name}-${hash}`,
        namespace: set.metadata.namespace,
        labels: { ...set.spec.template.metadata?.labels, [REVISION_LABEL]: hash },
        annotations: set.metadata.annotations ?? {},
        ownerReferences: [ownerOf(set)],
      },
      data: templatePatch(set),
      revision,
    },
  };
}

export const holdsTemplate = (revision: ControllerRevision, set: DaemonSet): boolean =>
  canonicalJson(revision.data) === canonicalJson(templatePatch(set));

export type RevisionStep =
  | { readonly kind: "create"; readonly revision: number }
  /** Rolled back to: it becomes the newest. */
  | { readonly kind: "renumber"; readonly existing: ControllerRevision; readonly revision: number }
  | { readonly kind: "current"; readonly existing: ControllerRevision; readonly hash: string };

/** @param revisions those that the set controls */
export function currentRevision(set: DaemonSet, revisions: readonly ControllerRevision[]): RevisionStep {
  const newest = revisions.reduce((most, each) => Math.max(most, each.revision), 0);
  const matching = revisions.filter((each) => holdsTemplate(each, set)).sort((a, b) => b.revision - a.revision);
  const [existing] = matching;
  if (existing === undefined) return { kind: "create", revision: newest + 1 };
  if (existing.revision < newest) return { kind: "renumber", existing, revision: newest + 1 };
  return { kind: "current", existing, hash: revisionHash(existing) };
}

/** Kubernetes' default of `revisionHistoryLimit`. */
const DEFAULT_LIMIT = 10;

/** The oldest beyond the limit that no pod is of. */
export function surplusRevisions(
  set: DaemonSet,
  revisions: readonly ControllerRevision[],
  pods: readonly Pod[],
  currentHash: string,
): readonly ControllerRevision[] {
  const live = new Set([currentHash, ...pods.map(({ metadata }) => metadata.labels?.[REVISION_LABEL] ?? "")]);
  const old = revisions.filter((each) => !live.has(revisionHash(each))).sort((a, b) => a.revision - b.revision);
  return old.slice(0, Math.max(0, old.length - (set.spec.revisionHistoryLimit ?? DEFAULT_LIMIT)));
}

/** JSON with keys in order, so that equal values are equal texts. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) =>
    typeof each === "object" && each !== null && !Array.isArray(each)
      ? Object.fromEntries(Object.entries(each).sort(([a], [b]) => (a < b ? -1 : 1)))
      : each,
  );
}
