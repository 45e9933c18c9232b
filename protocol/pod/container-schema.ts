/** Containers of Pod v1 (Kubernetes 1.34). Reached through `pod.ts`. */

import {
  defaultedInt32,
  defaultedObject,
  defaultedOneOf,
  defaultedText,
  object,
  optional,
  optionalFlag,
  optionalInt32,
  optionalInt32s,
  optionalInt64,
  optionalList,
  optionalOneOf,
  optionalText,
  optionalTexts,
  requiredInt32,
  requiredInt64,
  requiredIntOrText,
  requiredOneOf,
  requiredText,
} from "./fields/field-schemas.ts";
import { objectFieldSelectorSchema, resourceFieldSelectorSchema } from "./fields/reference-schemas.ts";
import { resourceRequirementsSchema, volumeDeviceSchema, volumeMountSchema } from "./volume-schema.ts";

export type PullPolicy = "Always" | "IfNotPresent" | "Never";
export type Protocol = "TCP" | "UDP" | "SCTP";

const port = object({
  name: optionalText,
  hostPort: optionalInt32,
  containerPort: requiredInt32,
  protocol: defaultedOneOf<Protocol>(),
  hostIP: optionalText,
});

const keySelector = object({ name: requiredText, key: requiredText, optional: optionalFlag });

const envVar = object({
  name: requiredText,
  value: optionalText,
  valueFrom: optional(
    object({
      fieldRef: optional(objectFieldSelectorSchema),
      resourceFieldRef: optional(resourceFieldSelectorSchema),
      configMapKeyRef: optional(keySelector),
      secretKeyRef: optional(keySelector),
      fileKeyRef: optional(
        object({ volumeName: requiredText, path: requiredText, key: requiredText, optional: optionalFlag }),
      ),
    }),
  ),
});

const envFromReference = optional(object({ name: requiredText, optional: optionalFlag }));
const envFrom = object({ prefix: optionalText, configMapRef: envFromReference, secretRef: envFromReference });

const execAction = optional(object({ command: optionalTexts }));
const httpGetAction = optional(
  object({
    path: defaultedText,
    port: requiredIntOrText,
    host: optionalText,
    scheme: defaultedOneOf<"HTTP" | "HTTPS">(),
    httpHeaders: optionalList(object({ name: requiredText, value: requiredText })),
  }),
);
const tcpSocketAction = optional(object({ port: requiredIntOrText, host: optionalText }));

export const probeSchema = object({
  exec: execAction,
  httpGet: httpGetAction,
  tcpSocket: tcpSocketAction,
  grpc: optional(object({ port: requiredInt32, service: defaultedText })),
  initialDelaySeconds: optionalInt32,
  timeoutSeconds: defaultedInt32,
  periodSeconds: defaultedInt32,
  successThreshold: defaultedInt32,
  failureThreshold: defaultedInt32,
  terminationGracePeriodSeconds: optionalInt64,
});
const optionalProbe = optional(probeSchema);

const lifecycleHandler = object({
  exec: execAction,
  httpGet: httpGetAction,
  tcpSocket: tcpSocketAction,
  sleep: optional(object({ seconds: requiredInt64 })),
});
const lifecycle = object({
  postStart: optional(lifecycleHandler),
  preStop: optional(lifecycleHandler),
  /** `SIGTERM` …; needs `spec.os.name`. */
  stopSignal: optionalText,
});

const seLinuxOptions = object({ user: optionalText, role: optionalText, type: optionalText, level: optionalText });
const windowsOptions = object({
  gmsaCredentialSpecName: optionalText,
  gmsaCredentialSpec: optionalText,
  runAsUserName: optionalText,
  hostProcess: optionalFlag,
});
const seccompProfile = object({
  type: requiredOneOf<"Localhost" | "RuntimeDefault" | "Unconfined">(),
  localhostProfile: optionalText,
});
/** Fields that the security contexts of pods and of containers share. */
export const commonSecurityFields = {
  seLinuxOptions: optional(seLinuxOptions),
  windowsOptions: optional(windowsOptions),
  runAsUser: optionalInt64,
  runAsGroup: optionalInt64,
  runAsNonRoot: optionalFlag,
  seccompProfile: optional(seccompProfile),
  appArmorProfile: optional(seccompProfile),
};

export const securityContextSchema = object({
  ...commonSecurityFields,
  capabilities: optional(object({ add: optionalTexts, drop: optionalTexts })),
  privileged: optionalFlag,
  readOnlyRootFilesystem: optionalFlag,
  allowPrivilegeEscalation: optionalFlag,
  procMount: optionalOneOf<"Default" | "Unmasked">(),
});

const containerFields = {
  name: requiredText,
  image: requiredText,
  command: optionalTexts,
  args: optionalTexts,
  workingDir: optionalText,
  ports: optionalList(port),
  envFrom: optionalList(envFrom),
  env: optionalList(envVar),
  resources: defaultedObject(resourceRequirementsSchema),
  resizePolicy: optionalList(
    object({ resourceName: requiredText, restartPolicy: requiredOneOf<"NotRequired" | "RestartContainer">() }),
  ),
  /** `Always` on an init container makes it a sidecar. */
  restartPolicy: optionalOneOf<"Always" | "OnFailure" | "Never">(),
  restartPolicyRules: optionalList(
    object({
      action: requiredOneOf<"Restart" | "RestartAllContainers">(),
      exitCodes: optional(object({ operator: requiredOneOf<"In" | "NotIn">(), values: optionalInt32s })),
    }),
  ),
  volumeMounts: optionalList(volumeMountSchema),
  volumeDevices: optionalList(volumeDeviceSchema),
  livenessProbe: optionalProbe,
  readinessProbe: optionalProbe,
  startupProbe: optionalProbe,
  lifecycle: optional(lifecycle),
  terminationMessagePath: defaultedText,
  terminationMessagePolicy: defaultedOneOf<"File" | "FallbackToLogsOnError">(),
  imagePullPolicy: defaultedOneOf<PullPolicy>(),
  securityContext: optional(securityContextSchema),
  stdin: optionalFlag,
  stdinOnce: optionalFlag,
  tty: optionalFlag,
};

export const containerSchema = object(containerFields);
export const ephemeralContainerSchema = object({ ...containerFields, targetContainerName: optionalText });
