/**
 * Devices that pods name in `picolet.io/devices`: gives them to containers, and follows them as they are plugged in and
 * out. A device is not counted: several pods may have it.
 */
import { realpathSync, statSync } from "node:fs";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { type ListenableWatch, WatchSource } from "@picolet/protocol/async/watch.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { Clock, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod, Device } from "@picolet/runtime-contract/runtime-adapter.ts";
import { DEVICES_ANNOTATION } from "../plan/admission/devices-annotation.ts";
import {
  type AllowedDevices,
  isNeverAllowed,
  parseRequestedDevices,
  type RequestedDevice,
  refusalOf,
} from "../plan/admission/requested-devices.ts";
import { foldersOf, SCAN, SETTLE, watchFolders } from "./device-folders.ts";
import { matchingDevices } from "./device-rules.ts";
import type { GivenDevices } from "./given-devices.ts";

export interface AnnotatedPod {
  readonly desired: DesiredPod;
  /** True when a container of it runs. */
  readonly isRunning: boolean;
}

export interface AnnotatedDevicesComponents {
  readonly clock: Clock;
  /** Pods that are to run here. */
  readonly pods: () => readonly AnnotatedPod[];
  readonly event: (pod: DesiredPod, type: "Normal" | "Warning", reason: string, message: string) => void;
  /** On disk when it returns. */
  readonly keep: (given: GivenDevices) => void;
  /** Has the pod's containers start again. */
  readonly restart: (uid: PodUid) => void;
}

interface Node {
  readonly path: string;
  /** Without links. */
  readonly hostPath: string;
  /** Device number: another one is another device to the container, which has a node of its own. */
  readonly number: number;
}

/** A device of a pod; the texts are those of `textOf`. */
interface Followed {
  readonly now: string;
  /** Given to the container that started last. */
  readonly given: string;
}

export class AnnotatedDevices {
  readonly #components: AnnotatedDevicesComponents;
  readonly #init: { readonly allowed: readonly AllowedDevices[]; readonly root: string };
  /** Devices that the agent before this one gave, until each of its pods is seen. */
  readonly #earlier: Map<string, Readonly<Record<string, string>>>;
  #kept: string;
  readonly #alarm: Alarm;
  readonly #followed = new Map<PodUid, Map<string, Followed>>();
  readonly #changes = new WatchSource(0);

  /** @param init `root`: "" on a real machine; `kept`: what was kept */
  constructor(
    components: AnnotatedDevicesComponents,
    init: { readonly allowed: readonly AllowedDevices[]; readonly root: string; readonly kept?: GivenDevices },
  ) {
    this.#components = components;
    this.#init = init;
    this.#earlier = new Map(Object.entries(init.kept ?? {}));
    this.#kept = JSON.stringify(init.kept ?? {});
    this.#alarm = new Alarm(components.clock);
  }

  /** Fires when a device of a pod has come or gone. */
  get changes(): ListenableWatch<unknown> {
    return this.#changes;
  }

