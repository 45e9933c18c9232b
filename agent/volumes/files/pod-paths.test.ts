import assert from "node:assert/strict";
import { basename, dirname, relative } from "node:path";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import fc from "fast-check";
import { PodPaths } from "./pod-paths.ts";

const paths = new PodPaths({ rootDir: "/var/lib/picolet", podLogsDir: "/var/log/pods" });

test("everything is where the kubelet has it", () => {
  assert.equal(paths.pod("u"), "/var/lib/picolet/pods/u");
  assert.equal(paths.volume("u", "empty-dir", "data"), "/var/lib/picolet/pods/u/volumes/kubernetes.io~empty-dir/data");
  assert.equal(paths.etcHosts("u"), "/var/lib/picolet/pods/u/etc-hosts");
  assert.equal(paths.terminationLog("u", "app", 10), "/var/lib/picolet/pods/u/containers/app/0000000a");
  assert.equal(paths.subPath("u", "data", "app", 2), "/var/lib/picolet/pods/u/volume-subpaths/data/app/2");
  assert.equal(paths.logs(desired(podOf(), "u")), "/var/log/pods/default_web_u");
});

test("a log folder's name fits into a file system, and ends in the uid, however long the pod's name is", () => {
  const pod = desired(podOf({}, { name: "n".repeat(253), namespace: "s".repeat(63) }));
  const name = basename(paths.logs(pod));
  assert.equal(Buffer.byteLength(name), 255);
  assert.ok(name.startsWith(`${"s".repeat(63)}_nnn`) && name.endsWith(`_${pod.uid}`));
});

test("no uid and no name leads out of the pods' folder", () => {
  const odd = fc.array(fc.constantFrom("..", ".", "/", "\0", "a", "_", "\n", "é")).map((parts) => parts.join(""));
  const inside = (make: () => string): void => {
    let path: string;
    try {
      path = make();
    } catch (error) {
      assert.ok(isPicoletError(error, "invalid"));
      return;
    }
    assert.doesNotMatch(relative(paths.podsDir, path), /^(\.\.(\/|$)|\/|$)/);
  };
  fc.assert(
    fc.property(odd, odd, odd, (uid, volume, container) => {
      inside(() => paths.pod(uid));
      inside(() => paths.volume(uid, "secret", volume));
      inside(() => paths.subPath(uid, volume, container, 0));
      inside(() => paths.terminationLog(uid, container, 1));
      inside(() => {
        const logs = paths.logs(desired({ ...podOf(), metadata: { ...podOf().metadata, name: volume } }, uid));
        assert.equal(dirname(logs), "/var/log/pods");
        return paths.pod("x");
      });
    }),
  );
});
