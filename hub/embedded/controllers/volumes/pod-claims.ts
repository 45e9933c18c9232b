import type { Pod } from "@picolet/protocol/pod/pod.ts";

interface VolumeOfPod {
  readonly name: string;
  readonly persistentVolumeClaim?: { readonly claimName: string } | undefined;
  readonly ephemeral?: { readonly volumeClaimTemplate?: object | undefined } | undefined;
}

/** The claim that a generic ephemeral volume is made with. */
export const ephemeralClaimName = (pod: Pod, volume: string): string => `${pod.metadata.name}-${volume}`;

export const volumesOf = (pod: Pod): readonly VolumeOfPod[] => (pod.spec.volumes ?? []) as readonly VolumeOfPod[];

/** Names of all claims that a pod uses. */
export const claimsOf = (pod: Pod): readonly string[] =>
  volumesOf(pod).flatMap(({ name, persistentVolumeClaim, ephemeral }) => {
    if (persistentVolumeClaim !== undefined) return [persistentVolumeClaim.claimName];
    return ephemeral === undefined ? [] : [ephemeralClaimName(pod, name)];
  });
