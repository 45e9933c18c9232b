/**
 * Features of kernels that most machines of tests lack, with a real agent, a real containerd and real pods on cgroup
 * v2: AppArmor, huge pages, and pressure stall information (PSI).
 */
import assert from "node:assert/strict";
import { dirname } from "node:path";
import { after, before, describe, test } from "node:test";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { isReady, type PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import { restartsOf } from "../support/agent/agent-process.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { Guest, guestMissing } from "../support/guest/guest.ts";
import type { GuestAgent } from "../support/guest/guest-agent.ts";
import { OUTSIDE_ADDRESS } from "../support/guest/guest-machine.ts";
import { Fleet } from "../support/hub/test-fleet.ts";

const skip = guestMissing() ?? false;
const MANIFEST = "pods.json";
const NODE = "guest";

type Fields = Readonly<Record<string, unknown>>;

/** Without a network of its own, which takes an emulated processor a second. */
const podOf = (name: string, container: Fields, spec: Fields = {}, annotations: Fields = {}): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, annotations },
  spec: {
    ...{ hostNetwork: true, terminationGracePeriodSeconds: 2 },
    containers: [{ name: "app", image: BUSYBOX_IMAGE, ...container }],
    ...spec,
  },
});

async function put(agent: GuestAgent, pods: readonly unknown[]): Promise<void> {
  await agent.writeManifest(MANIFEST, { apiVersion: "v1", kind: "List", items: pods });
}

async function clear(agent: GuestAgent): Promise<void> {
  await agent.removeManifest(MANIFEST);
  await agent.waitForPods("an empty node", (pods) => pods.size === 0);
}

const phaseOf = (pods: PodsByName, name: string): string | undefined => pods.get(`${name}-${NODE}`)?.status?.phase;

/** The content of files of a folder, one line each. */
async function values(guest: Guest, folder: string, ...files: readonly string[]): Promise<readonly string[]> {
  return (await guest.output(`cd ${folder} && cat ${files.join(" ")}`)).trimEnd().split("\n");
}

const PROFILE = "guest-deny";
const PROFILE_TEXT = `profile ${PROFILE} flags=(attach_disconnected,mediate_deleted) {
  file,
  capability,
  signal,
  deny /data/** w,
}
`;
const HUGE_PAGES = 16;
const KUBEPODS = "/sys/fs/cgroup/kubepods";
const SMALL = { memory: "16Mi" };
/** What is available when the pods stall, some 250 MiB, is more than the threshold and less than twice of it. */
const STALLING = { memoryThrottlingFactor: 0.5, evictionHard: { "memory.available": "180Mi" } };

