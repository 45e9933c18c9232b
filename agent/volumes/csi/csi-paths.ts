/** The kubelet's paths of CSI volumes. */
import { join } from "node:path";
import { nameOf, type PodPaths } from "../files/pod-paths.ts";
import { sha256 } from "./csi-source.ts";

const FOLDER = "kubernetes.io~csi";

export class CsiPaths {
  readonly #paths: PodPaths;

  constructor(paths: PodPaths) {
    this.#paths = paths;
  }

  /** The folder of one volume staged on the node; `globalmount` and `vol_data.json` are in it. */
  staged(driver: string, handle: string): string {
    return join(this.stagedVolumes, nameOf(driver, "driver"), sha256(handle));
  }

  /** Below it: `<driver>/<hash of the handle>`. */
  get stagedVolumes(): string {
    return this.#paths.csiPlugins;
  }

  /** Pods' volumes that are file systems: a folder each, with `mount` and `vol_data.json`. */
  volumes(uid: string): string {
    return join(this.#paths.volumes(uid), FOLDER);
  }

  volume(uid: string, specName: string): string {
    return join(this.volumes(uid), nameOf(specName, "volume"));
  }

  /** Block volumes: `staging/<volume>`, `publish/<volume>/<pod>` and `<volume>/data/vol_data.json`. */
  get blockVolumes(): string {
    return join(this.stagedVolumes, "volumeDevices");
  }

  blockData(specName: string): string {
    return join(this.blockVolumes, nameOf(specName, "volume"), "data");
  }

  blockStaging(specName: string): string {
    return join(this.blockVolumes, "staging", nameOf(specName, "volume"));
  }

  blockPublish(specName: string): string {
    return join(this.blockVolumes, "publish", nameOf(specName, "volume"));
  }

  /** Links to the devices that the pod gets. */
  podDevices(uid: string): string {
    return join(this.#paths.pod(uid), "volumeDevices", FOLDER);
  }
}
