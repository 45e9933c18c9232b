/**
 * A CSI driver for tests, over gRPC's own library. It judges requests as csi-driver-host-path does, and makes real
 * mounts: a tmpfs where a volume is staged, bind mounts of it where it is published.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import grpc from "@grpc/grpc-js";
import { fromJSON } from "@grpc/proto-loader";

type Fields = Readonly<Record<string, unknown>>;
type Call = grpc.ServerUnaryCall<Fields, Fields>;

const texts = (id: number): Fields => ({ keyType: "string", type: "string", id });
const field = (type: string, id: number): Fields => ({ type, id });
const text = (id: number): Fields => field("string", id);
const list = (type: string, id: number): Fields => ({ rule: "repeated", type, id });

/** The node service of csi.proto 1.11, with the numbers of the published definition. */
const DEFINITION = {
  nested: {
    csi: {
      nested: {
        v1: {
          nested: {
            Empty: { fields: {} },
            Topology: { fields: { segments: texts(1) } },
            MountVolume: { fields: { fs_type: text(1), mount_flags: list("string", 2), volume_mount_group: text(3) } },
            AccessMode: { fields: { mode: field("int32", 1) } },
            VolumeCapability: {
              oneofs: { access_type: { oneof: ["block", "mount"] } },
              fields: {
                block: field("Empty", 1),
                mount: field("MountVolume", 2),
                access_mode: field("AccessMode", 3),
              },
            },
            CapacityRange: { fields: { required_bytes: field("int64", 1), limit_bytes: field("int64", 2) } },
            NodeInfo: {
              fields: {
                node_id: text(1),
                max_volumes_per_node: field("int64", 2),
                accessible_topology: field("Topology", 3),
              },
            },
            Rpc: { fields: { type: field("int32", 1) } },
            Capability: { fields: { rpc: field("Rpc", 1) } },
            Capabilities: { fields: { capabilities: list("Capability", 1) } },
            Stage: {
              fields: {
                volume_id: text(1),
                publish_context: texts(2),
                staging_target_path: text(3),
                volume_capability: field("VolumeCapability", 4),
                secrets: texts(5),
                volume_context: texts(6),
              },
            },
            Unstage: { fields: { volume_id: text(1), staging_target_path: text(2) } },
            Publish: {
              fields: {
                volume_id: text(1),
                publish_context: texts(2),
                staging_target_path: text(3),
                target_path: text(4),
                volume_capability: field("VolumeCapability", 5),
                readonly: field("bool", 6),
                secrets: texts(7),
                volume_context: texts(8),
              },
            },
            Unpublish: { fields: { volume_id: text(1), target_path: text(2) } },
            StatsRequest: { fields: { volume_id: text(1), volume_path: text(2), staging_target_path: text(3) } },
            Usage: {
              fields: {
                available: field("int64", 1),
                total: field("int64", 2),
                used: field("int64", 3),
                unit: field("int32", 4),
              },
            },
            Stats: { fields: { usage: list("Usage", 1) } },
            Expand: {
              fields: {
                volume_id: text(1),
                volume_path: text(2),
                capacity_range: field("CapacityRange", 3),
                staging_target_path: text(4),
                volume_capability: field("VolumeCapability", 5),
                secrets: texts(6),
              },
            },
            Expanded: { fields: { capacity_bytes: field("int64", 1) } },
            Node: {
              methods: {
                NodeGetInfo: { requestType: "Empty", responseType: "NodeInfo" },
                NodeGetCapabilities: { requestType: "Empty", responseType: "Capabilities" },
                NodeStageVolume: { requestType: "Stage", responseType: "Empty" },
                NodeUnstageVolume: { requestType: "Unstage", responseType: "Empty" },
                NodePublishVolume: { requestType: "Publish", responseType: "Empty" },
                NodeUnpublishVolume: { requestType: "Unpublish", responseType: "Empty" },
                NodeGetVolumeStats: { requestType: "StatsRequest", responseType: "Stats" },
                NodeExpandVolume: { requestType: "Expand", responseType: "Expanded" },
              },
            },
          },
        },
      },
    },
    pluginregistration: {
      nested: {
        InfoRequest: { fields: {} },
        PluginInfo: {
          fields: { type: text(1), name: text(2), endpoint: text(3), supported_versions: list("string", 4) },
        },
        RegistrationStatus: { fields: { plugin_registered: field("bool", 1), error: text(2) } },
        RegistrationStatusResponse: { fields: {} },
        Registration: {
          methods: {
            GetInfo: { requestType: "InfoRequest", responseType: "PluginInfo" },
            NotifyRegistrationStatus: { requestType: "RegistrationStatus", responseType: "RegistrationStatusResponse" },
          },
        },
      },
    },
  },
};

export interface CsiDriverInit {
  readonly name: string;
  /** Folder of the driver's socket. */
  readonly folder: string;
  /** Default: stage, stats, expand. */
  readonly capabilities?: readonly number[];
  readonly maxVolumes?: number;
  readonly topology?: Readonly<Record<string, string>>;
}

export interface SeenCall {
  readonly method: string;
  readonly request: Fields;
}

