import { isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import type { Tags } from "@picolet/protocol/telemetry/records.ts";
import {
  type BoardService,
  type ServiceMessage,
  type ServicePeer,
  ServiceRefusal,
} from "@picolet/runtime-contract/board-services.ts";
import { readTelemetryPut, type TelemetryPutAnswer } from "@picolet/runtime-contract/telemetry-message.ts";
import type { TelemetryHandover } from "./handover.ts";

export interface TelemetryServiceComponents {
  readonly put: (handover: TelemetryHandover) => Promise<TelemetryPutAnswer>;
  /** @returns the labels of a pod of this node */
  readonly labelsOf: (uid: string) => Tags;
}

/** How long a component waits before it tries again while memory and disk are full. */
const RETRY_MS = 5000;

/** `telemetry.put` of runners (`runtime-adapters/contract/telemetry-message.ts`). */
export class TelemetryService implements BoardService {
  readonly #components: TelemetryServiceComponents;

  constructor(components: TelemetryServiceComponents) {
    this.#components = components;
  }

  async call(peer: ServicePeer, method: string, { value }: ServiceMessage): Promise<ServiceMessage> {
    if (method !== "put") throw new PicoletError("unimplemented", `telemetry has no method ${method}`);
    const { pod, container, containerId } = peer;
    try {
      const { run, number, firstUnkept, isUrgent, stamped } = readTelemetryPut(value);
      const labels = this.#components.labelsOf(pod.uid);
      const { taken, kept } = await this.#components.put({
        origin: { namespace: pod.namespace, pod: pod.name, uid: pod.uid, container, labels },
        // The id keeps a component from using another container's run.
        run: `${containerId.slice(0, 64)} ${run}`,
        ...{ number, firstUnkept, isUrgent, records: stamped },
      });
      return { value: { taken, kept }, bytes: [] };
    } catch (error) {
      if (isPicoletError(error, "invalid")) throw new ServiceRefusal("invalid", error.message);
      if (isPicoletError(error, "resource_exhausted")) throw new ServiceRefusal("full", RETRY_MS);
      throw error;
    }
  }
}
