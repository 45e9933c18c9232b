/**
 * The shape of `/etc/picolet/config.yaml`: KubeletConfiguration kubelet.config.k8s.io/v1beta1 of Kubernetes 1.34, and
 * picolet's own `nodeName`, `nodeLabels`, `wasm`, `budget`, `telemetry`, `secretsAtRest`, `hub`. Unknown fields are refused with the nearest known name. What is
 * missing stays missing here; `configuration-defaults.ts` fills it in.
 */

import { parseDuration } from "@picolet/protocol/kubernetes/duration.ts";
import { nearestName } from "@picolet/protocol/kubernetes/nearest-name.ts";
import { childPath } from "@picolet/protocol/kubernetes/plain-data.ts";
import { parseQuantity, quantityValue } from "@picolet/protocol/kubernetes/quantity.ts";
import { unitHint } from "@picolet/protocol/kubernetes/quantity-hint.ts";
import type { Millis } from "@picolet/protocol/ports.ts";
import * as z from "zod/mini";

function refuse(context: z.core.ParsePayload, input: unknown, message: string): never {
  context.issues.push({ code: "custom", message, input });
  return z.NEVER;
}

/** The kinds of fields there are, each optional. */
export function makeKinds() {
  /** "20s", "1m30s", "0". */
  const duration = z.optional(
    z.pipe(
      z.union([z.string(), z.number()]),
      z.transform((value: string | number, context): Millis => {
        const parsed = typeof value === "string" ? parseDuration(value) : undefined;
        return parsed ?? refuse(context, value, 'must be a duration such as "20s" or "1m30s"');
      }),
    ),
  );

  /** A quantity of bytes: "10Mi", 1048576. */
  const bytes = z.optional(
    z.pipe(
      z.union([z.string(), z.number()]),
      z.transform((value: string | number, context): number => {
        const parsed = parseQuantity(String(value));
        if (!parsed.ok) return refuse(context, value, `${parsed.problem}${unitHint(value)}`);
        const count = quantityValue(parsed.quantity);
        if (count > BigInt(Number.MAX_SAFE_INTEGER)) return refuse(context, value, "is too large");
        return Number(count);
      }),
    ),
  );

  return {
    duration,
    bytes,
    text: z.optional(z.string()),
    texts: z.optional(z.array(z.string())),
    textMap: z.optional(z.record(z.string(), z.string())),
    int32: z.optional(z.int32()),
    int32s: z.optional(z.array(z.int32())),
    int64: z.optional(z.int()),
    real: z.optional(z.number()),
    flag: z.optional(z.boolean()),
    opaque: z.optional(z.record(z.string(), z.unknown())),
    /** One text, or a list of them. */
    textOrTexts: z.optional(
      z.pipe(
        z.unknown(),
        z.transform((value: unknown, context): string[] => {
          const list = typeof value === "string" ? [value] : value;
          const isTexts = Array.isArray(list) && list.every((each) => typeof each === "string");
          return isTexts ? list : refuse(context, value, "must be a string or a list of strings");
        }),
      ),
    ),
  };
}

/**
 * Made anew for each use: a configuration is read once, and the schema would stay in memory for nothing.
 * @param kinds what its fields are made of, for who has to tell them apart
 */
