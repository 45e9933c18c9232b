/** Runs copies of the distributions on a machine that has nothing else, with all that they load on demand. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { copyFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { KubeTransport } from "@picolet/hub/kubernetes/kube-transport.ts";
import { loadKubeconfigAccess } from "@picolet/hub/kubernetes/kubeconfig-access.ts";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { StatusReport } from "@picolet/protocol/local-api/status.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { HubProcess } from "@picolet/scripts/start/hub-process.ts";
import { AgentNode } from "../support/agent/agent-process.ts";
import { componentPod, containerPod } from "../support/agent/node-fixtures.ts";
import { Containerd, containerdMissing } from "../support/containerd/containerd.ts";
import { Registry, registryMissing } from "../support/containerd/real-registry.ts";
import { EmptyMachine, emptyMachineMissing } from "../support/distribution/empty-machine.ts";
import { FleetAdmin } from "../support/hub/fleet-admin.ts";
import { endProcess, untilPrinted } from "../support/hub/test-fleet.ts";
import { artifact, WASM_CONFIG } from "../support/unit/images/oci-content.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";
import { PseudoTerminal } from "../support/unit/wasm/pseudo-terminal.ts";
import { type TestComponent, testComponent } from "../support/wasm/components.ts";

const missing = emptyMachineMissing() || containerdMissing() || registryMissing();
const skip = missing ?? false;

const NEVER = new AbortController().signal;

type Fields = Readonly<Record<string, unknown>>;

/** Without a token: containerd, outside, would not see the volume in memory that it is on. */
const ofNode = (pod: unknown, annotations: Fields = {}): Fields => {
  const { metadata, spec } = pod as { readonly metadata: Fields; readonly spec: Fields };
  return {
    metadata: { ...metadata, annotations },
    spec: { ...spec, nodeName: "node-a", automountServiceAccountToken: false },
  };
};

