import assert from "node:assert/strict";
import { existsSync, fstatSync, openSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { startRunner } from "./start-runner.ts";

test("a start that was given up before its turn came starts nothing and waits for nothing", async () => {
  using folder = new TempFolder();
  const fatalFd = openSync(folder.at("fatal"), "a");
  const clock = { sleep: () => assert.fail("it waits") };
  const place = { directory: folder.path, exitPath: folder.at("exit"), oomScoreAdj: 0 };
  const reaper = { ...place, procsFiles: [], command: ["true"] };
  const onReaperEnd = (): void => assert.fail("it has started");
  const start = { reaper, fatalFd, timeout: millis(60_000), onReaperEnd };
  await assert.rejects(startRunner(clock, start, AbortSignal.abort()), (error) => isPicoletError(error, "cancelled"));
  assert.equal(existsSync(folder.at("reaper")), false);
  assert.throws(() => fstatSync(fatalFd), /EBADF/);
});