  /** @returns why the pod must not run here; undefined: it may */
  refusal({ pod }: DesiredPod): string | undefined {
    const pathsOf = (device: RequestedDevice): readonly string[] =>
      this.#nodesOf(device).map(({ hostPath }) => hostPath);
    return refusalOf(pod.metadata, this.#init.allowed, pathsOf);
  }

  /**
   * For each start of a container.
   * @throws `permission_denied` for what the configuration does not allow any more, `not_found` while a device is away
   */
  launch(desired: DesiredPod): readonly Device[] {
    const requested = requestedBy(desired);
    if (requested.length === 0) return [];
    const refusal = this.refusal(desired);
    if (refusal !== undefined)
      throw new PicoletError("permission_denied", refusal, { reason: "CreateContainerConfigError", retryable: true });
    const found = requested.map((device) => ({ device, nodes: this.#nodesOf(device) }));
    const missing = found.filter(({ nodes }) => nodes.length === 0).map(({ device }) => device.name);
    if (missing.length > 0) {
      const message = `${missing.join(", ")} of the annotation ${DEVICES_ANNOTATION} is not plugged in`;
      throw new PicoletError("not_found", message, { reason: "CreateContainerConfigError", retryable: true });
    }
    // Keeps what another container of the pod still has.
    const isRunning = this.#components.pods().some((each) => each.desired.uid === desired.uid && each.isRunning);
    const before = isRunning ? this.#followed.get(desired.uid) : undefined;
    const followed = found.map(({ device, nodes }) => {
      const now = textOf(nodes);
      return [device.name, { now, given: before?.get(device.name)?.given ?? now }] as const;
    });
    this.#followed.set(desired.uid, new Map(followed));
    this.#keep();
    return found.flatMap(({ device: { permissions }, nodes }) =>
      nodes.map(({ path, hostPath }) => ({
        ...{ containerPath: path, hostPath, permissions },
        readOnly: !permissions.includes("w"),
      })),
    );
  }

  /** Compares what is there with what the pods had. */
  scan(): void {
    const pods = this.#components.pods();
    let hasChanged = false;
    for (const pod of pods) if (this.#scanPod(pod)) hasChanged = true;
    const uids = new Set(pods.map(({ desired }) => desired.uid));
    for (const uid of this.#followed.keys()) if (!uids.has(uid)) this.#followed.delete(uid);
    this.#keep();
    if (hasChanged) this.#changes.set(this.#changes.current + 1);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { allowed, root } = this.#init;
    const folders = foldersOf(
      allowed.flatMap(({ match }) => match),
      root,
    );
    const watchers = watchFolders(folders, () => this.#alarm.set(SETTLE));
    try {
      for (;;) {
        this.scan();
        this.#alarm.set(SCAN);
        await this.#alarm.ring(signal);
      }
    } finally {
      for (const watcher of watchers) watcher.close();
    }
  }

  /** @returns whether one of its devices has come or gone */
  #scanPod({ desired, isRunning }: AnnotatedPod): boolean {
    const before = this.#followed.get(desired.uid);
    const after = new Map<string, Followed>();
    let hasChanged = false;
    let needsRestart = false;
    for (const device of requestedBy(desired)) {
      const now = textOf(this.#nodesOf(device));
      const known = before?.get(device.name) ?? { now, given: this.#earlier.get(desired.uid)?.[device.name] ?? now };
      const isOther = isRunning && now !== "" && now !== known.given && desired.pod.spec.restartPolicy === "Always";
      after.set(device.name, { now, given: isOther ? now : known.given });
      if (now === known.now && !isOther) continue;
      hasChanged = true;
      this.#report(desired, device, { now, isOther });
      needsRestart ||= isOther;
    }
    if (after.size > 0) this.#followed.set(desired.uid, after);
    this.#earlier.delete(desired.uid);
    if (needsRestart) this.#components.restart(desired.uid);
    return hasChanged;
  }

  #keep(): void {
    const given: Record<string, Readonly<Record<string, string>>> = Object.fromEntries(this.#earlier);
    for (const [uid, devices] of this.#followed)
      given[uid] = Object.fromEntries([...devices].map(([name, followed]) => [name, followed.given]));
    const text = JSON.stringify(given);
    if (text !== this.#kept) this.#components.keep(given);
    this.#kept = text;
  }

  #report(
    desired: DesiredPod,
    { name }: RequestedDevice,
    { now, isOther }: { readonly now: string; readonly isOther: boolean },
  ): void {
    const { event } = this.#components;
    if (now === "") {
      event(desired, "Warning", "DeviceUnplugged", `${name} was unplugged. A container that starts waits for it`);
      return;
    }
    const restarts = isOther ? ". Its containers restart, because their device has changed" : "";
    event(desired, "Normal", "DevicePlugged", `${name} is plugged in${restarts}`);
  }

  #nodesOf({ match }: RequestedDevice): readonly Node[] {
    const { root } = this.#init;
    const ids = matchingDevices({ name: "", match: [match] }, { root, cdiNames: () => [] }).map(({ id }) => id);
    return ids.flatMap((path) => {
      try {
        const hostPath = realpathSync(root + path);
        // A link may lead anywhere.
        if (!hostPath.startsWith("/dev/") || isNeverAllowed(hostPath)) return [];
        return [{ path, hostPath, number: statSync(hostPath).rdev }];
      } catch {
        ignore("it was unplugged in between");
        return [];
      }
    });
  }
}

const requestedBy = ({ pod: { metadata } }: DesiredPod): readonly RequestedDevice[] =>
  parseRequestedDevices(metadata.annotations?.[DEVICES_ANNOTATION] ?? "").devices;

const textOf = (nodes: readonly Node[]): string => nodes.map(({ path, number }) => `${path} ${number}`).join("\n");
