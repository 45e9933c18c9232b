/** Updates as OCI artifacts: made of real bundles and packages, copied by skopeo into a real registry, as boards read them. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { createPublicKey, randomBytes, verify } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { writePackageArtifact, writeSystemArtifact } from "@picolet/firmware/updates/oci-artifact.ts";
import { Registry, registryMissing } from "../support/containerd/real-registry.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const MISSING = ["/usr/bin/skopeo", "/usr/bin/rauc", "/usr/bin/mksquashfs"].find((program) => !existsSync(program));
const skip = registryMissing() ?? (MISSING === undefined ? false : `not installed: ${MISSING}`);

interface Document {
  readonly artifactType?: string;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly manifests?: readonly (Document & { readonly digest: string; readonly platform?: object })[];
  readonly layers?: readonly (Document & { readonly digest: string; readonly mediaType: string })[];
}

const quiet = (program: string, ...args: readonly string[]): string =>
  execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

/** A bundle that RAUC has made and signed. @returns its path */
function bundle(folder: TempFolder, compatible: string, version: string): string {
  const [content, file] = [folder.at(`${compatible}-content`), folder.at(`${compatible}-${version}.raucb`)];
  mkdirSync(content, { recursive: true });
  // RAUC takes no bundle whose squashfs has one block.
  writeFileSync(`${content}/root.img`, randomBytes(64 * 1024));
  const manifest = `[update]\ncompatible=${compatible}\nversion=${version}\n[bundle]\nformat=verity\n[image.rootfs]\nfilename=root.img\n`;
  writeFileSync(`${content}/manifest.raucm`, manifest);
  const [key, certificate] = [folder.at("key.pem"), folder.at("certificate.pem")];
  if (!existsSync(key)) {
    const subject = ["-subj", "/CN=test", "-days", "2", "-nodes", "-keyout", key, "-out", certificate];
    quiet("openssl", "req", "-x509", "-newkey", "rsa:2048", ...subject);
  }
  quiet("rauc", "bundle", `--cert=${certificate}`, `--key=${key}`, content, file);
  return file;
}

/** @returns its path */
function debianPackage(folder: TempFolder, architecture: string, version: string): string {
  const tree = folder.at(`tree-${architecture}`);
  mkdirSync(`${tree}/DEBIAN`, { recursive: true });
  const fields = { Package: "picolet", Version: version, Architecture: architecture, Maintainer: "t <t@example.com>" };
  const lines = Object.entries({ ...fields, Description: "test" }).map(([name, value]) => `${name}: ${value}\n`);
  writeFileSync(`${tree}/DEBIAN/control`, lines.join(""));
  const file = folder.at(`picolet_${architecture}.deb`);
  quiet("dpkg-deb", "--build", "--root-owner-group", tree, file);
  return file;
}

const at = async (registry: Registry, repository: string, reference: string): Promise<Document> =>
  JSON.parse((await registry.document(repository, reference)).content) as Document;

test("systems of two boards are one artifact, which skopeo copies as it is", { skip }, async () => {
  using folder = new TempFolder();
  await using registry = await Registry.start();
  const files = ["picolet-raspberrypi-containers", "picolet-generic-arm64-containers"].map((name) =>
    bundle(folder, name, "1.3"),
  );
  const { tag, digest, folder: layout } = await writeSystemArtifact(files, folder.at("os"));
  assert.equal(tag, "1.3");
  quiet(
    "skopeo",
    "copy",
    "--all",
    "--dest-tls-verify=false",
    `oci:${layout}:${tag}`,
    `docker://${registry.address}/os:1.3`,
  );
  const document = await registry.document("os", "1.3");
  assert.equal(document.digest, digest, "not a byte is changed");
  const { manifests = [] } = JSON.parse(document.content) as Document;
  assert.deepEqual(
    manifests.map(({ annotations }) => annotations?.["picolet.io/compatible"]),
    ["picolet-raspberrypi-containers", "picolet-generic-arm64-containers"],
  );
  const manifest = await at(registry, "os", manifests[1]?.digest ?? "");
  assert.equal(manifest.artifactType, "application/vnd.picolet.os.v1");
  assert.equal(manifest.annotations?.["org.opencontainers.image.version"], "1.3");
  assert.equal(manifest.layers?.[0]?.mediaType, "application/vnd.rauc.bundle");
  const fetched = await fetch(`http://${registry.address}/v2/os/blobs/${manifest.layers[0].digest}`);
  assert.deepEqual(Buffer.from(await fetched.arrayBuffer()), readFileSync(files[1] ?? ""));
  const again = await writeSystemArtifact(files, folder.at("again"));
  assert.equal(again.digest, digest, "the same files give the same bytes");
});

test("packages of two architectures are one artifact, and each is signed", { skip }, async () => {
  using folder = new TempFolder();
  await using registry = await Registry.start();
  const key = folder.at("ed25519.pem");
  quiet("openssl", "genpkey", "-algorithm", "ed25519", "-out", key);
  const files = ["amd64", "arm64"].map((architecture) => debianPackage(folder, architecture, "1.3~rc1"));
  const { tag, folder: layout } = await writePackageArtifact(files, key, folder.at("agent"));
  assert.equal(tag, "1.3-rc1", "a tag has no tilde");
  const target = `docker://${registry.address}/agent:${tag}`;
  quiet("skopeo", "copy", "--all", "--dest-tls-verify=false", `oci:${layout}:${tag}`, target);
  const { manifests = [] } = await at(registry, "agent", tag);
  assert.deepEqual(
    manifests.map(({ platform }) => platform),
    ["amd64", "arm64"].map((architecture) => ({ architecture, os: "linux" })),
  );
  const { layers: [layer] = [], artifactType, annotations } = await at(registry, "agent", manifests[1]?.digest ?? "");
  assert.equal(artifactType, "application/vnd.picolet.package.v1");
  assert.equal(annotations?.["org.opencontainers.image.version"], "1.3~rc1");
  const signature = Buffer.from(layer?.annotations?.["picolet.io/signature"] ?? "", "base64");
  assert.ok(verify(null, readFileSync(files[1] ?? ""), createPublicKey(readFileSync(key)), signature));
});

test("what cannot be one artifact is refused in a sentence", { skip }, async () => {
  using folder = new TempFolder();
  const [old, now] = [bundle(folder, "a", "1.2"), bundle(folder, "a", "1.3")];
  const output = folder.at("os");
  await assert.rejects(
    writeSystemArtifact([old, now], output),
    /has the version 1\.2, .* has 1\.3: make two artifacts$/,
  );
  await assert.rejects(writeSystemArtifact([now, now], output), /there are two files for a$/);
  writeFileSync(folder.at("none.raucb"), "x");
  await assert.rejects(writeSystemArtifact([folder.at("none.raucb")], output), /cannot read .*none\.raucb with rauc$/);
  const key = folder.at("rsa.pem");
  quiet("openssl", "genpkey", "-algorithm", "rsa", "-out", key);
  const file = debianPackage(folder, "arm64", "1.3");
  await assert.rejects(writePackageArtifact([file], key, output), /must be an Ed25519 key/);
  assert.ok(!existsSync(output), "nothing is written for what is wrong");
  const program = ["firmware/updates/build-artifacts.ts", "--package", file, "--output", output];
  const { status, stderr } = spawnSync(process.execPath, program, { encoding: "utf8" });
  assert.deepEqual([status, stderr], [1, "boards install signed packages alone: --signing-key is missing\n"]);
});