describe("a board whose kernel has AppArmor, huge pages and PSI", { skip }, () => {
  let guest: Guest;
  let agent: GuestAgent;
  let fleet: Fleet;

  before(async () => {
    guest = await Guest.start({ kernelArguments: `apparmor=1 security=apparmor hugepages=${HUGE_PAGES}` });
    await guest.upload(`/etc/apparmor.d/${PROFILE}`, PROFILE_TEXT);
    await guest.output(
      [
        `apparmor_parser --replace /etc/apparmor.d/${PROFILE}`,
        "sed -i 's/disable_apparmor = true/disable_apparmor = false\\n  disable_hugetlb_controller = false/' /etc/containerd/config.toml",
        "systemctl restart containerd",
      ].join(" && "),
    );
    fleet = await Fleet.start(["--server-name", OUTSIDE_ADDRESS]);
    const { host, port } = guest.letReach(fleet.tunnelPort);
    const hub = { ...(await fleet.joinConfig()), server: `https://${host}:${port}` };
    agent = await guest.agent({ config: { hub, ...STALLING } });
  });

  after(async () => {
    await fleet?.[Symbol.asyncDispose]();
    await guest?.[Symbol.asyncDispose]();
  });

  test("AppArmor confines a pod by the profile that it names, and by the runtime's own else", async () => {
    const script = `{ cat /proc/self/attr/current; echo x > /data/file && echo written; } > /dev/termination-log 2>&1; true`;
    const confined = (name: string, own: Fields | undefined, ofPod?: Fields, annotations: Fields = {}): object => {
      const volumeMounts = [{ name: "data", mountPath: "/data" }];
      const container = { command: ["sh", "-c", script], volumeMounts, ...inContext(own) };
      const volumes = [{ name: "data", emptyDir: {} }];
      return podOf(name, container, { restartPolicy: "Never", volumes, ...inContext(ofPod) }, annotations);
    };
    const localhost = (localhostProfile: string): Fields => ({ type: "Localhost", localhostProfile });
    const annotation = { "container.apparmor.security.beta.kubernetes.io/app": `localhost/${PROFILE}` };
    await put(agent, [
      confined("unsaid", undefined),
      confined("default", { type: "RuntimeDefault" }),
      confined("localhost", undefined, localhost(PROFILE)),
      confined("annotated", undefined, undefined, annotation),
      confined("free", { type: "Unconfined" }, localhost(PROFILE)),
      confined("unloaded", localhost("no-such-profile")),
    ]);
    const over = ["unsaid", "default", "localhost", "annotated", "free"];
    const waiting = (pods: PodsByName) =>
      pods.get(`unloaded-${NODE}`)?.status?.containerStatuses?.[0]?.state.waiting ?? {};
    const pods = await agent.waitForPods(
      "five are over, and one waits",
      (all) =>
        over.every((name) => phaseOf(all, name) === "Succeeded") && waiting(all).reason === "CreateContainerError",
    );
    const said = over.map((name) => {
      const status = pods.get(`${name}-${NODE}`)?.status?.containerStatuses?.[0];
      return [name, status?.state.terminated?.message];
    });
    const byDefault = "cri-containerd.apparmor.d (enforce)\nwritten\n";
    const denied = `${PROFILE} (enforce)\nsh: can't create /data/file: Permission denied\n`;
    assert.deepEqual(Object.fromEntries(said), {
      unsaid: byDefault,
      default: byDefault,
      localhost: denied,
      annotated: denied,
      free: "unconfined\nwritten\n",
    });
    assert.match(waiting(pods).message ?? "", /apparmor profile not found no-such-profile/);
    assert.equal(phaseOf(pods, "unloaded"), "Pending");
    await clear(agent);
  });

  test("huge pages are a resource of the node, and a pod gets what it requests and no more", async () => {
    const { capacity, allocatable } = (await agent.status()).resources;
    assert.deepEqual([capacity["hugepages-2Mi"], allocatable["hugepages-2Mi"]], ["32Mi", "32Mi"]);
    const script =
      "load huge /huge 10; echo more: $?; grep ' /huge ' /proc/mounts; load huge /huge 8 & sleep 3600 & wait";
    await put(agent, [paging("pages", "8Mi", script)]);
    await agent.waitForPods("it runs", (pods) => isReady(pods.get(`pages-${NODE}`)));
    const log = `/var/log/pods/default_pages-${NODE}_*/app/0.log`;
    const said = await guest.output(
      `until grep -q held ${log}; do sleep 0.2; done; cut -d' ' -f4- ${log} | grep -vx '[0-9]*'`,
    );
    const [more, code, mount = ""] = said.split("\n");
    assert.deepEqual([more, code], ["cannot map a huge page at 4: Cannot allocate memory", "more: 1"], said);
    assert.match(mount, /^nodev \/huge hugetlbfs rw,.*pagesize=2M/);
    const find = "find /sys/fs/cgroup/kubepods -path '*/pod*' -name hugetlb.2MB.current";
    const used = await guest.output(`${find} -exec grep -L '^0$' {} + | sort`);
    const [container = "", pod = "", ...others] = used
      .trimEnd()
      .split("\n")
      .map((path) => dirname(path));
    assert.deepEqual([dirname(container), others], [pod, []]);
    const bytes = String(8 * MEBIBYTE);
    const files = ["hugetlb.2MB.max", "hugetlb.2MB.current"];
    assert.deepEqual(await values(guest, pod, ...files, "hugetlb.2MB.rsvd.max"), [bytes, bytes, bytes]);
    assert.deepEqual(await values(guest, container, ...files), [bytes, bytes]);

    // By the API server, because for a static pod others would have to make room.
    await fleet.untilNodeReady(NODE);
    await fleet.apply(paging("greedy", "26Mi", "true", { nodeName: NODE }));
    await put(agent, [paging("pages", "8Mi", script), paging("fits", "24Mi", script)]);
    const pods = await agent.waitForPods(
      "one is refused, and one has the rest",
      (seen) => seen.get("greedy")?.status?.phase === "Failed" && isReady(seen.get(`fits-${NODE}`)),
    );
    const { reason, message } = pods.get("greedy")?.status ?? {};
    assert.equal(reason, "OutOfhugepages-2Mi");
    const all = HUGE_PAGES * 2 * MEBIBYTE;
    assert.match(
      message ?? "",
      new RegExp(`hugepages-2Mi, requested: ${26 * MEBIBYTE}, used: \\d+, capacity: ${all}$`),
    );
    await fleet.kubectl(["delete", "pod", "greedy", "--wait=false"]);
    await clear(agent);
    assert.match(await guest.output("cat /proc/meminfo"), new RegExp(`HugePages_Free: +${HUGE_PAGES}\n`));
    assert.equal(await guest.output("grep picolet.*hugetlbfs /proc/mounts || true"), "");
  });

  test("pods that stall together are relieved of one before the kernel kills anything", async () => {
    await fleet.untilNodeReady(NODE);
    await guest.output(`echo 48M > ${KUBEPODS}/memory.high`);
    const leaking = { command: ["load", "leak", "20"], resources: { requests: SMALL } };
    // By the API server, because static pods are not evicted.
    const items = [calm(), podOf("leaks", leaking, { nodeName: NODE, restartPolicy: "Never" })];
    await fleet.apply({ apiVersion: "v1", kind: "List", items });
    const pods = await agent.waitForPods("the leak has ended", (all) => all.get("leaks")?.status?.phase === "Failed");
    const { reason, message } = pods.get("leaks")?.status ?? {};
    assert.equal(reason, "Evicted", `${message}\n${await agent.log()}`);
    assert.match(message ?? "", /^The node was low on resource: memory\./);
    assert.match(await agent.log(400), /processes wait for memory, though the eviction threshold is not met/);
    assert.doesNotMatch(await agent.log(400), /an eviction threshold is met/);
    assert.match(await guest.output("cat /proc/vmstat"), /^oom_kill 0$/m);
    assert.ok(
      isReady(pods.get("calm")) && restartsOf(pods.get("calm")) === 0,
      JSON.stringify(pods.get("calm")?.status),
    );
  });
});

const calm = (): object =>
  podOf("calm", { command: ["load", "hold", "0"], resources: { requests: SMALL } }, { nodeName: NODE });

function paging(name: string, size: string, script: string, spec: Fields = {}): object {
  const limits = { "hugepages-2Mi": size, memory: "16Mi", cpu: "50m" };
  const container = {
    ...{ command: ["sh", "-c", `trap 'exit 0' TERM; ${script}`], resources: { limits } },
    volumeMounts: [{ name: "huge", mountPath: "/huge" }],
  };
  return podOf(name, container, { volumes: [{ name: "huge", emptyDir: { medium: "HugePages" } }], ...spec });
}

const inContext = (appArmorProfile: Fields | undefined): Fields =>
  appArmorProfile === undefined ? {} : { securityContext: { appArmorProfile } };
