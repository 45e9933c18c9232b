import assert from "node:assert/strict";
import { test } from "node:test";
import { podManifest } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import { formatProblem } from "../../kubernetes/field-problems.ts";
import { parsePod } from "./parse-pod.ts";

type Fields = Readonly<Record<string, unknown>>;

function problemsOf(manifest: Fields): string[] {
  const result = parsePod(manifest);
  return result.ok ? [] : result.problems.map(formatProblem);
}

interface Case {
  readonly name: string;
  readonly problems: readonly string[];
  /** Merged over the smallest valid pod. */
  readonly spec?: Fields;
  readonly metadata?: Fields;
  /** Merged over its one container. */
  readonly container?: Fields;
}

function check(cases: readonly Case[]): void {
  for (const { name, problems, spec = {}, metadata = {}, container } of cases) {
    test(name, () => {
      const containers = [{ name: "app", image: "example.com/app:1", ...container }];
      assert.deepEqual(problemsOf(podManifest({ containers, ...spec }, metadata)), problems);
    });
  }
}

const LABEL =
  "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN =
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME_PART =
  "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE =
  "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PORT = "must be between 1 and 65535, inclusive";
const IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

check([
  { name: "a pod with nothing wrong", problems: [] },
  {
    name: "no name",
    metadata: { name: "" },
    problems: ["metadata.name: Required value: name or generateName is required"],
  },
  {
    name: "a name in capitals",
    metadata: { name: "A_b" },
    problems: [`metadata.name: Invalid value: "A_b": ${SUBDOMAIN}`],
  },
  { name: "a name of 253 characters", metadata: { name: "a".repeat(253) }, problems: [] },
  {
    name: "a name of 300 characters",
    metadata: { name: "a".repeat(300) },
    problems: [`metadata.name: Invalid value: "${"a".repeat(255)}…: must be no more than 253 bytes`],
  },
  {
    name: "a namespace that is no label",
    metadata: { namespace: "a.b" },
    problems: ['metadata.namespace: Invalid value: "a.b": must not contain dots'],
  },
  {
    name: "labels",
    metadata: {
      labels: { "a b": "c", "example.com/ok": "", "/x": "", "a/b/c": "", good: "c d", long: "a".repeat(64) },
    },
    problems: [
      `metadata.labels: Invalid value: "a b": ${NAME_PART}`,
      'metadata.labels: Invalid value: "/x": prefix part must be non-empty',
      `metadata.labels: Invalid value: "a/b/c": a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
      `metadata.labels[good]: Invalid value: "c d": ${LABEL_VALUE}`,
      `metadata.labels[long]: Invalid value: "${"a".repeat(64)}": must be no more than 63 bytes`,
    ],
  },
  {
    name: "annotations of 256 KiB together are the most there may be",
    metadata: { annotations: { a: "x".repeat(262_143) } },
    problems: [],
  },
  {
    name: "annotations above 256 KiB, in bytes",
    metadata: { annotations: { a: "é".repeat(131_072) } },
    problems: ["metadata.annotations: Too long: may not be more than 262144 bytes"],
  },
  {
    name: "an annotation's key",
    metadata: { annotations: { "-a": "anything at all" } },
    problems: [`metadata.annotations: Invalid value: "-a": ${NAME_PART}`],
  },
  {
    name: "a mirror pod without a node",
    metadata: { annotations: { "kubernetes.io/config.mirror": "x" } },
    problems: [
      'metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set',
    ],
  },
]);

check([
  { name: "no containers", spec: { containers: [] }, problems: ["spec.containers: Required value"] },
  {
    name: "too many containers",
    spec: { containers: Array.from({ length: 257 }, (_, index) => ({ name: `c${index}`, image: "i" })) },
    problems: ["spec.containers: Too many: 257: must have at most 256 items"],
  },
  {
    name: "a container without name and image",
    spec: { containers: [{}] },
    problems: ["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"],
  },
  {
    name: "a container's name",
    container: { name: "A_b" },
    problems: [`spec.containers[0].name: Invalid value: "A_b": ${LABEL}`],
  },
  {
    name: "a container's name of 64 characters",
    container: { name: "a".repeat(64) },
    problems: [`spec.containers[0].name: Invalid value: "${"a".repeat(64)}": must be no more than 63 bytes`],
  },
  {
    name: "an image with a space behind it",
    container: { image: "busybox " },
    problems: ['spec.containers[0].image: Invalid value: "busybox ": must not have leading or trailing whitespace'],
  },
  {
    name: "names are unique among all containers",
    spec: {
      containers: [
        { name: "a", image: "i" },
        { name: "a", image: "i" },
      ],
      initContainers: [{ name: "a", image: "i" }],
      ephemeralContainers: [{ name: "a", image: "i", targetContainerName: "b" }],
    },
    problems: [
      'spec.containers[1].name: Duplicate value: "a"',
      'spec.initContainers[0].name: Duplicate value: "a"',
      'spec.ephemeralContainers[0].name: Duplicate value: "a"',
      'spec.ephemeralContainers[0].targetContainerName: Not found: "b"',
    ],
  },
  {
    name: "policies of a container",
    container: {
      imagePullPolicy: "Sometimes",
      terminationMessagePolicy: "Pipe",
      restartPolicyRules: [{ action: "Restart" }],
    },
    problems: [
      'spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"',
      'spec.containers[0].terminationMessagePolicy: Unsupported value: "Pipe": supported values: "File", "FallbackToLogsOnError"',
      "spec.containers[0].restartPolicy: Required value",
      "spec.containers[0].restartPolicyRules[0].exitCodes: Required value",
    ],
  },
  {
    name: "ports",
    container: {
      ports: [
        { containerPort: 0 },
        { containerPort: 65_536, hostPort: -1, protocol: "ICMP" },
        { containerPort: 1, name: "WEB" },
        { containerPort: 2, name: "a-name-too-long-for-a-port" },
        { containerPort: 3, name: "web" },
        { containerPort: 4, name: "web" },
      ],
    },
    problems: [
      "spec.containers[0].ports[0].containerPort: Required value",
      `spec.containers[0].ports[1].containerPort: Invalid value: 65536: ${PORT}`,
      `spec.containers[0].ports[1].hostPort: Invalid value: -1: ${PORT}`,
      'spec.containers[0].ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"',
      'spec.containers[0].ports[2].name: Invalid value: "WEB": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)',
      'spec.containers[0].ports[2].name: Invalid value: "WEB": must contain at least one letter (a-z)',
      'spec.containers[0].ports[3].name: Invalid value: "a-name-too-long-for-a-port": must be no more than 15 bytes',
      'spec.containers[0].ports[5].name: Duplicate value: "web"',
    ],
  },
  {
    name: "two containers on one port of the host",
    spec: {
      containers: [
        { name: "a", image: "i", ports: [{ containerPort: 80, hostPort: 8080 }] },
        { name: "b", image: "i", ports: [{ containerPort: 80, hostPort: 8080 }] },
        { name: "c", image: "i", ports: [{ containerPort: 80, hostPort: 8080, protocol: "UDP" }] },
        { name: "d", image: "i", ports: [{ containerPort: 80, hostPort: 8080, hostIP: "127.0.0.1" }] },
      ],
      initContainers: [{ name: "e", image: "i", ports: [{ containerPort: 80, hostPort: 8080 }] }],
    },
    problems: ['spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//8080"'],
  },
  {
    name: "another port of the host with the host's network",
    spec: { hostNetwork: true, containers: [{ name: "a", image: "i", ports: [{ containerPort: 80, hostPort: 81 }] }] },
    problems: [
      "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
    ],
  },
  {
    name: "environment",
    container: {
      env: [
        { name: "" },
        { name: "a=b" },
        { name: "fine but strange!", value: "x" },
        { name: "A", valueFrom: {} },
        { name: "B", value: "x", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
        { name: "C", valueFrom: { fieldRef: { fieldPath: "spec.secret" } } },
        { name: "D", valueFrom: { resourceFieldRef: { resource: "limits.gpu" } } },
        { name: "E", valueFrom: { secretKeyRef: { name: "S", key: "a/b" } } },
        { name: "F", valueFrom: { fieldRef: { fieldPath: "metadata.labels['app']" } } },
        { name: "G", valueFrom: { resourceFieldRef: { resource: "limits.cpu", divisor: "1Mi" } } },
      ],
    },
    problems: [
      "spec.containers[0].env[0].name: Required value",
      "spec.containers[0].env[1].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='",
      'spec.containers[0].env[3].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`',
      'spec.containers[0].env[4].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
      'spec.containers[0].env[5].valueFrom.fieldRef.fieldPath: Unsupported value: "spec.secret": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"',
      'spec.containers[0].env[6].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"',
      `spec.containers[0].env[7].valueFrom.secretKeyRef.name: Invalid value: "S": ${SUBDOMAIN}`,
      "spec.containers[0].env[7].valueFrom.secretKeyRef.key: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
      'spec.containers[0].env[9].valueFrom.resourceFieldRef.divisor: Invalid value: "1Mi": only divisor\'s values 1m and 1 are supported with the cpu resource',
    ],
  },
  {
    name: "whole sources of environment",
    container: {
      envFrom: [
        {},
        { prefix: "a=", configMapRef: { name: "" } },
        { configMapRef: { name: "a" }, secretRef: { name: "b" } },
      ],
    },
    problems: [
      'spec.containers[0].envFrom[0]: Invalid value: "": must specify one of: `configMapRef` or `secretRef`',
      "spec.containers[0].envFrom[1].prefix: Invalid value: \"a=\": a valid environment variable name must consist only of printable ASCII characters other than '='",
      "spec.containers[0].envFrom[1].configMapRef.name: Required value",
      'spec.containers[0].envFrom[2]: Invalid value: "": may not have more than one field specified at a time',
    ],
  },
]);

