import type { FleetIdentity } from "@picolet/protocol/tunnel/messages.ts";
import type { KnownFleet } from "../core/hub/tunnel-ports.ts";
import type { KeptRecords } from "../core/store/kept-records.ts";

const AREA = "fleet";
const KEY = "id";

/** Lost with the database, which then has no pods of that fleet either. */
export class KeptFleet implements KnownFleet {
  readonly #records: KeptRecords;

  constructor(records: KeptRecords) {
    this.#records = records;
  }

  get id(): string {
    const id = this.#records.all(AREA).get(KEY);
    return typeof id === "string" ? id : "";
  }

  set(id: string): void {
    this.#records.put(AREA, KEY, id, "soon");
  }
}

/**
 * Decides whether a node of the fleet `known` takes desired state from a hub. The first hub's fleet is accepted: its
 * certificate proves that it is the hub that the node joined.
 * @param known "" when the node knows none yet
 * @returns the fleet of the node from now on, or why it refuses this hub
 */
export function judgeFleet(
  known: string,
  announced: FleetIdentity | undefined,
): { readonly kind: "member"; readonly fleet: string } | { readonly kind: "foreign"; readonly problem: string } {
  if (known === "") return { kind: "member", fleet: announced?.id ?? "" };
  if (announced !== undefined && (announced.id === known || announced.former.includes(known))) {
    return { kind: "member", fleet: announced.id };
  }
  const other = announced === undefined ? "does not say which fleet it serves" : `serves fleet ${announced.id}`;
  const how = `start the hub with --adopt-fleet ${known}, or let the node join again with a new token`;
  const problem = `the hub ${other}, and this node belongs to fleet ${known}; its pods run on as they are (to move it: ${how})`;
  return { kind: "foreign", problem };
}
