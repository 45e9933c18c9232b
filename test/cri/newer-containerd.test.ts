/**
 * containerd 2 from Debian's unstable suite, on this kernel: what it has beyond containerd 1.6, and the suite of every
 * adapter with its events of CRI, of which crun gets a part. PICOLET_RUNTIME names another release, 1.7 at least, whose
 * gaps are asserted.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Mount } from "@picolet/runtime-contract/runtime-adapter.ts";
import { runtimeCgroupDriver } from "@picolet/runtime-cri/cgroup-driver.ts";
import { RuntimeService } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { GrpcClient } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { runtimeAdapterConformance } from "@picolet/runtime-test-kit/conformance/conformance.ts";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { CriFixture } from "../support/containerd/cri-fixture.ts";
import { CriPods } from "../support/containerd/cri-pods.ts";
import { PlainCri } from "../support/containerd/plain-cri.ts";
import { defaultRelease, type RuntimeReleaseName } from "../support/containerd/runtime-release.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { debianTreeMissing } from "../support/debian/debian-tree.ts";

const skip = containerdMissing() ?? debianTreeMissing() ?? false;
const asked = defaultRelease();
/** Cases of that suite that ask more of an OCI runtime than to start a container. */
const PART_WITH_CRUN = /^(CPU and memory of a running container|exec with a terminal)/;
const { signal } = new AbortController();
const TIMEOUT_MS = 60_000;
const USER_NAMESPACE = { hostId: 7 * 65_536, length: 65_536 };

if (asked !== "installed") describe(`newer containerd: ${asked}`, { skip }, () => testsOf(asked));
else {
  describe("newer containerd: containerd-2", { skip }, () => testsOf("containerd-2"));
  describe("newer containerd: containerd-2-crun", { skip }, () => testsOf("containerd-2-crun", PART_WITH_CRUN));
}