check([
  {
    name: "requests above limits",
    container: { resources: { requests: { cpu: 2, memory: "1Gi" }, limits: { cpu: "1500m", memory: "512Mi" } } },
    problems: [
      'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1500m',
      'spec.containers[0].resources.requests: Invalid value: "1Gi": must be less than or equal to memory limit of 512Mi',
    ],
  },
  {
    name: "what is no quantity, is negative, or is no resource",
    container: { resources: { limits: { cpu: "lots", memory: "-1", gpu: "1", "example.com/dongle": "1.5" } } },
    problems: [
      `spec.containers[0].resources.limits[cpu]: Invalid value: "lots": ${QUANTITY}`,
      'spec.containers[0].resources.limits[memory]: Invalid value: "-1": must be greater than or equal to 0',
      'spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified',
      'spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers',
      'spec.containers[0].resources.limits[example.com/dongle]: Invalid value: "1500m": must be an integer',
      'spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0',
      'spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified',
      'spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers',
      'spec.containers[0].resources.requests[example.com/dongle]: Invalid value: "1500m": must be an integer',
    ],
  },
  {
    name: "a GPU is not divided",
    container: { resources: { limits: { "nvidia.com/gpu": "0.5" } } },
    problems: [
      'spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer',
      'spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid value: "500m": must be an integer',
    ],
  },
  {
    name: "devices are not shared: requests must equal limits",
    container: { resources: { requests: { "example.com/a": 1, "example.com/b": 1 }, limits: { "example.com/b": 2 } } },
    problems: [
      'spec.containers[0].resources.requests: Invalid value: "1": must be equal to example.com/b limit of 2',
      "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
    ],
  },
  {
    name: "resources of the pod as a whole",
    spec: {
      resources: { limits: { cpu: 1, "ephemeral-storage": "1Gi" }, requests: { cpu: "100m" }, claims: [] },
      containers: [{ name: "a", image: "i", resources: { limits: { cpu: 2 }, requests: { cpu: "200m" } } }],
    },
    problems: [
      "spec.resources.claims: Forbidden: claims cannot be set for Resources at pod-level",
      'spec.resources.limits[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"',
      'spec.resources.requests[cpu]: Invalid value: "100m": must be greater than or equal to aggregate container requests of 200m',
      'spec.containers[0].resources.limits[cpu]: Invalid value: "2": must be less than or equal to pod limits of 1',
    ],
  },
  {
    name: "resize policies",
    spec: {
      restartPolicy: "Never",
      containers: [
        {
          name: "a",
          image: "i",
          resizePolicy: [
            { resourceName: "cpu", restartPolicy: "RestartContainer" },
            { resourceName: "cpu", restartPolicy: "NotRequired" },
            { resourceName: "disk", restartPolicy: "" },
          ],
        },
      ],
    },
    problems: [
      "spec.containers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when `restartPolicy` is 'Never'",
      'spec.containers[0].resizePolicy[1]: Duplicate value: "cpu"',
      'spec.containers[0].resizePolicy[2].resourceName: Unsupported value: "disk": supported values: "cpu", "memory"',
      "spec.containers[0].resizePolicy[2].restartPolicy: Required value",
    ],
  },
]);

