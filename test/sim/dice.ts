/** The random draws of a simulation, from one seed. */
import { type Millis, millis, type Random } from "@picolet/protocol/ports.ts";
import { seededRandom } from "../support/unit/ports/seeded-random.ts";

export class Dice implements Random {
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
  }

  next(): number {
    return this.#random.next();
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** A whole number, both ends included. */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  millis(least: number, most: number): Millis {
    return millis(this.between(least, most));
  }

  pick<T>(from: readonly T[]): T {
    const picked = from[this.between(0, from.length - 1)];
    if (picked === undefined) throw new Error("nothing to pick from");
    return picked;
  }
}
