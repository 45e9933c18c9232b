/** A device plugin as its authors write one: grpc-js, the published protocol, registration on `kubelet.sock`. */
import { join } from "node:path";
import { callGrpc, type GrpcPeer, serveGrpc, serviceOf } from "./grpc-peer.ts";

export interface TestDevice {
  readonly ID: string;
  readonly health: "Healthy" | "Unhealthy";
  readonly topology?: { readonly nodes: readonly { readonly ID: number }[] };
}

export interface TestDevicePluginInit {
  /** `device-plugins` of the node. */
  readonly folder: string;
  readonly resource: string;
  readonly devices: readonly TestDevice[];
  readonly preStart?: boolean;
  readonly preferred?: (available: readonly string[], size: number) => readonly string[];
  /** A `ContainerAllocateResponse`. An Error refuses. */
  readonly allocate?: (ids: readonly string[]) => object | Error;
}

type Done = (error: Error | null, answer?: object) => void;
type Ids = { readonly devicesIDs: readonly string[] };
type ListCall = { write(answer: object): void; on(event: "cancelled", listener: () => void): void };

const FILE = "deviceplugin.proto";

export class TestDevicePlugin {
  /** Calls in order: `Allocate a,b`. */
  readonly calls: string[] = [];
  readonly #init: TestDevicePluginInit;
  readonly #lists = new Set<ListCall>();
  #devices: readonly TestDevice[];
  #peer: GrpcPeer | undefined;

  constructor(init: TestDevicePluginInit) {
    this.#init = init;
    this.#devices = init.devices;
  }

  get endpoint(): string {
    return join(this.#init.folder, `${this.#init.resource.replaceAll("/", "_")}.sock`);
  }

  async serve(): Promise<void> {
    const { preStart = false, preferred, allocate = () => ({}) } = this.#init;
    const options = { pre_start_required: preStart, get_preferred_allocation_available: preferred !== undefined };
    const implementation = {
      GetDevicePluginOptions: (_call: unknown, done: Done) => done(null, options),
      ListAndWatch: (call: ListCall) => {
        this.#lists.add(call);
        call.on("cancelled", () => this.#lists.delete(call));
        call.write({ devices: this.#devices });
      },
      GetPreferredAllocation: (
        { request }: { request: { container_requests: { available_deviceIDs: string[]; allocation_size: number }[] } },
        done: Done,
      ) => {
        const containers = request.container_requests;
        this.calls.push(`GetPreferredAllocation ${containers[0]?.available_deviceIDs.toSorted().join(",")}`);
        const choose = (each: (typeof containers)[number]): object => {
          return { deviceIDs: preferred?.(each.available_deviceIDs, each.allocation_size) };
        };
        done(null, { container_responses: containers.map(choose) });
      },
      Allocate: ({ request }: { request: { container_requests: Ids[] } }, done: Done) => {
        const answers = request.container_requests.map(({ devicesIDs: ids }) => {
          this.calls.push(`Allocate ${ids.join(",")}`);
          return allocate(ids);
        });
        const refused = answers.find((each) => each instanceof Error);
        if (refused instanceof Error) done(refused);
        else done(null, { container_responses: answers });
      },
      PreStartContainer: ({ request }: { request: Ids }, done: Done) => {
        this.calls.push(`PreStartContainer ${request.devicesIDs.join(",")}`);
        done(null, {});
      },
    };
    this.#peer = await serveGrpc(this.endpoint, [[serviceOf(FILE, "v1beta1.DevicePlugin"), implementation as never]]);
  }

  /** @throws the ServiceError of a registration that is refused */
  async register(overrides: object = {}): Promise<void> {
    const { folder, resource, preStart = false, preferred } = this.#init;
    const options = { pre_start_required: preStart, get_preferred_allocation_available: preferred !== undefined };
    const endpoint = `${resource.replaceAll("/", "_")}.sock`;
    const request = { version: "v1beta1", endpoint, resource_name: resource, options, ...overrides };
    await callGrpc(join(folder, "kubelet.sock"), serviceOf(FILE, "v1beta1.Registration"), "Register", request);
  }

  async start(): Promise<void> {
    await this.serve();
    await this.register();
  }

  /** Sends another list of devices. */
  set devices(devices: readonly TestDevice[]) {
    this.#devices = devices;
    for (const call of this.#lists) call.write({ devices });
  }

  stop(): void {
    this.#peer?.stop();
    this.#lists.clear();
  }
}
