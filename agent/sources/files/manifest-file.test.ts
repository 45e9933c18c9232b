/** When a file that changes is read, in the time of a test: only files are real. */
import assert from "node:assert/strict";
import { appendFileSync, renameSync, rmSync, truncateSync, utimesSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TemporaryFolder } from "@picolet/test/support/unit/store/store-samples.ts";
import { podsOf } from "../manifests/manifest-pods.ts";
import { ManifestFile } from "./manifest-file.ts";
import { listManifests, type ManifestEntry } from "./manifest-files.ts";

const POD =
  "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: app, image: example/app:1}\n";
const LONGER = `${POD}  - {name: second, image: example/second:1}\n`;

class Bench implements Disposable {
  readonly folder = new TemporaryFolder();
  readonly path = this.folder.file("web.yaml");
  readonly file = new ManifestFile(this.path);
  nowMs = 1000;

  /** @returns the result of a scan, whose `new` is committed at once */
  scan(): string {
    const scan = this.file.scan(this.entry(), {
      nodeName: "node",
      seenBefore: () => undefined,
      podsOf,
      nowMs: this.nowMs,
      // Long before the file was made: its age says nothing.
      now: new Date(0),
    });
    if (scan.kind === "new") {
      this.file.commit();
      return `new: ${scan.pods.map(({ pod }) => pod.spec.containers.length).join()}`;
    }
    if (scan.kind === "unsettled") return `unsettled: ${scan.waitMs}`;
    return [scan.kind, ...scan.problems.map(({ message }) => message.slice(0, 24))].join(": ");
  }

  entry(): ManifestEntry {
    const listing = listManifests(this.path, () => false);
    assert.ok(listing.kind === "file", listing.kind);
    const [entry] = listing.entries;
    assert.ok(entry !== undefined);
    return entry;
  }

