/** The unit that the Debian package brings, on a board with systemd: ready, alive, restarted, and no pod with it. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { pack } from "@picolet/firmware/packages/debian-package.ts";
import { boardPackage } from "@picolet/firmware/packages/packages.ts";
import { type KubeObject, NODES } from "@picolet/hub-core/kube-client/kube-client.ts";
import { parseReport, type UpdateProgress } from "@picolet/protocol/updates/node-updates.ts";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { ownPlatform } from "@picolet/scripts/build/platform-parts.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { HubProcess, runHubCommand } from "@picolet/scripts/start/hub-process.ts";
import { restartsOf } from "../support/agent/agent-process.ts";
import { containerIdOf, containerPod } from "../support/agent/node-fixtures.ts";
import { SystemdMachine, systemdMachineMissing } from "../support/distribution/systemd-machine.ts";
import type { GuestAgent } from "../support/guest/guest-agent.ts";
import { FleetAdmin } from "../support/hub/fleet-admin.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const skip = systemdMachineMissing() ?? false;

let machine: SystemdMachine;
let agent: GuestAgent;

before(async () => {
  if (skip !== false) return;
  machine = await SystemdMachine.start();
  using folder = new TempFolder();
  const board = boardPackage(distributionFolder("board"), ownPlatform(), 0);
  const file = machine.bring(pack(board, folder.path, { epoch: 0, compression: "none" }));
  // Shorter than the package's, for the test's sake.
  await machine.upload("/run/systemd/system/picolet.service.d/test.conf", "[Service]\nWatchdogSec=15s\n");
  await machine.output(`dpkg --force-unsafe-io --install ${file} && systemctl stop picolet`);
  agent = await machine.agent();
});

after(async () => {
  if (skip === false) await machine?.[Symbol.asyncDispose]();
});

const show = async (property: string): Promise<string> =>
  (await machine.output(`systemctl show -P ${property} picolet`)).trim();

test("the service is active when the agent can be asked, and its socket is its group's", { skip }, async () => {
  assert.equal(await show("Type"), "notify");
  assert.equal(await show("ActiveState"), "active");
  assert.equal((await machine.output("stat -c '%G %a' /run/picolet/picolet.sock")).trim(), "picolet 660");
  const faults = await machine.output("systemd-analyze verify --man=no picolet.service 2>&1; true");
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
  await machine.output(`kill -STOP ${pid}`);
  await machine.output(
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
  // The machine dials one address for all that is outside of it.
  const flags = ["--server-name", "10.0.2.100"];
  const hub = await HubProcess.start({ dataDir: folder.path, flags });
  try {
    const { host, port } = await machine.letReach(Number(new URL(hub.ready.tunnel).port));
    await machine.upload("/root/token", `${await runHubCommand(folder.path, "token", "create")}\n`, 0o600);
    const join = `edgectl join ${host}:${port} --token-file /root/token --ca-hash ${hub.ready.caHash} --wait 4m`;
    const { stdout, stderr, exitCode } = await machine.run(join, { timeoutMs: 300_000 });
    assert.equal(exitCode, 0, stderr);
    assert.equal(stdout, `/etc/picolet/config.yaml: the hub is https://${host}:${port}\nnode/guest has joined\n`);
    await using admin = await FleetAdmin.of(hub);
    await admin.untilCondition("guest", "Ready", "True");
    await updatesConfiguration(admin);
  } finally {
    await hub.end("SIGTERM");
  }
});

test("a removal of the package ends the pods first, then the agent", { skip }, async () => {
  const containers = (): Promise<string> => machine.output("ctr --namespace k8s.io tasks list --quiet");
  assert.notEqual(await containers(), "");
  await machine.output("dpkg --remove picolet", { timeoutMs: 240_000 });
  assert.equal(await containers(), "");
  assert.equal(await show("ActiveState"), "inactive");
});

/** By the boot check, as systemd runs it. */
async function updatesConfiguration(admin: FleetAdmin): Promise<void> {
  const before = await agent.waitForPods("a ready pod", (pods) => isReady(pods.get("web-guest")));
  const file = (): Promise<string> => machine.output("cat /etc/picolet/config.yaml");
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
