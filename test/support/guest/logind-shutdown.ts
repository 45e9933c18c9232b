/** Pods of a hub on a machine whose real logind shuts it down: they end in order, and their status says so. */
import assert from "node:assert/strict";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { containerPod } from "../agent/node-fixtures.ts";
import { BUSYBOX_IMAGE } from "../containerd/test-images.ts";
import type { FleetAdmin } from "../hub/fleet-admin.ts";
import type { BoardMachine } from "./board-machine.ts";
import type { GuestAgent } from "./guest-agent.ts";

/** The pod that hears nothing takes all that pods have which are not critical. */
export const SHUTDOWN_PERIODS = { shutdownGracePeriod: "60s", shutdownGracePeriodCriticalPods: "45s" };
const MESSAGE = "Pod was terminated in response to imminent node shutdown.";
const API_PODS: Readonly<Record<string, { readonly meanwhile: string; readonly spec?: object }>> = {
  plain: { meanwhile: "sleep 2; " },
  deaf: { meanwhile: "while :; do sleep 1; done; " },
  critical: { meanwhile: "", spec: { priorityClassName: "system-node-critical" } },
};
const STATIC = "static";

/** Starts logind, which the machine has and does not run. */
export const startLogind = (machine: BoardMachine): Promise<string> =>
  machine.output(
    "rm /etc/systemd/system/systemd-logind.service && systemctl daemon-reload && systemctl start systemd-logind",
  );

/** @param folder of the machine; its file `ends` gets a line for each pod that receives SIGTERM, and for each that has ended */
export async function runPodsThatEnd(agent: GuestAgent, admin: FleetAdmin, folder: string): Promise<void> {
  for (const [name, { meanwhile, spec }] of Object.entries(API_PODS))
    await admin.create(PODS, podThatEnds(name, folder, meanwhile, { nodeName: "guest", ...spec }));
  await agent.writeManifest("static.json", podThatEnds(STATIC, folder, "", {}));
  await agent.waitForPods("four run", (pods) => pods.size === 4 && [...pods.values()].every(isReady));
}

function podThatEnds(name: string, folder: string, meanwhile: string, spec: object): Record<string, unknown> {
  const note = (what: string): string => `echo ${name} ${what} >> /ends/ends; sync`;
  const script = `trap '${note("told")}; ${meanwhile}${note("ended")}; exit 0' TERM; while :; do sleep 0.2; done`;
  const container = { name: "app", image: BUSYBOX_IMAGE, command: ["sh", "-c", script] };
  return containerPod(name, undefined, {
    ...{ hostNetwork: true, terminationGracePeriodSeconds: 40, ...spec },
    containers: [{ ...container, volumeMounts: [{ name: "ends", mountPath: "/ends" }] }],
    volumes: [{ name: "ends", hostPath: { path: folder } }],
  }) as Record<string, unknown>;
}

/** The agent's lock, and logind's own limit of 5 s raised to all that the pods have. */
export async function logindWaits(machine: BoardMachine): Promise<void> {
  assert.match(await machine.output("systemd-inhibit --list"), /^picolet +0 +root .* shutdown +.* delay *$/m);
  const manager = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager";
  assert.equal(await machine.output(`busctl get-property ${manager} InhibitDelayMaxUSec`), "t 60000000\n");
}

/** @param text of the file `ends` */
export function endedInOrder(text: string): void {
  const lines = text.trim().split("\n");
  const first = lines.slice(0, lines.indexOf("critical told"));
  const others = ["deaf told", "plain ended", "plain told", "static ended", "static told"];
  assert.deepEqual(first.toSorted(), others, text);
  assert.deepEqual(lines.slice(first.length), ["critical told", "critical ended"], text);
}

/** As the API server has these pods of it then. */
export async function statusSaysSo(admin: FleetAdmin, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const { status } = await admin.untilPod(name, "it has failed", (pod) => pod.status?.phase === "Failed");
    const target = status?.conditions?.find(({ type }) => type === "DisruptionTarget");
    const { exitCode } = status?.containerStatuses?.[0]?.state.terminated ?? {};
    assert.deepEqual(
      [status?.reason, status?.message, target?.status, target?.reason, exitCode],
      ["Terminated", MESSAGE, "True", "TerminationByKubelet", name === "deaf" ? 137 : 0],
      name,
    );
  }
}