const STAGE_STATS_EXPAND = [1, 2, 3];

class Refusal extends Error {
  readonly code: grpc.status;

  constructor(code: grpc.status, message: string) {
    super(message);
    this.code = code;
  }
}

export class TestCsiDriver implements AsyncDisposable {
  readonly calls: SeenCall[] = [];
  /** What the registrar was told: "" for success. */
  readonly registrations: string[] = [];
  /** Runs before a call does anything; what it throws is the answer. */
  before: (call: SeenCall) => Promise<void> | void = () => undefined;
  /** Runs when a call has done its work, before its answer. */
  after: (call: SeenCall) => Promise<void> | void = () => undefined;
  readonly #init: CsiDriverInit;
  readonly #server = new grpc.Server();
  readonly #registrar = new grpc.Server();
  readonly #devices = new Map<string, string>();

  private constructor(init: CsiDriverInit) {
    this.#init = init;
  }

  static async start(init: CsiDriverInit): Promise<TestCsiDriver> {
    const driver = new TestCsiDriver(init);
    const definition = fromJSON(DEFINITION as never, { keepCase: true, longs: Number, defaults: true });
    driver.#server.addService(definition["csi.v1.Node"] as grpc.ServiceDefinition, {
      NodeGetInfo: driver.#handler("NodeGetInfo", () => ({
        node_id: "node-of-test",
        max_volumes_per_node: init.maxVolumes ?? 0,
        accessible_topology: { segments: init.topology ?? {} },
      })),
      NodeGetCapabilities: driver.#handler("NodeGetCapabilities", () => ({
        capabilities: (init.capabilities ?? STAGE_STATS_EXPAND).map((type) => ({ rpc: { type } })),
      })),
      NodeStageVolume: driver.#handler("NodeStageVolume", (request) => driver.#stage(request)),
      NodeUnstageVolume: driver.#handler("NodeUnstageVolume", (request) => driver.#unstage(request)),
      NodePublishVolume: driver.#handler("NodePublishVolume", (request) => driver.#publish(request)),
      NodeUnpublishVolume: driver.#handler("NodeUnpublishVolume", (request) => driver.#unpublish(request)),
      NodeGetVolumeStats: driver.#handler("NodeGetVolumeStats", (request) => driver.#stats(request)),
      NodeExpandVolume: driver.#handler("NodeExpandVolume", (request) => driver.#expand(request)),
    });
    mkdirSync(init.folder, { recursive: true });
    await bind(driver.#server, driver.endpoint);
    return driver;
  }

  get endpoint(): string {
    return join(this.#init.folder, "csi.sock");
  }

  /** What node-driver-registrar does: a socket in the node's `plugins_registry`. */
  async register(registry: string): Promise<void> {
    const definition = fromJSON(DEFINITION as never, { keepCase: true, defaults: true });
    this.#registrar.addService(definition["pluginregistration.Registration"] as grpc.ServiceDefinition, {
      GetInfo: (_: Call, answer: grpc.sendUnaryData<Fields>) =>
        answer(null, {
          type: "CSIPlugin",
          name: this.#init.name,
          endpoint: this.endpoint,
          supported_versions: ["1.0.0"],
        }),
      NotifyRegistrationStatus: ({ request }: Call, answer: grpc.sendUnaryData<Fields>) => {
        this.registrations.push(request.plugin_registered === true ? "" : String(request.error));
        answer(null, {});
      },
    });
    mkdirSync(registry, { recursive: true });
    await bind(this.#registrar, join(registry, `${this.#init.name}-reg.sock`));
  }

  /** The requests of one method. */
  requests(method: string): readonly Fields[] {
    return this.calls.filter((each) => each.method === method).map(({ request }) => request);
  }

  /** Methods that change something, in their order. */
  get changes(): readonly string[] {
    return this.calls
      .map(({ method }) => method)
      .filter((method) => /Stage|Publish|Unpublish|Unstage|Expand/.test(method))
      .map((method) => method.replace(/^Node|Volume$/g, ""));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.forceShutdown();
    this.#registrar.forceShutdown();
    rmSync(this.endpoint, { force: true });
    for (const device of this.#devices.values()) run("losetup", ["-d", device]);
  }

  #handler(method: string, work: (request: Fields) => Fields): grpc.handleUnaryCall<Fields, Fields> {
    return ({ request }, answer) => {
      const call = { method, request };
      const carryOut = async (): Promise<Fields> => {
        this.calls.push(call);
        await this.before(call);
        const result = work(request);
        await this.after(call);
        return result;
      };
      carryOut().then(
        (result) => answer(null, result),
        (error: unknown) =>
          answer({
            code: error instanceof Refusal ? error.code : grpc.status.INTERNAL,
            details: error instanceof Error ? error.message : String(error),
          }),
      );
    };
  }

  #stage(request: Fields): Fields {
    const target = required(request, "staging_target_path");
    required(request, "volume_id");
    capability(request);
    if (isBlock(request)) return {};
    if (!existsSync(target)) throw new Refusal(grpc.status.NOT_FOUND, `${target} does not exist`);
    if (!isMounted(target)) run("mount", ["-t", "tmpfs", "-o", "size=8m,mode=755", "csi-test", target]);
    return {};
  }

  #unstage(request: Fields): Fields {
    required(request, "volume_id");
    const target = required(request, "staging_target_path");
    if (mountsOf(target) > 1) throw new Refusal(grpc.status.FAILED_PRECONDITION, "volume is still published");
    while (isMounted(target)) run("umount", [target]);
    return {};
  }

  #publish(request: Fields): Fields {
    const id = required(request, "volume_id");
    const target = required(request, "target_path");
    capability(request);
    const context = request.volume_context as Fields;
    const isEphemeral = context["csi.storage.k8s.io/ephemeral"] === "true";
    const staging = String(request.staging_target_path);
    const stages = (this.#init.capabilities ?? STAGE_STATS_EXPAND).includes(1);
    if (!isEphemeral && stages && staging === "") throw new Refusal(grpc.status.INVALID_ARGUMENT, "no staging path");
    if (isBlock(request)) return this.#publishDevice(id, target);
    if (isMounted(target)) return {};
    mkdirSync(target, { recursive: true, mode: 0o750 });
    if (isEphemeral || !stages) run("mount", ["-t", "tmpfs", "-o", "size=8m,mode=755", "csi-test", target]);
    else if (isMounted(staging)) run("mount", ["--bind", staging, target]);
    else throw new Refusal(grpc.status.FAILED_PRECONDITION, "volume is not staged");
    if (request.readonly === true) run("mount", ["-o", "remount,bind,ro", target]);
    return {};
  }

  #publishDevice(id: string, target: string): Fields {
    if (!existsSync(dirname(target))) throw new Refusal(grpc.status.NOT_FOUND, `${dirname(target)} does not exist`);
    if (isMounted(target)) return {};
    const image = join(this.#init.folder, `${basename(id)}.img`);
    if (!existsSync(image)) writeFileSync(image, Buffer.alloc(1024 * 1024));
    const device = this.#devices.get(id) ?? run("losetup", ["--show", "-f", image]).trim();
    this.#devices.set(id, device);
    writeFileSync(target, "");
    run("mount", ["--bind", device, target]);
    return {};
  }

  #unpublish(request: Fields): Fields {
    const id = required(request, "volume_id");
    const target = required(request, "target_path");
    while (isMounted(target)) run("umount", [target]);
    if (existsSync(target)) rmSync(target, { recursive: true });
    const device = this.#devices.get(id);
    if (device !== undefined) run("losetup", ["-d", device]);
    this.#devices.delete(id);
    return {};
  }

  #stats(request: Fields): Fields {
    required(request, "volume_id");
    const path = required(request, "volume_path");
    if (!existsSync(path)) throw new Refusal(grpc.status.NOT_FOUND, `${path} does not exist`);
    return {
      usage: [
        { unit: 1, total: 8_388_608, used: 4096, available: 8_384_512 },
        { unit: 2, total: 1000, used: 3, available: 997 },
      ],
    };
  }

  #expand(request: Fields): Fields {
    required(request, "volume_id");
    required(request, "volume_path");
    const range = request.capacity_range as { required_bytes: number };
    return { capacity_bytes: range.required_bytes };
  }
}

