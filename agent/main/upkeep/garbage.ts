/** Puts together garbage collection on this node: images, dead containers, their logs. */

import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, isCancelled } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, podUid } from "@picolet/protocol/ports.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import type { NodeReclaim } from "../../core/node/node-reclaim.ts";
import type { FilesystemUsage, UsageSampler } from "../../core/node/usage.ts";
import type { PodObserver } from "../../core/pods/pod-observer.ts";
import { ImageCollector, type ImageFilesystem } from "../../images/image-collector.ts";
import type { LogRotation } from "../../logs/log-rotation.ts";
import type { StatusManager } from "../../status/status-manager.ts";
import type { Store } from "../../store/store.ts";
import type { PodWorkers } from "../../workers/pod-workers.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";
import type { Images } from "../pods/make-images.ts";
import { isRuntimeListed } from "../pods/storage.ts";

export interface GarbageComponents {
  readonly clock: Clock;
  readonly counts: NodeCounts;
  readonly log: Log;
  readonly store: Store;
  readonly images: Images;
  readonly adapters: readonly RuntimeAdapter[];
  readonly observer: PodObserver;
  readonly statuses: StatusManager;
  readonly view: NodeAgentView;
  readonly workers: PodWorkers;
  readonly logs: LogRotation;
  readonly usage: Pick<UsageSampler, "filesystems">;
}

export interface Garbage {
  readonly reclaim: NodeReclaim;
  readonly parts: readonly Component[];
}

export function makeGarbage(components: GarbageComponents, configuration: Configuration): Garbage {
  const { clock, log, counts, store, images, adapters, observer, statuses, view, workers, logs, usage } = components;
  const isSettled = (): boolean => adapters.every((adapter) => isRuntimeListed(observer.listing(adapter), statuses));
  const collector = new ImageCollector(
    {
      ...{ clock, log, counts, adapters, access: images.access, images: images.images },
      filesystems: (signal) => imageFilesystems(adapters, usage, signal),
      pods: () => view.pods(),
      desired: store.desired.desired,
      isSettled,
      kept: store.kept,
      events: store.events,
    },
    {
      nodeName: configuration.nodeName,
      policy: {
        highThresholdPercent: configuration.imageGCHighThresholdPercent,
        lowThresholdPercent: configuration.imageGCLowThresholdPercent,
        minimumAge: configuration.imageMinimumGCAge,
        maximumAge: configuration.imageMaximumGCAge,
      },
    },
  );
  const reclaim: NodeReclaim = {
    isReady: isSettled,
    deleteUnusedImages: (signal) => collector.deleteUnused(signal),
    deleteDeadContainers: async (signal) => {
      await workers.deleteDead(signal);
      await logs.removeDead((uid, container, attempt) => isLogOfNothing(statuses, uid, container, attempt), signal);
      for (const { name, freeRemoved } of adapters.map(bound)) {
        await freeRemoved?.(signal).catch((error: unknown) => {
          if (isCancelled(error)) throw error;
          log.warn("a runtime gives the room of removed containers back later", {
            runtime: name,
            error: describeError(error),
          });
        });
      }
    },
  };
  return { reclaim, parts: [collector] };
}

const bound = (adapter: RuntimeAdapter) => ({
  name: adapter.name,
  freeRemoved: adapter.freeRemoved?.bind(adapter),
});

/** @returns whether the run that wrote the log is gone. Only the runtime knows a run that is being started. */
function isLogOfNothing(statuses: StatusManager, uid: string, container: string, attempt: number): boolean {
  const view = statuses.pods.get(podUid(uid))?.view;
  if (view?.observed === undefined) return false;
  const runs = view.observed.containers.filter(({ name }) => name === container);
  if (runs.some((run) => run.attempt === attempt)) return false;
  return view.worker.kind === "finished" || runs.some((run) => run.attempt > attempt);
}

/** Runtimes that do not report the place of their images have them below the agent's root directory. */
async function imageFilesystems(
  adapters: readonly RuntimeAdapter[],
  usage: Pick<UsageSampler, "filesystems">,
  signal: AbortSignal,
): Promise<readonly ImageFilesystem[]> {
  const { imagefs, nodefs } = await usage.filesystems(millis(0), signal);
  if (imagefs === nodefs) return [{ ...spaceOf(nodefs), adapters }];
  const isOfNode = ({ images }: RuntimeAdapter): boolean => images.filesystems === undefined;
  return [
    { ...spaceOf(imagefs), adapters: adapters.filter((each) => !isOfNode(each)) },
    { ...spaceOf(nodefs), adapters: adapters.filter(isOfNode) },
  ];
}

const spaceOf = ({ capacityBytes, availableBytes }: FilesystemUsage) => ({ capacityBytes, availableBytes });
