import { PicoletError } from "@picolet/protocol/errors.ts";
import type { ContainerLaunch, DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ContainerStarter, SandboxRecord } from "./container-starter.ts";
import type { ContainerRun } from "./containers/container-run.ts";
import type { PodRecord, PodRecords } from "./pod-records.ts";
import type { ServiceHost } from "./services/service-host.ts";

export interface PendingStartsComponents {
  readonly pods: PodRecords;
  readonly starter: ContainerStarter;
  readonly services: ServiceHost;
}

/** Starts of containers, one for each attempt: a second call while it is under way waits for the first. */
export class PendingStarts {
  readonly #components: PendingStartsComponents;
  /** The starts by pod, name and attempt. */
  readonly #starts = new Map<string, Promise<void>>();

  constructor(components: PendingStartsComponents) {
    this.#components = components;
  }

  /**
   * Starts nothing for a container that exists already. @throws `not_found` without a sandbox, and the errors of a
   * start
   */
  async start(desired: DesiredPod, launch: ContainerLaunch, signal: AbortSignal): Promise<void> {
    const pod = this.#components.pods.get(desired.uid);
    const ready = [...(pod?.sandboxes.values() ?? [])].filter((each) => !each.stopped);
    const sandbox = ready.sort((one, other) => other.attempt - one.attempt)[0];
    if (pod === undefined || sandbox === undefined) {
      throw new PicoletError(
        "not_found",
        `cannot start container ${launch.name}: its pod has no sandbox that is ready`,
      );
    }
    const key = `${desired.uid}/${launch.name}/${launch.attempt}`;
    const underway = this.#starts.get(key);
    if (underway !== undefined) return underway;
    const exists = [...pod.containers.values()].some(
      ({ file }) => file.name === launch.name && file.attempt === launch.attempt,
    );
    if (exists) return;
    const start = this.#start(pod, desired, sandbox, launch, signal).finally(() => this.#starts.delete(key));
    this.#starts.set(key, start);
    return start;
  }

  async #start(
    pod: PodRecord,
    desired: DesiredPod,
    sandbox: SandboxRecord,
    launch: ContainerLaunch,
    signal: AbortSignal,
  ): Promise<void> {
    const { pods, starter, services } = this.#components;
    let made: ContainerRun | undefined;
    try {
      const onMade = (run: ContainerRun): void => {
        // The one before came to nothing.
        if (made !== undefined) pod.containers.delete(made.file.id);
        made = run;
        pod.containers.set(run.file.id, run);
        services.serve(run);
      };
      await starter.start(desired, sandbox, launch, onMade, signal);
    } catch (error) {
      if (made !== undefined) pod.containers.delete(made.file.id);
      throw error;
    } finally {
      pods.changed(desired.uid);
    }
  }
}
