/**
 * Runs in the guest: `node program CGROUP COMMAND …` runs a command that is held at a limit, and prints as JSON the
 * kernel's events for the memory of all pods, whose cgroup that is, as soon as both an event and a stall have come.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cgroupFoldersOf } from "@picolet/agent/main/node/node-usage.ts";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { CgroupMemoryEvents } from "@picolet/agent/stats/cgroup-memory-events.ts";
import { MemoryGauge } from "@picolet/agent/stats/memory-gauge.ts";

const STALL_US = 200_000;

async function look([cgroup = "", command = "", ...args]: readonly string[]): Promise<void> {
  const hierarchies = await detectCgroups();
  const gauge = new MemoryGauge(cgroupFoldersOf(hierarchies), { allPodsCgroup: cgroup, maxPids: 1_000 });
  const before = gauge.read({ near: Infinity, short: Infinity });
  using events = new CgroupMemoryEvents(`/sys/fs/cgroup${cgroup}/memory.events`);
  let told = 0;
  const hungry = spawn(command, args, { stdio: "ignore" });
  const ended = once(hungry, "exit");
  await new Promise<void>((resolve) => {
    const done = (): void => {
      const grown = (gauge.read({ near: Infinity, short: Infinity }).stalledUs ?? 0) - (before.stalledUs ?? 0);
      if (told > 0 && grown >= STALL_US) resolve();
    };
    events.listen(() => {
      told += 1;
      done();
    });
    hungry.once("exit", () => resolve());
  });
  const after = gauge.read({ near: Infinity, short: Infinity });
  hungry.kill("SIGKILL");
  await ended;
  console.log(JSON.stringify({ told, before, after }));
}

void look(process.argv.slice(2));
