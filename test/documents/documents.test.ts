/**
 * Every command that a document shows is run as it is written, in the order of the documents, by one reader: in a clone
 * on a machine of its own, made of namespaces (`reader-machine.ts`).
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { before, test } from "node:test";
import { containerdMissing } from "../support/containerd/containerd.ts";
import { registryMissing } from "../support/containerd/real-registry.ts";
import { kubectlMissing } from "../support/hub/test-fleet.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { removeCgroups } from "../support/unit/machine/test-cgroups.ts";
import { stepsOf } from "./documented-steps.ts";
import { documents } from "./documents.ts";
import type { FollowedDocument } from "./reader-machine-main.ts";

const skip = containerdMissing() ?? registryMissing() ?? (kubectlMissing("1.32") || false);
const CGROUPS = "/sys/fs/cgroup";
const NAMESPACES = ["--mount", "--net", "--uts", "--ipc", "--pid", "--cgroup"];
const MAIN = "test/documents/reader-machine-main.ts";

const followed = new Map<string, FollowedDocument>();
const shown = documents().filter((path) =>
  stepsOf(readFileSync(path, "utf8")).some((step) => step.kind === "command" && step.notRun === undefined),
);

/** A cgroup on each hierarchy, which is the root of the machine's own. @returns their folders */
function makeCgroups(name: string): readonly string[] {
  const hierarchies = readdirSync(CGROUPS, { withFileTypes: true }).filter((each) => each.isDirectory());
  return hierarchies.map((hierarchy) => {
    const folder = join(CGROUPS, hierarchy.name, name);
    mkdirSync(folder);
    if (hierarchy.name === "cpuset")
      for (const file of ["cpuset.cpus", "cpuset.mems"])
        writeFileSync(join(folder, file), readFileSync(join(folder, "..", file), "utf8"));
    return folder;
  });
}

before(async () => {
  if (skip !== false) return;
  using folder = new TempFolder();
  const name = `picolet-documents-${process.pid}`;
  const cgroups = makeCgroups(name);
  const join = cgroups.map((each) => `echo $$ >${each}/cgroup.procs`).join("; ");
  const machine = ["unshare", ...NAMESPACES, "--fork", "--kill-child", "--mount-proc", "--propagation", "private"];
  // A shell is the first process there: it waits for those whose parents have ended.
  const reaper = ["sh", "-c", '"$@"; exit $?', "sh"];
  const child = spawn(
    "setpriv",
    [
      "--pdeathsig",
      "KILL",
      "sh",
      "-c",
      `${join}; exec "$@"`,
      "sh",
      ...machine,
      ...reaper,
      process.execPath,
      MAIN,
      folder.path,
      ...shown,
    ],
    { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, TMPDIR: folder.path } },
  );
  for await (const line of createInterface({ input: child.stdout })) {
    const result = JSON.parse(line) as FollowedDocument;
    followed.set(result.document, result);
  }
  await removeCgroups(`/${name}`);
});

for (const document of shown) {
  test(`${document}: every command does what it shows`, { skip }, (t) => {
    const result = followed.get(document);
    assert.ok(result !== undefined, "the reader never came to its end");
    t.diagnostic(`${result.ran.length} commands in ${result.seconds.toFixed(1)} s`);
    assert.equal(result.problems.join("\n\n"), "");
    assert.notEqual(result.ran.length, 0);
  });
}
