/** `npm run packages`: the .deb packages of agent and hub, from what `npm run build` makes. */
import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { describeError } from "@picolet/protocol/errors.ts";
import { buildPrograms, distributionFolder } from "@picolet/scripts/build/build.ts";
import { PLATFORMS, platformOf } from "@picolet/scripts/build/platform-parts.ts";
import { endWithUsageError, readOptions } from "@picolet/scripts/options.ts";
import { type PackOptions, pack } from "./debian-package.ts";
import { boardPackage, hubPackage, type PackagePlatform } from "./packages.ts";

/** Debian's packages of one platform, of what has been built for it. @returns their paths: board, hub */
export function makePackages(platform: PackagePlatform, folder: string, options: PackOptions): readonly string[] {
  const [board, hub] = [distributionFolder("board", platform), distributionFolder("hub", platform)];
  return [
    pack(boardPackage(board, platform, options.epoch), folder, options),
    pack(hubPackage(hub, platform, options.epoch), folder, options),
  ];
}

/** SOURCE_DATE_EPOCH, else the time of the commit: two builds of one commit make the same bytes. */
export function sourceEpoch(environment: Readonly<Record<string, string | undefined>> = process.env): number {
  const given = environment.SOURCE_DATE_EPOCH;
  if (given !== undefined && /^\d{1,10}$/.test(given)) return Number(given);
  return Number(execFileSync("git", ["log", "-1", "--format=%ct"], { encoding: "utf8" }));
}

if (import.meta.main) {
  const input = readOptions({
    name: "packages",
    summary: "makes the Debian packages picolet and picolet-hub",
    flags: [
      { name: "platform", value: "PLATFORM", help: `${PLATFORMS.join(" or ")}; without it all of them` },
      { name: "output", value: "DIR", help: "the folder that they are written to (default dist/packages)" },
    ],
  });
  const folder = input.text("output") ?? "dist/packages";
  const named = input.text("platform");
  let platforms: readonly PackagePlatform[] = PLATFORMS;
  try {
    if (named !== undefined) platforms = [platformOf(named)];
  } catch (error) {
    endWithUsageError("packages", error);
  }
  try {
    for (const platform of platforms) {
      await buildPrograms(platform);
      for (const path of makePackages(platform, folder, { epoch: sourceEpoch(), compression: "xz" }))
        console.log(`${path}: ${(statSync(path).size / 1e6).toFixed(1)} MB`);
    }
  } catch (error) {
    console.error(describeError(error));
    process.exit(1);
  }
}
