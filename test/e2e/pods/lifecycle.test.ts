/** Hooks, sidecars, probes, deadlines and debugging as a user sees them: the real agent, a real containerd. */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { ContainerStatus, Pod } from "@picolet/protocol/pod/pod.ts";
import { isReady, type PodsByName } from "@picolet/scripts/start/follow-pods.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { containerPod, edgectl, nodeWith } from "../../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../../support/containerd/containerd.ts";
import { BUSYBOX_IMAGE } from "../../support/containerd/test-images.ts";
import { settled } from "../../support/unit/ports/settled.ts";

const skip = containerdMissing() ?? false;
const SLEEP = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
/** Nothing that ends a pod here takes as long. */
const GRACE_S = 20;
/** A second, which is what a probe has by default, is less than a machine with much to do has been seen to take. */
const PATIENT = { periodSeconds: 1, timeoutSeconds: 60 };

let containerd: Containerd;
let node: AgentNode;
/** Containers write down here what they do, in order. */
let diary: string;

before(async () => {
  if (skip !== false) return;
  diary = mkdtempSync(join(tmpdir(), "picolet-diary-"));
  containerd = await Containerd.start();
  node = nodeWith(containerd);
  await node.start();
});

after(async () => {
  if (skip !== false) return;
  await node[Symbol.asyncDispose]();
  await containerd[Symbol.asyncDispose]();
  rmSync(diary, { recursive: true });
});

const sh = (script: string) => ["/bin/sh", "-c", script];
const note = (text: string): string => `echo ${text} >> /diary/log`;
const exec = (script: string) => ({ exec: { command: sh(script) } });

/** Runs until it receives SIGTERM, and notes its start and its end. */
const noting = (name: string, given: object = {}): object => ({
  name,
  image: BUSYBOX_IMAGE,
  command: sh(
    `${note(`${name} starts`)}; trap '${note(`${name} ends`)}; exit 0' TERM; while :; do sleep 3600 & wait $!; done`,
  ),
  volumeMounts: [{ name: "diary", mountPath: "/diary" }],
  ...given,
});

const podWith = (name: string, spec: object): unknown => {
  const volumes = [{ name: "diary", hostPath: { path: diary } }];
  return containerPod(name, SLEEP, { terminationGracePeriodSeconds: GRACE_S, volumes, ...spec });
};

function notes(): string[] {
  const path = join(diary, "log");
  return existsSync(path) ? readFileSync(path, "utf8").trim().split("\n") : [];
}

function takeNotes(): string[] {
  const taken = notes();
  rmSync(join(diary, "log"), { force: true });
  return taken;
}

const statusOf = (pod: Pod | undefined, name: string): ContainerStatus | undefined =>
  [
    ...(pod?.status?.containerStatuses ?? []),
    ...(pod?.status?.initContainerStatuses ?? []),
    ...(pod?.status?.ephemeralContainerStatuses ?? []),
  ].find((each) => each.name === name);

const named = (pods: PodsByName, name: string): Pod | undefined => pods.get(`${name}-node`);

async function gone(name: string): Promise<void> {
  node.removeManifest(`${name}.json`);
  await node.waitForPods(`the end of ${name}`, (pods) => named(pods, name) === undefined);
}

interface EventShown {
  readonly involvedObject: { readonly name: string; readonly fieldPath?: string };
  readonly reason: string;
  readonly message: string;
}

const eventsOf = (name: string): string[] =>
  (JSON.parse(edgectl(node, "events", "-o", "json")) as { readonly items: readonly EventShown[] }).items
    .filter(({ involvedObject }) => involvedObject.name === `${name}-node`)
    .map(({ involvedObject, reason, message }) => `${reason} ${involvedObject.fieldPath ?? ""}: ${message}`);

