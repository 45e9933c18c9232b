/** The unit that the Debian package brings, on a board with systemd: ready, alive, restarted, and no pod with it. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { boardPackage } from "@picolet/firmware/packages/packages.ts";
import { type KubeObject, NODES } from "@picolet/hub-core/kube-client/kube-client.ts";
import { parseReport, type UpdateProgress } from "@picolet/protocol/updates/node-updates.ts";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { ownPlatform } from "@picolet/scripts/build/platform-parts.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { HubProcess, runHubCommand } from "@picolet/scripts/start/hub-process.ts";
import { restartsOf } from "../support/agent/agent-process.ts";
import { containerIdOf, containerPod } from "../support/agent/node-fixtures.ts";
import { Guest, guestMissing } from "../support/guest/guest.ts";
import type { GuestAgent } from "../support/guest/guest-agent.ts";
import { FleetAdmin } from "../support/hub/fleet-admin.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const skip = guestMissing() ?? false;
const UNIT = "/usr/lib/systemd/system/picolet.service";
const BOOT_CHECK = "/usr/lib/picolet/updates/boot-check";
const BOOT_CHECK_UNIT = "/usr/lib/systemd/system/picolet-boot-check.service";

let guest: Guest;
let agent: GuestAgent;

/** A file that the package installs. */
function packaged(path: string): string {
  const file = boardPackage(distributionFolder("board"), ownPlatform(), 0).files.get(path);
  if (file === undefined || !("content" in file)) throw new Error(`the package has no file ${path}`);
  return String(file.content);
}

before(async () => {
  if (skip !== false) return;
  guest = await Guest.start();
  for (const path of [UNIT, BOOT_CHECK, BOOT_CHECK_UNIT]) await guest.upload(path, packaged(path));
  await guest.upload("/usr/lib/tmpfiles.d/picolet.conf", packaged("/usr/lib/tmpfiles.d/picolet.conf"));
  await guest.output(
    [
      // The guest's own unit is of the administrator's folder, which comes first.
      "rm /etc/systemd/system/picolet.service",
      "ln -s /opt/picolet/dist/board/bin/picolet /opt/picolet/dist/board/bin/edgectl /usr/bin/",
      "echo picolet:x:990: >> /etc/group",
      "systemd-tmpfiles --create /usr/lib/tmpfiles.d/picolet.conf",
      // Shorter than the package's, for the test's sake.
      "mkdir -p /run/systemd/system/picolet.service.d",
      "printf '[Service]\\nWatchdogSec=60s\\n' > /run/systemd/system/picolet.service.d/test.conf",
      "systemctl daemon-reload",
    ].join(" && "),
  );
  agent = await guest.agent();
});

after(async () => {
  if (skip === false) await guest?.[Symbol.asyncDispose]();
});

const show = async (property: string): Promise<string> =>
  (await guest.output(`systemctl show -P ${property} picolet`)).trim();

test("the service is active when the agent can be asked, and its socket is its group's", { skip }, async () => {
  assert.equal(await show("Type"), "notify");
  assert.equal(await show("ActiveState"), "active");
  assert.equal((await guest.output("stat -c '%G %a' /run/picolet/picolet.sock")).trim(), "picolet 660");
  const faults = await guest.output("systemd-analyze verify --man=no picolet.service 2>&1; true");
  assert.equal(
    faults
      .split("\n")
      .filter((line) => line.includes("picolet.service"))
      .join("\n"),
    "",
  );
});

test("an agent that hangs is restarted by the watchdog, and its pod is not", { skip }, async () => {
  await agent.writeManifest("web.json", containerPod("web", undefined, { hostNetwork: true }));
  const before = await agent.waitForPods("a ready pod", (pods) => isReady(pods.get("web-guest")));
  const pid = await agent.pid();
  await guest.output(`kill -STOP ${pid}`);
  await guest.output(
    `while [ "$(systemctl show -P MainPID picolet)" = ${pid} ] || [ "$(systemctl is-active picolet)" != active ]; do sleep 0.5; done`,
    { timeoutMs: 240_000 },
  );
  await agent.answers();
  assert.match(await agent.log(400), /[Ww]atchdog timeout/);
  const after = await agent.waitForPods("the pod again", (pods) => isReady(pods.get("web-guest")));
  assert.equal(containerIdOf(after.get("web-guest")), containerIdOf(before.get("web-guest")));
  assert.equal(restartsOf(after.get("web-guest")), 0);
});