function required(request: Fields, name: string): string {
  const value = request[name];
  if (typeof value === "string" && value !== "") return value;
  throw new Refusal(grpc.status.INVALID_ARGUMENT, `${name} missing in request`);
}

function capability(request: Fields): void {
  const found = request.volume_capability as Fields | null;
  if (found === null || (!found.mount && !found.block))
    throw new Refusal(grpc.status.INVALID_ARGUMENT, "volume capability missing in request");
}

const isBlock = (request: Fields): boolean => Boolean((request.volume_capability as Fields).block);

const run = (command: string, args: readonly string[]): string =>
  execFileSync(command, args, { encoding: "utf8", timeout: 30_000 });

const canonical = (path: string): string =>
  existsSync(dirname(path)) ? join(realpathSync(dirname(path)), basename(path)) : path;

/** Fields of each line of mountinfo. */
const mountLines = (): readonly string[][] =>
  readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.split(" "));

export const isMounted = (path: string): boolean => mountLines().some((line) => line[4] === canonical(path));

/** Mounts of the same file system as the one at `path`. */
function mountsOf(path: string): number {
  const device = mountLines().findLast((line) => line[4] === canonical(path))?.[2];
  return device === undefined ? 0 : mountLines().filter((line) => line[2] === device).length;
}

/** Mount points below `folder`. */
export const mountsBelow = (folder: string): readonly string[] =>
  mountLines()
    .map((line) => line[4] ?? "")
    .filter((path) => path.startsWith(`${realpathSync(folder)}/`));

function bind(server: grpc.Server, path: string): Promise<void> {
  if (existsSync(path)) rmSync(path);
  return new Promise((resolve, reject) => {
    server.bindAsync(`unix:${path}`, grpc.ServerCredentials.createInsecure(), (error) => {
      if (error === null) resolve();
      else reject(error);
    });
  });
}
