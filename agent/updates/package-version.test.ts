import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { installedPackageVersion } from "./package-version.ts";

for (const [state, version] of [
  ["installed 1.2-1", "1.2-1"],
  // Its own script starts the agent.
  ["half-configured 1:1.2~rc1-1+deb13u1", "1:1.2~rc1-1+deb13u1"],
  // The power was lost before the script ran.
  ["unpacked 1.2-1", "1.2-1"],
  ["config-files 1.1-1", undefined],
  ["half-installed 1.1-1", undefined],
  ["", undefined],
] as const)
  test(`dpkg says "${state}": the version is ${version}`, async () => {
    using folder = new TempFolder();
    const program = folder.at("dpkg-query");
    writeFileSync(program, `#!/bin/sh\n[ "$1 $4" = "--show picolet" ] && printf %s '${state}'\n`, { mode: 0o755 });
    assert.equal(await installedPackageVersion(program), version);
  });

test("without dpkg, and without the package, there is no version", async () => {
  using folder = new TempFolder();
  assert.equal(await installedPackageVersion(folder.at("none")), undefined);
  const program = folder.at("dpkg-query");
  writeFileSync(program, "#!/bin/sh\necho 'no packages found matching picolet' >&2\nexit 1\n", { mode: 0o755 });
  assert.equal(await installedPackageVersion(program), undefined);
});