describe("a pod's life", { skip }, () => {
  test("init containers, sidecars and hooks: in order up, and in order down", async () => {
    const lifecycle = { postStart: exec(`sleep 1; ${note("app hooked")}`), preStop: exec(note("app stopping")) };
    const spec = {
      initContainers: [
        noting("proxy", { restartPolicy: "Always", startupProbe: { ...exec("true"), ...PATIENT } }),
        { ...noting("setup"), command: sh(note("setup done")) },
        noting("log", { restartPolicy: "Always", lifecycle: { preStop: exec(note("log stopping")) } }),
      ],
      containers: [noting("app", { lifecycle }), noting("last")],
    };
    node.writeManifest("order.json", podWith("order", spec));
    const pods = await node.waitForPods("order to be ready", (all) => isReady(named(all, "order")));
    const init = named(pods, "order")?.status?.initContainerStatuses ?? [];
    assert.deepEqual(
      init.map(({ name, ready, started }) => [name, ready, started]),
      [
        ["proxy", true, true],
        ["setup", true, false],
        ["log", true, true],
      ],
    );
    // A container without probes is ready as soon as it runs, which may be before its shell has written.
    assert.deepEqual(await settled(() => (notes().includes("last starts") ? [] : ["last starts"])), []);
    const up = takeNotes();
    assert.deepEqual(up, ["proxy starts", "setup done", "log starts", "app starts", "app hooked", "last starts"]);
    await gone("order");
    const down = takeNotes();
    assert.deepEqual(down.slice(-2), ["log ends", "proxy ends"]);
    assert.deepEqual(down.slice(0, -2).sort(), ["app ends", "app stopping", "last ends", "log stopping"]);
    assert.ok(down.indexOf("app stopping") < down.indexOf("app ends"));
  });

  test("hooks that fail are told of as a kubelet tells, and the container starts again", async () => {
    const lifecycle = { postStart: exec("echo nothing; exit 3") };
    node.writeManifest("hooked.json", podWith("hooked", { containers: [noting("app", { lifecycle })] }));
    await node.waitForPods("a failed hook", (pods) => {
      const app = statusOf(named(pods, "hooked"), "app");
      return app?.state.waiting?.reason === "PostStartHookError" || app?.state.waiting?.reason === "CrashLoopBackOff";
    });
    const events = eventsOf("hooked");
    assert.ok(events.includes("FailedPostStartHook spec.containers{app}: PostStartHook failed"), events.join("\n"));
    assert.ok(events.includes("Killing spec.containers{app}: FailedPostStartHook"), events.join("\n"));
    await gone("hooked");
    takeNotes();
  });

  test("a liveness probe that fails restarts the container; its last words are its lastState's message", async () => {
    const livenessProbe = { ...exec("test ! -e /bad"), ...PATIENT, failureThreshold: 1 };
    const script =
      "trap 'echo goodbye > /dev/termination-log; exit 5' TERM; sleep 1; touch /bad; while :; do sleep 3600 & wait $!; done";
    const app = { name: "app", image: BUSYBOX_IMAGE, command: sh(script), livenessProbe };
    node.writeManifest("probed.json", podWith("probed", { containers: [app] }));
    const pods = await node.waitForPods(
      "a restart",
      (all) => (statusOf(named(all, "probed"), "app")?.restartCount ?? 0) > 0,
    );
    const last = statusOf(named(pods, "probed"), "app")?.lastState.terminated;
    assert.deepEqual([last?.exitCode, last?.message], [5, "goodbye\n"]);
    const killing = "Killing spec.containers{app}: Container app failed liveness probe, will be restarted";
    assert.ok(eventsOf("probed").includes(killing), eventsOf("probed").join("\n"));
    await gone("probed");
  });

  test("activeDeadlineSeconds fails the pod, and the next agent leaves it so", async () => {
    node.writeManifest("late.json", podWith("late", { activeDeadlineSeconds: 2 }));
    const pods = await node.waitForPods("a deadline", (all) => named(all, "late")?.status?.phase === "Failed");
    const { reason, message } = named(pods, "late")?.status ?? {};
    const said = "Pod was active on the node longer than the specified deadline";
    assert.deepEqual([reason, message], ["DeadlineExceeded", said]);
    await node.kill();
    await node.start();
    const again = await node.waitForPods("the pod as it was", (all) => named(all, "late") !== undefined);
    assert.equal(named(again, "late")?.status?.reason, "DeadlineExceeded");
    await gone("late");
  });

  test("an ephemeral container sees the processes of its target, and nothing else is touched", async () => {
    const app = { name: "app", image: BUSYBOX_IMAGE, command: sh(SLEEP) };
    const pod = (spec: object): string => {
      const path = join(diary, "pushed.json");
      writeFileSync(path, JSON.stringify(podWith("pushed", { containers: [app], ...spec })));
      return path;
    };
    edgectl(node, "apply", "-f", pod({}));
    const before = await node.waitForPods("pushed to be ready", (all) => isReady(named(all, "pushed")));
    const command = sh("cat /proc/1/cmdline > /dev/termination-log; exit 4");
    const debug = { name: "debug", image: BUSYBOX_IMAGE, command, targetContainerName: "app" };
    edgectl(node, "apply", "-f", pod({ ephemeralContainers: [debug] }));
    const pods = await node.waitForPods(
      "debug to end",
      (all) => statusOf(named(all, "pushed"), "debug")?.state.terminated !== undefined,
    );
    const ended = statusOf(named(pods, "pushed"), "debug")?.state.terminated;
    assert.equal(ended?.exitCode, 4);
    assert.match(ended?.message ?? "", /sleep 3600/);
    const own = (all: PodsByName) => statusOf(named(all, "pushed"), "app")?.containerID;
    assert.equal(own(pods), own(before));
    assert.equal(isReady(named(pods, "pushed")), true);
    const started = "Started spec.ephemeralContainers{debug}: Started container debug";
    assert.ok(eventsOf("pushed").includes(started), eventsOf("pushed").join("\n"));
  });

  test("a pod that dies in its preStop hook's time is ended by the next agent", async () => {
    const lifecycle = { preStop: exec(`${note("stopping")}; sleep 3`) };
    node.writeManifest("slow.json", podWith("slow", { containers: [noting("app", { lifecycle })] }));
    await node.waitForPods("slow to be ready", (pods) => isReady(named(pods, "slow")));
    node.removeManifest("slow.json");
    await node.waitForEvent(
      "its stop",
      ({ involvedObject, reason }) => involvedObject.name === "slow-node" && reason === "Killing",
    );
    await node.kill();
    await node.start();
    await node.waitForPods("its end", (pods) => named(pods, "slow") === undefined);
    assert.equal(takeNotes().at(-1), "app ends");
  });
});
