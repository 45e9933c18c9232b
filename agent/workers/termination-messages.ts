import { describeError } from "@picolet/protocol/errors.ts";
import type { DesiredPod, ObservedContainer, ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { containersOf } from "../plan/container-roles.ts";
import type { WorkerPorts } from "./ports/worker-ports.ts";

const NONE: ReadonlyMap<string, string> = new Map();

/** What the ended containers of one pod left behind, each read once. */
export class TerminationMessages {
  readonly #ports: Pick<WorkerPorts, "terminationMessage" | "log">;
  /** By container id, "" included; of the containers that the runtime still has. */
  #known: ReadonlyMap<string, string> = NONE;

  constructor(ports: Pick<WorkerPorts, "terminationMessage" | "log">) {
    this.#ports = ports;
  }

  /** @returns by container id, without those that left nothing. */
  of(desired: DesiredPod, observed: ObservedPod | undefined): ReadonlyMap<string, string> {
    if (observed === undefined) return this.#known;
    const ended = observed.containers.filter((each) => each.state.kind === "exited");
    if (ended.length === 0) return NONE;
    const known = new Map(
      ended.map(
        (container) => [container.id, this.#known.get(container.id) ?? this.#read(desired, container)] as const,
      ),
    );
    this.#known = known;
    return new Map([...known].filter(([, message]) => message !== ""));
  }

  #read(desired: DesiredPod, ended: ObservedContainer): string {
    const container = containersOf(desired.pod).find((each) => each.name === ended.name);
    if (container === undefined) return "";
    try {
      return this.#ports.terminationMessage(desired, container, ended);
    } catch (error) {
      this.#ports.log.debug("cannot read a termination message", { pod: desired.uid, error: describeError(error) });
      return "";
    }
  }
}
