/** A disk as a power cut leaves it: what was not synced is there or not, each change for itself. */
import type { DurableFolder } from "@picolet/agent/security/durable-folder.ts";

export class PowerCut extends Error {}

type Names = Map<string, string>;
type Change = (names: Names) => void;

export class ModelFolder implements DurableFolder {
  #live: Names;
  #durable: Names;
  #pending: Change[] = [];
  #left: number;
  #failAt = Number.POSITIVE_INFINITY;
  readonly #survives: () => boolean;

  /**
   * @param steps after how many it is cut; the step that is cut off is half done
   * @param survives drawn for each change that was not synced
   */
  constructor(names: ReadonlyMap<string, string>, steps: number, survives: () => boolean) {
    this.#live = new Map(names);
    this.#durable = new Map(names);
    this.#left = steps;
    this.#survives = survives;
  }

  /** What is there after the cut. */
  afterCut(): ReadonlyMap<string, string> {
    const names = new Map(this.#durable);
    for (const change of this.#pending) if (this.#survives()) change(names);
    return names;
  }

  read(name: string): string | undefined {
    return this.#live.get(name);
  }

  write(name: string, text: string): void {
    const torn = text.slice(0, Math.floor(text.length / 2));
    if (this.#left <= 0) this.#change((names) => void names.set(name, torn));
    this.#step();
    this.#change((names) => void names.set(name, text));
  }

  rename(from: string, to: string): void {
    const text = this.#live.get(from);
    if (text === undefined) throw Object.assign(new Error("no such file"), { code: "ENOENT" });
    const change: Change = (names) => {
      // The file that had the name at that time, even if another name survives.
      if (names.get(from) === text) names.delete(from);
      names.set(to, text);
    };
    if (this.#left <= 0) this.#change(change);
    this.#step();
    this.#change(change);
  }

  remove(name: string): void {
    const change: Change = (names) => void names.delete(name);
    if (this.#left <= 0) this.#change(change);
    this.#step();
    this.#change(change);
  }

  sync(): void {
    this.#step();
    this.#durable = new Map(this.#live);
    this.#pending = [];
  }

  /** The step after so many more fails, that one alone. */
  failAt(steps: number): void {
    this.#failAt = steps;
  }

  #step(): void {
    this.#failAt -= 1;
    if (this.#failAt === -1) throw new Error("EIO: i/o error");
    if (this.#left <= 0) throw new PowerCut();
    this.#left -= 1;
  }

  #change(change: Change): void {
    change(this.#live);
    this.#pending.push(change);
  }
}
