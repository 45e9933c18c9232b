import assert from "node:assert/strict";
import { test } from "node:test";
import { refuseDense } from "./dense-refusals.ts";

const NOTHING = { ownCpus: false, devices: false, p3: false, unjailed: undefined };

test("what a shared process can have is not refused", () => refuseDense(NOTHING));

test("where no jail can be made it is refused at once, with why and what to do, as its user could open nothing", () => {
  const unjailed = "util-linux is not whole: unshare not found";
  assert.throws(() => refuseDense({ ...NOTHING, unjailed }), {
    code: "invalid",
    reason: "CreateContainerConfigError",
    message:
      /another user than root where no jail can be made \(util-linux is not whole: unshare not found\).*mode: isolated/,
  });
});

test("all of it is told at once", () => {
  const all = { ownCpus: true, devices: true, p3: true, unjailed: "the kernel refuses" };
  assert.throws(() => refuseDense(all), /CPUs of its own.*devices.*WASI 0\.3.*the kernel refuses/);
});
