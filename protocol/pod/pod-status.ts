/**
 * PodStatus of Pod v1 (Kubernetes 1.34): plain types, because only the agent writes it. Times are RFC 3339 with
 * seconds (`2026-01-31T12:00:00Z`), as Kubernetes writes them. Reached through `pod.ts`.
 */
import type { Parsed } from "./fields/field-schemas.ts";
import type { resourceRequirementsSchema } from "./volume-schema.ts";

export type PodPhase = "Pending" | "Running" | "Succeeded" | "Failed" | "Unknown";
export type QosClass = "Guaranteed" | "Burstable" | "BestEffort";
export type ConditionStatus = "True" | "False" | "Unknown";

export type PodConditionType =
  | "PodScheduled"
  | "PodReadyToStartContainers"
  | "Initialized"
  | "ContainersReady"
  | "Ready"
  | "DisruptionTarget"
  | "PodResizePending"
  | "PodResizeInProgress"
  | "picolet.io/Runtime";

export interface PodCondition {
  /** One of the above, or the name of a readiness gate. */
  readonly type: PodConditionType | (string & {});
  readonly status: ConditionStatus;
  readonly observedGeneration?: number | undefined;
  readonly lastProbeTime?: string | null | undefined;
  readonly lastTransitionTime?: string | undefined;
  readonly reason?: string | undefined;
  readonly message?: string | undefined;
}

export interface ContainerStateWaiting {
  readonly reason?: string | undefined;
  readonly message?: string | undefined;
}

export interface ContainerStateRunning {
  readonly startedAt?: string | undefined;
}

export interface ContainerStateTerminated {
  readonly exitCode: number;
  readonly signal?: number | undefined;
  /** `Completed`, `Error`, `OOMKilled`, `ContainerStatusUnknown`, `StartError` … */
  readonly reason?: string | undefined;
  readonly message?: string | undefined;
  readonly startedAt?: string | undefined;
  readonly finishedAt?: string | undefined;
  /** `<runtime>://<id>` */
  readonly containerID?: string | undefined;
}

/** At most one of the three is set; none means waiting. */
export interface ContainerStatusState {
  readonly waiting?: ContainerStateWaiting | undefined;
  readonly running?: ContainerStateRunning | undefined;
  readonly terminated?: ContainerStateTerminated | undefined;
}

export interface ContainerUser {
  readonly linux?:
    | { readonly uid: number; readonly gid: number; readonly supplementalGroups?: readonly number[] | undefined }
    | undefined;
}

export interface VolumeMountStatus {
  readonly name: string;
  readonly mountPath: string;
  readonly readOnly?: boolean | undefined;
  readonly recursiveReadOnly?: "Disabled" | "IfPossible" | "Enabled" | undefined;
}

export interface ResourceHealth {
  readonly resourceID: string;
  readonly health?: "Healthy" | "Unhealthy" | "Unknown" | undefined;
}

export interface ResourceStatus {
  readonly name: string;
  readonly resources?: readonly ResourceHealth[] | undefined;
}

export interface ContainerStatus {
  readonly name: string;
  readonly state: ContainerStatusState;
  readonly lastState: ContainerStatusState;
  readonly ready: boolean;
  readonly restartCount: number;
  readonly image: string;
  readonly imageID: string;
  /** `<runtime>://<id>`; missing until there is one. */
  readonly containerID?: string | undefined;
  readonly started?: boolean | undefined;
  /** Quantities by resource name. */
  readonly allocatedResources?: Readonly<Record<string, string>> | undefined;
  readonly resources?: Partial<Parsed<typeof resourceRequirementsSchema>> | undefined;
  readonly volumeMounts?: readonly VolumeMountStatus[] | undefined;
  readonly user?: ContainerUser | undefined;
  readonly allocatedResourcesStatus?: readonly ResourceStatus[] | undefined;
  readonly stopSignal?: string | undefined;
}

export interface PodIp {
  readonly ip: string;
}

export interface PodResourceClaimStatus {
  readonly name: string;
  readonly resourceClaimName?: string | undefined;
}

export interface PodStatus {
  readonly phase: PodPhase;
  readonly observedGeneration?: number | undefined;
  readonly conditions?: readonly PodCondition[] | undefined;
  readonly message?: string | undefined;
  readonly reason?: string | undefined;
  readonly nominatedNodeName?: string | undefined;
  readonly hostIP?: string | undefined;
  readonly hostIPs?: readonly PodIp[] | undefined;
  readonly podIP?: string | undefined;
  readonly podIPs?: readonly PodIp[] | undefined;
  readonly startTime?: string | undefined;
  readonly initContainerStatuses?: readonly ContainerStatus[] | undefined;
  readonly containerStatuses?: readonly ContainerStatus[] | undefined;
  readonly ephemeralContainerStatuses?: readonly ContainerStatus[] | undefined;
  readonly qosClass?: QosClass | undefined;
  /** Used before 1.33; the conditions PodResizePending and PodResizeInProgress have replaced it. */
  readonly resize?: "Proposed" | "InProgress" | "Deferred" | "Infeasible" | undefined;
  readonly resourceClaimStatuses?: readonly PodResourceClaimStatus[] | undefined;
  readonly extendedResourceClaimStatus?:
    | {
        readonly resourceClaimName: string;
        readonly requestMappings: readonly {
          readonly containerName: string;
          readonly resourceName: string;
          readonly requestName: string;
        }[];
      }
    | undefined;
}
