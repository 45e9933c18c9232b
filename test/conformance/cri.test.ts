/** The CRI adapter on a real containerd passes the suite of every adapter. */
import { after, before, test } from "node:test";
import { runtimeAdapterConformance } from "../../runtime-adapters/contract/conformance.ts";
import { Containerd, containerdMissing } from "../support/containerd.ts";
import { CriFixture } from "../support/cri-fixture.ts";

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
