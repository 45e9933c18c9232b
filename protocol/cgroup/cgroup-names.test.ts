import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPicoletError } from "../errors.ts";
import { cgroupNames, cgroupParent } from "./cgroup-names.ts";

const QOS = ["Guaranteed", "Burstable", "BestEffort"] as const;

test("cgroupfs: folders in folders", () => {
  const names = cgroupNames("cgroupfs", "/a/b/");
  assert.deepEqual(
    QOS.map((qos) => names.tier(qos)),
    ["/a/b/kubepods", "/a/b/kubepods/burstable", "/a/b/kubepods/besteffort"],
  );
  assert.equal(cgroupNames("cgroupfs", "").pod("Burstable", "1-2"), "/kubepods/burstable/pod1-2");
  assert.equal(cgroupNames("cgroupfs", "/").existing("/system.slice/sshd"), "/system.slice/sshd");
  assert.equal(cgroupParent("cgroupfs", "/kubepods/pod1.slice"), "/kubepods/pod1.slice");
});

test("systemd: slices in slices, each named after all that it is in", () => {
  const names = cgroupNames("systemd", "/");
  const pod = names.pod("Burstable", "1-2");
  assert.equal(pod, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice");
  assert.equal(names.pod("Guaranteed", "x"), "/kubepods.slice/kubepods-podx.slice");
  assert.equal(cgroupParent("systemd", pod), "kubepods-burstable-pod1_2.slice");
  const below = cgroupNames("systemd", "/edge-a/b");
  assert.equal(below.tier("Guaranteed"), "/edge_a.slice/edge_a-b.slice/edge_a-b-kubepods.slice");
  for (const name of ["/system.slice", "system.slice", "/system", "system"])
    assert.equal(names.existing(name), "/system.slice");
  assert.equal(names.existing("/a.slice/a-b.slice"), "/a.slice/a-b.slice");
});

test("a cgroup's name leads back to its pod; any other name leads nowhere", () => {
  const uid = fc.string({ unit: fc.constantFrom(..."abz019-.:"), minLength: 1, maxLength: 60 });
  fc.assert(
    fc.property(uid, fc.constantFrom(...QOS), fc.constantFrom("cgroupfs", "systemd"), (uid, qos, driver) => {
      fc.pre(uid !== "." && uid !== "..");
      const names = cgroupNames(driver, "/edge-1");
      const path = names.pod(qos, uid);
      assert.ok(path.startsWith(`${names.tier(qos)}/`));
      assert.equal(names.uidIn(path.slice(path.lastIndexOf("/") + 1)), uid);
    }),
  );
  for (const driver of ["cgroupfs", "systemd"] as const)
    for (const other of ["burstable", "kubepods-burstable.slice", "cri-containerd-1.scope", "pod", "x-pod.slice", ""])
      assert.equal(cgroupNames(driver, "/").uidIn(other), undefined, `${driver} ${other}`);
});

test("no uid leads elsewhere, or to a name that is no unit's", () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(..."a./\0_ \n-\\%@") }), (uid) => {
      for (const driver of ["cgroupfs", "systemd"] as const) {
        let path: string;
        try {
          path = cgroupNames(driver, "/").pod("Guaranteed", uid);
        } catch (error) {
          assert.ok(isPicoletError(error, "invalid"));
          continue;
        }
        assert.equal(path.split("/").length, 3, path);
        assert.ok(!path.includes("\0") && !path.split("/").includes(".."));
        if (driver === "systemd") assert.match(path, /^\/kubepods\.slice\/kubepods-pod[A-Za-z0-9.:_]+\.slice$/);
      }
    }),
  );
  for (const uid of ["", ".", "..", "a/b", "a\0"])
    assert.throws(() => cgroupNames("cgroupfs", "/").pod("Guaranteed", uid));
  // A dash becomes one: two uids would share a slice.
  for (const uid of ["a_b", "a b", "%n", "a".repeat(250)])
    assert.throws(() => cgroupNames("systemd", "/").pod("Guaranteed", uid));
});
