/** Preparations for commands of the documents: files and pods that they name, and the state that a reader waits for. */
import { readFileSync } from "node:fs";
import { totalmem } from "node:os";
import { resolve } from "node:path";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { restartsOf } from "../support/agent/agent-process.ts";
import { componentPod, containerPod, HELLO_IMAGE, SLEEP_SCRIPT } from "../support/agent/node-fixtures.ts";
import { BUSYBOX_IMAGE, buildBusyboxArchive } from "../support/containerd/test-images.ts";
import type { ReaderMachine } from "./reader-machine.ts";
import type { RunningCommand } from "./reader-shell.ts";

/** Commands that stay, and what they print when they are ready, besides what the document shows. */
export const SERVICES: readonly (readonly [start: string, ready: RegExp])[] = [
  ["npm start", /Ctrl-C ends the pods/],
  ["picolet --config", /local API listens/],
  ["picolet-hub --embedded", /^\{"tunnel"/m],
];

/** Commands that a reader ends with Ctrl-C as soon as they have printed something. */
export const ENDLESS =
  /^edgectl (?:attach|port-forward) |--watch\b|^edgectl (?:(?:get|logs|events) .*-[fw]\b|wasm run )/;

/**
 * For a document, by the beginning of a command or the path of a file: what is done before the command, or after the
 * file is written.
 */
type Preparations = Readonly<Record<string, (machine: ReaderMachine) => Promise<void>>>;

const AGENT = "picolet --config";
const HUB = "picolet-hub --embedded";
const CONFIG = "/etc/picolet/config.yaml";
const MANIFESTS = "/etc/picolet/manifests";
/** Memory for all pods of a node that runs short of memory. */
const PODS_BYTES = 400 * 1024 * 1024;
/** Fails in its first run, and writes a line in each. */
const ENDS_ONCE = `echo run; [ -e /shared/ran ] || { touch /shared/ran; exit 1; }; ${SLEEP_SCRIPT}`;
const SHARED_FOLDER = {
  containers: [
    {
      ...{ name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", ENDS_ONCE] },
      volumeMounts: [{ name: "shared", mountPath: "/shared" }],
    },
  ],
  volumes: [{ name: "shared", emptyDir: {} }],
};

function bucketPod(namespace: string, name: string, buckets: string): string {
  const pod = componentPod(name) as { readonly metadata: object };
  const annotations = { "wasm.picolet.io/interfaces": "keyvalue", "wasm.picolet.io/keyvalue": buckets };
  return JSON.stringify({ ...pod, metadata: { ...pod.metadata, namespace, annotations } });
}

async function restartAgent(machine: ReaderMachine): Promise<void> {
  const text = await machine.endService(AGENT, "SIGTERM");
  await machine.startService(text, (output) => output.includes("local API listens"));
}

async function untilReady(machine: ReaderMachine): Promise<void> {
  for (const condition of ["create", "condition=Ready"])
    await machine.prepare(`kubectl wait --for=${condition} node/vm --timeout=100s`);
}

const README: Preparations = {
  "npm run build": async (machine) => {
    await machine.endService("npm start", "SIGINT");
  },
  [AGENT]: async (machine) => {
    await machine.prepare(`ln -s ${machine.containerd.socketPath} /run/containerd/containerd.sock`);
  },
  [`${MANIFESTS}/sensor.yaml`]: async (machine) => {
    await machine.waitForPods("the sensor", (pods) => pods.get("sensor-vm")?.status?.phase === "Running");
  },
  "picolet-hub backup": async (machine) => {
    await restartAgent(machine);
    await untilReady(machine);
  },
  "picolet-hub restore": async (machine) => {
    // The agent first: a hub that ends gives its boards time to go elsewhere.
    await machine.endService(AGENT, "SIGTERM");
    await machine.endService(HUB, "SIGTERM");
  },
  "edgectl wasm check": async (machine) => {
    await machine.startService(`${HUB} --server-name hub.example`, (output) => output.includes('{"tunnel"'));
    await machine.startService(`${AGENT} ${CONFIG}`, (output) => output.includes("local API listens"));
  },
  "edgectl wasm run dist/examples/starts.wasm --dir": async (machine) => {
    await machine.prepare("mkdir -p data");
  },
};

const sensorWith = (image: string): unknown => containerPod("sensor", "", { containers: [{ name: "app", image }] });

const COMPONENTS: Preparations = {
  "edgectl kv list": async (machine) => {
    await machine.prepare(`edgectl image import dist/examples/hello.wasm --name ${HELLO_IMAGE}`);
    machine.write(
      `${MANIFESTS}/buckets.yaml`,
      [
        bucketPod("plant", "pump", "samples=4Mi/10000, models=1Mi"),
        bucketPod("default", "settings", "settings=64Ki"),
      ].join("\n---\n"),
    );
    await machine.waitForPods("pods with buckets", (pods) => [...pods.values()].every(isReady) && pods.size === 3);
    await machine.prepare("edgectl kv set plant/models pump model && edgectl kv set plant/samples 2026-11-23 1");
  },
};

const EDGECTL: Preparations = {
  "edgectl why web": async (machine) => {
    machine.write(`${MANIFESTS}/web.json`, JSON.stringify(containerPod("web", ENDS_ONCE, SHARED_FOLDER)));
    await machine.waitForPods("a pod that has been restarted", (pods) => restartsOf(pods.get("web-vm")) === 1);
    await machine.waitForPods("a pod that runs again", (pods) => isReady(pods.get("web-vm")));
  },
  "edgectl apply": async (machine) => {
    machine.write("pods.yaml", JSON.stringify(componentPod("applied")));
  },
  "edgectl delete pod trial": async (machine) => {
    machine.write("trial.json", JSON.stringify(componentPod("trial")));
    await machine.prepare("edgectl apply -f trial.json --yes");
  },
  "edgectl image import app.tar": async (machine) => {
    await machine.prepare(`cp ${resolve(buildBusyboxArchive())} app.tar`);
    await machine.prepare("cp dist/examples/hello.wasm hello.wasm; cp dist/examples/starts.wasm app.wasm");
    await machine.prepare("cp examples/starts/pod.yaml app.yaml");
  },
  "edgectl image rm": async (machine) => {
    await machine.prepare("edgectl image pull registry.example/app:1");
  },
  "edgectl keyvalue list": async (machine) => {
    await machine.prepare("edgectl kv set plant/samples 2026-11-23 1; edgectl kv set settings interval 5s");
  },
  "edgectl join": async (machine) => {
    await machine.prepare(`cp ${CONFIG} config.joined; picolet-hub token create --embedded > token`);
    machine.write("hub.pem", readFileSync(process.env.SSL_CERT_FILE ?? "", "utf8"));
  },
  "edgectl node shutdown &&": async (machine) => {
    await machine.prepare(`cp config.joined ${CONFIG}`);
    machine.append(CONFIG, "shutdownGracePeriod: 20s\n");
    await restartAgent(machine);
  },
  "edgectl completion fish": async (machine) => {
    await machine.prepare("mkdir -p ~/.config/fish/completions");
  },
};

const OPERATIONS: Preparations = {
  "edgectl status": async (machine) => {
    machine.write("none.json", JSON.stringify({ apiVersion: "v1", kind: "List", items: [] }));
    await machine.prepare(`cp ${CONFIG} config.before; rm ${MANIFESTS}/*; edgectl apply -f none.json`);
    await machine.waitForPods("a node without pods", (pods) => pods.size === 0);
    machine.append(CONFIG, `systemReserved: { memory: "${totalmem() - PODS_BYTES}" }\n`);
    machine.append(CONFIG, 'evictionHard: { memory.available: "100Mi" }\n');
    await restartAgent(machine);
    for (const [name, memory, script] of [
      ["good", "32Mi", SLEEP_SCRIPT],
      ["plain", "16Mi", SLEEP_SCRIPT],
      ["leak", "16Mi", "dd if=/dev/zero bs=320M count=1 | sleep 3600"],
    ] as const) {
      const resources = { requests: { memory } };
      const app = { name: "app", image: BUSYBOX_IMAGE, command: ["/bin/sh", "-c", script], resources };
      machine.write(`${name}.json`, JSON.stringify(containerPod(name, script, { containers: [app] })));
      await machine.prepare(`kubectl apply -f ${name}.json`);
      await machine.waitForPods(`the start of ${name}`, (pods) => pods.get(name)?.status?.startTime !== undefined);
    }
    await machine.waitForPods("the end of the pod that leaks", (pods) => {
      const { status } = pods.get("leak") ?? {};
      return status?.reason === "Evicted" && status.containerStatuses?.[0]?.state.terminated !== undefined;
    });
  },
};

const PODS: Preparations = {
  "edgectl status": async (machine) => {
    await machine.prepare(`kubectl delete pods --all; cp config.before ${CONFIG}`);
    await restartAgent(machine);
    machine.write(`${MANIFESTS}/sensor.yaml`, JSON.stringify(sensorWith("registry.example/sensor:3")));
    await machine.waitForPods("the sensor", (pods) => pods.size === 1 && isReady(pods.get("sensor-vm")));
    const manifest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: sensor\nspec:\n  containers: none\n";
    machine.write(`${MANIFESTS}/sensor.yaml`, manifest);
    await machine.waitForStatus("a manifest problem", ({ problems }) => problems.length === 1);
  },
  "edgectl images": async (machine) => {
    machine.registry.hold();
    machine.write(`${MANIFESTS}/sensor.yaml`, JSON.stringify(sensorWith("registry.example/sensor:4")));
    await machine.waitForEvent("a pull", ({ reason, message }) => reason === "Pulling" && message.includes("sensor:4"));
  },
  "edgectl image pull": async (machine) => machine.registry.release(),
};

export const PREPARATIONS: Readonly<Record<string, Preparations>> = {
  "README.md": README,
  "docs/components.md": COMPONENTS,
  "docs/edgectl.md": EDGECTL,
  "docs/operations.md": OPERATIONS,
  "docs/pods.md": PODS,
  "examples/hello/README.md": {
    "edgectl logs": async (machine) => {
      await machine.waitForPods("the component", (pods) => isReady(pods.get("hello-vm")));
    },
  },
};

/** Actions while an endless command runs, by the beginning of the command. */
export const DURING: readonly (readonly [
  start: string,
  act: (machine: ReaderMachine, command: RunningCommand) => Promise<void>,
])[] = [
  [
    "edgectl events -w --limit 0",
    // An event that comes before the command watches is not printed.
    async (machine, command) => {
      for (let count = 0; command.output === ""; count += 1) {
        const pod = componentPod(`event-${count}`, { image: "picolet.example/none:1", imagePullPolicy: "Never" });
        machine.write("event.json", JSON.stringify(pod));
        await machine.prepare("edgectl apply -f event.json");
      }
    },
  ],
  [
    "edgectl attach web",
    // A line that comes before the command follows the container is not printed.
    async (machine, command) => {
      while (command.output === "") await machine.prepare("edgectl exec web -- /bin/sh -c 'echo more > /proc/1/fd/1'");
    },
  ],
];
