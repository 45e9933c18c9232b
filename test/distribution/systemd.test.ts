/**
 * A real systemd on a board with the Debian package: its logind waits for the pods when the machine goes down, and it
 * makes their cgroups where this machine has cgroup v1.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pack } from "@picolet/firmware/packages/debian-package.ts";
import { boardPackage } from "@picolet/firmware/packages/packages.ts";
import { distributionFolder } from "@picolet/scripts/build/build.ts";
import { ownPlatform } from "@picolet/scripts/build/platform-parts.ts";
import { SystemdMachine, systemdMachineMissing } from "../support/distribution/systemd-machine.ts";
import {
  endedInOrder,
  logindWaits,
  runPodsThatEnd,
  SHUTDOWN_PERIODS,
  startLogind,
  statusSaysSo,
} from "../support/guest/logind-shutdown.ts";
import { cgroupV1Agent, holdsOnCgroupV1 } from "../support/guest/systemd-cgroups-v1.ts";
import { FleetAdmin } from "../support/hub/fleet-admin.ts";
import { Fleet } from "../support/hub/test-fleet.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const skip = systemdMachineMissing() ?? false;
const noV1 = existsSync("/sys/fs/cgroup/memory") ? false : "this machine has no cgroup v1";

/** With the package, whose service is stopped. */
async function machineWithPackage(): Promise<SystemdMachine> {
  const machine = await SystemdMachine.start();
  using folder = new TempFolder();
  const board = boardPackage(distributionFolder("board"), ownPlatform(), 0);
  const file = machine.bring(pack(board, folder.path, { epoch: 0, compression: "none" }));
  await machine.output(`dpkg --force-unsafe-io --install ${file} && systemctl stop picolet`);
  return machine;
}

test("pods on cgroup v1 by systemd have their values, keep them and leave nothing", {
  skip: skip || noV1,
}, async () => {
  await using machine = await machineWithPackage();
  await holdsOnCgroupV1(machine, await machine.agent(await cgroupV1Agent()));
});

test("logind waits at a shutdown until pods have ended in order, and their status says why", { skip }, async () => {
  await using machine = await machineWithPackage();
  await using fleet = await Fleet.start(["--server-name", "10.0.2.100"]);
  await using admin = await FleetAdmin.of(fleet);
  await startLogind(machine);
  const { host, port } = await machine.letReach(fleet.tunnelPort);
  const hub = { ...(await fleet.joinConfig()), server: `https://${host}:${port}` };
  const agent = await machine.agent({ config: { hub, ...SHUTDOWN_PERIODS } });
  await fleet.untilNodeReady("guest");
  await runPodsThatEnd(agent, admin, machine.sharedFolder);
  await logindWaits(machine);
  await machine.turnedOffBy("systemctl poweroff");
  endedInOrder(readFileSync(join(machine.directory, "shared/ends"), "utf8"));
  // The machine is off before the hub has the status of those that end last: it comes after the next boot.
  await statusSaysSo(admin, ["plain"]);
  assert.equal(existsSync(`/proc/${machine.pid}`), false);
});
