import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { PART_NAMES } from "./bench-timetable.ts";

const WRONG_CALL = 64;

function bench(...args: readonly string[]): {
  readonly status: number | null;
  readonly out: string;
  readonly said: string;
} {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["scripts/suites/bench.ts", ...args], {
    encoding: "utf8",
  });
  return { status, out: stdout, said: stderr };
}

test("its help names every option and part", () => {
  const { status, out } = bench("--help");
  assert.equal(status, 0);
  for (const word of [
    "--only",
    "--quick",
    "--kubelet",
    "--out",
    "--no-judge",
    "soak -- --what growth",
    "--what disk",
  ]) {
    assert.ok(out.replaceAll(/\s+/g, " ").includes(word), word);
  }
  for (const name of PART_NAMES) assert.match(out, new RegExp(`^  ${name} \\(\\d+ s\\): `, "m"));
});

for (const [wrong, said] of [
  [["--fast"], /unknown flag --fast/],
  [["tunnel"], /takes no "tunnel"/],
  [["--only", "agent,tunnels"], /no part tunnels/],
  [["--only", "kubelet"], /needs --kubelet FILE/],
  [["--only", "edgectl", "--kubelet", "/nonexistent/kubelet"], /is no kubelet that runs here: .*ENOENT/],
  [["--only", "edgectl", "--kubelet", "/bin/false"], /is no kubelet that runs here/],
] as const) {
  test(`${wrong.join(" ")} is refused before anything is built or measured`, () => {
    const { status, out, said: message } = bench(...wrong);
    assert.deepEqual([status, out], [WRONG_CALL, ""]);
    assert.match(message, said);
  });
}
