/** The embedded API server in front of a node's kubelet endpoint, over TLS, for kubectl. */
import { writeFileSync } from "node:fs";
import {
  type KubeClient,
  NODES,
  type ObjectRef,
  PODS,
  type ResourceType,
} from "@picolet/hub-core/kube-client/kube-client.ts";
import type { KubeletConnector, KubeletTarget } from "@picolet/hub-core/kubelet-connector.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TlsAuthority } from "../identity/tls-authority.ts";
import { TempFolder } from "../machine/temp-folder.ts";
import { ADMIN_USER, TestApiServer } from "./api-server.ts";

const NEVER = new AbortController().signal;

export class ApiFront implements AsyncDisposable {
  readonly #api: TestApiServer;
  readonly #client: KubeClient;
  readonly #folder: TempFolder;

  private constructor(api: TestApiServer, folder: TempFolder) {
    this.#api = api;
    this.#client = api.server.client(ADMIN_USER);
    this.#folder = folder;
  }

  static async start(kubelets: KubeletConnector, { node, claimed }: KubeletTarget): Promise<ApiFront> {
    const authority = new TlsAuthority("API server");
    const { certificate, privateKey } = authority.issueServer();
    const folder = new TempFolder();
    writeFileSync(folder.at("ca.crt"), authority.ca);
    const tls = { certificate, privateKey, clientCa: authority.ca };
    const front = new ApiFront(await TestApiServer.start({ kubelets, tls }), folder);
    const status = {
      addresses: [{ type: "InternalIP", address: claimed?.address }],
      daemonEndpoints: { kubeletEndpoint: { Port: claimed?.port } },
    };
    await front.#make(NODES, { namespace: "", name: node }, {}, status);
    return front;
  }

  /** Additional flags for kubectl. */
  get flags(): readonly string[] {
    return ["--server", this.#api.url, "--token", "admin", "--certificate-authority", this.#folder.at("ca.crt")];
  }

  /** The pod as the API server has it once the node runs it. */
  async show({ pod }: DesiredPod, nodeName: string): Promise<void> {
    const state = { running: { startedAt: "2026-11-20T12:00:00Z" } };
    const containerStatuses = pod.spec.containers.map((each) => ({
      ...{ name: each.name, ready: true, restartCount: 0, image: each.image, imageID: "", state },
    }));
    const ref = { namespace: "default", name: pod.metadata.name };
    await this.#make(PODS, ref, { ...pod.spec, nodeName }, { phase: "Running", containerStatuses });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#api[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
  }

  async #make(type: ResourceType, ref: ObjectRef, spec: object, status: object): Promise<void> {
    const object = { apiVersion: "v1", kind: type.kind, metadata: { name: ref.name }, spec };
    await this.#client.create(type, ref, object, {}, NEVER);
    await this.#client.patch(type, ref, "merge", { status }, { subresource: "status" }, NEVER);
  }
}
