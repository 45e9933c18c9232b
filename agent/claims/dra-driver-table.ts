import type { DraDriver, DraDrivers } from "./dra-driver.ts";

/** The drivers that have registered. Of several instances of a driver, as in a rolling update, the newest is used. */
export class DraDriverTable implements DraDrivers {
  /** By name, oldest first. */
  readonly #drivers = new Map<string, { readonly instance: string; readonly driver: DraDriver }[]>();

  readonly #listeners: (() => void)[] = [];

  /** @param listener is called for each change, and must not throw */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** All instances of all drivers. */
  all(): readonly { readonly name: string; readonly driver: DraDriver }[] {
    return [...this.#drivers].flatMap(([name, instances]) => instances.map(({ driver }) => ({ name, driver })));
  }

  driver(name: string): DraDriver | undefined {
    return this.#drivers.get(name)?.at(-1)?.driver;
  }

  /** @param instance its registration socket */
  set(name: string, instance: string, driver: DraDriver): void {
    this.remove(name, instance);
    this.#drivers.set(name, [...(this.#drivers.get(name) ?? []), { instance, driver }]);
    this.#changed();
  }

  remove(name: string, instance: string): void {
    const left = (this.#drivers.get(name) ?? []).filter((each) => each.instance !== instance);
    if (left.length > 0) this.#drivers.set(name, left);
    else this.#drivers.delete(name);
    this.#changed();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}
