/** Anything may happen to the files at any time; when it is over, what is wanted is what they say. */

import assert from "node:assert/strict";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { test } from "node:test";
import { millis } from "@picolet/protocol/ports.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedEvents, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { MemoryDesiredStore } from "@picolet/test/support/unit/store/memory-desired-store.ts";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import fc from "fast-check";
import { FileSource } from "./file-source.ts";

const FILES = ["a", "b", "c"] as const;
type Name = (typeof FILES)[number];

const pod = (name: string, version: number): string =>
  `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}}\nspec:\n  containers:\n  - {name: app, image: "i:${version}"}\n`;

type Step =
  | { readonly do: "replace" | "write" | "other"; readonly name: Name; readonly version: number }
  | { readonly do: "cut"; readonly name: Name; readonly at: number }
  | { readonly do: "append"; readonly name: Name; readonly text: string }
  | { readonly do: "remove" | "folder" | "loop"; readonly name: Name }
  | { readonly do: "swap"; readonly name: Name; readonly with: Name }
  | { readonly do: "wait"; readonly ms: number }
  | { readonly do: "restart" };

const name = fc.constantFrom(...FILES);
const version = fc.integer({ min: 1, max: 3 });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constantFrom("replace" as const, "write" as const, "other" as const), name, version }),
  fc.record({ do: fc.constant("cut" as const), name, at: fc.nat(120) }),
  fc.record({ do: fc.constant("append" as const), name, text: fc.constantFrom("# x\n", "---\n", "x", pod("d", 1)) }),
  fc.record({ do: fc.constantFrom("remove" as const, "folder" as const, "loop" as const), name }),
  fc.record({ do: fc.constant("swap" as const), name, with: name }),
  fc.record({ do: fc.constant("wait" as const), ms: fc.constantFrom(1, 6, 50, 101, 1001) }),
  fc.record({ do: fc.constant("restart" as const) }),
);

class Bench implements AsyncDisposable {
  readonly folder = new TemporaryFolder();
  readonly clock = new VirtualClock(0);
  readonly store = new MemoryDesiredStore();
  #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor() {
    this.#start();
  }

  async take(each: Step): Promise<void> {
    if (each.do === "wait") await this.clock.advance(millis(each.ms));
    else if (each.do === "restart") {
      await this.#end();
      this.store.forgetSynced();
      this.#start();
    } else this.#change(each);
  }

  #change(each: Exclude<Step, { do: "wait" | "restart" }>): void {
    const path = this.folder.file(each.name);
    const isFile = existsSync(path) && each.do !== "folder" && each.do !== "loop";
    if (["write", "cut", "append"].includes(each.do) && !isFile) return;
    try {
      if (each.do === "write") writeFileSync(path, pod(each.name, each.version));
      else if (each.do === "cut") truncateSync(path, each.at);
      else if (each.do === "append") appendFileSync(path, each.text);
      else if (each.do === "swap") renameSync(path, this.folder.file(each.with));
      else {
        rmSync(path, { recursive: true, force: true });
        if (each.do === "replace") this.replace(each.name, pod(each.name, each.version));
        if (each.do === "other") this.replace(each.name, pod(FILES[each.version - 1] ?? "a", each.version));
        if (each.do === "folder") mkdirSync(path);
        if (each.do === "loop") symlinkSync(path, path);
      }
    } catch (error) {
      // A folder cannot be written to, and so on; nothing has happened then.
      assert.match(String(error), /EISDIR|ELOOP|ENOENT|ENOTDIR|ENOTEMPTY/);
    }
  }

  replace(file: string, text: string): void {
    writeFileSync(this.folder.file(`.${file}`), text);
    renameSync(this.folder.file(`.${file}`), this.folder.file(file));
  }

  get wanted(): string[] {
    const { pods } = this.store.desired.current;
    return [...pods.values()]
      .map(({ pod: { metadata, spec } }) => `${metadata.name}=${spec.containers[0]?.image}`)
      .toSorted();
  }

  #start(): void {
    this.#stop = new AbortController();
    const components = { clock: this.clock, log: new RecordedLog(), store: this.store, events: new RecordedEvents() };
    const init = { path: this.folder.path, nodeName: "n", checkFrequency: millis(10) };
    this.#running = endOfRun(new FileSource(components, init).run(this.#stop.signal));
  }

  async #end(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
    this.folder[Symbol.dispose]();
  }
}

test("whatever happens to the files, in the end what they say is wanted, and never two pods of one name", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 25 }), fc.subarray([...FILES]), async (steps, kept) => {
      await using bench = new Bench();
      const doubled: string[] = [];
      bench.store.onChange = ({ pods }) => {
        const names = [...pods.values()].map(({ pod: { metadata } }) => metadata.name);
        if (new Set(names).size < names.length) doubled.push(names.join());
      };
      for (const each of steps) await bench.take(each);
      for (const each of FILES) rmSync(bench.folder.file(each), { recursive: true, force: true });
      for (const each of kept) bench.replace(each, pod(each, 9));
      await bench.clock.advance(millis(3000));
      assert.deepEqual(doubled, []);
      assert.deepEqual(bench.wanted, kept.map((each) => `${each}-n=i:9`).toSorted());
    }),
    { numRuns: 60 },
  );
});