test("edgectl join takes the board into a fleet, whose hub changes its configuration", { skip }, async () => {
  using folder = new TempFolder();
  // The guest dials one address for all that is outside of it.
  const flags = ["--server-name", "10.0.2.100"];
  const hub = await HubProcess.start({ dataDir: folder.path, flags });
  try {
    const { host, port } = guest.letReach(Number(new URL(hub.ready.tunnel).port));
    await guest.upload("/root/token", `${await runHubCommand(folder.path, "token", "create")}\n`, 0o600);
    const join = `edgectl join ${host}:${port} --token-file /root/token --ca-hash ${hub.ready.caHash} --wait 4m`;
    const { stdout, stderr, exitCode } = await guest.run(join, { timeoutMs: 300_000 });
    assert.equal(exitCode, 0, stderr);
    assert.equal(stdout, `/etc/picolet/config.yaml: the hub is https://${host}:${port}\nnode/guest has joined\n`);
    await using admin = await FleetAdmin.of(hub);
    await admin.untilCondition("guest", "Ready", "True");
    await updatesConfiguration(admin);
  } finally {
    await hub.end("SIGTERM");
  }
});

test("an error of the disk's file system is a condition and an event of the node", { skip }, async () => {
  await guest.output("echo damaged > /sys/fs/ext4/vda/trigger_fs_error");
  const type = "picolet.io/StorageErrors";
  const { conditions } = await agent.waitForStatus("the condition", (status) =>
    status.conditions.some((each) => each.type === type && each.status === "True"),
  );
  const { reason, message } = conditions.find((each) => each.type === type) ?? {};
  assert.equal(reason, "FileSystemHasErrors");
  assert.match(message ?? "", /^the file system on vda has errors: back up/);
  await agent.waitForEvent("the event", (event) => event.reason === "FileSystemHasErrors");
});

test("a removal of the package ends the pods first, then the agent", { skip }, async () => {
  const { prerm = "" } = boardPackage(distributionFolder("board"), ownPlatform(), 0).scripts;
  await guest.upload("/root/prerm", prerm, 0o755);
  // Debian's helper, which the guest has not, with what it does here.
  await guest.upload("/usr/bin/deb-systemd-invoke", '#!/bin/sh\nexec systemctl "$@"\n', 0o755);
  const containers = (): Promise<string> => guest.output("ctr --namespace k8s.io tasks list --quiet");
  assert.notEqual(await containers(), "");
  await guest.output("/root/prerm remove", { timeoutMs: 240_000 });
  assert.equal(await containers(), "");
  assert.equal(await show("ActiveState"), "inactive");
});

/** By the boot check, as systemd runs it. */
async function updatesConfiguration(admin: FleetAdmin): Promise<void> {
  const before = await agent.waitForPods("a ready pod", (pods) => isReady(pods.get("web-guest")));
  const file = (): Promise<string> => guest.output("cat /etc/picolet/config.yaml");
  const given = await file();
  const configured = async (configuration: string, deadline: string, state: string): Promise<string> => {
    const annotations = { "picolet.io/configuration": configuration, "picolet.io/update-health-deadline": deadline };
    await admin.patch(NODES, "guest", { metadata: { annotations } });
    const target = createHash("sha256").update(configuration).digest("hex").slice(0, 16);
    const progressOf = ({ metadata }: KubeObject): UpdateProgress | undefined =>
      parseReport(metadata.annotations?.["picolet.io/update-status"] ?? "")?.updates.find(
        (each) => each.target === target,
      );
    // Each wait has a limit of its own, and the board is emulated.
    const over = ["good", "rolledBack", "failed"];
    for (const states of [["restarting", "trial", ...over], ["trial", ...over], over])
      await admin.until(NODES, `${configuration} is ${states[0]}`, (node) =>
        states.includes(progressOf(node)?.state ?? ""),
      );
    const node = await admin.until(NODES, "an update that is over", (each) =>
      over.includes(progressOf(each)?.state ?? ""),
    );
    assert.equal(progressOf(node)?.state, state, progressOf(node)?.message);
    return progressOf(node)?.message ?? "";
  };
  assert.equal(await configured("maxPods: 77\n", "5m", "good"), "");
  assert.match(await file(), /maxPods: 77/);
  const good = await file();
  // Nothing answers there: the board has to come back to its hub by itself.
  const message = await configured("hub: { server: 'https://10.0.2.100:9' }\n", "30s", "rolledBack");
  assert.match(message, /^not healthy after 30 s: no connection to the hub/);
  assert.equal(await file(), good);
  assert.notEqual(good, given);
  assert.match(await configured("maxPods: many\n", "30s", "failed"), /the configuration would be wrong: .*maxPods/);
  assert.match(await configured("nodeName: other\n", "30s", "failed"), /a hub may not change nodeName/);
  const after = await agent.waitForPods("the pod again", (pods) => isReady(pods.get("web-guest")));
  assert.equal(containerIdOf(after.get("web-guest")), containerIdOf(before.get("web-guest")));
  assert.equal(restartsOf(after.get("web-guest")), 0);
}
