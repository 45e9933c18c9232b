/** A real kubelet at rest with the same containerd and the same pods as the agent, measured by the same `restOf`. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { containerPod } from "../../support/agent/node-fixtures.ts";
import type { Containerd } from "../../support/containerd/containerd.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { Fleet } from "../../support/hub/test-fleet.ts";
import { ApiClient } from "../measure/api-client.ts";
import { type RestFigures, restOf } from "./agent-figures.ts";
import { Kubelet } from "./kubelet-process.ts";

const NODE = "node";

export interface KubeletBenchOptions {
  readonly containerd: Containerd;
  readonly pods: number;
  readonly windowMs: number;
}

/**
 * Reads the version that `kubelet --version` prints: "Kubernetes v1.34.9".
 * @throws when the file is not a kubelet
 */
export function kubeletVersion(file: string): string {
  try {
    return execFileSync(file, ["--version"], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();
  } catch (error) {
    throw new Error(`${file} is no kubelet that runs here`, { cause: error });
  }
}

/** Standalone, with static pods: the counterpart of `agent.atRest`. */
export async function kubeletAtRest(file: string, options: KubeletBenchOptions): Promise<RestFigures> {
  const { containerd, pods } = options;
  const manifests = Object.fromEntries(
    Array.from({ length: pods }, (_, index) => [`p${index}.json`, containerPod(`p${index}`)]),
  );
  await using kubelet = await Kubelet.start({ file, containerd, nodeName: NODE, manifests });
  return await measure(kubelet, options);
}

/** Joined to the hub's embedded API server, with pods from there: the counterpart of `atRestWithHub`. */
export async function kubeletAtRestWithHub(file: string, options: KubeletBenchOptions): Promise<RestFigures> {
  const { containerd, pods } = options;
  await using fleet = await Fleet.start();
  await using admin = await FleetAdmin.of(fleet);
  await using api = await ApiClient.open(fleet.ready.kubeconfig);
  const join = {
    api: await loadKubeconfigAccess({ kubeconfig: fleet.ready.kubeconfig }),
    token: String((await fleet.joinConfig()).token),
  };
  await using kubelet = await Kubelet.start({ file, containerd, nodeName: NODE, join });
  await kubelet.during(() => admin.untilCondition(NODE, "Ready", "True"));
  const names = Array.from({ length: pods }, (_, index) => `p${index}`);
  for (const name of names) await api.create(containerPod(name, undefined, { nodeName: NODE }));
  for (const name of names) await kubelet.during(() => admin.untilPod(name, "ready", isReady));
  const figures = await measure(kubelet, options);
  await kubelet.during(() => admin.untilCondition(NODE, "Ready", "True"));
  return figures;
}

async function measure(kubelet: Kubelet, { pods, windowMs }: KubeletBenchOptions): Promise<RestFigures> {
  const before = await kubelet.untilRunning(pods);
  const figures = await kubelet.during(() => restOf(kubelet.pid, windowMs));
  assert.deepEqual(await kubelet.runningContainers(), before, "containers came or went while the kubelet was measured");
  return figures;
}
