/** The parts of the device manager, put together. */
import { renameSync } from "node:fs";
import { describeError } from "@picolet/protocol/errors.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { GrpcServer } from "@picolet/runtime-cri/wire/grpc-server.ts";
import type { DeviceResources } from "../../core/pods/container-devices.ts";
import type { Rejection } from "../../core/pods/pod-admission.ts";
import { withCdiEdits } from "../../devices/cdi.ts";
import { type DeviceCheckpoint, readCheckpoint, writeCheckpoint } from "../../devices/device-checkpoint.ts";
import { DeviceManager, type DeviceManagerComponents, REFUSED } from "../../devices/device-manager.ts";
import { DevicePlugins } from "../../devices/device-plugins.ts";
import { RuleWatcher } from "../../devices/rule-watcher.ts";
import { AdmissionFailure, rejectionOf } from "../../topology/placement-round.ts";
import { placedContainers } from "../../topology/requested.ts";
import type { AgentBase } from "../base/agent-base.ts";

/** CDI's own; later ones win. */
const CDI_FOLDERS = ["/etc/cdi", "/var/run/cdi"];

export class LoadedDevices implements AsyncDisposable {
  readonly manager: DeviceManager;
  readonly plugins: DevicePlugins;
  readonly rules: RuleWatcher;
  /** Applies the launch's CDI devices as far as CRI can express them. */
  readonly withCdi: DeviceManagerComponents["withCdi"];
  /** Serves the connections to `kubelet.sock`. */
  readonly server: GrpcServer;
  readonly refused = REFUSED;
  readonly #life = new AbortController();

  constructor(
    { ports: { clock, log, counts }, store, init: { configuration } }: AgentBase,
    init: {
      readonly folder: string;
      readonly checkpoint: string;
      readonly canRuntimeApplyCdi: (signal: AbortSignal) => Promise<boolean>;
    },
    onChange: (resources: DeviceResources) => void,
  ) {
    const isKnown = (uid: DesiredPod["uid"]): boolean => {
      const { pods, removed } = store.desired.desired.current;
      return pods.has(uid) || removed.has(uid);
    };
    const keep = (checkpoint: DeviceCheckpoint): void => writeCheckpoint(init.checkpoint, checkpoint);
    const restored = (): DeviceCheckpoint | undefined => {
      try {
        return readCheckpoint(init.checkpoint);
      } catch (error) {
        log.error("cannot use the checkpoint of devices", { error: describeError(error) });
        renameSync(init.checkpoint, `${init.checkpoint}.broken`);
        return undefined;
      }
    };
    this.withCdi = async (launch, signal) =>
      withCdiEdits(launch, await this.rules.cdi(), await init.canRuntimeApplyCdi(signal));
    this.manager = new DeviceManager({ log, isKnown, keep, withCdi: this.withCdi }, restored());
    const rules = { rules: configuration.devices, root: "", cdiFolders: CDI_FOLDERS };
    this.rules = new RuleWatcher({ clock, log, manager: this.manager }, rules);
    this.plugins = new DevicePlugins({ clock, log, counts, manager: this.manager }, { folder: init.folder });
    this.server = new GrpcServer({ clock }, { path: "", methods: [this.plugins.registration] });
    onChange(this.manager.counts.current);
    this.manager.counts.listen(() => onChange(this.manager.counts.current), this.#life.signal);
  }

  /** For a node whose pods get neither CPUs nor memory for themselves alone. */
  admit(pod: DesiredPod): Rejection | undefined {
    try {
      const round = this.manager.begin(pod);
      for (const container of placedContainers(pod.pod))
        round.allocate(container, { nodes: undefined, preferred: false });
      return undefined;
    } catch (error) {
      if (error instanceof AdmissionFailure) return rejectionOf(error);
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.plugins[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}
