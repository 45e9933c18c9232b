/** The container image of picolet-hub, made without Docker: inspected by skopeo, and run by a real containerd. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { IMAGE_NAME } from "@picolet/firmware/hub-image/build-hub-image.ts";
import type { FetchedPackage } from "@picolet/firmware/hub-image/debian-files.ts";
import { basePackages, hubImage, imageBillOfMaterials, LABELS } from "@picolet/firmware/hub-image/hub-image.ts";
import { OciLayout, packLayers } from "@picolet/firmware/hub-image/oci-layout.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { nodeParts, readLockFile } from "@picolet/scripts/build/platform-parts.ts";
import { HubProcess } from "@picolet/scripts/start/hub-process.ts";
import { AgentNode } from "../support/agent/agent-process.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const SKOPEO = "/usr/bin/skopeo";
const skip =
  (process.arch === "x64" ? containerdMissing() : "the image is tried on amd64") ??
  (existsSync(SKOPEO) ? false : "not installed: skopeo");
const EPOCH = 1_795_439_450;
/** The fastest level of gzip. A release has the smallest. */
const LEVEL = 1;
const USER = 65532;
/** Capabilities that ctr grants unless they are dropped. */
const CAPABILITIES =
  "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE";
/** The goal: a slow line at a site takes two minutes for it. */
const MAX_COMPRESSED_BYTES = 90_000_000;

const EMULATOR = "/usr/bin/qemu-aarch64";

describe("the image of picolet-hub", { skip }, () => {
  const folder = new TempFolder();
  const archive = folder.at("image.tar");
  let packages: readonly FetchedPackage[];

  const layoutIn = (name: string): OciLayout => {
    const distribution = distributionFolder("hub");
    const layout = new OciLayout(folder.at(name));
    const image = packLayers(hubImage({ platform: "linux-x64", distribution, packages, epoch: EPOCH }), LEVEL);
    const { compressedBytes } = layout.add(image);
    assert.ok(compressedBytes < MAX_COMPRESSED_BYTES, `${compressedBytes} bytes`);
    layout.finish(IMAGE_NAME, LABELS);
    return layout;
  };
  const inspect = (...args: string[]): Record<string, unknown> =>
    JSON.parse(execFileSync(SKOPEO, ["inspect", ...args], { encoding: "utf8" })) as Record<string, unknown>;

  before(() => {
    packages = basePackages("linux-x64");
    layoutIn("one").archive(archive, EPOCH);
  });
  after(() => folder[Symbol.dispose]());

  test("the same input makes the same bytes", () => {
    const again = folder.at("again.tar");
    layoutIn("two").archive(again, EPOCH);
    assert.ok(readFileSync(again).equals(readFileSync(archive)));
    assert.deepEqual(readdirSync(folder.at("two/blobs/sha256")), readdirSync(folder.at("one/blobs/sha256")));
  });

  test("skopeo reads the layout and the archive, and finds a program without root and shell", () => {
    for (const source of [`oci:${folder.at("one")}`, `oci-archive:${archive}`, `docker-archive:${archive}`]) {
      const { Labels, Architecture } = inspect(source);
      assert.deepEqual([Labels, Architecture], [LABELS, "amd64"], source);
    }
    const { config } = inspect("--config", `oci:${folder.at("one")}`) as { config: Record<string, unknown> };
    assert.equal(config.User, `${USER}:${USER}`);
    assert.equal((config.Labels as Record<string, string>)["org.opencontainers.image.version"], VERSION);
    const files = filesOf(folder.at("one"));
    assert.deepEqual(
      files.filter((file) => /\/(?:sh|bash|dash|busybox|apt|dpkg)$/.test(file) && !/\/doc\//.test(file)),
      [],
    );
    for (const name of ["libc6", "gcc-14-base"]) assert.ok(files.includes(`./usr/share/doc/${name}/copyright`), name);
    assert.ok(files.includes("./usr/share/doc/picolet-hub/THIRD-PARTY-LICENSES"));
  });

  test("its bill of materials has the packages of npm and of Debian, and Node", () => {
    const { components } = imageBillOfMaterials(distributionFolder("hub"), packages, "amd64");
    const names = (components as readonly { name: string }[]).map(({ name }) => name);
    for (const name of ["libc6", "libstdc++6", "node", "better-sqlite3", "ws"]) assert.ok(names.includes(name), name);
  });

  test("read-only, without root and without a capability it serves, and a board joins it", async () => {
    await using containerd = await Containerd.start();
    containerd.importArchive(archive);
    const { config } = inspect("--config", `oci:${folder.at("one")}`) as { config: { Entrypoint: string[] } };
    const state = "/var/lib/picolet-hub";
    const mount = `type=tmpfs,src=tmpfs,dst=${state},options=mode=0700:uid=${USER}:gid=${USER}`;
    const drop = CAPABILITIES.split(" ").flatMap((each) => ["--cap-drop", `CAP_${each}`]);
    const where = ["--address", containerd.socketPath, "--namespace", "k8s.io"];
    const flags = ["--rm", "--net-host", "--read-only", "--mount", mount, ...drop];
    const hub = await HubProcess.start({
      dataDir: state,
      program: ["ctr", ...where, "run", ...flags, IMAGE_NAME, "hub", ...config.Entrypoint],
    });
    try {
      const status = readFileSync(`/proc/${containerd.pidOf("hub")}/status`, "utf8");
      assert.match(status, new RegExp(`^Uid:\\s+${USER}\\s+${USER}`, "m"));
      assert.match(status, /^CapBnd:\s+0+$/m);
      assert.match(status, /^NoNewPrivs:\s+1$/m);
      const create = ["/usr/bin/picolet-hub", "token", "create", "--embedded"];
      const token = containerd.ctr("tasks", "exec", "--exec-id", "token", "hub", ...create).trim();
      const board = { server: hub.ready.tunnel, token, caHash: [hub.ready.caHash] };
      await using node = new AgentNode({ config: { nodeName: "board", hub: board } });
      await node.start();
      await node.waitForStatus("a board that is connected", ({ tunnel }) => tunnel.state === "connected");
    } finally {
      await hub.end("SIGTERM");
    }
  });

  test("the libraries in the image of the other platform start its Node", {
    skip: existsSync(EMULATOR) ? false : "not installed: qemu-user",
  }, () => {
    const fetched = basePackages("linux-arm64");
    assert.deepEqual(
      fetched.map(({ name }) => name),
      packages.map(({ name }) => name),
    );
    const root = folder.at("arm64");
    mkdirSync(root);
    const { layers } = hubImage({
      platform: "linux-arm64",
      distribution: distributionFolder("hub"),
      packages: fetched,
      epoch: EPOCH,
    });
    execFileSync("tar", ["-x", "-C", root], { input: layers[0]?.tar });
    const { binary } = nodeParts(readLockFile(), "linux-arm64");
    const { stdout, stderr } = spawnSync(EMULATOR, ["-L", root, binary, "--version"], { encoding: "utf8" });
    assert.equal(stdout, `${process.version}\n`, stderr);
  });
});

/** Members of all layers. */
function filesOf(layout: string): string[] {
  const { manifests } = JSON.parse(readFileSync(join(layout, "index.json"), "utf8")) as {
    manifests: [{ digest: string }];
  };
  const blob = (digest: string): string => join(layout, "blobs", digest.replace(":", "/"));
  const { layers } = JSON.parse(readFileSync(blob(manifests[0].digest), "utf8")) as { layers: { digest: string }[] };
  return layers.flatMap(({ digest }) => execFileSync("tar", ["-tzf", blob(digest)], { encoding: "utf8" }).split("\n"));
}
