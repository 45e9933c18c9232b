/** Runs in the guest: `node program POD-PATH CONTAINER-ID` prints one sample of a pod's cgroup as JSON. */
import { makeNodeUsageSampler } from "@picolet/agent/main/node/node-usage.ts";
import { detectCgroups } from "@picolet/agent/resources/cgroup-hierarchies.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { usagePod } from "../support/unit/pods/usage-pods.ts";
import { RecordedLog } from "../support/unit/ports/recorders.ts";

async function look([path = "", id = ""]: readonly string[]): Promise<void> {
  const looks = makeNodeUsageSampler(
    {
      ...{ hierarchies: await detectCgroups(), adapters: [], clock: systemClock, log: new RecordedLog() },
      pods: () => [usagePod("pod", [id])],
      podCgroup: () => path,
    },
    { rootDir: "/", podLogsDir: "/", allPodsCgroup: path, cgroupsPerQOS: true },
  );
  const { signal } = new AbortController();
  const { node, allPods, pods } = await looks.sample(millis(0), signal);
  const { nodefs, imagefs } = await looks.filesystems(millis(0), signal);
  const [pod] = pods;
  console.log(JSON.stringify({ node, allPods, pod: pod?.usage, containers: pod?.containers, nodefs, imagefs }));
}

void look(process.argv.slice(2));
