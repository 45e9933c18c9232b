/**
 * Containers of one pod that note in a common file what they do, which tells the order of things better than times in
 * seconds.
 */
import type { V1Container, V1PodSpec } from "@kubernetes/client-node";
import type { TestContext } from "./test-context.ts";
import type { TestPod } from "./test-pod.ts";

const FOLDER = "/trace";

export const TRACE_VOLUME = { name: "trace", emptyDir: {} } as const;
export const TRACE_MOUNT = { name: TRACE_VOLUME.name, mountPath: FOLDER } as const;

/** A line of shell that notes `what`. */
export const note = (what: string): string => `echo "${what}" >> ${FOLDER}/all`;

/** Waits in shell until `what` was noted. */
export const awaitNote = (what: string): string =>
  `until grep -qx "${what}" ${FOLDER}/all 2>/dev/null; do sleep 0.1; done`;

export const STAYS = "trap 'exit 0' TERM; sleep 100000 & wait";

/** Notes `NAME starts`, does `script`. */
export function traced(t: TestContext, name: string, script: string, more: Partial<V1Container> = {}): V1Container {
  return t.sh(`${note(`${name} starts`)}; ${script}`, { name, volumeMounts: [TRACE_MOUNT], ...more });
}

/** Runs until it receives SIGTERM, and notes that too. */
export const tracedStay = (name: string): string => `trap '${note(`${name} ends`)}; exit 0' TERM; sleep 100000 & wait`;

export const withTrace = (spec: V1PodSpec): V1PodSpec => ({
  ...spec,
  volumes: [...(spec.volumes ?? []), TRACE_VOLUME],
});

/** Reads the notes so far in a running container. */
export async function traceOf(pod: TestPod, container: string): Promise<string[]> {
  return (await pod.shell(`cat ${FOLDER}/all`, container)).trim().split("\n");
}
