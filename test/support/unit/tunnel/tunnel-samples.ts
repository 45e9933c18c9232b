/** One of everything that travels through the tunnel, for goldens and as seeds of fuzzing. */

import { fromHex } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { Frame } from "@picolet/protocol/tunnel/frames.ts";
import type { TunnelMessage } from "@picolet/protocol/tunnel/messages.ts";

const EPOCH = fromHex("e0e1e2e3e4e5e6e7");
const DIGEST = fromHex("d0d1d2d3d4d5d6d7d8d9dadbdcdddedf");
const HASH = fromHex("a0a1a2a3a4a5a6a7");
const OBJECT_HASH = fromHex("b0b1b2b3b4b5b6b7b8b9babbbcbdbebf");
const UID = "0b5a7b3e-1f52-4d0e-9d55-d8f0a3c7e111";
const CONTAINER = `containerd://${"4f".repeat(32)}`;
const BEFORE = "2026-01-31T12:00:00Z";
const AFTER = "2026-01-31T12:00:05Z";
/** Milliseconds of BEFORE. */
const NOW = 1_769_860_800_000;

const condition = (type: string, status: string) => ({ type, status, lastProbeTime: null, lastTransitionTime: BEFORE });

export const SAMPLE_STATUS = {
  phase: "Running",
  conditions: [
    condition("PodReadyToStartContainers", "True"),
    condition("Initialized", "True"),
    condition("Ready", "True"),
    condition("ContainersReady", "True"),
    condition("PodScheduled", "True"),
  ],
  hostIP: "192.168.1.20",
  podIP: "10.88.0.5",
  podIPs: [{ ip: "10.88.0.5" }],
  startTime: BEFORE,
  containerStatuses: [
    {
      name: "web",
      state: { running: { startedAt: BEFORE } },
      lastState: {},
      ready: true,
      restartCount: 0,
      image: "example/web:1",
      imageID: `example/web@sha256:${"12".repeat(32)}`,
      containerID: CONTAINER,
      started: true,
    },
  ],
  qosClass: "Burstable",
};

const POD = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "web", namespace: "default", uid: UID, labels: { app: "web" }, "own key": "own value" },
  spec: {
    nodeName: "edge-1",
    containers: [
      { name: "web", image: "example/web:1", resources: { limits: { memory: "64Mi" } }, command: ["/bin/web", "-v"] },
    ],
    terminationGracePeriodSeconds: 30,
  },
};

const pod = { namespace: "default", name: "web", uid: UID };

const REPORT = {
  register: true,
  labels: { "kubernetes.io/arch": "arm64" },
  taints: [{ key: "edge", value: "true", effect: "NoSchedule" }],
  providerID: "",
  status: { capacity: { cpu: "4", memory: "948220Ki", pods: "110" }, conditions: [condition("Ready", "True")] },
};

