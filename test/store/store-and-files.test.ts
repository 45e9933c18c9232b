/** The real store under the real file source: what runs goes on through restarts, broken files and a damaged store. */

import assert from "node:assert/strict";
import { mkdirSync, renameSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import type { DesiredSnapshot } from "@picolet/agent/core/store/store-ports.ts";
import { FileSource } from "@picolet/agent/sources/files/file-source.ts";
import { Store } from "@picolet/agent/store/store.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { endOfRun } from "../support/unit/ports/end-of-run.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";
import { VirtualClock } from "../support/unit/ports/virtual-clock.ts";
import { TemporaryFolder } from "../support/unit/store/store-samples.ts";

const pod = (name: string, image: string): string =>
  `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}}\nspec:\n  containers:\n  - {name: app, image: "${image}"}\n`;

const shown = ({ pods, synced }: DesiredSnapshot): string =>
  [...pods.values()]
    .map(({ pod: { metadata, spec } }) => `${metadata.name}=${spec.containers[0]?.image}`)
    .toSorted()
    .concat([...synced])
    .join(" ");

class Agent implements AsyncDisposable {
  readonly #stop = new AbortController();
  readonly clock = new VirtualClock(0);
  readonly store: Store;
  readonly source: FileSource;
  readonly #running: Promise<unknown>;

  constructor(folder: TemporaryFolder) {
    const { clock } = this;
    const log = new RecordedLog();
    this.store = new Store({ clock, log }, { path: folder.file("root/picolet.db") });
    const { desired, events } = this.store;
    const init = { path: folder.file("manifests"), nodeName: "n", checkFrequency: millis(10) };
    this.source = new FileSource({ clock, log, store: desired, events }, init);
    this.#running = Promise.all([
      endOfRun(this.store.run(this.#stop.signal)),
      endOfRun(this.source.run(this.#stop.signal)),
    ]);
  }

  async after(ms: number): Promise<string> {
    await this.clock.advance(millis(ms));
    return shown(this.store.desired.desired.current);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await this.source[Symbol.asyncDispose]();
    await this.store[Symbol.asyncDispose]();
    assert.equal(this.clock.sleeping, 0);
  }
}

test("over restarts, a broken file, a folder that is away and a lost store", async () => {
  using folder = new TemporaryFolder();
  const manifests = folder.file("manifests");
  mkdirSync(manifests);
  const write = (name: string, text: string): void => {
    writeFileSync(`${manifests}/${name}`, text);
    utimesSync(`${manifests}/${name}`, 1, 1);
  };
  write("a.yaml", pod("a", "i:1"));
  write("b.yaml", pod("b", "i:1"));
  {
    await using agent = new Agent(folder);
    assert.equal(await agent.after(2000), "a-n=i:1 b-n=i:1 file");
  }
  write("a.yaml", "kind: [");
  {
    await using agent = new Agent(folder);
    assert.equal(shown(agent.store.desired.desired.current), "a-n=i:1 b-n=i:1", "before any source has spoken");
    assert.equal(await agent.after(2000), "a-n=i:1 b-n=i:1 file", "the last good version");
    const [event] = agent.store.events.list({ name: "a-n", limit: 9 });
    assert.equal(event?.reason, "InvalidManifest");
    rmSync(`${manifests}/b.yaml`);
    assert.equal(await agent.after(2000), "a-n=i:1 file");
    assert.equal(agent.store.desired.desired.current.removed.size, 1);
  }
  renameSync(manifests, `${manifests}-away`);
  {
    await using agent = new Agent(folder);
    assert.equal(await agent.after(2000), "a-n=i:1");
  }
  renameSync(`${manifests}-away`, manifests);
  // The store's file is lost; the pods that run are found after the source has spoken.
  const known = await (async () => {
    await using agent = new Agent(folder);
    await agent.after(2000);
    return [...agent.store.desired.desired.current.pods.values()];
  })();
  writeFileSync(folder.file("root/picolet.db"), "not a database");
  {
    await using agent = new Agent(folder);
    assert.equal(await agent.after(2000), "file");
    agent.store.desired.adopt(known);
    assert.equal(await agent.after(2000), "a-n=i:1 file", "the file is still broken, the pod goes on");
    write("a.yaml", pod("a", "i:2"));
    assert.equal(await agent.after(2000), "a-n=i:2 file");
  }
});
