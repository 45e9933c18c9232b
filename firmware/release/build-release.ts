/** `npm run release`: all that a user downloads, in `release/`. */
import { statSync } from "node:fs";
import { join } from "node:path";
import { describeError } from "@picolet/protocol/errors.ts";
import { buildPrograms } from "@picolet/scripts/build/build.ts";
import { PLATFORMS, type Platform, platformOf } from "@picolet/scripts/build/platform-parts.ts";
import { endWithUsageError, readOptions } from "@picolet/scripts/options.ts";
import { sourceEpoch } from "../packages/build-packages.ts";
import { makeRelease, readSigningKey } from "./release.ts";

const input = readOptions({
  name: "release",
  summary: "makes all that a user downloads",
  flags: [
    { name: "output", value: "DIR", help: "the folder, which is replaced (default release)" },
    { name: "platform", value: "PLATFORM", help: `${PLATFORMS.join(" or ")}; without it all of them` },
    { name: "add", value: "FILE", help: "a further file, such as a firmware image", repeats: true },
    { name: "signing-key", value: "FILE", help: "a private key of Ed25519 in PEM that signs the sums" },
  ],
});
const folder = input.text("output") ?? "release";
const [named, keyFile] = [input.text("platform"), input.text("signing-key")];
let platforms: readonly Platform[] = PLATFORMS;
try {
  if (named !== undefined) platforms = [platformOf(named)];
} catch (error) {
  endWithUsageError("release", error);
}
try {
  const signingKey = keyFile === undefined ? undefined : readSigningKey(keyFile);
  for (const platform of platforms) await buildPrograms(platform);
  const names = makeRelease({ folder, platforms, epoch: sourceEpoch(), add: input.texts("add"), signingKey });
  for (const name of names)
    console.log(`${join(folder, name)}: ${(statSync(join(folder, name)).size / 1e6).toFixed(1)} MB`);
  if (signingKey === undefined)
    console.error("warning: the release is not signed; --signing-key FILE signs it, and users can verify it then");
} catch (error) {
  console.error(describeError(error));
  process.exit(1);
}