export const SAMPLE_MESSAGES: Readonly<Record<string, TunnelMessage>> = {
  "hello, the first": {
    kind: "hello",
    agentVersion: "0.1.0",
    cursor: { epoch: new Uint8Array(), revision: 0, digest: new Uint8Array(16) },
    mirrorsDigest: new Uint8Array(8),
    nodeHash: new Uint8Array(),
    timeMs: 0,
    pendingStatuses: 0,
  },
  hello: {
    kind: "hello",
    agentVersion: "0.1.0",
    cursor: { epoch: EPOCH, revision: 1234, digest: DIGEST },
    mirrorsDigest: HASH,
    nodeHash: HASH,
    timeMs: NOW,
    pendingStatuses: 3,
  },
  welcome: {
    kind: "welcome",
    hubVersion: "0.1.0",
    epoch: EPOCH,
    revision: 1235,
    timeMs: NOW,
    desired: "current",
    wantsMirrors: false,
    wantsNode: true,
    takesTelemetry: false,
  },
  "welcome of a hub that takes telemetry": {
    kind: "welcome",
    hubVersion: "0.1.0",
    epoch: EPOCH,
    revision: 1235,
    timeMs: NOW,
    desired: "current",
    wantsMirrors: false,
    wantsNode: false,
    takesTelemetry: true,
  },
  "welcome of a hub that says which fleet it serves": {
    kind: "welcome",
    hubVersion: "0.1.0",
    epoch: EPOCH,
    revision: 1235,
    timeMs: NOW,
    desired: "current",
    wantsMirrors: false,
    wantsNode: false,
    takesTelemetry: false,
    fleet: { id: "6f1d8a4e-8f1b-4a7e-9a5e-0c2d4b6a8e10", former: ["0b9c7d5e-1a2b-4c3d-8e4f-a5b6c7d8e9f0"] },
  },
  "welcome of a hub that takes compact statuses": {
    kind: "welcome",
    hubVersion: "0.1.0",
    epoch: EPOCH,
    revision: 1235,
    timeMs: NOW,
    desired: "current",
    wantsMirrors: false,
    wantsNode: false,
    takesTelemetry: true,
    fleet: { id: "6f1d8a4e-8f1b-4a7e-9a5e-0c2d4b6a8e10", former: [] },
    takesCompactStatuses: true,
  },
  "welcome of a hub that wants samples of usage": {
    kind: "welcome",
    hubVersion: "0.1.0",
    epoch: EPOCH,
    revision: 1235,
    timeMs: NOW,
    desired: "current",
    wantsMirrors: false,
    wantsNode: false,
    takesTelemetry: true,
    fleet: { id: "6f1d8a4e-8f1b-4a7e-9a5e-0c2d4b6a8e10", former: [] },
    takesCompactStatuses: true,
    samplesEverySeconds: 60,
  },
  inventory: { kind: "inventory", items: [{ key: "Pod/default/web", hash: OBJECT_HASH }], last: true },
  "inventory of nothing": { kind: "inventory", items: [], last: true },
  desired: {
    kind: "desired",
    revision: 1235,
    upserts: [{ key: "Pod/default/web", hash: OBJECT_HASH, object: POD }],
    deletes: ["Secret/default/db"],
    last: true,
    digest: DIGEST,
  },
  "desired, not the last piece": {
    kind: "desired",
    revision: 1235,
    upserts: [],
    deletes: ["Pod/default/old"],
    last: false,
    digest: new Uint8Array(),
  },
  desiredAck: { kind: "desiredAck", revision: 1235 },
  resync: { kind: "resync" },
  "statuses, whole": {
    kind: "statuses",
    sequence: 1,
    items: [{ ...pod, body: { kind: "full", status: SAMPLE_STATUS } }],
  },
  "statuses, a container that failed": {
    kind: "statuses",
    sequence: 300,
    items: [
      {
        ...pod,
        body: {
          kind: "delta",
          base: HASH,
          delta: {
            conditions: [
              5,
              2,
              { status: "False", lastTransitionTime: AFTER, reason: "ContainersNotReady" },
              3,
              { status: "False", lastTransitionTime: AFTER, reason: "ContainersNotReady" },
            ],
            containerStatuses: [
              1,
              0,
              {
                state: {
                  running: [],
                  terminated: [
                    { exitCode: 1, reason: "Error", startedAt: BEFORE, finishedAt: AFTER, containerID: CONTAINER },
                  ],
                },
                ready: false,
                started: false,
              },
            ],
          },
        },
      },
    ],
  },
  "statuses, a pod that is gone": {
    kind: "statuses",
    sequence: 70_000,
    items: [{ ...pod, body: { kind: "gone", status: { phase: "Succeeded" } } }],
  },
  "statuses whose acknowledgement may wait": {
    kind: "statuses",
    sequence: 2,
    items: [{ ...pod, body: { kind: "gone", status: {} } }],
    ackMayWait: true,
  },
  "statuses, compact": {
    kind: "statuses",
    sequence: 3,
    items: [],
    ackMayWait: true,
    compact: [{ key: fromHex("c0c1c2c3c4c5c6c7c8c9"), delta: fromHex("837141e91ec80500") }],
  },
  statusesAck: { kind: "statusesAck", sequence: 300, wantFull: [] },
  "statusesAck that wants one whole": { kind: "statusesAck", sequence: 300, wantFull: [UID] },
  events: {
    kind: "events",
    sequence: 9,
    items: [
      {
        id: "web.17f0",
        regarding: { kind: "Pod", ...pod, fieldPath: "spec.containers{web}" },
        type: "Warning",
        reason: "BackOff",
        message: "Back-off restarting failed container web",
        count: 12,
        firstAtMs: NOW,
        lastAtMs: NOW + 60_000,
      },
      {
        id: "edge-1.17f1",
        regarding: { kind: "Node", namespace: "", name: "edge-1", uid: "edge-1", fieldPath: "" },
        type: "Normal",
        reason: "Starting",
        message: "",
        count: 1,
        firstAtMs: NOW,
        lastAtMs: NOW,
      },
    ],
  },
  "events whose acknowledgement may wait": { kind: "events", sequence: 10, items: [], ackMayWait: true },
  eventsAck: { kind: "eventsAck", sequence: 9 },
  "node, whole": { kind: "node", hash: HASH, body: { kind: "full", report: REPORT } },
  "node, what changed": {
    kind: "node",
    hash: HASH,
    body: { kind: "delta", base: HASH, delta: { labels: { "kubernetes.io/arch": [] } } },
  },
  nodeAck: { kind: "nodeAck", hash: HASH, wantFull: false },
  "nodeAck that wants it whole": { kind: "nodeAck", hash: HASH, wantFull: true },
  mirrors: { kind: "mirrors", items: [{ ...pod, uid: "d41d8cd98f00b204", source: "file", pod: POD }], last: true },
  drain: { kind: "drain", reconnectAfterMs: 1500, reason: "the hub is being replaced" },
  refusal: {
    kind: "refusal",
    code: "superseded",
    message: "another session of node edge-1 has begun, from 10.0.0.7",
    retryAfterMs: 10_000,
  },
};

const BYTES = fromHex("00ff10");
const error = { code: "not_found", message: "cannot find container app" };

export const SAMPLE_FRAMES: Readonly<Record<string, Exclude<Frame, { readonly type: "message" }>>> = {
  part: { type: "part", lane: "status", isLast: false, bytes: BYTES },
  "part, the last": { type: "part", lane: "control", isLast: true, bytes: BYTES },
  open: {
    type: "open",
    id: 2,
    kind: "exec",
    lane: "interactive",
    params: { ...pod, container: "app", command: ["sh"], stdin: true, stdout: true, stderr: false, tty: true },
  },
  "open by an agent": { type: "open", id: 1, kind: "token", lane: "status", params: {} },
  "open for telemetry": {
    ...{ type: "open", id: 3, kind: "telemetry", lane: "bulk" },
    params: { queue: "e0e1e2e3e4e5e6e7" },
  },
  accept: { type: "accept", id: 2, reply: { mode: "raw" } },
  reject: { type: "reject", id: 2, error },
  data: { type: "data", id: 2, bytes: BYTES },
  "data of a late stream": { type: "data", id: 70_000, bytes: new Uint8Array(300).fill(7) },
  end: { type: "end", id: 2 },
  reset: { type: "reset", id: 2, error },
  credit: { type: "credit", id: 2, bytes: 32_768 },
  ping: { type: "ping", number: 1 },
  pong: { type: "pong", number: 300 },
};
