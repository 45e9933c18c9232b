/**
 * Waits for devices without polling in a loop: poll(2) runs on one of libuv's threads while there are waits. Node's
 * event loop itself takes no such open files.
 */
import { readSync, writeSync } from "node:fs";
import { POLLIN, type PollEntry, type SystemCalls } from "../system-calls.ts";

interface Wait extends PollEntry {
  readonly wake: () => void;
}

/** The size of an eventfd's counter. */
const COUNTER_BYTES = 8;

export class DeviceWaits {
  readonly #calls: SystemCalls;
  readonly #waits = new Set<Wait>();
  /** An eventfd that ends a running poll. */
  readonly #nudge: number;
  #polling = false;

  constructor(calls: SystemCalls) {
    this.#calls = calls;
    this.#nudge = calls.eventFd();
    // Node waits for its threads when it ends.
    process.once("exit", () => this.#interrupt());
  }

  /** @returns whether it is ready now, or broken */
  isReady(fd: number, events: number): boolean {
    return this.#calls.ready([{ fd, events }]).length > 0;
  }

  /** Calls `wake` once. @returns a function that cancels the wait */
  add(fd: number, events: number, wake: () => void): () => void {
    const wait = { fd, events, wake };
    this.#waits.add(wait);
    if (this.#polling) this.#interrupt();
    else this.#poll();
    return () => {
      // No descriptor may be closed while poll(2) uses it, and a poll for none would keep the process alive.
      if (this.#waits.delete(wait)) this.#interrupt();
    };
  }

  #poll(): void {
    const entries = [{ fd: this.#nudge, events: POLLIN }, ...this.#waits];
    this.#polling = true;
    this.#calls.readyLater(entries, () => {
      this.#polling = false;
      this.#calm();
      const ready = new Set(this.#calls.ready([...this.#waits]));
      const woken = [...this.#waits].filter((each) => ready.has(each));
      for (const each of woken) this.#waits.delete(each);
      for (const each of woken) each.wake();
      if (this.#waits.size > 0 && !this.#polling) this.#poll();
    });
  }

  #interrupt(): void {
    if (!this.#polling) return;
    const one = Buffer.alloc(COUNTER_BYTES);
    one.writeBigUInt64LE(1n);
    writeSync(this.#nudge, one);
  }

  #calm(): void {
    if (this.isReady(this.#nudge, POLLIN)) readSync(this.#nudge, Buffer.alloc(COUNTER_BYTES));
  }
}
