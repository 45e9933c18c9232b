/**
 * The Helm chart in hub/deploy/chart, made of the kustomization in hub/deploy: each manifest becomes a template in
 * which what differs between installations is a value. A test renders it and compares the objects with kubectl's.
 */
import { VERSION } from "@picolet/protocol/version.ts";

const MADE = "# Made by `npm run docs` of the manifests in hub/deploy: do not edit.\n";

/** Replaces exactly one part of a manifest. @throws where it is not there, or more than once */
function replaced(text: string, part: string, by: (found: string) => string): string {
  const [before = "", after, ...others] = text.split(part);
  if (after === undefined || others.length > 0)
    throw new Error(`${others.length + 1} times in the manifests, instead of once: ${part}`);
  return before + by(part) + after;
}

const when = (value: string, text: string): string => `{{- if .Values.${value} }}\n${text}{{- end }}\n`;

/** @param manifest the text of a file in hub/deploy @returns texts by path below hub/deploy/chart */
export function helmChart(manifest: (name: string) => string): ReadonlyMap<string, string> {
  const workload = manifest("workload.yaml");
  const [, resources] = /^ {10}resources:\n((?: {11,}.*\n)+)/m.exec(workload) ?? [];
  if (resources === undefined) throw new Error("workload.yaml has no resources");
  const templated = [
    [
      `image: picolet-hub:${VERSION}`,
      () => 'image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"',
    ],
    ["replicas: 2", () => "replicas: {{ .Values.replicas }}"],
    [`          resources:\n${resources}`, () => "          resources: {{- toYaml .Values.resources | nindent 12 }}\n"],
    ["type: LoadBalancer", () => "type: {{ .Values.service.type }}"],
    [
      "    metadata:\n      labels:\n",
      (found: string) =>
        found.replace(
          "      labels:\n",
          "      annotations:\n        checksum/config: {{ toYaml .Values.config | sha256sum | quote }}\n      labels:\n",
        ),
    ],
    [
      "kind: Service\nmetadata:\n",
      (found: string) => `${found}  annotations: {{- toYaml .Values.service.annotations | nindent 4 }}\n`,
    ],
  ] as const;
  return new Map([
    ["Chart.yaml", chartFile],
    ["values.yaml", valuesFile(manifest("config.yaml"), resources)],
    ["templates/namespace.yaml", MADE + when("createNamespace", manifest("namespace.yaml"))],
    ["templates/rbac.yaml", MADE + manifest("rbac.yaml")],
    ["templates/runtime-class.yaml", MADE + when("runtimeClass.enabled", manifest("runtime-class.yaml"))],
    ["templates/config.yaml", MADE + CONFIG_MAP],
    ["templates/workload.yaml", MADE + templated.reduce((text, [part, by]) => replaced(text, part, by), workload)],
    ["templates/metrics-service.yaml", MADE + manifest("metrics-service.yaml")],
    [
      "templates/service-monitor.yaml",
      MADE + when("serviceMonitor.enabled", manifest("monitoring/service-monitor.yaml")),
    ],
    ["templates/metrics-api.yaml", MADE + when("metricsApi.enabled", manifest("metrics-api/metrics-api.yaml"))],
    ["templates/network-policy.yaml", MADE + when("networkPolicy.enabled", manifest("network-policy.yaml"))],
  ]);
}

/** @param rules of Prometheus @returns the same for its operator */
export const prometheusRule = (rules: string): string => {
  const groups = rules.slice(rules.indexOf("groups:"));
  return `# Made by \`npm run docs\` of rules.yaml: do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: picolet-hub
  namespace: picolet-system
  labels:
    app.kubernetes.io/name: picolet-hub
spec:
${deeper(groups, 2)}`;
};

const chartFile = `${MADE}apiVersion: v2
name: picolet-hub
description: Hub of a fleet of picolet boards, in front of this cluster
type: application
version: ${VERSION}
appVersion: "${VERSION}"
kubeVersion: ">=1.25.0-0"
`;

const CONFIG_MAP = `apiVersion: v1
kind: ConfigMap
metadata:
  name: picolet-hub-config
  namespace: picolet-system
data:
  config.yaml: |
    {{- toYaml .Values.config | nindent 4 }}
`;

const deeper = (text: string, by: number): string => text.replaceAll(/^(?=.)/gm, " ".repeat(by));

const valuesFile = (config: string, resources: string): string => `${MADE}
# helm install picolet-hub CHART --namespace picolet-system --create-namespace
# The hub's namespace is picolet-system. With createNamespace the chart makes it, with Pod Security's label.
createNamespace: false

image:
  repository: picolet-hub
  # Empty: the version of the chart.
  tag: ""

replicas: 2

service:
  type: LoadBalancer
  annotations: {}

networkPolicy:
  enabled: true

# The RuntimeClass wasm, for pods that run as WebAssembly components.
runtimeClass:
  enabled: true

# A ServiceMonitor for the Prometheus operator, whose kinds the cluster must have.
serviceMonitor:
  enabled: false

# The APIService metrics.k8s.io, for kubectl top: only in a cluster without metrics-server.
metricsApi:
  enabled: false

resources:
${resources.replaceAll(/^ {10}/gm, "")}
config:
${deeper(config, 2)}`;
