/**
 * A CSI driver for tests, over gRPC's own library. It judges requests as csi-driver-host-path does, and makes real
 * mounts: a tmpfs where a volume is staged, bind mounts of it where it is published.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { type handleUnaryCall, status } from "@grpc/grpc-js";
import { type GrpcPeer, type RegisteringPlugin, serveGrpc, servePlugin, serviceOf } from "./grpc-peer.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface CsiDriverInit {
  readonly name: string;
  /** Folder of the driver's socket. */
  readonly folder: string;
  /** Default: stage, stats, expand. */
  readonly capabilities?: readonly number[];
  readonly maxVolumes?: number;
  readonly topology?: Readonly<Record<string, string>>;
  readonly nodeId?: string;
}

export interface SeenCall {
  readonly method: string;
  readonly request: Fields;
}

const STAGE_STATS_EXPAND = [1, 2, 3];

class Refusal extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

export class TestCsiDriver implements AsyncDisposable {
  readonly calls: SeenCall[] = [];
  /** Runs before a call does anything; what it throws is the answer. */
  before: (call: SeenCall) => Promise<void> | void = () => undefined;
  /** Runs when a call has done its work, before its answer. */
  after: (call: SeenCall) => Promise<void> | void = () => undefined;
  readonly #done: string[] = [];
  #onDone: () => void = () => undefined;
  /** Methods that it answers without doing anything. */
  readonly ignores = new Set<string>();
  /** The message of an abnormal volume; "": all volumes are well. */
  abnormal = "";
  readonly #init: CsiDriverInit;
  #peer: GrpcPeer | undefined;
  #registrar: RegisteringPlugin | undefined;
  readonly #devices = new Map<string, string>();

  private constructor(init: CsiDriverInit) {
    this.#init = init;
  }

  static async start(init: CsiDriverInit): Promise<TestCsiDriver> {
    const driver = new TestCsiDriver(init);
    const implementation = {
      NodeGetInfo: driver.#handler("NodeGetInfo", () => ({
        node_id: init.nodeId ?? "node-of-test",
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
    };
    driver.#peer = await serveGrpc(driver.endpoint, [[serviceOf("csi.proto", "csi.v1.Node"), implementation]]);
    return driver;
  }

  get endpoint(): string {
    return join(this.#init.folder, "csi.sock");
  }

  /** Registers as node-driver-registrar does. @returns when the node has reported the result. @throws its refusal */
  async register(registry: string): Promise<void> {
    const { name } = this.#init;
    const info = { type: "CSIPlugin", name, endpoint: this.endpoint, supported_versions: ["1.0.0"] };
    this.#registrar = await servePlugin(join(registry, `${name}-reg.sock`), info);
    const { error } = await this.#registrar.reported();
    if (error !== "") throw new Error(error);
  }

  /** The requests of one method. */
  requests(method: string): readonly Fields[] {
    return this.calls.filter((each) => each.method === method).map(({ request }) => request);
  }

  /** Waits until a call of that method has done its work since the last `forget`. */
  async untilDone(method: string): Promise<void> {
    while (!this.#done.includes(method)) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#onDone = resolve;
      await promise;
    }
  }

  /** Forgets all calls, and what runs before and after them. */
  forget(): void {
    this.calls.length = 0;
    this.#done.length = 0;
    this.before = () => undefined;
    this.after = () => undefined;
  }

  /** Methods that change something, in their order. */
  get changes(): readonly string[] {
    return this.calls
      .map(({ method }) => method)
      .filter((method) => /Stage|Publish|Unpublish|Unstage|Expand/.test(method))
      .map((method) => method.replace(/^Node|Volume$/g, ""));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#registrar?.stop();
    this.#peer?.stop();
    for (const device of this.#devices.values()) run("losetup", ["-d", device]);
  }

  #handler(method: string, work: (request: Fields) => Fields): handleUnaryCall<Fields, Fields> {
    return ({ request }, answer) => {
      const call = { method, request };
      const carryOut = async (): Promise<Fields> => {
        this.calls.push(call);
        await this.before(call);
        const result = this.ignores.has(method) ? {} : work(request);
        await this.after(call);
        this.#done.push(method);
        this.#onDone();
        return result;
      };
      carryOut().then(
        (result) => answer(null, result),
        (error: unknown) =>
          answer({
            code: error instanceof Refusal ? error.code : status.INTERNAL,
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
    if (!existsSync(target)) throw new Refusal(status.NOT_FOUND, `${target} does not exist`);
    if (!isMounted(target)) run("mount", ["-t", "tmpfs", "-o", "size=8m,mode=755", "csi-test", target]);
    return {};
  }

  #unstage(request: Fields): Fields {
    required(request, "volume_id");
    const target = required(request, "staging_target_path");
    if (mountsOf(target) > 1) throw new Refusal(status.FAILED_PRECONDITION, "volume is still published");
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
    if (!isEphemeral && stages && staging === "") throw new Refusal(status.INVALID_ARGUMENT, "no staging path");
    if (isBlock(request)) return this.#publishDevice(id, target);
    if (isMounted(target)) return {};
    mkdirSync(target, { recursive: true, mode: 0o750 });
    if (isEphemeral || !stages) run("mount", ["-t", "tmpfs", "-o", "size=8m,mode=755", "csi-test", target]);
    else if (isMounted(staging)) run("mount", ["--bind", staging, target]);
    else throw new Refusal(status.FAILED_PRECONDITION, "volume is not staged");
    if (request.readonly === true) run("mount", ["-o", "remount,bind,ro", target]);
    return {};
  }

  #publishDevice(id: string, target: string): Fields {
    if (!existsSync(dirname(target))) throw new Refusal(status.NOT_FOUND, `${dirname(target)} does not exist`);
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
    if (!existsSync(path)) throw new Refusal(status.NOT_FOUND, `${path} does not exist`);
    const hasCondition = this.#init.capabilities?.includes(4) === true;
    return {
      ...(hasCondition ? { volume_condition: { abnormal: this.abnormal !== "", message: this.abnormal } } : {}),
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
  throw new Refusal(status.INVALID_ARGUMENT, `${name} missing in request`);
}

function capability(request: Fields): void {
  const found = request.volume_capability as Fields | null;
  if (found === null || (!found.mount && !found.block))
    throw new Refusal(status.INVALID_ARGUMENT, "volume capability missing in request");
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
