/**
 * The check for code written twice: what the product and its scripts share must stand in one place. Tests may repeat
 * themselves. Before it judges the tree it judges a canary, a file beside its copy; a check that passes that fails.
 */
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Shorter runs are idioms and import lists. */
const MIN_LINES = 6;
const MIN_TOKENS = 60;
const LEFT_OUT = "**/*.test.ts,**/test-kit/conformance/**,**/node_modules/**,**/dist/**,test/**";

/** @returns whether anything in `folder` stands twice; it is listed on standard output then */
function hasDuplicates(folder: string): boolean {
  const size = ["--min-lines", String(MIN_LINES), "--min-tokens", String(MIN_TOKENS)];
  const where = ["--format", "typescript", "--ignore", LEFT_OUT];
  const report = ["--reporters", "console", "--exit-code", "1"];
  const { status, stdout } = spawnSync("jscpd", [...size, ...where, ...report, folder], { encoding: "utf8" });
  if (status !== 0 && status !== 1) throw new Error(`jscpd ended with ${status}: ${stdout}`);
  if (!/Files analyzed/.test(stdout)) throw new Error(`jscpd analyzed no file in ${folder}`);
  if (status === 1) console.log(stdout);
  return status === 1;
}

function seesCanary(): boolean {
  const folder = mkdtempSync(join(tmpdir(), "picolet-canary-"));
  try {
    for (const copy of ["one.ts", "two.ts"]) copyFileSync(import.meta.filename, join(folder, copy));
    return spawnSync("jscpd", ["--min-lines", String(MIN_LINES), "--exit-code", "1", folder]).status === 1;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

if (!seesCanary()) {
  console.error("the check for duplicates does not see a file beside its copy");
  process.exit(1);
}
if (hasDuplicates(".")) process.exit(1);
