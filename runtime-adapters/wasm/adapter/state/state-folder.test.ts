import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { StateFolder } from "./state-folder.ts";

const isRoot = process.getuid?.() === 0;

test("a runner opens in the folder of services only names that it knows", {
  skip: isRoot ? false : "only root can be another user",
}, () => {
  using folder = new TempFolder();
  execFileSync("chmod", ["755", folder.path]);
  const state = new StateFolder(folder.at("state"));
  // As an agent before this one has left it.
  mkdirSync(state.servicesDirectory, { recursive: true, mode: 0o755 });
  state.open("boot");
  writeFileSync(`${state.servicesDirectory}/device-of-another`, "", { mode: 0o644 });
  const asPod = (...command: string[]): string =>
    execFileSync("setpriv", ["--reuid", "65534", "--clear-groups", ...command], { encoding: "utf8", stdio: "pipe" });
  assert.equal(asPod("cat", `${state.servicesDirectory}/device-of-another`), "");
  assert.throws(() => asPod("ls", state.servicesDirectory), /Permission denied/);
});
