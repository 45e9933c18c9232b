/**
 * Updates of the agent's package on a board with its vendor's system: a signed package is installed by dpkg, judged,
 * and replaced by the one before it when its agent does not come up. systemd, dpkg and containerd are real.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { cpSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { type DebianPackage, pack } from "@picolet/firmware/packages/debian-package.ts";
import { boardPackage } from "@picolet/firmware/packages/packages.ts";
import type { UpdateStatusAnswer } from "@picolet/protocol/local-api/status.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { ownPlatform } from "@picolet/scripts/build/platform-parts.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { restartsOf } from "../support/agent/agent-process.ts";
import { containerIdOf, containerPod } from "../support/agent/node-fixtures.ts";
import { SystemdMachine, systemdMachineMissing } from "../support/distribution/systemd-machine.ts";
import type { GuestAgent } from "../support/guest/guest-agent.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const skip = systemdMachineMissing() ?? false;
/** Bounds one update: dpkg unpacks 200 MB up to three times, and an agent is judged for ten seconds. */
const UPDATE_LIMIT_MS = 400_000;
const KEYS = generateKeyPairSync("ed25519");
const OTHER_KEYS = generateKeyPairSync("ed25519");

/** Debian's code name; undefined: that of this machine. */
const RELEASE = process.env.PICOLET_DEBIAN;

let machine: SystemdMachine;
let agent: GuestAgent;
let base: DebianPackage;
let container: string | undefined;
let folder: TempFolder;

before(async () => {
  if (skip !== false) return;
  folder = new TempFolder();
  base = boardPackage(distributionFolder("board"), ownPlatform(), 0);
  machine = await SystemdMachine.start({ release: RELEASE });
  await machine.output(`dpkg --force-unsafe-io --install ${bring({})} && systemctl stop picolet`);
  const pem = KEYS.publicKey.export({ type: "spki", format: "pem" });
  await machine.output("mkdir -p /etc/picolet/update-keys");
  await machine.upload("/etc/picolet/update-keys/fleet.pem", pem);
  agent = await machine.agent();
  await agent.writeManifest("web.json", containerPod("web", undefined, { hostNetwork: true }));
  const pods = await agent.waitForPods("a ready pod", (each) => isReady(each.get("web-guest")));
  container = containerIdOf(pods.get("web-guest"));
});

after(async () => {
  if (skip !== false) return;
  await machine?.[Symbol.asyncDispose]();
  folder?.[Symbol.dispose]();
});

/** @returns the path of a signed package in the machine */
function bring(change: Partial<DebianPackage>, keys = KEYS): string {
  const path = pack({ ...base, ...change }, folder.path, { epoch: 0, compression: "none" });
  writeFileSync(`${path}.sig`, sign(null, readFileSync(path), keys.privateKey).toString("base64"));
  machine.bring(`${path}.sig`);
  return machine.bring(path);
}

/** The programs of another release, which say so: the agent that judges must be the one that was asked for. */
function release(version: string): Partial<DebianPackage> {
  const copy = folder.at(`board-${version}`);
  cpSync(distributionFolder("board"), copy, { recursive: true });
  for (const path of globSync(`${copy}/lib/{*.cjs,picolet/*.cjs}`)) {
    const text = readFileSync(path, "utf8");
    const own = text.replaceAll(`"${VERSION}"`, `"${version}"`);
    if (own !== text) writeFileSync(path, own);
  }
  // A distributor's package has a revision, which the agent does not know.
  return { version: `${version}-1`, files: boardPackage(copy, ownPlatform(), 0).files };
}

const installed = async (): Promise<string> =>
  await machine.output(`dpkg-query -W -f '\${db:Status-Status} \${Version}' picolet`);

/** @returns the end of the update to this package: its state and its message */
async function update(path: string): Promise<{ readonly state: string; readonly message: string }> {
  await machine.output(`edgectl update install ${path}`);
  const over = `edgectl update status -o json | grep -Eq '"state": *"(good|rolledBack|failed)"'`;
  await machine.output(`until ${over}; do sleep 1; done`, { timeoutMs: UPDATE_LIMIT_MS });
  const { stdout } = await machine.run("edgectl update status -o json");
  const [progress, ...others] = (JSON.parse(stdout) as UpdateStatusAnswer).updates;
  assert.ok(progress !== undefined && others.length === 0);
  return progress;
}

async function podRanOn(): Promise<void> {
  await agent.answers();
  const pods = await agent.waitForPods("the pod again", (each) => isReady(each.get("web-guest")));
  assert.equal(containerIdOf(pods.get("web-guest")), container);
  assert.equal(restartsOf(pods.get("web-guest")), 0);
}

test("a signed package is installed, and stays when its agent is healthy", { skip }, async () => {
  const { state, message } = await update(bring(release("0.2.0")));
  assert.deepEqual([state, message], ["good", ""]);
  assert.equal(await installed(), "installed 0.2.0-1");
  assert.match(await machine.output("edgectl update status"), /^agent 0\.2\.0$/m);
  await podRanOn();
});

test("a package whose agent does not start is replaced by the one before it", { skip }, async () => {
  const broken = { content: "#!/bin/sh\nexit 78\n", mode: 0o755 };
  const files = new Map([...base.files, ["/usr/bin/picolet", broken] as const]);
  const { state, message } = await update(bring({ version: "0.3.0", files }));
  assert.equal(state, "rolledBack", message);
  assert.match(message, /the agent did not start/);
  assert.equal(await installed(), "installed 0.2.0-1");
  await podRanOn();
});

test("a package that dpkg cannot configure is replaced by the one before it", { skip }, async () => {
  const scripts = { ...base.scripts, postinst: "#!/bin/sh\nexit 1\n" };
  const { state, message } = await update(bring({ version: "0.4.0", scripts }));
  assert.equal(state, "rolledBack", message);
  assert.match(message, /dpkg could not install it/);
  assert.equal(await installed(), "installed 0.2.0-1");
  await podRanOn();
});

test("a package of another key, or an older one, is not installed", { skip }, async () => {
  const empty = { files: new Map(), scripts: {}, conffiles: [] };
  for (const [path, problem] of [
    [bring({ ...empty, version: "0.5.0" }, OTHER_KEYS), /has signed it/],
    [bring({ ...empty, version: "0.0.1" }), /older|downgrade/],
  ] as const) {
    const { state, message } = await update(path);
    assert.equal(state, "failed", message);
    assert.match(message, problem);
  }
  assert.equal(await installed(), "installed 0.2.0-1");
  await podRanOn();
});
