import type { RuntimeChoices } from "../../core/pods/pod-ports.ts";
import type { RuntimeChooserComponents } from "../../images/runtime-chooser.ts";
import type { NodeRuntimes } from "./runtime-router.ts";

/** Loaded with the first pod that has a choice: most nodes never have one. */
export function runtimeChoices({
  router: { components, containers },
  ...ports
}: Omit<RuntimeChooserComponents, "components" | "containers"> & { readonly router: NodeRuntimes }): RuntimeChoices {
  return {
    choose: async (pod, holder, signal) => {
      const { RuntimeChooser } = await import("../../images/runtime-chooser.ts");
      await new RuntimeChooser({ ...ports, components, containers }).choose(pod, holder, signal);
    },
  };
}
