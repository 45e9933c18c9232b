/** The agent's end of the link to the hub: it brings changes, sends reports, and breaks off at any point. */
import type { RemoteObjects } from "@picolet/agent/core/hub/tunnel-ports.ts";
import type { Store } from "@picolet/agent/store/store.ts";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, millis, seconds } from "@picolet/protocol/ports.ts";
import { equalBytes } from "@picolet/protocol/tunnel/encoding/hex.ts";
import type { Dice } from "./dice.ts";
import type { Fence } from "./fence.ts";
import type { SimHub } from "./sim-hub.ts";

const RETRY = seconds(2);
const MAX_BATCH = 5;

export interface HubLinkComponents {
  readonly clock: Clock;
  readonly dice: Dice;
  readonly log: Log;
  readonly fence: Fence;
  readonly hub: SimHub;
  readonly objects: RemoteObjects;
  readonly statuses: Store["statuses"];
  /** Around each change of what is wanted. */
  readonly changing: (change: () => void) => void;
  readonly told: (status: ReturnType<Store["statuses"]["pending"]>[number]["value"]) => void;
}

export class HubLink {
  readonly #components: HubLinkComponents;
  readonly #alarm: Alarm;
  /** The epoch of the present session's hub. */
  #epoch: Uint8Array | undefined;

  constructor(components: HubLinkComponents) {
    this.#components = components;
    this.#alarm = new Alarm(components.clock);
  }

  async run(afterMs: number, signal: AbortSignal): Promise<void> {
    const { clock, hub, statuses } = this.#components;
    await clock.sleep(millis(afterMs), signal);
    await Promise.all([this.#follow(hub.changed, signal), this.#follow(statuses.latest, signal), this.#work(signal)]);
  }

  async #follow(watch: SimHub["changed"] | Store["statuses"]["latest"], signal: AbortSignal): Promise<void> {
    for await (const _ of watch.changes(signal)) this.#alarm.set(this.#components.dice.millis(0, 300));
  }

  async #work(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#alarm.ring(signal);
      if (!this.#components.hub.isReachable) continue;
      if (!this.#bring() || (await this.#tell(signal))) this.#alarm.set(RETRY);
      if (!this.#components.fence.step()) await new Promise(() => undefined);
    }
  }

  /** @returns false when the disk is full. */
  #bring(): boolean {
    const { hub, objects, changing, log, statuses } = this.#components;
    if (this.#epoch === undefined || !equalBytes(this.#epoch, hub.remote.epoch)) statuses.repeatGone();
    this.#epoch = hub.remote.epoch;
    try {
      changing(() => hub.remote.bringTo(objects));
      return true;
    } catch (error) {
      if (!isPicoletError(error, "resource_exhausted") && !isPicoletError(error, "corrupt")) throw error;
      log.warn("the disk is full", { source: "api" });
      return false;
    }
  }

  /** @returns whether there is more. */
  async #tell(signal: AbortSignal): Promise<boolean> {
    const { clock, dice, fence, hub, statuses, told } = this.#components;
    const batch = statuses.pending(dice.between(1, MAX_BATCH));
    const last = batch.at(-1);
    if (last === undefined) return false;
    await clock.sleep(dice.millis(0, 50), signal);
    for (const { value } of batch) {
      told(value);
      hub.receive(value);
    }
    if (!fence.step()) await new Promise(() => undefined);
    if (dice.chance(hub.lossiness)) return true;
    const refused = batch.filter(() => dice.chance(hub.lossiness)).map(({ value }) => value.uid);
    statuses.ack(last.sequence, new Set(refused));
    return statuses.pendingCount() > 0;
  }
}