check([
  {
    name: "probes",
    container: {
      livenessProbe: { successThreshold: 2, exec: {}, tcpSocket: { port: "Web" }, terminationGracePeriodSeconds: 0 },
      readinessProbe: {
        httpGet: { port: 0, scheme: "GOPHER", httpHeaders: [{ name: "a b" }] },
        terminationGracePeriodSeconds: 5,
      },
      startupProbe: { periodSeconds: -1 },
    },
    problems: [
      "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
      "spec.containers[0].livenessProbe.exec.command: Required value",
      'spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: "Web": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)',
      "spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
      "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
      "spec.containers[0].startupProbe: Required value: must specify a handler type",
      "spec.containers[0].startupProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
      `spec.containers[0].readinessProbe.httpGet.port: Invalid value: 0: ${PORT}`,
      'spec.containers[0].readinessProbe.httpGet.scheme: Unsupported value: "GOPHER": supported values: "HTTP", "HTTPS"',
      "spec.containers[0].readinessProbe.httpGet.httpHeaders: Invalid value: \"a b\": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
      "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
    ],
  },
  {
    name: "hooks",
    container: { lifecycle: { preStop: { sleep: { seconds: 31 } }, postStart: {}, stopSignal: "KILL" } },
    problems: [
      "spec.containers[0].lifecycle.postStart: Required value: must specify a handler type",
      "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
      "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
      'spec.containers[0].lifecycle.stopSignal: Invalid value: "KILL": must be the name of a signal, such as SIGTERM',
    ],
  },
  {
    name: "init containers have neither probes nor hooks, sidecars have",
    spec: {
      initContainers: [
        { name: "a", image: "i", livenessProbe: { exec: { command: ["x"] } }, lifecycle: {} },
        { name: "b", image: "i", restartPolicy: "Always", livenessProbe: { exec: { command: ["x"] } } },
        { name: "c", image: "i", restartPolicy: "OnFailure" },
        { name: "d", image: "i", restartPolicy: "Always", restartPolicyRules: [{ action: "Restart" }] },
      ],
    },
    problems: [
      "spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always",
      "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
      "spec.initContainers[3].restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with restart policy Always",
    ],
  },
  {
    name: "ephemeral containers",
    spec: {
      volumes: [{ name: "v" }],
      ephemeralContainers: [
        {
          name: "a",
          image: "i",
          ports: [],
          resources: { limits: {} },
          volumeMounts: [{ name: "v", mountPath: "/v", subPath: "x" }],
        },
      ],
    },
    problems: [
      "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
      "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container",
      "spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container",
    ],
  },
]);

