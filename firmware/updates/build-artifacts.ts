/** `npm run artifacts`: bundles and packages as OCI layouts, for skopeo to copy into a registry. */
import { join } from "node:path";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import { readOptions } from "@picolet/scripts/options.ts";
import { type WrittenArtifact, writePackageArtifact, writeSystemArtifact } from "./oci-artifact.ts";

if (import.meta.main) {
  const input = readOptions({
    name: "artifacts",
    summary: "writes updates as OCI layouts, which skopeo copies into a registry",
    flags: [
      { name: "os", value: "FILE", help: "a bundle of a system, made by RAUC; one for each board", repeats: true },
      { name: "package", value: "FILE", help: "a Debian package of the agent; one an architecture", repeats: true },
      { name: "signing-key", value: "FILE", help: "PEM of the Ed25519 key that packages are signed with" },
      { name: "output", value: "DIR", help: "the folder of the layouts os and agent (default dist/artifacts)" },
    ],
  });
  const folder = input.text("output") ?? "dist/artifacts";
  const [bundles, packages, key] = [input.texts("os"), input.texts("package"), input.text("signing-key")];
  try {
    if (bundles.length + packages.length === 0) throw new PicoletError("invalid", "name a file: --os or --package");
    if (packages.length > 0 && key === undefined)
      throw new PicoletError("invalid", "boards install signed packages alone: --signing-key is missing");
    const written: WrittenArtifact[] = [];
    if (bundles.length > 0) written.push(await writeSystemArtifact(bundles, join(folder, "os")));
    if (packages.length > 0) written.push(await writePackageArtifact(packages, key ?? "", join(folder, "agent")));
    for (const { folder: layout, tag, digest } of written) console.log(`oci:${layout}:${tag} ${digest}`);
  } catch (error) {
    console.error(describeError(error));
    process.exit(1);
  }
}