/** @param only the cases of the suite of every adapter with such names; undefined: all */
function testsOf(release: RuntimeReleaseName, only?: RegExp): void {
  let containerd: Containerd;
  let plain: PlainCri;
  let fixture: CriFixture;
  let cri: CriPods;
  let isTwo = false;
  /** For tests that the OCI runtime has no part in: the release with runc shows them. */
  const testOnce: typeof test | (() => void) = only === undefined ? test : () => undefined;

  before(async () => {
    containerd = await Containerd.start({ release });
    plain = await PlainCri.start(containerd.socketPath);
    fixture = new CriFixture(containerd);
    cri = new CriPods(fixture);
    isTwo = containerd.isAtLeast(2, 0);
  });
  after(async () => {
    await fixture?.[Symbol.asyncDispose]();
    plain?.[Symbol.dispose]();
    await containerd?.[Symbol.asyncDispose]();
  });

  const mountOf = (mount: Partial<Mount>): Mount => ({
    containerPath: "/mounted",
    hostPath: "",
    readOnly: false,
    propagation: "private",
    ...mount,
  });

  testOnce("its cgroup driver is reported from 2.0 on", async () => {
    const init = { endpoint: containerd.socketPath, requestTimeoutMs: 60_000 };
    const driver = await runtimeCgroupDriver({ clock: systemClock }, init, signal);
    assert.equal(driver, isTwo ? "cgroupfs" : undefined);
  });

  test("its handlers and features are reported from 2.0 on", async () => {
    const { runtime, handlers, supplementalGroupsPolicy } = await fixture.adapter.status(signal);
    assert.equal(runtime, "containerd");
    const own = handlers?.find(({ name }) => name === "runc");
    assert.equal(own?.userNamespaces, isTwo ? true : undefined);
    assert.equal(own?.recursiveReadOnlyMounts, isTwo ? true : undefined);
    assert.equal(supplementalGroupsPolicy, isTwo ? true : undefined);
  });

  testOnce("the resources of a sandbox are taken from 2.2 on, and without the call nothing fails", async () => {
    const pod = cri.podOf({});
    const podSandboxId = await cri.sandboxOf(pod);
    const resources = { cpuShares: 512, memoryLimitInBytes: 64 * 2 ** 20 };
    using client = new GrpcClient({ clock: systemClock }, { path: containerd.socketPath });
    const request = { podSandboxId, resources };
    const asked = client.unary(RuntimeService.updatePodSandboxResources, request, TIMEOUT_MS, signal);
    if (containerd.isAtLeast(2, 2)) await asked;
    else await assert.rejects(asked, { code: "unimplemented" });
    await fixture.adapter.apply(pod, { kind: "updateSandbox", sandboxId: podSandboxId }, signal);
  });

  /** More than the pipes between a container and containerd hold. containerd 1.6 does not wait for what is in them. */
  testOnce("all that a container wrote before its end is in its log", async () => {
    const pod = cri.podOf();
    await cri.sandboxOf(pod);
    const line = "0123456789abcde";
    const lines = 16 * 1024;
    const printed = await cri.output(pod, `yes ${line} | head -n ${lines} >/all; cat /all | tee /more`);
    assert.equal(printed, `${line}\n`.repeat(lines));
  });

  test("hostUsers: false: root of the pod is no root of the node, and its files are root's", async () => {
    const folder = await fixture.hostFolder("given", "from root");
    const pod = cri.podOf({}, { hostUsers: false });
    const made = cri.sandboxOf(pod, { userNamespace: USER_NAMESPACE });
    if (!isTwo) {
      await assert.rejects(made, { reason: "FailedCreatePodSandBox", message: /does not support user namespaces$/ });
      return;
    }
    await made;
    const script = "cat /proc/self/uid_map /proc/self/gid_map; stat -c %u /mounted/given; echo x >/mounted/new; id -u";
    const printed = await cri.output(pod, script, { mounts: [mountOf({ hostPath: folder })] });
    const { hostId, length } = USER_NAMESPACE;
    const words = printed.split(/\s+/).filter((word) => word !== "");
    assert.deepEqual(words, ["0", hostId, length, "0", hostId, length, "0", "0"].map(String));
    assert.equal(statSync(join(folder, "new")).uid, 0);
  });

  test("a recursive read-only mount is read-only in the mounts below it too", async () => {
    const folder = await fixture.hostFolder("given", "");
    const below = join(folder, "below");
    mkdirSync(below);
    execFileSync("mount", ["-t", "tmpfs", "tmpfs", below]);
    try {
      const write = "touch /mounted/x; touch /mounted/below/x; echo done";
      const outcome = async (recursiveReadOnly: boolean): Promise<string> => {
        const pod = cri.podOf();
        await cri.sandboxOf(pod);
        const mounts = [mountOf({ hostPath: folder, readOnly: true, recursiveReadOnly })];
        return cri.output(pod, write, { mounts });
      };
      assert.doesNotMatch(await outcome(false), /below/);
      if (isTwo) assert.match(await outcome(true), /\/mounted\/below\/x: Read-only file system/);
    } finally {
      execFileSync("umount", ["--lazy", below]);
    }
  });

  testOnce("from 2.1 on it mounts an image by itself", async () => {
    if (!containerd.isAtLeast(2, 1)) return;
    const pod = cri.podOf();
    await cri.sandboxOf(pod);
    const id = (await fixture.adapter.images.status(BUSYBOX_IMAGE, signal))?.id ?? "";
    const printed = await cri.output(pod, "ls /mounted/bin/sh; touch /mounted/x 2>&1", {
      mounts: [mountOf({ readOnly: true, image: { id, subPath: "" } })],
    });
    assert.match(printed, /\/mounted\/bin\/sh\n.*Read-only file system/);
  });

  test("groups of the image's user are taken with Merge alone, and the user is reported", async () => {
    const image = "localhost/groups:1";
    const files = { "bin/busybox": "/bin/busybox", "etc/group": join(fixture.directory, "group") };
    writeFileSync(files["etc/group"], "root:x:0:\nworker:x:1234:\nextra:x:4321:worker\n");
    const passwd = join(fixture.directory, "passwd");
    writeFileSync(passwd, "root:x:0:0::/:/bin/sh\nworker:x:1234:1234::/:/bin/sh\n");
    const links = { "bin/sh": "busybox", "bin/id": "busybox", "bin/sleep": "busybox" };
    const recipe = { name: image, files: { ...files, "etc/passwd": passwd }, links };
    containerd.importArchive(buildImageArchive(recipe, fixture.directory));
    const groupsWith = async (supplementalGroupsPolicy: string) => {
      const securityContext = { runAsUser: 1234, supplementalGroups: [60_000], supplementalGroupsPolicy };
      const pod = cri.podOf({ image }, { securityContext });
      await cri.sandboxOf(pod);
      const { id } = await cri.start(pod, { image: { requested: image, id: image } });
      const { user } = await cri.latest(pod);
      const { additionalGids = [] } = (containerd.specOf(id) as { process: { user: { additionalGids?: number[] } } })
        .process.user;
      return { user, hasImages: additionalGids.includes(4321), hasOwn: additionalGids.includes(60_000) };
    };
    const merged = await groupsWith("Merge");
    assert.deepEqual([merged.hasImages, merged.hasOwn], [true, true]);
    if (!isTwo) return;
    assert.deepEqual([merged.user?.uid, merged.user?.gid], [1234, 1234]);
    const strict = await groupsWith("Strict");
    assert.deepEqual([strict.hasImages, strict.hasOwn], [false, true]);
    assert.deepEqual(strict.user?.supplementalGroups.includes(4321), false);
  });

  testOnce("a pinned image is reported as pinned, and containerd goes on", async () => {
    const { images } = fixture.adapter;
    await images.setPinned(BUSYBOX_IMAGE, true, signal);
    await fixture.settle();
    const isPinned = async () =>
      (await images.list(signal)).some(({ tags, pinned }) => pinned && tags.includes(BUSYBOX_IMAGE));
    while (!(await isPinned())) await fixture.settle();
    await images.setPinned(BUSYBOX_IMAGE, false, signal);
  });

  testOnce("hints come by containerd's own events, and can be asked for", async () => {
    const abort = new AbortController();
    const reading = (async () => {
      for await (const _ of fixture.adapter.hints(abort.signal));
    })();
    while (!(await fixture.adapter.tryHints(AbortSignal.timeout(1_000)))) await fixture.settle();
    abort.abort();
    await reading;
  });

  runtimeAdapterConformance("CRI events", async () => new CriFixture(containerd, plain.socketPath), { only });
}
