/** Services for a component without an agent: a store that is empty at first, and a node without a hub. */
import { hostname } from "node:os";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { checkRecords } from "@picolet/protocol/telemetry/records.ts";
import type { BoardServices } from "@picolet/runtime-contract/board-services.ts";
import { NodeInfoService } from "../../node/node-info-service.ts";
import { KeyvalueService } from "../../store/keyvalue/keyvalue-service.ts";
import { TelemetryService } from "../../telemetry/telemetry-service.ts";

export class ToolServices implements Disposable {
  readonly services: BoardServices;
  readonly #log: Log;
  readonly #path: string;
  #keyvalue: KeyvalueService | undefined;

  /** @param path of the file that values are in, as long as the tool lives */
  constructor(log: Log, path: string) {
    this.#log = log;
    this.#path = path;
    const nodeInfo = new NodeInfoService(
      { conditions: () => [], labels: () => ({}), isClockSet: () => true, hub: () => "standalone" },
      { nodeName: hostname(), shownLabels: [] },
    );
    // Validated as on a node, and then dropped.
    const telemetry = new TelemetryService({
      put: async ({ number, records }) => {
        checkRecords(records.map(({ record }) => record));
        return { taken: number, kept: number };
      },
      labelsOf: () => [],
    });
    this.services = {
      keyvalue: () => this.#store(),
      "node-info": () => nodeInfo,
      telemetry: () => telemetry,
    };
  }

  #store(): KeyvalueService {
    const onDamage = (reason: string): void => this.#log.error("the values of the component are lost", { reason });
    this.#keyvalue ??= new KeyvalueService(
      { clock: systemClock, log: this.#log, namedBy: () => [], isClockSet: () => true, onDamage },
      { path: this.#path },
    );
    return this.#keyvalue;
  }

  [Symbol.dispose](): void {
    this.#keyvalue?.[Symbol.dispose]();
  }
}
