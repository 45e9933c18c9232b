/**
 * The surroundings of an emulated board, on this machine's loopback: a real hub, and a real registry with images,
 * components and updates. A meter before the registry counts the bytes that the board fetches.
 */
import { execFile, execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { writeSystemArtifact } from "@picolet/firmware/updates/oci-artifact.ts";
import { BootstrapTokens } from "@picolet/hub/identity/bootstrap-tokens.ts";
import { type KubeObject, NODES, PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { parseReport, type UpdateProgress } from "@picolet/protocol/updates/node-updates.ts";
import { isReady } from "@picolet/scripts/start/follow-pods.ts";
import { stringify } from "yaml";
import { componentPod, containerPod, HELLO_COMPONENT } from "../agent/node-fixtures.ts";
import { Registry } from "../containerd/real-registry.ts";
import { buildBusyboxArchive } from "../containerd/test-images.ts";
import { FleetAdmin } from "../hub/fleet-admin.ts";
import { Fleet } from "../hub/test-fleet.ts";
import { artifact, WASM_CONFIG } from "../unit/images/oci-content.ts";
import { fixedPort } from "../unit/machine/fixed-port.ts";
import { BOOT_LIMIT_MS, HOST_ADDRESS } from "./emulated-board.ts";

const execute = promisify(execFile);
const SSH_LIMIT_MS = 180_000;
const SKOPEO = "/usr/bin/skopeo";
/** As long as a suite of many boots takes. */
const TOKEN_LIFE = seconds(24 * 3600);
const NEVER = new AbortController().signal;
/** The board's node. */
export const NODE = "board-1";

export class BoardFleet implements AsyncDisposable {
  readonly fleet: Fleet;
  /** A port of loopback for `BoardOptions.sshPort`. */
  readonly sshPort: number;
  readonly #registry: Registry;
  readonly #meter: Meter;
  #admin: FleetAdmin;

  private constructor(fleet: Fleet, registry: Registry, meter: Meter, admin: FleetAdmin, sshPort: number) {
    this.fleet = fleet;
    this.sshPort = sshPort;
    this.#registry = registry;
    this.#meter = meter;
    this.#admin = admin;
  }

  static async start(): Promise<BoardFleet> {
    const fleet = await Fleet.start(["--server-name", HOST_ADDRESS]);
    const registry = await Registry.start();
    const meter = await Meter.start(Number(registry.address.split(":")[1]));
    const key = join(fleet.folder.path, "ssh-key");
    execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", key]);
    return new BoardFleet(fleet, registry, meter, await FleetAdmin.of(fleet), await fixedPort());
  }

  get admin(): FleetAdmin {
    return this.#admin;
  }

  /** Bytes that the registry has sent to the board. */
  get bytesFetched(): number {
    return this.#meter.bytes;
  }

  get #registryOfBoard(): string {
    return `${HOST_ADDRESS}:${this.#meter.port}`;
  }

  /** A `picolet.yaml` with a new token. */
  async boardFile(more: Readonly<Record<string, unknown>> = {}, { replaceNodes = false } = {}): Promise<string> {
    const tokens = new BootstrapTokens({ client: this.#admin.client, clock: systemClock });
    const token = await tokens.create({ ttlMs: TOKEN_LIFE, description: "", replaceNodes }, NEVER);
    const { caHash } = this.fleet.ready;
    return stringify({
      hub: { server: `${HOST_ADDRESS}:${this.fleet.tunnelPort}`, token, caHash },
      node: { name: NODE },
      registries: [{ host: this.#registryOfBoard, insecure: true }],
      ssh: { authorizedKeys: [readFileSync(join(this.fleet.folder.path, "ssh-key.pub"), "utf8").trim()] },
      ...more,
    });
  }

  /** Runs a command over SSH as the board's user. @returns what it prints */
  async ssh(...command: readonly string[]): Promise<string> {
    const quiet = ["UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "LogLevel=ERROR", "BatchMode=yes"];
    const options = [...quiet, "ConnectTimeout=60"].flatMap((each) => ["-o", each]);
    const key = join(this.fleet.folder.path, "ssh-key");
    const address = ["-i", key, "-p", String(this.sshPort), "picolet@127.0.0.1"];
    const { stdout } = await execute("ssh", [...options, ...address, ...command], { timeout: SSH_LIMIT_MS });
    return stdout;
  }

  /** Puts an image and a component into the registry. */
  async pushWorkloads(): Promise<void> {
    const image = `docker://${this.#registry.address}/busybox:1`;
    this.#skopeo(`docker-archive:${buildBusyboxArchive()}`, image);
    const component = readFileSync(HELLO_COMPONENT);
    await this.#registry.pushContent("hello", "1", artifact(component), [component, WASM_CONFIG]);
  }

  /** A pod of that image, or of that component, for this board unless another one is named. */
  workload(
    kind: "container" | "component",
    name: string,
    { nodeName = NODE, ...more }: { readonly nodeName?: string; readonly env?: readonly object[] } = {},
  ): Readonly<Record<string, unknown>> {
    const pod = (kind === "container" ? containerPod(name) : componentPod(name)) as { readonly spec: PodSpec };
    const image = `${this.#registryOfBoard}/${kind === "container" ? "busybox:1" : "hello:1"}`;
    const containers = pod.spec.containers.map((each) => ({
      ...each,
      image,
      imagePullPolicy: "IfNotPresent",
      ...more,
    }));
    return { ...pod, spec: { ...pod.spec, nodeName, containers } };
  }

  /** Puts a bundle of RAUC into the registry. @returns the reference for `picolet.io/os-image` */
  async publish(bundle: string): Promise<string> {
    const written = await writeSystemArtifact([bundle], join(this.fleet.folder.path, "artifact"));
    this.#skopeo(`oci:${written.folder}:${written.tag}`, `docker://${this.#registry.address}/os:${written.tag}`);
    return `${this.#registryOfBoard}/os:${written.tag}`;
  }

  #skopeo(from: string, to: string): void {
    execFileSync(SKOPEO, ["copy", "--quiet", "--all", "--dest-tls-verify=false", from, to], { stdio: "pipe" });
  }

  /** Annotations of the board's Node; null takes one away. */
  async annotate(annotations: Readonly<Record<string, string | null>>): Promise<void> {
    await this.#admin.patch(NODES, NODE, { metadata: { annotations } });
  }

  /** The first object that fits. Boots take longer than the limit of one wait of `FleetAdmin`. */
  async #until(type: typeof NODES, what: string, fits: (each: KubeObject) => boolean, limitMs: number) {
    const end = performance.now() + limitMs;
    for (;;) {
      try {
        return await this.#admin.until(type, what, fits);
      } catch (error) {
        if (performance.now() > end) throw error;
      }
    }
  }

  async untilNodeReady(limitMs = 2 * BOOT_LIMIT_MS, name = NODE): Promise<KubeObject> {
    const isReady = (node: KubeObject): boolean => node.metadata.name === name && conditionOf(node, "Ready") === "True";
    return await this.#until(NODES, `${name} is Ready`, isReady, limitMs);
  }

  async untilPod(name: string, fits: (pod: Pod) => boolean = isReady, limitMs = BOOT_LIMIT_MS): Promise<Pod> {
    const isIt = (each: KubeObject): boolean => each.metadata.name === name && fits(each as unknown as Pod);
    return (await this.#until(PODS, `the pod ${name}`, isIt, limitMs)) as unknown as Pod;
  }

  /** Until the board reports one of these states for the target. @returns what it reports */
  async untilUpdate(target: string, states: readonly string[], limitMs: number): Promise<UpdateProgress> {
    const progressOf = (node: KubeObject): UpdateProgress | undefined =>
      parseReport(
        node.metadata.name === NODE ? (node.metadata.annotations?.["picolet.io/update-status"] ?? "") : "",
      )?.updates.find((each) => each.target === target && states.includes(each.state));
    const what = `${target} is ${states.join(" or ")}`;
    const node = await this.#until(NODES, what, (each) => progressOf(each) !== undefined, limitMs);
    const progress = progressOf(node);
    if (progress === undefined) throw new Error(`${what} no more`);
    return progress;
  }

  async stopHub(): Promise<void> {
    await this.#admin[Symbol.asyncDispose]();
    await this.fleet.endHub("SIGTERM");
  }

  async startHub(): Promise<void> {
    await this.fleet.startHub();
    this.#admin = await FleetAdmin.of(this.fleet);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#admin[Symbol.asyncDispose]();
    await this.fleet[Symbol.asyncDispose]();
    this.#meter[Symbol.dispose]();
    await this.#registry[Symbol.asyncDispose]();
  }
}

interface PodSpec {
  readonly containers: readonly object[];
}

export function conditionOf(node: KubeObject, type: string): string | undefined {
  const { conditions = [] } = (node.status ?? {}) as { conditions?: readonly { type: string; status: string }[] };
  return conditions.find((each) => each.type === type)?.status;
}

/** Passes connections on, and counts the bytes that come back. */
class Meter implements Disposable {
  bytes = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(to: number) {
    this.#server = createServer((socket) => {
      const inner = connect(to, "127.0.0.1");
      inner.on("data", (data) => {
        this.bytes += data.length;
      });
      for (const [one, other] of [
        [socket, inner],
        [inner, socket],
      ] as const) {
        this.#sockets.add(one);
        one.pipe(other);
        one.on("error", () => other.destroy()).on("close", () => this.#sockets.delete(one));
      }
    });
  }

  static async start(to: number): Promise<Meter> {
    const meter = new Meter(to);
    await new Promise<void>((listening) => meter.#server.listen(0, "127.0.0.1", listening));
    return meter;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  [Symbol.dispose](): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
