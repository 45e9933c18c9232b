/** The prober of an agent and nothing else of it, for `probes.ts`. */
import { HttpGetter } from "@picolet/agent/probes/handlers/http-getter.ts";
import { PodProber } from "@picolet/agent/probes/pod-prober.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { type PodUid, podUid, seconds } from "@picolet/protocol/ports.ts";
import type { DesiredPod, ObservedPod, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { GrpcHealthClient } from "@picolet/runtime-cri/grpc-health-client.ts";
import { desired, podOf } from "../../support/unit/pods/sample-pods.ts";
import type { HeapAnswer, ProbeOrder } from "./probe-figures.ts";

const NAMES = ["a", "b", "c"] as const;

const nothing = Buffer.alloc(0);
const adapter = {
  execSync: () => Promise.resolve({ exitCode: 0, stdout: nothing, stderr: nothing }),
} as unknown as RuntimeAdapter;

const prober = new PodProber({
  clock: systemClock,
  random: { next: Math.random },
  events: { record: (...event) => console.error(event.slice(1).join(" ")) },
  http: new HttpGetter(),
  grpc: new GrpcHealthClient({ clock: systemClock }, { userAgent: "kube-probe/1.34" }),
  expand: (text) => text,
  hostIps: () => [],
  runtimeRequestTimeout: seconds(120),
});

interface Subject {
  readonly pod: DesiredPod;
  readonly observed: ObservedPod;
}

/** One container for each probe. */
function subject(uid: PodUid, index: number, { mix, httpPort, grpcPort }: ProbeOrder): Subject {
  const http = (name: string) => ({ httpGet: { path: `/${uid}/${name}`, port: httpPort } });
  const kinds = {
    http: NAMES.map(http),
    mixed: [http("a"), { tcpSocket: { port: httpPort } }, { grpc: { port: grpcPort } }],
    exec: NAMES.map(() => ({ exec: { command: ["true"] } })),
  };
  const containers = NAMES.map((name, each) => {
    return { name, image: "example/app:1", readinessProbe: { timeoutSeconds: 5, ...kinds[mix][each] } };
  });
  const pod = { ...desired(podOf({ containers })), uid };
  const state = { kind: "running", startedAtMs: Date.now() } as const;
  const run = { attempt: 0, sandboxId: "s", createdAtMs: 0, hash: "", backoff: 0, image: "", imageId: "", logPath: "" };
  const observed = {
    uid,
    sandboxes: [
      { id: "s", attempt: 0, state: "ready", createdAtMs: 0, ips: [`127.0.${1 + (index >> 7)}.${1 + (index & 127)}`] },
    ],
    containers: NAMES.map((name) => ({ ...run, id: `${uid}-${name}`, name, state })),
    manifest: undefined,
  } as unknown as ObservedPod;
  return { pod, observed };
}

const state: { subjects: readonly Subject[] } = { subjects: [] };

function tellHeap(): void {
  // Twice: what a finalizer lets go is collected by the second one.
  for (let round = 0; round < 2; round += 1) {
    globalThis.gc?.({ type: "major", execution: "sync", flavor: "last-resort" });
  }
  const answer: HeapAnswer = { heapUsed: process.memoryUsage().heapUsed };
  process.send?.(answer);
}

process.on("message", (message: "begin" | "heap" | ProbeOrder) => {
  if (message === "heap") tellHeap();
  else if (message === "begin") {
    for (const { pod, observed } of state.subjects) {
      // All of them ran before, so that their probes are spread over the period.
      prober.follow(pod, observed, adapter, { ending: false, wasReady: () => ({ started: true, ready: true }) });
    }
  } else {
    state.subjects = Array.from({ length: message.pods }, (_, index) =>
      subject(podUid(`pod-${index}`), index, message),
    );
  }
});
// The process that started this one has ended.
process.once("disconnect", () => process.exit(0));
