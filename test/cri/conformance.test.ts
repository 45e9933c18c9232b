/**
 * The CRI adapter on a real containerd passes the suite of every adapter: with containerd's own services, and with CRI
 * alone.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { runtimeAdapterConformance } from "@picolet/runtime-test-kit/conformance/conformance.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { CriFixture } from "../support/containerd/cri-fixture.ts";
import { PlainCri } from "../support/containerd/plain-cri.ts";
import { defaultRelease, isAtLeast, runtimePrograms } from "../support/containerd/runtime-release.ts";

const missing = containerdMissing();
/** The first version of containerd that streams events of CRI. */
const CRI_EVENTS = [1, 7] as const;

if (missing !== undefined) {
  test("cri: the conformance suite", { skip: missing }, () => undefined);
} else {
  let containerd: Containerd;
  let plain: PlainCri;
  before(async () => {
    containerd = await Containerd.start();
    plain = await PlainCri.start(containerd.socketPath);
  });
  after(async () => {
    plain[Symbol.dispose]();
    await containerd[Symbol.asyncDispose]();
  });
  runtimeAdapterConformance("cri", async () => new CriFixture(containerd));
  const lacks = isAtLeast(runtimePrograms(defaultRelease()), ...CRI_EVENTS)
    ? {}
    : { hints: "this containerd streams no events of CRI: changes are found by relists" };
  runtimeAdapterConformance("plain cri", async () => new CriFixture(containerd, plain.socketPath), { lacks });

  test("plain cri: features of containerd's own services are skipped, or refused where a caller needs them", async () => {
    await using fixture = new CriFixture(containerd, plain.socketPath);
    const { signal } = new AbortController();
    const { adapter } = fixture;
    await adapter.freeRemoved(signal);
    assert.deepEqual(await adapter.endLeakedShims(signal), []);
    assert.equal(await adapter.images.progress("registry.example/app:1", signal), undefined);
    await assert.rejects(adapter.images.setPinned("registry.example/app:1", true, signal), { code: "unimplemented" });
    assert.equal(await adapter.tryHints(signal), false);
    const asked = ["containerd.services.leases.v1.Leases", "containerd.services.content.v1.Content"];
    for (const each of asked) assert.ok(plain.refused.has(each), each);
    // It is not asked again and again.
    plain.refused.clear();
    await adapter.freeRemoved(signal);
    await adapter.images.progress("registry.example/app:1", signal);
    assert.deepEqual([...plain.refused], []);
  });
}
