import type { ObservedPod } from "../../runtime-adapters/contract/runtime-adapter.ts";

const NONE: ReadonlyMap<string, string> = new Map();

/** What the ended containers of one pod left behind, each read once. */
export class TerminationMessages {
  readonly #read: (name: string, attempt: number) => string;
  /** By container id, "" included; of the containers that the runtime still has. */
  #known: ReadonlyMap<string, string> = NONE;

  constructor(read: (name: string, attempt: number) => string) {
    this.#read = read;
  }

  /** @returns by container id, without those that left nothing. */
  of(observed: ObservedPod | undefined): ReadonlyMap<string, string> {
    if (observed === undefined) return this.#known;
    const ended = observed.containers.filter((each) => each.state.kind === "exited");
    if (ended.length === 0) return NONE;
    const known = new Map(
      ended.map(({ id, name, attempt }) => [id, this.#known.get(id) ?? this.#read(name, attempt)] as const),
    );
    this.#known = known;
    return new Map([...known].filter(([, message]) => message !== ""));
  }
}
