/** Bundles `picolet-first-boot` into one file, which picolet's own Node runs. The image's build calls it. */
import { bundleProgram } from "@picolet/scripts/build/build.ts";

/** @param outfile where the program goes: `…/usr/lib/picolet-image/first-boot.cjs` */
export const buildFirstBoot = (outfile: string): Promise<void> =>
  bundleProgram("firmware/first-boot/first-boot-main.ts", outfile);
