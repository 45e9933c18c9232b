/** `npm run hub-image`: the container image of picolet-hub for all platforms, without Docker. */
import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describeError } from "@picolet/protocol/errors.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { buildPrograms, distributionFolder } from "@picolet/scripts/build/build.ts";
import { PLATFORMS, platformOf } from "@picolet/scripts/build/platform-parts.ts";
import { endWithUsageError, readOptions } from "@picolet/scripts/options.ts";
import { sourceEpoch } from "../packages/build-packages.ts";
import { basePackages, hubImage, type ImagePlatform, imageBillOfMaterials, LABELS } from "./hub-image.ts";
import { OciLayout, packLayers } from "./oci-layout.ts";

export const IMAGE_NAME = `docker.io/library/picolet-hub:${VERSION}`;

export interface HubImageFiles {
  /** The OCI layout with the index of all platforms. */
  readonly layout: string;
  /** One for each platform. */
  readonly archives: readonly {
    readonly platform: ImagePlatform;
    readonly file: string;
    readonly compressedBytes: number;
  }[];
  /** Bills of materials in CycloneDX. */
  readonly bills: readonly string[];
}

/**
 * Makes it of what has been built for the platforms.
 * @param folder gets `picolet-hub/`, the layout, and for each platform an archive and a bill of materials
 */
export function makeHubImage(
  platforms: readonly ImagePlatform[],
  folder: string,
  epoch: number,
  level?: number,
): HubImageFiles {
  mkdirSync(folder, { recursive: true });
  const all = new OciLayout(join(folder, "picolet-hub"));
  const made = [];
  for (const platform of platforms) {
    const distribution = distributionFolder("hub", platform);
    const packages = basePackages(platform);
    const image = packLayers(hubImage({ platform, distribution, packages, epoch }), level);
    all.add(image);
    const base = join(folder, `picolet-hub-${VERSION}-image-linux-${image.architecture}`);
    const one = new OciLayout(`${base}.partial`);
    const { compressedBytes } = one.add(image);
    one.finish(IMAGE_NAME, LABELS);
    one.archive(`${base}.tar`, epoch);
    rmSync(one.folder, { recursive: true });
    const bill = imageBillOfMaterials(distribution, packages, image.architecture);
    writeFileSync(`${base}.cdx.json`, `${JSON.stringify(bill, undefined, 1)}\n`);
    made.push({ platform, file: `${base}.tar`, compressedBytes, bill: `${base}.cdx.json` });
  }
  all.finish(IMAGE_NAME, LABELS);
  return { layout: all.folder, archives: made, bills: made.map(({ bill }) => bill) };
}

if (import.meta.main) {
  const input = readOptions({
    name: "hub-image",
    summary: "makes the container image of picolet-hub",
    flags: [
      { name: "platform", value: "PLATFORM", help: `${PLATFORMS.join(" or ")}; without it all of them` },
      { name: "output", value: "DIR", help: "the folder that it is written to (default dist/hub-image)" },
    ],
  });
  const named = input.text("platform");
  let platforms: readonly ImagePlatform[] = PLATFORMS;
  try {
    if (named !== undefined) platforms = [platformOf(named)];
  } catch (error) {
    endWithUsageError("hub-image", error);
  }
  try {
    for (const platform of platforms) await buildPrograms(platform);
    const { layout, archives } = makeHubImage(platforms, input.text("output") ?? "dist/hub-image", sourceEpoch());
    for (const { file, compressedBytes } of archives)
      console.log(
        `${file}: ${(statSync(file).size / 1e6).toFixed(1)} MB, layers ${(compressedBytes / 1e6).toFixed(1)} MB`,
      );
    console.log(`${layout}: OCI layout of ${archives.length === 1 ? "this platform" : "all platforms"}`);
  } catch (error) {
    console.error(describeError(error));
    process.exit(1);
  }
}
