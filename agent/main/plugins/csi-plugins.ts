import type { PluginHandler } from "../../plugins/plugin-handler.ts";
import type { CsiOnDemand } from "../../volumes/types/csi-on-demand.ts";

/** Registers the sockets of CSI drivers. */
export const csiPlugins = (csi: CsiOnDemand): PluginHandler => ({
  async register({ name, endpoint, versions, socketPath }, signal) {
    const { drivers } = await csi.load();
    await drivers.register({ name, endpoint, versions, registration: socketPath }, signal);
  },
  async remove({ name, socketPath }) {
    const { drivers } = await csi.load();
    drivers.deregister(name, socketPath);
  },
});