check([
  {
    name: "volumes",
    spec: {
      volumes: [
        {},
        { name: "a", hostpath: { path: "/x" } },
        { name: "a", hostPath: { path: "/x/../y", type: "Folder" }, emptyDir: {} },
        { name: "c", secret: { items: [{ path: "../x" }], defaultMode: 512 } },
        { name: "d", configMap: { name: "x", items: [{ key: "k", path: "/abs", mode: -1 }] } },
        { name: "e", emptyDir: { sizeLimit: "-1" } },
        { name: "f", nfs: { path: "rel" } },
        { name: "g", persistentVolumeClaim: {} },
      ],
    },
    problems: [
      "spec.volumes[0].name: Required value",
      "spec.volumes[1]: Required value: must specify a volume type",
      'spec.volumes[2].name: Duplicate value: "a"',
      "spec.volumes[2].emptyDir: Forbidden: may not specify more than 1 volume type",
      "spec.volumes[2].hostPath.path: Invalid value: \"/x/../y\": must not contain '..'",
      'spec.volumes[2].hostPath.type: Unsupported value: "Folder": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"',
      "spec.volumes[3].secret.secretName: Required value",
      "spec.volumes[3].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
      "spec.volumes[3].secret.items[0].key: Required value",
      "spec.volumes[3].secret.items[0].path: Invalid value: \"../x\": must not contain '..'",
      'spec.volumes[4].configMap.items[0].path: Invalid value: "/abs": must be a relative path',
      "spec.volumes[4].configMap.items[0].mode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive",
      'spec.volumes[5].emptyDir.sizeLimit: Invalid value: "-1": must be greater than or equal to 0',
      "spec.volumes[6].nfs.server: Required value",
      'spec.volumes[6].nfs.path: Invalid value: "rel": must be an absolute path',
      "spec.volumes[7].persistentVolumeClaim.claimName: Required value",
    ],
  },
  {
    name: "files of the downward API, and projections",
    spec: {
      volumes: [
        {
          name: "a",
          downwardAPI: {
            items: [
              { path: "..x" },
              { path: "b", resourceFieldRef: { resource: "limits.cpu" } },
              { path: "c", fieldRef: { fieldPath: "status.podIP" } },
            ],
          },
        },
        {
          name: "b",
          projected: {
            sources: [
              { secret: { name: "" }, configMap: { name: "x", items: [{ key: "k", path: "p" }] } },
              { secret: { name: "s", items: [{ key: "k", path: "p" }] } },
              { serviceAccountToken: { path: "", expirationSeconds: 599 } },
            ],
          },
        },
      ],
    },
    problems: [
      "spec.volumes[0].downwardAPI.items[0].path: Invalid value: \"..x\": must not start with '..'",
      "spec.volumes[0].downwardAPI.items[0]: Required value: one of fieldRef and resourceFieldRef is required",
      "spec.volumes[0].downwardAPI.items[1].resourceFieldRef.containerName: Required value",
      'spec.volumes[0].downwardAPI.items[2].fieldRef.fieldPath: Unsupported value: "status.podIP": supported values: "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"',
      "spec.volumes[1].projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
      "spec.volumes[1].projected.sources[0].secret.name: Required value",
      'spec.volumes[1].projected: Invalid value: "p": conflicting duplicate paths',
      "spec.volumes[1].projected.sources[2].serviceAccountToken.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
      "spec.volumes[1].projected.sources[2].serviceAccountToken.path: Required value",
      "spec.volumes[1].projected.sources[2].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
    ],
  },
  {
    name: "mounts",
    spec: { volumes: [{ name: "v" }, { name: "i", image: { reference: "x:1" } }] },
    container: {
      volumeMounts: [
        { name: "w", mountPath: "/w" },
        { name: "v" },
        { name: "v", mountPath: "/a", subPath: "/x", subPathExpr: "../y" },
        { name: "v", mountPath: "/a", mountPropagation: "Bidirectional" },
        { name: "i", mountPath: "/b", subPath: "x", mountPropagation: "Upwards" },
        { name: "v", mountPath: "/c", recursiveReadOnly: "Enabled", mountPropagation: "HostToContainer" },
      ],
      volumeDevices: [{ name: "v", devicePath: "/c" }],
    },
    problems: [
      'spec.containers[0].volumeMounts[0].name: Not found: "w"',
      "spec.containers[0].volumeMounts[1].mountPath: Required value",
      'spec.containers[0].volumeMounts[1].name: Invalid value: "v": must not already exist in volumeDevices',
      'spec.containers[0].volumeMounts[2].name: Invalid value: "v": must not already exist in volumeDevices',
      'spec.containers[0].volumeMounts[2].subPath: Invalid value: "/x": must be a relative path',
      "spec.containers[0].volumeMounts[2].subPathExpr: Invalid value: \"../y\": must not contain '..'",
      'spec.containers[0].volumeMounts[2].subPathExpr: Invalid value: "../y": subPathExpr and subPath are mutually exclusive',
      'spec.containers[0].volumeMounts[3].mountPath: Invalid value: "/a": must be unique',
      'spec.containers[0].volumeMounts[3].name: Invalid value: "v": must not already exist in volumeDevices',
      "spec.containers[0].volumeMounts[3].mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
      'spec.containers[0].volumeMounts[4].mountPropagation: Unsupported value: "Upwards": supported values: "Bidirectional", "HostToContainer", "None"',
      'spec.containers[0].volumeMounts[5].name: Invalid value: "v": must not already exist in volumeDevices',
      'spec.containers[0].volumeMounts[5].mountPath: Invalid value: "/c": must not already exist as a path in volumeDevices',
      "spec.containers[0].volumeMounts[5].recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
      "spec.containers[0].volumeMounts[5].recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified",
      'spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode',
    ],
  },
]);

