/** The part of the agent for CSI, put together. It is loaded with the first driver, or the first volume of one. */
import { CsiDrivers } from "./csi-drivers.ts";
import { CsiUpkeep, type CsiUpkeepComponents } from "./csi-upkeep.ts";
import { CsiVolumes, type CsiVolumesComponents } from "./csi-volumes.ts";

export { inlineVolume, persistentVolume } from "./csi-source.ts";

export interface CsiNode {
  readonly drivers: CsiDrivers;
  readonly volumes: CsiVolumes;
  readonly upkeep: CsiUpkeep;
}

export function makeCsiNode(
  components: Omit<CsiVolumesComponents, "drivers"> & Omit<CsiUpkeepComponents, "volumes" | "drivers">,
  init: { readonly nodeName: string },
): CsiNode {
  const drivers = new CsiDrivers(components);
  const volumes = new CsiVolumes({ ...components, drivers }, init);
  return { drivers, volumes, upkeep: new CsiUpkeep({ ...components, volumes, drivers }, init) };
}
