/**
 * Texts that Kubernetes' objects are full of, each sent as its place in this list: as a map's key, as a value.
 * The list is part of the subprotocol `picolet.tunnel.v1`. Words are only ever added, and only at its end, with a new
 * version of the subprotocol; a golden test holds it. The first 24 cost one byte as a key, the others two: what changes
 * in a pod's status comes first.
 */
export const KUBERNETES_WORDS: readonly string[] = [
  // Keys of what changes most often, one byte each.
  ..."conditions containerStatuses lastTransitionTime status state running startedAt ready started restartCount".split(
    " ",
  ),
  ..."terminated waiting reason message exitCode finishedAt containerID lastState phase type".split(" "),
  ..."observedGeneration name podIP podIPs".split(" "),
  // Other keys of statuses.
  ..."image imageID ip hostIP hostIPs qosClass startTime initContainerStatuses ephemeralContainerStatuses".split(" "),
  ..."lastProbeTime signal resources allocatedResources volumeMounts user resize".split(" "),
  // Values of statuses; what is before the id of a container or the digest of an image.
  ..."containerd:// cri-o:// wasm:// sha256:".split(" "),
  ..."True False Unknown Pending Running Succeeded Failed".split(" "),
  ..."PodScheduled PodReadyToStartContainers Initialized ContainersReady Ready DisruptionTarget".split(" "),
  ..."PodCompleted ContainersNotReady ContainersNotInitialized PodInitializing ContainerCreating".split(" "),
  ..."CrashLoopBackOff ImagePullBackOff ErrImagePull CreateContainerError CreateContainerConfigError".split(" "),
  ..."RunContainerError Completed Error OOMKilled StartError ContainerStatusUnknown ContainerCannotRun".split(" "),
  ..."DeadlineExceeded Evicted Terminated NodeLost BestEffort Burstable Guaranteed".split(" "),
  // Words of all objects.
  ..."apiVersion kind metadata spec v1 Pod Secret ConfigMap Node namespace uid labels annotations generation".split(
    " ",
  ),
  ..."creationTimestamp deletionTimestamp deletionGracePeriodSeconds ownerReferences controller".split(" "),
  ..."blockOwnerDeletion finalizers default kube-system data binaryData immutable stringData Opaque".split(" "),
  // Words of pods.
  ..."containers initContainers ephemeralContainers volumes nodeName restartPolicy Always OnFailure Never".split(" "),
  ..."terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy ClusterFirst Default None".split(" "),
  ..."ClusterFirstWithHostNet serviceAccountName serviceAccount automountServiceAccountToken".split(" "),
  ..."securityContext schedulerName default-scheduler tolerations priority priorityClassName".split(" "),
  ..."preemptionPolicy PreemptLowerPriority enableServiceLinks nodeSelector affinity hostNetwork".split(" "),
  ..."hostPID hostIPC shareProcessNamespace runtimeClassName imagePullSecrets hostname subdomain".split(" "),
  ..."command args env envFrom value valueFrom fieldRef fieldPath resourceFieldRef configMapKeyRef".split(" "),
  ..."secretKeyRef configMapRef secretRef key optional ports containerPort hostPort protocol TCP UDP".split(" "),
  ..."limits requests cpu memory ephemeral-storage imagePullPolicy IfNotPresent".split(" "),
  ..."terminationMessagePath /dev/termination-log terminationMessagePolicy File FallbackToLogsOnError".split(" "),
  ..."mountPath readOnly subPath recursiveReadOnly Disabled workingDir livenessProbe readinessProbe".split(" "),
  ..."startupProbe httpGet tcpSocket exec grpc path port scheme HTTP initialDelaySeconds".split(" "),
  ..."periodSeconds timeoutSeconds successThreshold failureThreshold lifecycle".split(" "),
  ..."projected sources serviceAccountToken expirationSeconds audience configMap secret secretName".split(" "),
  ..."items defaultMode emptyDir hostPath downwardAPI runAsUser runAsGroup runAsNonRoot privileged".split(" "),
  ..."allowPrivilegeEscalation readOnlyRootFilesystem capabilities add drop effect operator".split(" "),
  ..."Exists Equal NoSchedule NoExecute tolerationSeconds".split(" "),
  // Words of nodes.
  ..."register taints providerID capacity allocatable addresses nodeInfo images names sizeBytes pods".split(" "),
];