  /** A file that has been read. */
  settled(text = LONGER): this {
    writeFileSync(this.path, text);
    this.scan();
    this.nowMs += 10_000;
    assert.match(this.scan(), /^new/);
    this.nowMs += 10_000;
    return this;
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

test("a new file is read after 5 ms of quiet", () => {
  using bench = new Bench();
  writeFileSync(bench.path, POD);
  assert.equal(bench.scan(), "unsettled: 5");
  bench.nowMs += 4;
  assert.equal(bench.scan(), "unsettled: 1");
  bench.nowMs += 1;
  assert.equal(bench.scan(), "new: 1");
  assert.equal(bench.scan(), "same");
});

test("time from the event counts, so that one look is enough", () => {
  using bench = new Bench();
  writeFileSync(bench.path, POD);
  bench.file.touch(bench.nowMs, true);
  bench.nowMs += 5;
  assert.equal(bench.scan(), "new: 1");
});

test("a file that was renamed to its place is read at once", () => {
  using bench = new Bench();
  writeFileSync(bench.path, POD);
  bench.file.touch(bench.nowMs, false);
  bench.nowMs += 1;
  assert.equal(bench.scan(), "new: 1");
  writeFileSync(bench.folder.file("other"), LONGER);
  renameSync(bench.folder.file("other"), bench.path);
  bench.nowMs += 1000;
  bench.file.touch(bench.nowMs, false);
  bench.nowMs += 1;
  assert.equal(bench.scan(), "new: 2");
});

test("an old file is read at the first look", () => {
  using bench = new Bench();
  writeFileSync(bench.path, POD);
  const made = bench.entry();
  assert.ok(made.kind === "file");
  const now = new Date(made.stamp.modifiedAtMs + 20);
  const scan = bench.file.scan(made, { nodeName: "node", seenBefore: () => undefined, podsOf, nowMs: 1, now });
  assert.equal(scan.kind, "new");
});

test("a file that is read again only when it has changed", () => {
  using bench = new Bench().settled();
  const entry = bench.entry();
  rmSync(bench.path);
  const init = { nodeName: "node", seenBefore: () => undefined, podsOf, nowMs: bench.nowMs, now: new Date(0) };
  assert.equal(bench.file.scan(entry, init).kind, "same", "it could not have been read");
});

test("a change in place waits for 100 ms of quiet", () => {
  using bench = new Bench().settled(POD);
  appendFileSync(bench.path, "  - {name: second, image: example/second:1}\n");
  assert.equal(bench.scan(), "unsettled: 100");
  bench.nowMs += 99;
  appendFileSync(bench.path, "  - {name: third, image: example/third:1}\n");
  assert.equal(bench.scan(), "unsettled: 100");
  bench.nowMs += 100;
  assert.equal(bench.scan(), "new: 3");
});

test("an emptied or shortened file waits a second for the rest, although what is there could be read", () => {
  for (const length of [0, POD.length]) {
    using bench = new Bench().settled();
    truncateSync(bench.path, length);
    assert.equal(bench.scan(), "unsettled: 1000", "half-written for now");
    bench.nowMs += 999;
    assert.equal(bench.scan(), "unsettled: 1");
    writeFileSync(bench.path, LONGER.replace("app:1", "app:2"));
    assert.match(bench.scan(), /^unsettled: 100$/);
    bench.nowMs += 100;
    assert.equal(bench.scan(), "new: 2");
  }
});

test("a file that stays empty is a problem, one that stays shorter is taken", () => {
  using emptied = new Bench().settled();
  truncateSync(emptied.path);
  emptied.scan();
  emptied.nowMs += 1000;
  assert.equal(emptied.scan(), "broken: holds no pod; to remove ");
  assert.equal(emptied.scan(), "same: holds no pod; to remove ");
  using shorter = new Bench().settled();
  truncateSync(shorter.path, POD.length);
  shorter.scan();
  shorter.nowMs += 1000;
  assert.equal(shorter.scan(), "new: 1");
});

test("a new file that cannot be read yet gets a second before it is called broken", () => {
  using bench = new Bench();
  writeFileSync(bench.path, POD.slice(0, -20));
  bench.scan();
  bench.nowMs += 5;
  assert.equal(bench.scan(), "unsettled: 995");
  appendFileSync(bench.path, POD.slice(-20));
  assert.equal(bench.scan(), "unsettled: 100", "it comes in pieces");
  bench.nowMs += 100;
  assert.equal(bench.scan(), "new: 1");
});

test("a broken file is broken once, and the good content that comes back is new", () => {
  using bench = new Bench().settled(POD);
  writeFileSync(bench.path, `${POD}  - {name: [], image: example/second:1}\n`);
  bench.scan();
  bench.nowMs += 1000;
  assert.match(bench.scan(), /^broken: spec.containers\[1\]/);
  assert.match(bench.scan(), /^same: spec.containers\[1\]/);
  writeFileSync(bench.path, POD);
  bench.scan();
  bench.nowMs += 1000;
  assert.equal(bench.scan(), "new: 1");
});

test("a touched file with the same content is the same", () => {
  using bench = new Bench().settled();
  utimesSync(bench.path, 1, 1);
  assert.equal(bench.scan(), "unsettled: 100");
  bench.nowMs += 100;
  assert.equal(bench.scan(), "same");
});

test("a file that is written to without an end is a problem after half a minute", () => {
  using bench = new Bench();
  let last = "";
  for (let n = 0; n < 800; n += 1) {
    appendFileSync(bench.path, "x");
    last = bench.scan();
    bench.nowMs += 50;
  }
  assert.match(last, /^unsettled/);
  const scan = bench.file.scan(bench.entry(), {
    nodeName: "node",
    seenBefore: () => undefined,
    podsOf,
    nowMs: bench.nowMs,
    now: new Date(0),
  });
  assert.ok(scan.kind !== "new");
  assert.match(scan.problems[0]?.message ?? "", /is being written to all the time/);
});

test("bytes that are no text, and one pod twice, are named", () => {
  for (const [content, problem] of [
    [Buffer.from([0xff, 0xfe, 0x41, 0x00]), /^broken: is no text: a manifest/],
    [Buffer.from(`${POD}---\n${POD}`), /^broken: metadata.name: Duplicate/],
    [
      Buffer.from(`${POD.replace("name: web", "name: a, uid: u")}---\n${POD.replace("name: web", "name: b, uid: u")}`),
      /^broken: metadata.uid: Duplicate/,
    ],
  ] as const) {
    using bench = new Bench();
    writeFileSync(bench.path, content);
    bench.scan();
    bench.nowMs += 1000;
    assert.match(bench.scan(), problem);
  }
});
