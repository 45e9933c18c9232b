import { join } from "node:path";
import { type GrpcPeer, type RegisteringPlugin, serveGrpc, servePlugin, serviceOf } from "./grpc-peer.ts";

interface Claim {
  readonly namespace: string;
  readonly uid: string;
  readonly name: string;
}

type Call = { readonly request: { readonly claims: readonly Claim[] } };
type Done = (error: Error | null, answer?: object) => void;

/** A DRA driver as its author writes it: every claim has one device, named as the claim. */
export class TestDraDriver {
  readonly calls: string[] = [];
  readonly #init: { readonly rootDir: string; readonly name: string; readonly version: "v1" | "v1beta1" };
  #peers: GrpcPeer[] = [];
  /** The error that it answers for a claim in place of its device. "": none. */
  refusal = "";
  /** The same for what it is to take back. */
  unprepareRefusal = "";
  /** The CDI kind of its devices; "": they have none. Its specification is for the test to write. */
  cdiKind = "example.com/gpu";

  /** @param init.rootDir the agent's */
  constructor(init: { readonly rootDir: string; readonly name: string; readonly version?: "v1" | "v1beta1" }) {
    this.#init = { version: "v1", ...init };
  }

  get endpoint(): string {
    return join(this.#init.rootDir, "plugins", this.#init.name, "dra.sock");
  }

  async start(): Promise<RegisteringPlugin> {
    const { rootDir, name, version } = this.#init;
    const service = serviceOf(`dra-${version}.proto`, `k8s.io.kubelet.pkg.apis.dra.${version}.DRAPlugin`);
    const driver = await serveGrpc(this.endpoint, [
      [
        service,
        {
          NodePrepareResources: ({ request }: Call, done: Done) => done(null, this.#prepare(request.claims)),
          NodeUnprepareResources: ({ request }: Call, done: Done) => done(null, this.#unprepare(request.claims)),
        },
      ],
    ]);
    const description = {
      type: "DRAPlugin",
      name,
      endpoint: this.endpoint,
      supported_versions: [`${version}.DRAPlugin`],
    };
    const registration = await servePlugin(join(rootDir, "plugins_registry", `${name}-reg.sock`), description);
    this.#peers = [driver, registration];
    return registration;
  }

  /** Ends its own API alone: of a process that is killed the registration socket stays. */
  kill(): void {
    this.#peers[0]?.stop();
  }

  stop(): void {
    for (const peer of this.#peers) peer.stop();
    this.#peers = [];
  }

  #prepare(claims: readonly Claim[]): object {
    this.calls.push(`prepare ${claims.map(({ name }) => name).join()}`);
    const { refusal: error } = this;
    const answers = claims.map(({ uid, name }) => {
      const device = { request_names: ["one"], pool_name: "board", device_name: name };
      const ids = this.cdiKind === "" ? [] : [`${this.cdiKind}=${name}`];
      const devices = [{ ...device, cdi_device_ids: ids }];
      return [uid, error === "" ? { devices } : { error }];
    });
    return { claims: Object.fromEntries(answers) };
  }

  #unprepare(claims: readonly Claim[]): object {
    this.calls.push(`unprepare ${claims.map(({ name }) => name).join()}`);
    return { claims: Object.fromEntries(claims.map(({ uid }) => [uid, { error: this.unprepareRefusal }])) };
  }
}
