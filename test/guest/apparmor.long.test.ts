/**
 * AppArmor, which most machines of tests lack, with a real agent, a real containerd and real pods.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import { BUSYBOX_IMAGE } from "../support/containerd/test-images.ts";
import { Guest, guestMissing } from "../support/guest/guest.ts";
import type { GuestAgent } from "../support/guest/guest-agent.ts";

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

const PROFILE = "guest-deny";
const PROFILE_TEXT = `profile ${PROFILE} flags=(attach_disconnected,mediate_deleted) {
  file,
  capability,
  signal,
  deny /data/** w,
}
`;

describe("a board whose kernel has AppArmor", { skip }, () => {
  let guest: Guest;
  let agent: GuestAgent;

  before(async () => {
    guest = await Guest.start({ kernelArguments: "apparmor=1 security=apparmor" });
    await guest.upload(`/etc/apparmor.d/${PROFILE}`, PROFILE_TEXT);
    await guest.output(
      [
        `apparmor_parser --replace /etc/apparmor.d/${PROFILE}`,
        "sed -i 's/disable_apparmor = true/disable_apparmor = false/' /etc/containerd/config.toml",
        "systemctl restart containerd",
      ].join(" && "),
    );
    agent = await guest.agent();
  });

  after(async () => {
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
});

const inContext = (appArmorProfile: Fields | undefined): Fields =>
  appArmorProfile === undefined ? {} : { securityContext: { appArmorProfile } };
