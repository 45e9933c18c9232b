import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { parseLeakedTask } from "./leaked-task.ts";

const ID = "6a1cb864666013e06b0f113ecb31e2fb157e0e7e41224fb99cadc5391444bf32";

test("the container that blocks a removal is read from containerd's message, and from no other", () => {
  const said = `failed to remove container "${ID}": cannot delete running task ${ID}: failed precondition`;
  assert.equal(parseLeakedTask(new PicoletError("failed", said)), ID);
  assert.equal(parseLeakedTask(new PicoletError("failed", "cannot delete running task x")), undefined);
  assert.equal(parseLeakedTask(new PicoletError("unavailable", "no socket")), undefined);
  assert.equal(parseLeakedTask(new Error(said)), undefined);
});
