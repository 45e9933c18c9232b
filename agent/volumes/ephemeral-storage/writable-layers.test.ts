import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseWritableLayers } from "./writable-layers.ts";

const line = (mountPoint: string, fileSystem: string, options: string): string =>
  `100 20 0:50 / ${mountPoint} rw,relatime shared:1 - ${fileSystem} overlay ${options}`;

test("the upper folder of a container's overlay is where its own writes lie", () => {
  const text = [
    line(
      "/run/task/k8s.io/abc/rootfs",
      "overlay",
      "rw,lowerdir=/a:/b,upperdir=/snapshots/7/fs,workdir=/snapshots/7/work",
    ),
    line("/run/task/k8s.io/def/rootfs", "overlay", "ro,lowerdir=/a:/b"),
    line("/run/task/k8s.io/ghi/rootfs", "ext4", "rw,upperdir=/no"),
    line("/merged", "overlay", "rw,upperdir=/somewhere"),
    line("/run/task/k8s.io/jkl/rootfs", "overlay", "rw,upperdir=relative"),
    line("/run/task/k8s.io/mno/rootfs", "overlay", "rw,upperdir=/with\\040space"),
  ].join("\n");
  assert.deepEqual(parseWritableLayers(text), new Map([["abc", "/snapshots/7/fs"]]));
});

test("whatever the kernel's text holds, only absolute folders come of it", () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 400 }), (text) => {
      for (const folder of parseWritableLayers(text).values()) assert.ok(folder.startsWith("/"));
    }),
  );
});
