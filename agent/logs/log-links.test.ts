/** On a real folder. */

import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readlinkSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import { millis } from "@picolet/protocol/ports.ts";
import type { ObservedPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { endOfRun } from "@picolet/test/support/unit/ports/end-of-run.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import type { PodView } from "../plan/pod-view.ts";
import { LogLinks, linkName } from "./log-links.ts";

class Bench implements AsyncDisposable {
  readonly clock = new VirtualClock();
  readonly log = new RecordedLog();
  readonly folder = new TempFolder();
  views: readonly PodView[] = [];
  isSettled = true;
  readonly #changes = new WatchSource(0);
  readonly #life = new AbortController();
  #running: Promise<void> | undefined;

  constructor() {
    mkdirSync(this.folder.at("pods/web"), { recursive: true });
  }

  /** @param ids ids of containers with a log; one that ends with `!` was made and has not run. `undefined`: unknown. */
  view(uid: string, ids: readonly string[] | undefined): PodView {
    for (const id of ids ?? []) writeFileSync(this.logOf(id), "");
    const containers = ids?.map((id) => ({
      ...{ name: "app", id, logPath: this.logOf(id) },
      state: { kind: id.endsWith("!") ? "created" : "running" },
    }));
    const observed = containers && ({ sandboxes: [], containers } as unknown as ObservedPod);
    return { desired: desired(podOf(undefined, { name: uid }), uid), observed } as PodView;
  }

  logOf(id: string): string {
    return this.folder.at("pods/web", `${id}.log`);
  }

  get links(): string[] {
    return readdirSync(this.folder.at("containers")).sort();
  }

  async run(): Promise<void> {
    const links = new LogLinks(
      {
        views: () => this.views,
        changes: this.#changes,
        isSettled: () => this.isSettled,
        clock: this.clock,
        log: this.log,
      },
      { folder: this.folder.at("containers"), podLogsDir: this.folder.at("pods") },
    );
    this.#running = endOfRun(links.run(this.#life.signal));
    await this.clock.settle();
  }

  async show(...views: readonly PodView[]): Promise<void> {
    this.views = views;
    this.#changes.set(this.#changes.current + 1);
    await this.clock.settle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    await this.#running;
    this.folder[Symbol.dispose]();
  }
}

test("every container that has run has a link to its log, for as long as it is there", async () => {
  await using bench = new Bench();
  await bench.run();
  await bench.show(bench.view("web", ["1", "2!"]), bench.view("db", ["3"]));
  assert.deepEqual(bench.links, ["db_default_app-3.log", "web_default_app-1.log"]);
  assert.equal(readlinkSync(bench.folder.at("containers/web_default_app-1.log")), bench.logOf("1"));
  await bench.show(bench.view("web", ["1", "2"]));
  assert.deepEqual(bench.links, ["web_default_app-1.log", "web_default_app-2.log"]);
  await bench.show(bench.view("web", undefined));
  assert.equal(bench.links.length, 2, "a runtime that cannot be asked takes no link away");
  bench.views = [bench.view("web", ["2"])];
  await bench.clock.advance(millis(10_000));
  assert.deepEqual(bench.links, ["web_default_app-2.log"], "looked at again after the last change");
  assert.deepEqual(bench.log.problems, []);
});

test("links of before are swept: those that lead nowhere at once, the others when it is known what runs", async () => {
  await using bench = new Bench();
  bench.isSettled = false;
  mkdirSync(bench.folder.at("containers"));
  const link = (name: string, target: string): void => symlinkSync(target, bench.folder.at("containers", name));
  bench.view("web", ["1", "2"]);
  link("web_default_app-1.log", bench.logOf("1"));
  link("web_default_app-2.log", bench.logOf("2"));
  link("web_default_app-3.log", bench.logOf("3"));
  link("foreign.log", "/nowhere/else.log");
  writeFileSync(bench.folder.at("containers/file.log"), "");
  await bench.run();
  const others = ["file.log", "foreign.log"];
  assert.deepEqual(bench.links, [...others, "web_default_app-1.log", "web_default_app-2.log"]);
  bench.isSettled = true;
  await bench.show(bench.view("web", ["1"]));
  assert.deepEqual(bench.links, [...others, "web_default_app-1.log"]);
});

test("a folder that cannot be made is said once, and harms nothing", async () => {
  await using bench = new Bench();
  writeFileSync(bench.folder.at("containers"), "");
  await bench.run();
  await bench.show(bench.view("web", ["1"]));
  assert.deepEqual(bench.log.problems, ["cannot keep links to logs"]);
});

test("a name is cut where the kubelet cuts it, and is one name", () => {
  const view = { desired: desired(podOf(undefined, { name: "p".repeat(253) })) } as PodView;
  const name = linkName(view, { name: "app", id: "1" } as never);
  assert.equal(name?.length, 255);
  assert.ok(name?.endsWith("pp.log"));
  assert.equal(linkName(view, { name: "app", id: "../../x" } as never), undefined);
});
