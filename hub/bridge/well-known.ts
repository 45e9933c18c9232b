/** Names that the hub writes into Kubernetes or reads there. */

/**
 * On a Node: the name of the hub whose agents' node it is. A hub touches no node with another hub's name, or a
 * kubelet's.
 */
export const HUB_LABEL = "picolet.io/hub";
/** On a Node: the node's last report, as `packReport` makes it. */
export const REPORT_ANNOTATION = "picolet.io/node-report";
/** On a Node: a line for each device of the board, as `shownDevices` makes them. */
export const DEVICES_ANNOTATION = "picolet.io/devices";
/** On a Node: the board's own addresses as a JSON list of {type, address}; the Node's are those of the hub. */
export const BOARD_ADDRESSES_ANNOTATION = "picolet.io/board-addresses";
/** On a Pod or a Node, "true": evict the pods while the node is away, as Kubernetes does by default. */
export const EVICT_WHEN_AWAY_ANNOTATION = "picolet.io/evict-when-away";

export const CONFIG_HASH_ANNOTATION = "kubernetes.io/config.hash";
export const CONFIG_SOURCE_ANNOTATION = "kubernetes.io/config.source";
export const CONFIG_SEEN_ANNOTATION = "kubernetes.io/config.seen";

export { NODE_LEASE_NAMESPACE } from "@picolet/hub-core/access-table.ts";
export const NODE_GROUPS: readonly string[] = ["system:nodes", "system:authenticated"];
export const nodeUser = (node: string): string => `system:node:${node}`;
