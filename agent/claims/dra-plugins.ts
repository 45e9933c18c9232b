import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { GrpcClient, type GrpcMethod } from "@picolet/runtime-cri/wire/grpc-client.ts";
import { statusName } from "@picolet/runtime-cri/wire/grpc-status.ts";
import {
  type InputOf,
  type MessageOf,
  message,
  nested,
  repeated,
  string,
  strings,
} from "@picolet/runtime-cri/wire/protobuf.ts";
import { type NodeCounts, timed } from "../core/node/node-counts.ts";
import type { Plugin, PluginHandler } from "../plugins/plugin-handler.ts";
import type { ClaimReference, DraDriver, PreparedClaim } from "./dra-driver.ts";
import type { DraDriverTable } from "./dra-driver-table.ts";

/** The kubelet's: half of the time after which it tries a pod again. */
const CALL_TIMEOUT_MS = 45_000;
/** A pod's claims with some 100 devices take 50 KB. */
const MAX_MESSAGE_BYTES = MEBIBYTE;
/** The error for a claim goes into events and logs; a longer one is cut, as a status of gRPC is. */
const MAX_ERROR_LENGTH = 8192;
const READ_BUFFER_BYTES = 4096;
/** The pause before a driver that is gone is tried again. */
const RETRY_INTERVAL = seconds(5);

interface DraPluginComponents {
  readonly clock: Clock;
  readonly counts?: NodeCounts | undefined;
}

/** Takes the drivers that register for dynamic resource allocation. */
export class DraPlugins implements PluginHandler {
  readonly #components: DraPluginComponents;
  readonly #table: DraDriverTable;

  constructor(components: DraPluginComponents & { readonly table: DraDriverTable }) {
    this.#components = components;
    this.#table = components.table;
  }

  async register({ name, endpoint, versions, socketPath }: Plugin): Promise<void> {
    const service = [...DRA_SERVICES].find(([version]) => versions.includes(version))?.[1];
    if (service === undefined) {
      const [known, offered] = [[...DRA_SERVICES.keys()], versions].map((each) => JSON.stringify(each));
      throw new PicoletError("invalid", `cannot use DRA driver ${name}: of ${known} it offers none, only ${offered}`);
    }
    this.#table.set(name, socketPath, new DraPlugin(this.#components, { name, endpoint, service }));
  }

  async remove({ name, socketPath }: Plugin): Promise<void> {
    this.#table.remove(name, socketPath);
  }
}

/** A driver behind its socket. Each call has a connection of its own, because calls are rare. */
class DraPlugin implements DraDriver {
  readonly #components: DraPluginComponents;
  readonly #name: string;
  readonly #endpoint: string;
  readonly #service: DraService;

  constructor(
    components: DraPluginComponents,
    init: { readonly name: string; readonly endpoint: string; readonly service: DraService },
  ) {
    this.#components = components;
    this.#name = init.name;
    this.#endpoint = init.endpoint;
    this.#service = init.service;
  }

  async prepare(claims: readonly ClaimReference[], signal: AbortSignal): Promise<ReadonlyMap<string, PreparedClaim>> {
    const answer = await this.#call(this.#service.prepare, { claims }, signal);
    return new Map(answer.claims.map(({ uid, answer: prepared }) => [uid, preparedClaim(prepared)]));
  }

  async unprepare(claims: readonly ClaimReference[], signal: AbortSignal): Promise<ReadonlyMap<string, string>> {
    const answer = await this.#call(this.#service.unprepare, { claims }, signal);
    return new Map(answer.claims.map(({ uid, answer: unprepared }) => [uid, errorOf(unprepared)]));
  }

  /** Keeps a connection: a driver that was killed leaves its sockets behind. */
  async follow(report: (isThere: boolean) => void, signal: AbortSignal): Promise<never> {
    for (;;) {
      using client = this.#client();
      using attempt = joinSignals(signal);
      try {
        const gone = client.disconnected(attempt.signal);
        await client.connect();
        report(true);
        await gone;
      } catch {
        ignore("it is reported below");
      } finally {
        attempt.abort();
      }
      if (!signal.aborted) report(false);
      await this.#components.clock.sleep(RETRY_INTERVAL, signal);
    }
  }

  async #call<Q, A>(method: GrpcMethod<Q, A>, request: Q, signal: AbortSignal): Promise<A> {
    using client = this.#client();
    const labelsOf = (error: unknown) => [this.#name, statusName(error), method.path];
    const call = () => client.unary(method, request, CALL_TIMEOUT_MS, signal);
    return await timed(this.#components, "dra_grpc_operations_duration_seconds", labelsOf, call);
  }

  #client(): GrpcClient {
    const limits = { readBuffer: Buffer.allocUnsafeSlow(READ_BUFFER_BYTES), maxMessageBytes: MAX_MESSAGE_BYTES };
    return new GrpcClient(this.#components, { path: this.#endpoint, ...limits });
  }
}

const errorOf = (answer: { readonly error: string } | undefined): string =>
  (answer?.error ?? "").slice(0, MAX_ERROR_LENGTH);

type Answer = ReturnType<DraService["prepare"]["response"]["decode"]>["claims"][number]["answer"];

const preparedClaim = (answer: Answer): PreparedClaim => ({
  error: errorOf(answer),
  devices: (answer?.devices ?? []).map(({ poolName, deviceName, requestNames, cdiDeviceIds }) => ({
    pool: poolName,
    device: deviceName,
    requests: requestNames,
    cdiDevices: cdiDeviceIds,
  })),
});

// The kubelet's protocol of DRA drivers: k8s.io/kubelet/pkg/apis/dra. Its two versions differ in name alone.
const Claim = message("Claim", { namespace: string(1), uid: string(2), name: string(3) });
const ClaimsRequest = message("NodePrepareResourcesRequest", { claims: repeated(1, Claim) });
const Device = message("Device", {
  requestNames: strings(1),
  poolName: string(2),
  deviceName: string(3),
  cdiDeviceIds: strings(4),
});
const Prepared = message("NodePrepareResourceResponse", { devices: repeated(1, Device), error: string(2) });
const Unprepared = message("NodeUnprepareResourceResponse", { error: string(1) });
/** Maps by the UID of the claim, as their entries. */
const PrepareResponse = message("NodePrepareResourcesResponse", {
  claims: repeated(1, message("PreparedEntry", { uid: string(1), answer: nested(2, Prepared) })),
});
const UnprepareResponse = message("NodeUnprepareResourcesResponse", {
  claims: repeated(1, message("UnpreparedEntry", { uid: string(1), answer: nested(2, Unprepared) })),
});

type Request = InputOf<typeof ClaimsRequest>;

interface DraService {
  readonly prepare: GrpcMethod<Request, MessageOf<typeof PrepareResponse>>;
  readonly unprepare: GrpcMethod<Request, MessageOf<typeof UnprepareResponse>>;
}

const serviceOf = (version: string): DraService => {
  const path = `/k8s.io.kubelet.pkg.apis.dra.${version}.DRAPlugin`;
  return {
    prepare: { path: `${path}/NodePrepareResources`, request: ClaimsRequest, response: PrepareResponse },
    unprepare: { path: `${path}/NodeUnprepareResources`, request: ClaimsRequest, response: UnprepareResponse },
  };
};

/** By the name in a driver's registration, the newest first. */
const DRA_SERVICES: ReadonlyMap<string, DraService> = new Map([
  ["v1.DRAPlugin", serviceOf("v1")],
  ["v1beta1.DRAPlugin", serviceOf("v1beta1")],
]);
