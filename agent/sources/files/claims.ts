/** Decides which file has which pod, when several files name it. Pure. */
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";

export interface FileVersion {
  readonly path: string;
  /** What is wanted of it until now. */
  readonly current: readonly DesiredPod[];
  /** The pods of its new version; `undefined` without a new one, or when it cannot be used. */
  readonly next: readonly DesiredPod[] | undefined;
  /** True when the file is missing, but not for long enough to be sure. */
  readonly isMissing: boolean;
}

export interface Claims {
  readonly pods: readonly DesiredPod[];
  /** The reasons why new versions are refused, by path. The current ones stay. */
  readonly refused: ReadonlyMap<string, string>;
}

/**
 * A file keeps the pods that it has; a new name goes to the first file by path. A file is taken whole or stays as it
 * was. Each round refuses at least one file more, so there are at most as many rounds as files.
 */
export function settleClaims(versions: readonly FileVersion[], maxPods: number): Claims {
  const refused = new Map<string, string>();
  for (;;) {
    const round = claimOnce(versions, refused, maxPods);
    if (round.refused.size === 0) return { pods: round.pods, refused };
    for (const [path, reason] of round.refused) refused.set(path, reason);
  }
}

interface Claim {
  readonly pod: DesiredPod;
  readonly version: FileVersion;
  readonly rank: number;
}

/** Lower ranks choose first. */
const RANK = { asBefore: 0, owned: 1, fresh: 2, missing: 3 } as const;

const nameOf = ({ pod }: DesiredPod): string => `${pod.metadata.namespace}/${pod.metadata.name}`;

function claimOnce(versions: readonly FileVersion[], before: ReadonlyMap<string, string>, maxPods: number): Claims {
  const taken = new Map<string, DesiredPod>();
  const pods: DesiredPod[] = [];
  const refused = new Map<string, string>();
  for (const { pod, version, rank } of inOrder(versions, before)) {
    const name = nameOf(pod);
    const other = taken.get(name) ?? taken.get(pod.uid);
    if (other === undefined && pods.length < maxPods) {
      taken.set(name, pod);
      taken.set(pod.uid, pod);
      pods.push(pod);
    } else if (rank === RANK.owned || rank === RANK.fresh) {
      if (!refused.has(version.path)) refused.set(version.path, reasonOf(pod, other, maxPods));
    }
  }
  return { pods, refused };
}

function inOrder(versions: readonly FileVersion[], refused: ReadonlyMap<string, string>): readonly Claim[] {
  const claims = versions.flatMap((version): Claim[] => {
    const { path, current, next, isMissing } = version;
    if (next === undefined || refused.has(path)) {
      return current.map((pod) => ({ pod, version, rank: isMissing ? RANK.missing : RANK.asBefore }));
    }
    const owned = new Set(current.map(nameOf));
    return next.map((pod) => ({ pod, version, rank: owned.has(nameOf(pod)) ? RANK.owned : RANK.fresh }));
  });
  return claims.toSorted((a, b) => a.rank - b.rank || compare(a.version.path, b.version.path));
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

function reasonOf(pod: DesiredPod, other: DesiredPod | undefined, maxPods: number): string {
  if (other === undefined) return `Too many: all files together may have at most ${maxPods} pods`;
  const mend = "give one of them another name or remove it";
  if (nameOf(other) === nameOf(pod))
    return `metadata.name: Duplicate value: pod ${nameOf(pod)} is that of ${other.origin}; ${mend}`;
  return `metadata.uid: Duplicate value: pod ${nameOf(other)} of ${other.origin} has it too; leave it out to have one made`;
}