describe("on a machine with nothing but a base system", { skip }, () => {
  const machine = new EmptyMachine();
  const hubFolder = new TempFolder();
  const port = new PseudoTerminal();
  let containerd: Containerd;
  let registry: Registry;
  let hub: HubProcess;
  let node: AgentNode;
  let admin: FleetAdmin;

  const edgectl = (...args: readonly string[]): string =>
    machine.run(["/opt/board/bin/edgectl", "--socket", node.socketPath, ...args], [node.directory]);

  /** All that a pod's log has until it has said `text`. A pod is ready when its container begins. */
  const said = async (pod: string, text: string): Promise<void> => {
    const command = ["/opt/board/bin/edgectl", "--socket", node.socketPath, "logs", "-f", pod];
    const [program, ...args] = machine.command(command, [node.directory]);
    const follower = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
    try {
      await untilPrinted(follower, (printed) => printed.includes(text));
    } finally {
      await endProcess(follower);
    }
  };

  /** @returns the name by which the node has it */
  const imported = async (source: TestComponent): Promise<string> => {
    const file = join(node.directory, "component.wasm");
    copyFileSync(await testComponent(source), file);
    const name = `localhost/${source.replace(".", "-")}:1`;
    edgectl("image", "import", file, "--name", name);
    return name;
  };

  /** @returns the name by which the registry has it */
  const pushed = async (source: TestComponent): Promise<string> => {
    const component = readFileSync(await testComponent(source));
    await registry.pushContent("pulled", "1", artifact(component), [component, WASM_CONFIG]);
    return `${registry.address}/pulled:1`;
  };

  before(async () => {
    machine.install("dist/board", "/opt/board");
    machine.install("dist/hub", "/opt/hub");
    machine.write("/opt/package.json", "Node would read this, were it to look above its program");
    [containerd, registry] = await Promise.all([Containerd.start(), Registry.start()]);
    const picoletHub = machine.command(["/opt/hub/bin/picolet-hub"], [hubFolder.path]);
    const dataDir = hubFolder.at("data");
    hub = await HubProcess.start({ dataDir, program: picoletHub });
    const words = ["token", "create", "--embedded", "--data-dir", dataDir];
    const token = machine.run(["/opt/hub/bin/picolet-hub", ...words], [hubFolder.path]).trim();
    node = new AgentNode({
      program: (directory) => machine.command(["/opt/board/bin/picolet"], [directory, containerd.directory]),
      config: {
        nodeName: "node-a",
        containerRuntimeEndpoint: `unix://${containerd.socketPath}`,
        hub: { server: hub.ready.tunnel, token, caHash: [hub.ready.caHash] },
      },
    });
    await node.start();
    admin = await FleetAdmin.of(hub);
    await admin.untilCondition("node-a", "Ready", "True");
  });

  after(async () => {
    await using all = new AsyncDisposableStack();
    all.use(machine);
    all.use(hubFolder);
    all.use(port);
    all.defer(() => hub?.end("SIGTERM"));
    for (const each of [containerd, registry, node, admin]) if (each !== undefined) all.use(each);
    all.defer(() => admin?.clear());
  });

  test("a container runs", async () => {
    await admin.create(PODS, ofNode(containerPod("container", "echo from a container; exec sleep 3600")));
    await admin.untilPod("container", "ready", isReady);
    await said("container", "from a container\n");
  });

  test("components run: alone, in one process, pulled, with services of the board, with a device", async () => {
    const pulled = await pushed("script.c");
    const scripts = await imported("script.c");
    const boards = await imported("board.c");
    const serials = await imported("serial.c");
    const interfaces = "wasm.picolet.io/interfaces";
    const pods: readonly (readonly [name: string, image: string, args: readonly string[], annotations: Fields])[] = [
      ["alone", scripts, ["say", "alone", "hold"], {}],
      ["dense", scripts, ["say", "dense", "hold"], { "wasm.picolet.io/mode": "dense" }],
      ["pulled", pulled, ["say", "pulled", "hold"], {}],
      [
        "board",
        boards,
        ["open", "things", "set", "key", "board", "get", "key", "hold"],
        { [interfaces]: "keyvalue,config,logging,node-info", "wasm.picolet.io/keyvalue": "things=64Ki" },
      ],
      [
        "device",
        serials,
        ["open", port.path, "9600", "8", "0", "1", "0", "write", "device", "hold"],
        { [interfaces]: "serial", "wasm.picolet.io/devices": `serial:${port.path}` },
      ],
    ];
    for (const [name, image, args, annotations] of pods)
      await admin.create(PODS, ofNode(componentPod(name, { image, args }), annotations));
    for (const [name] of pods) await admin.untilPod(name, "ready", isReady);
    for (const [name] of pods.filter(([each]) => each !== "device")) await said(name, name);
    assert.equal((await port.read("device".length)).toString(), "device");
  });

  test("the hub reads a large object of YAML, which takes it a thread", async () => {
    const access = await loadKubeconfigAccess({ kubeconfig: hub.ready.kubeconfig });
    await using transport = new KubeTransport({ access, clock: systemClock, random: { next: Math.random } });
    const text = "x".repeat(8192);
    const body = `apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: large\ndata:\n  text: ${text}\n`;
    const path = "/api/v1/namespaces/default/configmaps";
    const headers = { "content-type": "application/yaml" };
    const kept = await transport.send({ method: "POST", path, headers, body, what: "create configmap" }, NEVER);
    assert.deepEqual((kept as { readonly data?: unknown }).data, { text });
  });

  test("edgectl shows a healthy node that has joined, and runs a component by itself", async () => {
    const status = JSON.parse(edgectl("status", "-o", "json")) as StatusReport;
    assert.deepEqual(
      { ready: status.ready, tunnel: status.tunnel.state, runtimes: status.runtimes.map(({ ready }) => ready) },
      { ready: true, tunnel: "connected", runtimes: [true, true] },
    );
    machine.install(await testComponent("script.c"), "/opt/script.wasm");
    const words = ["wasm", "run", "/opt/script.wasm", "say", "ran"];
    assert.equal(machine.run(["/opt/board/bin/edgectl", ...words]), "ran\n");
  });

  test("edgectl alone, with Node, talks to an agent", () => {
    using other = new EmptyMachine();
    for (const path of ["bin/edgectl", "lib/edgectl.cjs", "lib/node"])
      other.install(`dist/board/${path}`, `/opt/${path}`);
    const words = ["--socket", node.socketPath, "status", "-o", "json"];
    const status = JSON.parse(other.run(["/opt/bin/edgectl", ...words], [node.directory])) as StatusReport;
    assert.equal(status.node, "node-a");
    assert.throws(
      () => other.run(["/opt/bin/edgectl", "wasm", "check", "/opt/lib/edgectl.cjs"]),
      /this edgectl came without .*component-tool.mjs: install picolet whole/,
    );
  });
});
