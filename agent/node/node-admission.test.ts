import assert from "node:assert/strict";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import type { PressureCondition } from "../core/node/node-pressure.ts";
import type { ContainerPlacement } from "../core/pods/container-placement.ts";
import type { PodEnd } from "../core/pods/pod-admission.ts";
import { sysctlAllowlist } from "../plan/admission/sysctls.ts";
import { NodeAdmission } from "./node-admission.ts";

const asking = (name: string, source: "file" | "api", cpu: string): DesiredPod => {
  const containers = [{ name: "app", image: "i", resources: { requests: { cpu } } }];
  return { ...desired(podOf({ containers }, { name }), name), source };
};

function makeAdmission(placement?: Partial<ContainerPlacement>) {
  const ends: { readonly uid: PodUid; readonly how: PodEnd; readonly ended: () => void }[] = [];
  const events = new RecordedEvents();
  const pressures = new WatchSource<readonly PressureCondition[]>([]);
  const admission = new NodeAdmission(
    {
      ender: () => ({
        end: (uid, how, signal) =>
          new Promise((resolve) => {
            ends.push({ uid, how, ended: resolve });
            signal.addEventListener("abort", () => resolve());
          }),
      }),
      events,
      log: new RecordedLog(),
      node: () => ({ name: "node", labels: {}, taints: [] }),
      allocatable: () => ({ cpu: "1", memory: "1Gi", pods: "10" }),
      isShuttingDown: () => false,
      pressures: () => pressures.current,
      placement: placement as ContainerPlacement | undefined,
      supplementalGroupsPolicy: () => false,
    },
    { sysctls: sysctlAllowlist([], "6.1.0"), apparmor: false, limitedSwap: false },
  );
  return { admission, ends, events, pressures };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("a critical pod is taken at once, and what it displaces is ended for it", async () => {
  const { admission, ends, events } = makeAdmission();
  const victim = asking("small", "api", "800m");
  assert.equal(admission.admit(asking("static", "file", "500m"), [victim]), undefined);
  await turn();
  assert.deepEqual(
    ends.map(({ uid, how }) => ({ uid, ...how })),
    [
      {
        uid: "small",
        reason: "Preempting",
        message: "Preempted in order to admit critical pod",
        disruption: {
          reason: "TerminationByKubelet",
          message: "Pod was preempted by Kubelet to accommodate a critical pod.",
        },
        decision: { kind: "preempted", by: "default/static" },
      },
    ],
  );
  assert.deepEqual(events.lines, ["Warning Preempting: Preempted in order to admit critical pod"]);
  await admission[Symbol.asyncDispose]();
});

test("a pod that is being ended to make room counts no more, and no pod is ended for it twice", async () => {
  const { admission, ends } = makeAdmission();
  const victim = asking("small", "api", "800m");
  const first = asking("static", "file", "500m");
  assert.equal(admission.admit(first, [victim]), undefined);
  assert.equal(admission.admit(asking("second", "file", "400m"), [victim, first]), undefined);
  await turn();
  assert.equal(ends.length, 1);
  assert.equal(admission.admit(asking("third", "api", "200m"), [victim, first])?.reason, undefined);
  ends[0]?.ended();
  await turn();
  assert.equal(admission.admit(asking("fourth", "api", "200m"), [victim, first])?.reason, "OutOfcpu");
});

test("other resources are judged by what the node has, then as those of a new pod would be beside the others", async () => {
  const { admission } = makeAdmission();
  const before = asking("web", "api", "100m");
  const other = asking("other", "api", "500m");
  const resize = (cpu: string) => admission.resize(asking("web", "api", cpu), before, [before, other]);
  assert.deepEqual(resize("500m"), { kind: "granted" });
  assert.deepEqual(resize("600m"), {
    kind: "pending",
    reason: "Deferred",
    message: "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000",
  });
  assert.deepEqual(resize("1100m"), {
    kind: "pending",
    reason: "Infeasible",
    message: "Node didn't have enough capacity: cpu, requested: 1100, capacity: 1000",
  });
  await admission[Symbol.asyncDispose]();
});

test("a node short of disk takes no pod, and takes it again when it is no longer", () => {
  const { admission, pressures } = makeAdmission();
  const pod = asking("web", "api", "100m");
  const condition = { type: "DiskPressure", reason: "r", message: "m" } as const;
  pressures.set([{ ...condition, status: "True" }]);
  const expected = { reason: "Evicted", message: "The node had condition: [DiskPressure]. " };
  assert.deepEqual(admission.admit(pod, []), expected);
  assert.equal(admission.admit(asking("static", "file", "100m"), []), undefined);
  pressures.set([{ ...condition, status: "False" }]);
  assert.equal(admission.admit(pod, []), undefined);
});

test("a pod that cannot have CPUs of its own is refused, and displaces no pod", async () => {
  const rejection = { reason: "SMTAlignmentError", message: "SMT Alignment Error" };
  const { admission, ends } = makeAdmission({ admit: () => rejection });
  assert.equal(admission.admit(asking("static", "file", "500m"), [asking("small", "api", "800m")]), rejection);
  await turn();
  assert.deepEqual(ends, []);
});

test("a pod on CPUs of its own is never resized, and what it asks for is not taken", () => {
  const message = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"';
  const placed: string[] = [];
  const { admission } = makeAdmission({
    admit: ({ uid }) => {
      placed.push(uid);
      return undefined;
    },
    refusesResize: (_, changes) => (changes("cpu") && !changes("memory") ? message : undefined),
  });
  const [before, wanted] = [asking("web", "api", "500m"), asking("web", "api", "600m")];
  assert.deepEqual(admission.resize(wanted, before, []), { kind: "pending", reason: "Infeasible", message });
  assert.deepEqual(admission.resize(before, before, []), { kind: "granted" });
  assert.deepEqual(placed, []);
});