check([
  {
    name: "policies and deadlines of the pod",
    spec: {
      restartPolicy: "Sometimes",
      dnsPolicy: "Guess",
      preemptionPolicy: "Always",
      activeDeadlineSeconds: 0,
      os: { name: "plan9" },
    },
    problems: [
      'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
      'spec.dnsPolicy: Unsupported value: "Guess": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"',
      'spec.preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never"',
      'spec.os.name: Unsupported value: "plan9": supported values: "linux", "windows"',
      "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    ],
  },
  {
    name: "names",
    spec: {
      runtimeClassName: "W@sm",
      nodeName: "a b",
      hostname: "a.b",
      subdomain: "-",
      hostAliases: [{ ip: "10.0.0.256", hostnames: ["ok.example", "a_b"] }],
      readinessGates: [{ conditionType: "" }],
    },
    problems: [
      `spec.nodeName: Invalid value: "a b": ${SUBDOMAIN}`,
      `spec.runtimeClassName: Invalid value: "W@sm": ${SUBDOMAIN}`,
      'spec.hostname: Invalid value: "a.b": must not contain dots',
      `spec.subdomain: Invalid value: "-": ${LABEL}`,
      `spec.hostAliases[0].ip: Invalid value: "10.0.0.256": ${IP}`,
      `spec.hostAliases[0].hostnames[1]: Invalid value: "a_b": ${SUBDOMAIN}`,
      'spec.readinessGates[0].conditionType: Invalid value: "": name part must be non-empty',
      `spec.readinessGates[0].conditionType: Invalid value: "": ${NAME_PART}`,
    ],
  },
  {
    name: "DNS of one's own needs a server",
    spec: { dnsPolicy: "None" },
    problems: ["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
  },
  {
    name: "DNS",
    spec: {
      dnsPolicy: "None",
      dnsConfig: {
        nameservers: ["1.1.1.1", "::1", "fe80::1%eth0", "2001:db8::ffff"],
        searches: ["_srv.example.com.", ".", "a b"],
        options: [{ value: "x" }],
      },
    },
    problems: [
      'spec.dnsConfig.nameservers: Invalid value: ["1.1.1.1","::1","fe80::1%eth0","2001:db8::ffff"]: must not have more than 3 nameservers',
      `spec.dnsConfig.nameservers[2]: Invalid value: "fe80::1%eth0": ${IP}`,
      "spec.dnsConfig.searches[2]: Invalid value: \"a b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')",
      "spec.dnsConfig.options[0]: Required value: must not be empty",
    ],
  },
  {
    name: "the pod's security context",
    spec: {
      hostNetwork: true,
      hostPID: true,
      shareProcessNamespace: true,
      securityContext: {
        runAsUser: -1,
        fsGroup: 2_147_483_648,
        supplementalGroups: [1, -2],
        sysctls: [
          { name: "net.core.somaxconn", value: "1" },
          { name: "Bad", value: "1" },
          { name: "kernel.sem", value: "1" },
          { name: "kernel.sem", value: "1" },
        ],
        fsGroupChangePolicy: "Never",
        seccompProfile: { type: "Localhost" },
        appArmorProfile: { type: "Unconfined", localhostProfile: "x" },
        windowsOptions: {},
      },
    },
    problems: [
      "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
      "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
      'spec.securityContext.appArmorProfile.localhostProfile: Invalid value: "x": can only be set when AppArmor type is Localhost',
      "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
      "spec.securityContext.fsGroup: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive",
      "spec.securityContext.supplementalGroups[1]: Invalid value: -2: must be between 0 and 2147483647, inclusive",
      "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
      "spec.securityContext.sysctls[0].name: Invalid value: \"net.core.somaxconn\": may not be specified when 'hostNetwork' is true",
      'spec.securityContext.sysctls[1].name: Invalid value: "Bad": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$',
      'spec.securityContext.sysctls[3].name: Duplicate value: "kernel.sem"',
      'spec.securityContext.fsGroupChangePolicy: Unsupported value: "Never": supported values: "Always", "OnRootMismatch"',
    ],
  },
  {
    name: "a container's security context",
    container: {
      securityContext: {
        allowPrivilegeEscalation: false,
        privileged: true,
        capabilities: { add: ["CAP_SYS_ADMIN"] },
        procMount: "Unmasked",
        seccompProfile: {},
      },
    },
    problems: [
      "spec.containers[0].securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set",
      'spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`',
      'spec.containers[0].securityContext: Invalid value: {"seccompProfile":{"type":""},"capabilities":{"add":["CAP_SYS_ADMIN"]},"privileged":true,"allowPrivilegeEscalation":false,"procMount":"Unmasked"}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true',
      'spec.containers[0].securityContext: Invalid value: {"seccompProfile":{"type":""},"capabilities":{"add":["CAP_SYS_ADMIN"]},"privileged":true,"allowPrivilegeEscalation":false,"procMount":"Unmasked"}: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN',
    ],
  },
  {
    name: "users of the pod's own with namespaces of the host",
    spec: { hostUsers: false, hostNetwork: true, hostPID: true, hostIPC: true },
    problems: [
      "spec.hostNetwork: Forbidden: when `hostUsers` is false",
      "spec.HostPID: Forbidden: when `hostUsers` is false",
      "spec.HostIPC: Forbidden: when `hostUsers` is false",
    ],
  },
  {
    name: "tolerations and node selection",
    spec: {
      nodeSelector: { "a b": "" },
      tolerations: [
        {},
        { operator: "Exists" },
        { key: "k", operator: "Exists", value: "v" },
        { key: "k", operator: "Near", effect: "NoWay" },
        { key: "k", value: "v", effect: "NoSchedule", tolerationSeconds: 5 },
      ],
      affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: {} } },
    },
    problems: [
      `spec.nodeSelector: Invalid value: "a b": ${NAME_PART}`,
      'spec.tolerations[0].operator: Invalid value: "": operator must be Exists when `key` is empty, which means "match all values and all keys"',
      "spec.tolerations[2].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
      'spec.tolerations[3].operator: Unsupported value: "Near": supported values: "Equal", "Exists"',
      'spec.tolerations[3].effect: Unsupported value: "NoWay": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
      "spec.tolerations[4].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
      "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
    ],
  },
  {
    name: "resource claims",
    spec: {
      resourceClaims: [{ name: "a", resourceClaimName: "x" }, { name: "a", resourceClaimName: "x" }, { name: "b" }],
      containers: [{ name: "app", image: "i", resources: { claims: [{ name: "a" }, { name: "a" }, { name: "z" }] } }],
    },
    problems: [
      'spec.resourceClaims[1].name: Duplicate value: "a"',
      'spec.resourceClaims[2]: Invalid value: {"name":"b"}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`',
      'spec.containers[0].resources.claims[1]: Duplicate value: "a"',
      'spec.containers[0].resources.claims[2].name: Not found: "z"',
    ],
  },
]);
