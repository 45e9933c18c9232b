/** `npm run release`, verified and installed as docs/install.md says. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { appendFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { makeRelease, PUBLIC_KEY, readSigningKey, SIGNATURE, SUMS } from "@picolet/firmware/release/release.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { stepsOf } from "../documents/documented-steps.ts";
import { DebianRoot, debianRootMissing } from "../support/debian/debian-root.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const skip =
  (process.arch === "x64" ? debianRootMissing() : "the release is tried on amd64") ??
  (existsSync("/usr/bin/openssl") ? false : "not installed: openssl");
const EPOCH = 1_795_439_450;

/** Commands of docs/install.md that begin so, for this machine's architecture. */
const documented = (start: RegExp): string[] =>
  stepsOf(readFileSync("docs/install.md", "utf8")).flatMap((step) =>
    step.kind === "command" && start.test(step.text)
      ? [step.text.replaceAll("linux-arm64", "linux-x64").replaceAll("_arm64", "_amd64")]
      : [],
  );

describe("a release", { skip }, () => {
  const folder = new TempFolder();
  const release = folder.at("release");
  const keyFile = folder.at("release.key");

  before(() => {
    const { privateKey } = generateKeyPairSync("ed25519");
    writeFileSync(keyFile, privateKey.export({ type: "pkcs8", format: "pem" }));
    writeFileSync(folder.at("firmware.img.xz"), "an image");
    makeRelease({
      ...{ folder: release, platforms: ["linux-x64"], epoch: EPOCH, isQuick: true },
      ...{ add: [folder.at("firmware.img.xz")], signingKey: readSigningKey(keyFile) },
    });
  });
  after(() => folder[Symbol.dispose]());

  const verify = () => {
    const lines = [...documented(/^openssl/), ...documented(/^sha256sum/)];
    assert.equal(lines.length, 2);
    const { status, stdout, stderr } = spawnSync("sh", ["-ec", lines.join("\n")], { cwd: release, encoding: "utf8" });
    return { status, text: stdout + stderr };
  };

  test("it has every artefact, each with its bill of materials", () => {
    const names = readdirSync(release);
    for (const artefact of [
      `picolet_${VERSION}_amd64.deb`,
      `picolet-hub_${VERSION}_amd64.deb`,
      `picolet-${VERSION}-linux-x64.tar.gz`,
      `picolet-${VERSION}-linux-x64.cdx.json`,
      `picolet-hub-${VERSION}-linux-x64.tar.gz`,
      `picolet-hub-${VERSION}-linux-x64.cdx.json`,
      `picolet-hub-${VERSION}-image-linux-amd64.tar`,
      `picolet-hub-${VERSION}-image-linux-amd64.cdx.json`,
      `picolet-hub-chart-${VERSION}.tgz`,
      `picolet-hub-kustomize-${VERSION}.tar.gz`,
      "firmware.img.xz",
      ...[SUMS, SIGNATURE, PUBLIC_KEY],
    ])
      assert.ok(names.includes(artefact), artefact);
    assert.equal(names.length, 14);
    for (const name of names.filter((each) => each.endsWith(".cdx.json"))) {
      const bill = JSON.parse(readFileSync(join(release, name), "utf8")) as { bomFormat: string; components: object[] };
      assert.ok(bill.bomFormat === "CycloneDX" && bill.components.length > 10, name);
    }
    const chart = execFileSync("tar", ["-tzf", join(release, `picolet-hub-chart-${VERSION}.tgz`)], {
      encoding: "utf8",
    });
    for (const name of ["Chart.yaml", "values.yaml", "templates/workload.yaml"])
      assert.ok(chart.includes(`picolet-hub/${name}\n`), name);
  });

  test("verified by the documented commands, and installed by them in a Debian system", () => {
    const { status, text } = verify();
    assert.equal(status, 0, text);
    assert.match(text, /Signature Verified Successfully/);
    assert.match(text, new RegExp(`^picolet_${VERSION}_amd64\\.deb: OK$`, "m"));

    using root = new DebianRoot();
    for (const name of [`picolet_${VERSION}_amd64.deb`, `picolet-${VERSION}-linux-x64.tar.gz`])
      root.bring(join(release, name));
    const [install = ""] = documented(/^sudo apt install/);
    // The root has no apt, which is not essential, and is root's already.
    root.output(`cd /tmp && ${install.replace("sudo apt install", "dpkg --install")}`);
    assert.match(root.output("picolet --version"), new RegExp(`^picolet ${VERSION}`));
    root.output("dpkg --purge picolet");
    const archive = [...documented(/^tar -xzf/), ...documented(/install\.sh/)];
    assert.equal(archive.length, 2);
    root.output(`cd /tmp && ${archive.join(" && ")} --no-start`);
    assert.match(root.output("/usr/local/bin/picolet --version"), new RegExp(`^picolet ${VERSION}`));
  });

  test("a changed file, changed sums and another key are noticed", () => {
    const chart = join(release, `picolet-hub-chart-${VERSION}.tgz`);
    const before = readFileSync(chart);
    appendFileSync(chart, "x");
    assert.match(verify().text, /chart.*: FAILED/);
    assert.notEqual(verify().status, 0);
    writeFileSync(chart, before);
    const sums = readFileSync(join(release, SUMS));
    appendFileSync(join(release, SUMS), "\n");
    assert.match(verify().text, /Signature Verification Failure/);
    writeFileSync(join(release, SUMS), sums);
    const { publicKey } = generateKeyPairSync("ed25519");
    writeFileSync(join(release, PUBLIC_KEY), publicKey.export({ type: "spki", format: "pem" }));
    assert.notEqual(verify().status, 0);
  });

  test("a key of another kind is refused", () => {
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    writeFileSync(folder.at("ec.key"), privateKey.export({ type: "pkcs8", format: "pem" }));
    assert.throws(() => readSigningKey(folder.at("ec.key")), /is ec, not ed25519; make one with: openssl genpkey/);
    assert.throws(() => readSigningKey(folder.at("firmware.img.xz")), /must be a private key in PEM/);
  });
});
