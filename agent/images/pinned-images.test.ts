import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { MemoryFiles } from "@picolet/test/support/unit/agent/memory-files.ts";
import { RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import fc from "fast-check";
import { PinnedImages } from "./pinned-images.ts";

const digest = `sha256:${"1".repeat(64)}`;

test("an image is pinned by any of its names, before it is there and over restarts", () => {
  const components = { files: new MemoryFiles(), log: new RecordedLog() };
  const pins = new PinnedImages(components);
  assert.equal(pins.set("busybox", true), "docker.io/library/busybox:latest");
  pins.set(`registry.example/app@${digest}`, true);
  const restarted = new PinnedImages(components);
  assert.deepEqual(restarted.names, ["docker.io/library/busybox:latest", `registry.example/app@${digest}`]);
  assert.equal(restarted.has({ tags: ["a.example/b:1", "docker.io/library/busybox:latest"], digests: [] }), true);
  assert.equal(restarted.has({ tags: [], digests: [`registry.example/app@${digest}`] }), true);
  assert.equal(restarted.has({ tags: ["docker.io/library/busybox:1"], digests: [] }), false);
  restarted.set("docker.io/library/busybox", false);
  assert.deepEqual(new PinnedImages(components).names, [`registry.example/app@${digest}`]);
});

test("what is no name, and the 257th, are refused", () => {
  const pins = new PinnedImages({ files: new MemoryFiles(), log: new RecordedLog() });
  assert.throws(
    () => pins.set("No Name", true),
    (error) => isPicoletError(error, "invalid"),
  );
  for (let index = 0; index < 256; index += 1) pins.set(`a.example/b:${index}`, true);
  assert.throws(
    () => pins.set("a.example/c", true),
    (error) => isPicoletError(error, "resource_exhausted"),
  );
  assert.equal(pins.names.length, 256);
});

test("a full disk changes nothing", () => {
  const files = new MemoryFiles();
  const pins = new PinnedImages({ files, log: new RecordedLog() });
  files.isFull = true;
  assert.throws(() => pins.set("busybox", true));
  assert.deepEqual(pins.names, []);
});

test("whatever is in the file, the names in it are pinned and nothing else", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.json(),
        fc.array(fc.string()).map((all) => JSON.stringify(all)),
      ),
      (text) => {
        const files = new MemoryFiles();
        files.files.set("pinned.json", text);
        const pins = new PinnedImages({ files, log: new RecordedLog() });
        assert.ok(pins.names.every((name) => text.includes(JSON.stringify(name).slice(1, -1)) || /\\u/.test(text)));
      },
    ),
  );
});
