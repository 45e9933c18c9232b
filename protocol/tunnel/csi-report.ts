/**
 * Texts of a node report about CSI: `csi` has the drivers of the node, for its CSINode and its labels, `expandedClaims`
 * the claims whose volumes the node has expanded.
 */
import { parseQuantity } from "../kubernetes/quantity.ts";

/** Bounds the report's text. A driver is registered only if its share, a 64th, is enough. */
export const MAX_CSI_REPORT_LENGTH = 128 * 1024;
/** Bounds the report's text; further claims follow when the status of the first ones is written. */
export const MAX_EXPANDED_CLAIMS = 32;
export const MAX_EXPANDED_CLAIMS_LENGTH = 64 * 1024;
const MAX_DRIVERS = 64;
const MAX_TOPOLOGY_KEYS = 16;
/** Longest text of a name, a node ID, a label's key or a label's value. */
const MAX_TEXT = 317;

export interface CsiDriverReport {
  readonly name: string;
  readonly nodeID: string;
  /** Labels of the Node by which the driver's controller finds volumes that the node can use. */
  readonly topology: Readonly<Record<string, string>>;
  /** The most volumes that the node can have attached; 0: no limit. */
  readonly count: number;
}

/** A claim whose status shows a smaller capacity than its volume has on the node. */
export interface ExpandedClaim {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** The volume's capacity, a quantity. */
  readonly capacity: string;
}

/** @returns undefined for what is no report: a board may send anything */
export const parseCsiReport = (text: string): readonly CsiDriverReport[] | undefined =>
  parseList(text, MAX_DRIVERS, isDriver);

/** @returns undefined for what is no report: a board may send anything */
export const parseExpandedClaims = (text: string): readonly ExpandedClaim[] | undefined =>
  parseList(text, MAX_EXPANDED_CLAIMS, isExpandedClaim);

function parseList<T>(text: string, most: number, isItem: (value: unknown) => value is T): readonly T[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.length <= most && value.every(isItem) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isExpandedClaim(value: unknown): value is ExpandedClaim {
  if (typeof value !== "object" || value === null) return false;
  const { namespace, name, uid, capacity } = value as Readonly<Record<string, unknown>>;
  return isText(namespace) && isText(name) && isText(uid) && isText(capacity) && parseQuantity(capacity).ok;
}

function isDriver(value: unknown): value is CsiDriverReport {
  if (typeof value !== "object" || value === null) return false;
  const { name, nodeID, topology, count } = value as Readonly<Record<string, unknown>>;
  if (!isText(name) || !isText(nodeID) || !Number.isInteger(count) || (count as number) < 0) return false;
  if (typeof topology !== "object" || topology === null) return false;
  const labels = Object.entries(topology);
  return labels.length <= MAX_TOPOLOGY_KEYS && labels.every((label) => label.every(isText));
}

const isText = (value: unknown): value is string =>
  typeof value === "string" && value !== "" && value.length <= MAX_TEXT;
