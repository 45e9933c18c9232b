/** A node with a bit of everything, for the goldens of edgectl. Fills `view`; every time counts back from NOW_MS. */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { AgentPod } from "@picolet/agent/core/pods/agent-pod.ts";
import type { EventInput } from "@picolet/agent/core/store/store-ports.ts";
import type { ContainerStatus, PodStatus } from "@picolet/protocol/pod/pod.ts";
import { podOf } from "../pods/sample-pods.ts";
import { agentPod, type FakeAgentView, imageStore, NOW_MS, observedContainer } from "./fake-agent-view.ts";

const ago = (seconds: number): string => new Date(NOW_MS - seconds * 1000).toISOString().replace(".000Z", "Z");

const DIGEST = "0123456789abcdef".repeat(4);

function containerStatus(name: string, fields: Partial<ContainerStatus> = {}): ContainerStatus {
  return {
    name,
    state: { running: { startedAt: ago(300) } },
    lastState: {},
    ready: true,
    restartCount: 0,
    image: "docker.io/library/app:1",
    imageID: `sha256:${DIGEST}`,
    containerID: `containerd://${DIGEST}`,
    started: true,
    ...fields,
  };
}

function podStatus(phase: PodStatus["phase"], ready: boolean, fields: Partial<PodStatus> = {}): PodStatus {
  const condition = ready
    ? { type: "Ready", status: "True" as const }
    : {
        type: "Ready",
        status: "False" as const,
        reason: "ContainersNotReady",
        message: "containers with unready status",
      };
  return {
    phase,
    startTime: ago(310),
    hostIP: "192.168.1.20",
    podIP: "10.88.0.12",
    podIPs: [{ ip: "10.88.0.12" }],
    qosClass: "Burstable",
    conditions: [{ type: "PodScheduled", status: "True" }, condition],
    ...fields,
  };
}

const BACK_OFF =
  'back-off 40s restarting failed container=logger pod=logger-edge-1_default(logger-uid): the process said "caf\u00e9 \u2013 closed"';

function webPod(logs: string): AgentPod {
  const pod = podOf(
    {
      nodeName: "edge-1",
      containers: [
        {
          name: "app",
          image: "docker.io/library/app:1",
          command: ["/bin/sh", "-c", "exec serve --port 80"],
          ports: [{ containerPort: 80 }],
          env: [
            { name: "GREETING", value: "hello" },
            { name: "POD", valueFrom: { fieldRef: { fieldPath: "metadata.name" } } },
            { name: "TOKEN", valueFrom: { secretKeyRef: { name: "api", key: "token" } } },
          ],
          resources: { limits: { memory: "64Mi" }, requests: { cpu: "50m", memory: "32Mi" } },
          readinessProbe: { httpGet: { path: "/healthz", port: 80 }, periodSeconds: 5 },
          volumeMounts: [{ name: "data", mountPath: "/data", readOnly: true }],
        },
      ],
      volumes: [{ name: "data", hostPath: { path: "/srv/data", type: "Directory" } }],
    },
    {
      name: "web-edge-1",
      labels: { app: "web", tier: "front" },
      annotations: { "example.com/note": "a long note that somebody wrote down here so that it has to be wrapped" },
    },
  );
  const path = join(logs, "app", "0.log");
  return agentPod(pod, {
    status: podStatus("Running", true, { containerStatuses: [containerStatus("app")] }),
    containers: [observedContainer("app", 0, path)],
    logDirectory: logs,
  });
}

function loggerPod(): AgentPod {
  const ended = { exitCode: 1, reason: "Error", startedAt: ago(25), finishedAt: ago(20) };
  return agentPod(podOf({ containers: [{ name: "logger", image: "example/logger:2" }] }, { name: "logger-edge-1" }), {
    status: podStatus("Running", false, {
      containerStatuses: [
        containerStatus("logger", {
          state: { waiting: { reason: "CrashLoopBackOff", message: BACK_OFF } },
          lastState: { terminated: ended },
          ready: false,
          restartCount: 12,
          started: false,
        }),
      ],
    }),
  });
}

