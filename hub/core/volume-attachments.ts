/** Names by which the attach/detach controller, a node and a driver's attacher know an attached CSI volume. */
import { hash } from "node:crypto";

/** The annotation by which a node says that a controller attaches its volumes. Kubernetes' passes over other nodes. */
export const CONTROLLER_ATTACHES = "volumes.kubernetes.io/controller-managed-attach-detach";

export const attachmentName = (driver: string, handle: string, node: string): string =>
  `csi-${hash("sha256", `${handle}${driver}${node}`)}`;

const PREFIX = "kubernetes.io/csi/";

/** The volume's name in a Node's `volumesAttached` and `volumesInUse`. */
export const attachedVolumeName = (driver: string, handle: string): string => `${PREFIX}${driver}^${handle}`;

/** @returns undefined for a volume of another plugin */
export function parseAttachedVolumeName(
  name: string,
): { readonly driver: string; readonly handle: string } | undefined {
  const at = name.indexOf("^");
  if (!name.startsWith(PREFIX) || at < 0) return undefined;
  return { driver: name.slice(PREFIX.length, at), handle: name.slice(at + 1) };
}
