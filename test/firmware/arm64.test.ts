/**
 * All machine code of the arm64 distributions on an emulated machine of that architecture, with the release and kernel
 * of the images for boards: the agent with containers, components and devices, edgectl, and the hub, which it joins.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { StatusReport } from "@picolet/protocol/local-api/status.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import type { HubReady } from "@picolet/scripts/start/hub-process.ts";
import { containerPod } from "../support/agent/node-fixtures.ts";
import { Guest, guestMissing } from "../support/guest/guest.ts";
import type { GuestAgent } from "../support/guest/guest-agent.ts";
import { GUEST_ARCHITECTURES } from "../support/guest/guest-architecture.ts";
import { testComponent } from "../support/wasm/components.ts";

const ARM64 = GUEST_ARCHITECTURES.arm64;
/** Bounds one command that waits for the hub, which answers within a minute on a quiet machine. */
const SLOW_MS = 900_000;
const LIBRARIES = "/opt/picolet/dist/board/lib";
const HUB_PORT = 10_270;
const HUB_DATA = "/var/lib/picolet-hub";
const HUB_FLAGS = `--embedded --data-dir ${HUB_DATA}`;
/** The machine's GPIO controller, a PL061. */
const CHIP = "/dev/gpiochip0";

// It boots a machine of another architecture, minutes of a processor: `npm run test:arm64`.
if (process.env.PICOLET_ARM64 === "1") describe("the arm64 distributions on an arm64 machine", arm64Tests);

const componentPod = (name: string, args: readonly string[], annotations: object = {}): unknown => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, annotations },
  spec: {
    runtimeClassName: "wasm",
    terminationGracePeriodSeconds: 1,
    restartPolicy: "Never",
    containers: [{ name: "app", image: `file:///root/${name}.wasm`, args }],
  },
});

const podFile = (name: string): string => `/etc/picolet/manifests/${name}.json`;

function arm64Tests(): void {
  let guest: Guest;
  let agent: GuestAgent;
  let begun = 0;
  const secondsSince = (start: number): string => ((performance.now() - start) / 1000).toFixed(1);

  before(async () => {
    assert.equal(guestMissing(ARM64), undefined);
    const build = ["scripts/build/build.ts", "--platform", ARM64.platform];
    const { status, stderr } = spawnSync(process.execPath, build, { encoding: "utf8" });
    assert.equal(status, 0, stderr);
    const component = await testComponent("script.c");
    const pins = await testComponent("pins.c");
    // The hub's Node and addon are the board's.
    guest = await Guest.start({ architecture: "arm64", memoryMiB: 1024 });
    await guest.output("cd /opt/picolet/dist/hub/lib && ln -s ../../board/lib/node ../../board/lib/node_modules .");
    begun = performance.now();
    agent = await guest.agent({
      files: {
        "/root/script.wasm": readFileSync(component),
        "/root/pins.wasm": readFileSync(pins),
        [podFile("script")]: JSON.stringify(componentPod("script", ["hold"])),
      },
    });
  });

  after(async () => {
    await guest?.[Symbol.asyncDispose]();
  });

  test("the machine is an ARMv8.0 with the generic kernel", async () => {
    assert.match(await guest.output("uname -m -r"), /^\d\S+-arm64 aarch64\n$/);
    assert.doesNotMatch(await guest.output("grep -m 1 Features /proc/cpuinfo"), /atomics/);
  });

  test("the agent transpiles a component and runs it, and edgectl shows it ready", async (context) => {
    context.diagnostic(`the agent answered ${secondsSince(begun)} s after the call`);
    await agent.waitForPods("the component is ready", (pods) => isReady(pods.get("script-guest")));
    context.diagnostic(`the component was ready ${secondsSince(begun)} s after the agent's start`);
    const report = JSON.parse(await guest.output("edgectl status -o json")) as StatusReport;
    assert.equal(report.ready, true, JSON.stringify(report.conditions));
    assert.deepEqual(
      report.pods.map(({ name, ready, runtime }) => ({ name, ready, runtime })),
      [{ name: "script-guest", ready: true, runtime: "wasm" }],
    );
    const memory = await guest.output(`cat /proc/${await agent.pid()}/status`);
    const [rss, anon] = ["VmRSS", "RssAnon"].map((name) => new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(memory)?.[1]);
    context.diagnostic(`the agent with one component: RSS ${rss} KiB, anonymous ${anon} KiB`);
  });

  test("koffi sets a line of the kernel's GPIO for a component", async () => {
    const steps = ["output", `${CHIP}:0`, "1", "level", "input", `${CHIP}:1`, "read"];
    const annotations = {
      "wasm.picolet.io/interfaces": "gpio, i2c",
      // The component imports i2c too, and does not use it.
      "wasm.picolet.io/devices": `gpio:${CHIP}:0,1; i2c:/dev/i2c-0:0x48`,
    };
    await agent.writeManifest("pins.json", componentPod("pins", steps, annotations));
    await agent.waitForPods("the component ended", (pods) => pods.get("pins-guest")?.status?.phase === "Succeeded");
    const said = await guest.output("edgectl logs pins");
    assert.deepEqual(said.trim().split("\n"), ["output", "level 1", "input", "read 0"]);
  });

  test("containerd runs a container beside them", async () => {
    await agent.writeManifest("web.json", containerPod("web", undefined, { hostNetwork: true }));
    await agent.waitForPods("the container is ready", (pods) => isReady(pods.get("web-guest")));
  });

  test("better-sqlite3 has the hub's API server, and the agent joins it", async (context) => {
    const start = performance.now();
    const ready = await startHub(guest);
    context.diagnostic(`the hub served after ${secondsSince(start)} s`);
    const ask = `require("node:https").get("https://127.0.0.1:${HUB_PORT}/readyz", { rejectUnauthorized: false }, (answer) => {
      console.log(answer.statusCode);
      answer.pipe(process.stdout);
    })`;
    assert.equal(await guest.output(`${LIBRARIES}/node -e '${ask}'`), "200\nok");
    const { caHash } = ready;
    const hub = "/opt/picolet/dist/hub/bin/picolet-hub";
    await guest.output(`${hub} token create ${HUB_FLAGS} > /root/token && chmod 600 /root/token`);
    const join = `edgectl join 127.0.0.1:${HUB_PORT} --token-file /root/token --ca-hash ${caHash} --wait 10m`;
    assert.match(await guest.output(join, { timeoutMs: SLOW_MS }), /^node\/guest has joined$/m);
  });
}

/** As a unit of systemd. @returns what it prints once it serves */
async function startHub(guest: Guest): Promise<HubReady> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let output = "";
  const addresses = `--advertise-address 127.0.0.1 --tunnel-address 127.0.0.1:${HUB_PORT} --api-address 127.0.0.1:6443`;
  const line = `exec /opt/picolet/dist/hub/bin/picolet-hub serve ${HUB_FLAGS} ${addresses}`;
  const command = await guest.command(line, (text) => {
    output += text;
    const said = output.split("\n").find((each) => each.startsWith('{"tunnel"'));
    if (said !== undefined) resolve(said);
  });
  void command.ended.then((code) => reject(new Error(`the hub ended with ${code}\n${output}`)), reject);
  return JSON.parse(await promise) as HubReady;
}
