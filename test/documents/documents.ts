import { execFileSync } from "node:child_process";

/** Documents that people read for what to type; README.md first, on which the others build. */
export function documents(): readonly string[] {
  const tracked = execFileSync("git", ["ls-files", "--", "*.md"], { encoding: "utf8" }).split("\n");
  const read = tracked.filter((path) => /(^|\/)README\.md$|^(CONTRIBUTING|SECURITY)\.md$|^docs\/[^/]*\.md$/.test(path));
  return read.toSorted((a, b) => Number(b === "README.md") - Number(a === "README.md"));
}
