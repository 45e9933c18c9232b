import type { ObservedContainer, ObservedPod } from "../../runtime-adapters/contract/runtime-adapter.ts";

const NONE: ReadonlyMap<string, string> = new Map();

/** What the ended containers of one pod left behind, each read once. */
export class TerminationMessages {
  readonly #read: (ended: ObservedContainer) => string;
  /** By container id, "" included; of the containers that the runtime still has. */
  #known: ReadonlyMap<string, string> = NONE;

  constructor(read: (ended: ObservedContainer) => string) {
    this.#read = read;
  }

  /** @returns by container id, without those that left nothing. */
  of(observed: ObservedPod | undefined): ReadonlyMap<string, string> {
    if (observed === undefined) return this.#known;
    const ended = observed.containers.filter((each) => each.state.kind === "exited");
    if (ended.length === 0) return NONE;
    const known = new Map(
      ended.map((container) => [container.id, this.#known.get(container.id) ?? this.#read(container)] as const),
    );
    this.#known = known;
    return new Map([...known].filter(([, message]) => message !== ""));
  }
}
