/** `THIRD-PARTY-LICENSES`: the licence text of every package that a distribution has code of, and Node's own. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";

export interface LicensedPackage {
  readonly name: string;
  readonly version: string;
  /** SPDX expression. */
  readonly license: string;
  readonly text: string;
}

const TEXT_FILE = /^(?:un)?licen[cs]e|^copying|^notice/i;
const RULE = "=".repeat(80);

/** Packages with the same text share one section. */
export function thirdPartyLicenses(packages: readonly LicensedPackage[]): string {
  const names = new Map<string, string[]>();
  for (const each of packages) {
    names.set(each.text, [...(names.get(each.text) ?? []), `${each.name} ${each.version} (${each.license})`]);
  }
  const sections = [...names].map(([text, users]) => `${RULE}\n${users.join("\n")}\n${RULE}\n\n${text}\n`);
  return [
    "This distribution of picolet contains the software that is listed here, under the licences that follow it.\n",
    ...sections,
  ].join("\n");
}

/** @param folder of the package @throws `not_found` where it has no text */
export function licenseText(name: string, folder: string): string {
  const files = readdirSync(folder).filter((each) => TEXT_FILE.test(each));
  if (files.length === 0)
    throw new PicoletError("not_found", `the package ${name} brings no licence text in ${folder}`);
  return files.map((each) => readFileSync(join(folder, each), "utf8").trim()).join("\n\n");
}
