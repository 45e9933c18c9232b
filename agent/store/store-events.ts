import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { type EventRecorder, nodeReference } from "../core/store/store-ports.ts";
import type { StoreState } from "./store-file.ts";

/** Records events of the node about a store that was damaged, cannot be written, or is in memory. */
export class StoreEvents implements Component {
  readonly name = "store events";
  readonly #state: Watch<StoreState>;
  readonly #events: EventRecorder;
  readonly #nodeName: string;

  constructor(
    components: { readonly state: Watch<StoreState>; readonly events: EventRecorder },
    init: { readonly nodeName: string },
  ) {
    this.#state = components.state;
    this.#events = components.events;
    this.#nodeName = init.nodeName;
  }

  async run(signal: AbortSignal): Promise<void> {
    let before: StoreState | undefined;
    for await (const state of this.#state.changes(signal)) {
      this.#report(state, before);
      before = state;
    }
  }

  #report(state: StoreState, before: StoreState | undefined): void {
    switch (state.kind) {
      case "durable":
        if (state.opening.kind === "rebuilt") {
          const { reason, setAside, salvagedPods } = state.opening;
          const found = `${salvagedPods} of its pods could be read; the sources and what runs bring the others`;
          this.#record("Warning", "StoreRebuilt", `${reason}; the damaged file is now ${setAside}; ${found}`);
        } else if (before !== undefined && before.kind !== "durable") {
          this.#record("Normal", "StoreWritable", "what changes is on disk again");
        }
        return;
      case "unwritable":
        this.#record(
          "Warning",
          "StoreNotWritable",
          `changes of pods are refused until it can be written: ${state.reason}`,
        );
        return;
      case "inMemory":
        this.#record("Warning", "StoreInMemory", `what changes now is lost at the next power cut: ${state.reason}`);
    }
  }

  #record(type: "Normal" | "Warning", reason: string, message: string): void {
    const regarding = nodeReference(this.#nodeName);
    this.#events.record({ regarding, type, reason, message });
  }
}
