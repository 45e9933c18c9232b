/** The `csi` field of a node report: the CSI drivers of the node, for its CSINode and its labels. */

/** Bounds the report's text. 64 drivers with 16 topology keys each have some 100 KiB at the worst. */
export const MAX_CSI_REPORT_LENGTH = 128 * 1024;
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

/** @returns undefined for what is no report: a board may send anything */
export function parseCsiReport(text: string): readonly CsiDriverReport[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.length <= MAX_DRIVERS && value.every(isDriver) ? value : undefined;
  } catch {
    return undefined;
  }
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