function otherPods(): AgentPod[] {
  const two = [
    { name: "app", image: "example/app:1" },
    { name: "side", image: "example/side:1" },
  ];
  const init = podOf(
    { containers: two, initContainers: [{ name: "prepare", image: "example/prepare:1" }] },
    { name: "pump-controller-of-the-north-western-water-tower-edge-1", namespace: "plant" },
  );
  return [
    agentPod(init, {
      status: podStatus("Pending", false, {
        initContainerStatuses: [containerStatus("prepare", { ready: false })],
        containerStatuses: two.map(({ name }) =>
          containerStatus(name, { state: { waiting: { reason: "PodInitializing" } }, ready: false, started: false }),
        ),
      }),
    }),
    agentPod(podOf({ runtimeClassName: "wasm" }, { name: "hello-edge-1" }), {
      runtime: "wasm",
      status: podStatus("Running", true, {
        containerStatuses: [
          containerStatus("app", {
            restartCount: 1,
            lastState: { terminated: { exitCode: 1, finishedAt: ago(7200) } },
          }),
        ],
      }),
    }),
    agentPod(podOf({ restartPolicy: "Never" }, { name: "once-edge-1" }), {
      status: podStatus("Succeeded", false, {
        containerStatuses: [
          containerStatus("app", { state: { terminated: { exitCode: 0, reason: "Completed" } }, ready: false }),
        ],
      }),
    }),
    agentPod(podOf({}, { name: "old-edge-1", namespace: "plant" }), {
      status: podStatus("Running", true, { containerStatuses: [containerStatus("app")] }),
      terminatingSinceMs: NOW_MS - 5000,
    }),
  ];
}

function fillEvents(view: FakeAgentView): void {
  const regarding = (name: string, fieldPath = ""): EventInput["regarding"] => {
    return { kind: "Pod", namespace: "default", name, uid: `${name}-uid`, fieldPath };
  };
  const node = { kind: "Node" as const, namespace: "", name: "edge-1", uid: "edge-1", fieldPath: "" };
  view.events.add({ regarding: node, type: "Normal", reason: "Starting", message: "Starting picolet." }, 3600);
  view.events.add(
    {
      regarding: regarding("web-edge-1", "spec.containers{app}"),
      type: "Normal",
      reason: "Pulled",
      message: 'Container image "docker.io/library/app:1" already present on machine',
    },
    308,
  );
  view.events.add(
    {
      regarding: regarding("web-edge-1", "spec.containers{app}"),
      type: "Normal",
      reason: "Started",
      message: "Started container app",
    },
    305,
  );
  view.events.add(
    {
      regarding: regarding("logger-edge-1", "spec.containers{logger}"),
      type: "Warning",
      reason: "BackOff",
      message: BACK_OFF,
    },
    20,
    12,
    900,
  );
  view.events.add(
    {
      regarding: regarding("web-edge-1", "spec.containers{app}"),
      type: "Warning",
      reason: "Unhealthy",
      message: 'Readiness probe failed: Get "http://10.88.0.12:80/healthz": context deadline exceeded',
    },
    4,
    2,
    10,
  );
}

function fillImages(view: FakeAgentView): void {
  const image = (tags: string[], sizeBytes: number, digests: string[] = []) => {
    return { id: `sha256:${DIGEST}`, tags, digests, sizeBytes, pinned: false };
  };
  view.stores = [
    imageStore(
      "cri",
      [
        image(["docker.io/library/app:1", "docker.io/library/app:latest"], 4_812_345),
        image([], 88_123_456, [`registry.example.com/untagged@sha256:${DIGEST}`]),
        image(["registry.example.com/a-team/with-a-very-long-path/and-a-long-name-at-the-end:2026-11-20"], 123_456_789),
      ],
      ".tar",
    ),
    imageStore("wasm", [image(["example/hello:1"], 65_536)], ".wasm"),
  ];
}

/** A healthy node: `web` and nothing else. @param directory where the log goes */
export function fillHealthy(view: FakeAgentView, directory: string): { readonly logPath: string } {
  const logs = join(directory, "default_web-edge-1");
  const logPath = join(logs, "app", "0.log");
  mkdirSync(dirname(logPath), { recursive: true });
  writeFileSync(
    logPath,
    ["listening on :80", "GET / 200", "GET /caf\u00e9 404"]
      .map((text, n) => `${ago(300 - n * 100).replace("Z", ".5Z")} stdout F ${text}\n`)
      .join(""),
  );
  fillEvents(view);
  fillImages(view);
  view.setPods(webPod(logs));
  return { logPath };
}

/** A node with faults of all kinds. */
export function fillDegraded(view: FakeAgentView, directory: string): void {
  fillHealthy(view, directory);
  view.nodeReady = {
    status: "False",
    reason: "KubeletNotReady",
    message: "RuntimeNotReady: cri: cannot connect to /run/containerd/containerd.sock: ECONNREFUSED",
  };
  view.runtimeReports = [
    { name: "cri", runtime: "", version: "", ready: false, message: "cannot connect: ECONNREFUSED" },
    { name: "wasm", runtime: "picolet-wasm", version: "0.1.0", ready: true, message: "" },
  ];
  view.tunnelReport = { state: "connected", since: ago(4000), rttMs: 41.7 };
  view.sourceProblems = [
    {
      source: "file",
      origin: "/etc/picolet/manifests/broken.yaml",
      line: 7,
      message: "Nested mappings are not allowed in compact mappings",
    },
  ];
  view.setPods(...view.pods(), loggerPod(), ...otherPods());
}
