/** The CRI adapter on a real containerd passes the suite of every adapter. */
import { after, before, test } from "node:test";
import { runtimeAdapterConformance } from "@picolet/runtime-test-kit/conformance/conformance.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { CriFixture } from "../support/containerd/cri-fixture.ts";

const missing = containerdMissing();

if (missing !== undefined) {
  test("cri: the conformance suite", { skip: missing }, () => undefined);
} else {
  let containerd: Containerd;
  before(async () => {
    containerd = await Containerd.start();
  });
  after(() => containerd[Symbol.asyncDispose]());
  runtimeAdapterConformance("cri", async () => new CriFixture(containerd));
}
