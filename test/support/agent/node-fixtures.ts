/** A node with real runtimes and pods that do something, for end-to-end tests and the bench. */
import { execFileSync, spawnSync } from "node:child_process";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady, type PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import type { Containerd } from "../containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../containerd/test-images.ts";
import { AgentNode, type AgentOptions, restartsOf } from "./agent-process.ts";

export const HELLO_IMAGE = "picolet.example/hello:1";
export const HELLO_COMPONENT = "dist/examples/hello.wasm";

/** A node whose containers run in `containerd` and which has no other runtime besides components. */
export function nodeWith(containerd: Containerd | undefined, options: AgentOptions = {}): AgentNode {
  const endpoint = containerd === undefined ? "" : `unix://${containerd.socketPath}`;
  return new AgentNode({ ...options, config: { containerRuntimeEndpoint: endpoint, ...options.config } });
}

/** Runs `edgectl` as a user does. @throws with what it printed when it fails */
export function edgectl(node: AgentNode, ...args: string[]): string {
  return execFileSync("dist/board/bin/edgectl", ["--socket", node.socketPath, ...args], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
}

/** The exit code of `edgectl status`, and what it prints, on one line. */
export function shownStatus(node: AgentNode): { readonly code: number | null; readonly text: string } {
  const { status, stdout } = spawnSync("dist/board/bin/edgectl", ["--socket", node.socketPath, "status"], {
    encoding: "utf8",
  });
  return { code: status, text: stdout.replaceAll(/\s+/g, " ") };
}

/** Sleeps until it receives SIGTERM, and then ends at once. */
export const SLEEP_SCRIPT = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

export function containerPod(name: string, script: string = SLEEP_SCRIPT, spec: Record<string, unknown> = {}): unknown {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    spec: {
      terminationGracePeriodSeconds: 1,
      containers: [{ name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", script] }],
      ...spec,
    },
  };
}

export function componentPod(name: string, container: Record<string, unknown> = {}): unknown {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    spec: {
      runtimeClassName: "wasm",
      terminationGracePeriodSeconds: 1,
      containers: [{ name: "app", image: HELLO_IMAGE, imagePullPolicy: "IfNotPresent", ...container }],
    },
  };
}

/** The runtime's id of a pod's first container, without its scheme; "" while there is none. */
export const containerIdOf = (pod: Pod | undefined): string =>
  (pod?.status?.containerStatuses?.[0]?.containerID ?? "").replace(/^[^:]*:\/\//, "");

export const startedAtOf = (pod: Pod | undefined): string | undefined =>
  pod?.status?.containerStatuses?.[0]?.state?.running?.startedAt;

export const allReady =
  (count: number) =>
  (pods: PodsByName): boolean =>
    pods.size === count && [...pods.values()].every(isReady);

/** Name, id, start and restarts of each pod's first container. */
export type Identity = readonly [name: string, containerId: string, startedAt: string | undefined, restarts: number];

/** The identities that must not change while a container is healthy and other pods change. Sorted. */
export const identitiesOf = (pods: PodsByName): readonly Identity[] =>
  [...pods]
    .map(([name, pod]): Identity => [name, containerIdOf(pod), startedAtOf(pod), restartsOf(pod)])
    .toSorted(([one], [other]) => (one < other ? -1 : 1));

/** `count` pods of containers and as many of components, on a node that has the component; ready. */
export async function runPodsOfBothKinds(node: AgentNode, count: number): Promise<PodsByName> {
  for (let index = 0; index < count; index += 1) {
    node.writeManifest(`container-${index}.json`, containerPod(`container-${index}`));
    node.writeManifest(`component-${index}.json`, componentPod(`component-${index}`));
  }
  return await node.waitForPods(`${2 * count} ready pods`, allReady(2 * count));
}