export function makeConfigurationSchema(kinds = makeKinds()) {
  const { duration, bytes, text, texts, textMap, int32, int32s, int64, real, flag, opaque, textOrTexts } = kinds;

  return z.object({
    apiVersion: text,
    kind: text,
    enableServer: flag,
    staticPodPath: text,
    podLogsDir: text,
    syncFrequency: duration,
    fileCheckFrequency: duration,
    httpCheckFrequency: duration,
    staticPodURL: text,
    staticPodURLHeader: z.optional(z.record(z.string(), z.array(z.string()))),
    address: text,
    port: int32,
    readOnlyPort: int32,
    podHousekeepingPeriod: duration,
    tlsCertFile: text,
    tlsPrivateKeyFile: text,
    tlsCipherSuites: texts,
    tlsCurvePreferences: int32s,
    tlsMinVersion: text,
    rotateCertificates: flag,
    serverTLSBootstrap: flag,
    authentication: z.optional(
      z.object({
        x509: z.optional(z.object({ clientCAFile: text })),
        webhook: z.optional(z.object({ enabled: flag, cacheTTL: duration })),
        anonymous: z.optional(z.object({ enabled: flag })),
      }),
    ),
    authorization: z.optional(
      z.object({
        mode: text,
        webhook: z.optional(z.object({ cacheAuthorizedTTL: duration, cacheUnauthorizedTTL: duration })),
      }),
    ),
    registryPullQPS: int32,
    registryBurst: int32,
    imagePullCredentialsVerificationPolicy: text,
    preloadedImagesVerificationAllowlist: texts,
    eventRecordQPS: int32,
    eventBurst: int32,
    enableDebuggingHandlers: flag,
    enableContentionProfiling: flag,
    healthzPort: int32,
    healthzBindAddress: text,
    oomScoreAdj: int32,
    clusterDomain: text,
    clusterDNS: texts,
    streamingConnectionIdleTimeout: duration,
    nodeStatusUpdateFrequency: duration,
    nodeStatusReportFrequency: duration,
    nodeLeaseDurationSeconds: int32,
    imageMinimumGCAge: duration,
    imageMaximumGCAge: duration,
    imageGCHighThresholdPercent: int32,
    imageGCLowThresholdPercent: int32,
    volumeStatsAggPeriod: duration,
    kubeletCgroups: text,
    systemCgroups: text,
    cgroupRoot: text,
    cgroupsPerQOS: flag,
    cgroupDriver: text,
    cpuManagerPolicy: text,
    singleProcessOOMKill: flag,
    cpuManagerPolicyOptions: textMap,
    cpuManagerReconcilePeriod: duration,
    memoryManagerPolicy: text,
    topologyManagerPolicy: text,
    topologyManagerScope: text,
    topologyManagerPolicyOptions: textMap,
    qosReserved: textMap,
    runtimeRequestTimeout: duration,
    hairpinMode: text,
    maxPods: int32,
    podCIDR: text,
    podPidsLimit: int64,
    resolvConf: text,
    runOnce: flag,
    cpuCFSQuota: flag,
    cpuCFSQuotaPeriod: duration,
    nodeStatusMaxImages: int32,
    maxOpenFiles: int64,
    contentType: text,
    kubeAPIQPS: int32,
    kubeAPIBurst: int32,
    serializeImagePulls: flag,
    maxParallelImagePulls: int32,
    evictionHard: textMap,
    evictionSoft: textMap,
    evictionSoftGracePeriod: textMap,
    evictionPressureTransitionPeriod: duration,
    evictionMaxPodGracePeriod: int32,
    evictionMinimumReclaim: textMap,
    mergeDefaultEvictionSettings: flag,
    podsPerCore: int32,
    enableControllerAttachDetach: flag,
    protectKernelDefaults: flag,
    makeIPTablesUtilChains: flag,
    iptablesMasqueradeBit: int32,
    iptablesDropBit: int32,
    featureGates: z.optional(z.record(z.string(), z.boolean())),
    failSwapOn: flag,
    memorySwap: z.optional(z.object({ swapBehavior: text })),
    containerLogMaxSize: bytes,
    containerLogMaxFiles: int32,
    containerLogMaxWorkers: int32,
    containerLogMonitorInterval: duration,
    configMapAndSecretChangeDetectionStrategy: text,
    systemReserved: textMap,
    kubeReserved: textMap,
    reservedSystemCPUs: text,
    showHiddenMetricsForVersion: text,
    systemReservedCgroup: text,
    kubeReservedCgroup: text,
    enforceNodeAllocatable: texts,
    allowedUnsafeSysctls: texts,
    volumePluginDir: text,
    providerID: text,
    kernelMemcgNotification: flag,
    logging: opaque,
    enableSystemLogHandler: flag,
    enableSystemLogQuery: flag,
    shutdownGracePeriod: duration,
    shutdownGracePeriodCriticalPods: duration,
    shutdownGracePeriodByPodPriority: z.optional(
      z.array(z.object({ priority: z.int32(), shutdownGracePeriodSeconds: z.int() })),
    ),
    crashLoopBackOff: z.optional(
      z.object({
        maxContainerRestartPeriod: duration,
        /** Ours: the kubelet's first delay is fixed. */
        initialContainerRestartPeriod: duration,
      }),
    ),
    reservedMemory: z.optional(
      z.array(z.object({ numaNode: z.int32(), limits: z.record(z.string(), z.union([z.string(), z.number()])) })),
    ),
    enableProfilingHandler: flag,
    enableDebugFlagsHandler: flag,
    seccompDefault: flag,
    memoryThrottlingFactor: real,
    registerWithTaints: z.optional(
      z.array(z.object({ key: z.string(), value: text, effect: z.string(), timeAdded: text })),
    ),
    registerNode: flag,
    tracing: opaque,
    localStorageCapacityIsolation: flag,
    containerRuntimeEndpoint: text,
    imageServiceEndpoint: text,
    failCgroupV1: flag,
    userNamespaces: z.optional(z.object({ idsPerPod: int64 })),
    nodeName: text,
    wasm: z.optional(
      z.object({
        maxComponentSize: bytes,
        transpileMemory: bytes,
        transpileTimeout: duration,
        startTimeout: duration,
        registries: z.optional(
          z.array(
            z.object({ host: z.string(), insecure: flag, caFile: text, mirrors: z.optional(z.array(z.string())) }),
          ),
        ),
        proxy: z.optional(z.object({ httpProxy: text, httpsProxy: text, noProxy: text })),
        http: z.optional(z.object({ caFile: text })),
        spareRunners: int32,
        p3: flag,
        nodeLabels: texts,
      }),
    ),
    budget: z.optional(z.object({ memoryBytes: bytes, flashBytesPerDay: bytes, agentFlashBytesPerDay: bytes })),
    telemetry: z.optional(z.object({ maxBytes: bytes, maxAge: duration, flushInterval: duration })),
    secretsAtRest: z.optional(z.object({ keyProvider: text, keyFile: text })),
    /** The kubelet's flags --image-credential-provider-config and --image-credential-provider-bin-dir. */
    imageCredentialProviderConfig: text,
    imageCredentialProviderBinDir: text,
    imageSignatures: z.optional(
      z.array(
        z.object({
          repository: z.string(),
          require: z.optional(z.enum(["signature", "nothing", "reject"])),
          keys: z.optional(z.array(z.string())),
          keyFiles: z.optional(z.array(z.string())),
          signedIdentity: z.optional(z.enum(["repository", "any"])),
        }),
      ),
    ),
    /** The kubelet's flag --node-labels. */
    nodeLabels: textMap,
    hub: z.optional(
      z.object({
        server: textOrTexts,
        token: text,
        tokenFile: text,
        caHash: textOrTexts,
        caFile: text,
        heartbeatInterval: duration,
        reconnectBackoff: z.optional(z.object({ initial: duration, max: duration })),
      }),
    ),
  });
}

export interface UnknownField {
  /** As in a problem: `crashLoopBackOff.maxContainerRestartPeriod`. */
  readonly path: string;
  /** The field of that place whose name is most like it, if any is. */
  readonly nearest: string | undefined;
}

/** Fields of `value` that `schema` does not have, at any depth. */
export function unknownFields(schema: z.core.$ZodType, value: unknown, path = ""): UnknownField[] {
  const { def } = (schema as z.core.$ZodTypes)._zod;
  if (def.type === "optional") return unknownFields(def.innerType, value, path);
  if (def.type === "array" && Array.isArray(value)) {
    return value.flatMap((item, index) => unknownFields(def.element, item, `${path}[${index}]`));
  }
  if (def.type !== "object" || typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, field]) => {
    const known = Object.hasOwn(def.shape, key) ? def.shape[key] : undefined;
    if (known !== undefined) return unknownFields(known, field, childPath(path, key));
    return [{ path: childPath(path, key), nearest: nearestName(key, Object.keys(def.shape)) }];
  });
}
