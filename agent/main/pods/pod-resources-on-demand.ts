/** The socket of the podresources API; what answers is loaded with the first client. */
import { chmodSync, mkdirSync, rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { dirname, join } from "node:path";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { describeError, ignore } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { GrpcServer } from "@picolet/runtime-cri/wire/grpc-server.ts";
import type { AgentPod } from "../../core/pods/agent-pod.ts";
import type { PodResourcesComponents } from "../../pod-resources/pod-resources.ts";

/** The kubelet's, in its root directory. */
const SOCKET = join("pod-resources", "kubelet.sock");

export interface PodResourcesOnDemandComponents extends PodResourcesComponents {
  readonly log: Log;
  /** Loads what an earlier agent has kept of claims. */
  readonly open: () => Promise<void>;
}

/** True for a pod that has not ended, which may hold something. */
export const isActive = ({ status }: AgentPod): boolean => status?.phase !== "Succeeded" && status?.phase !== "Failed";

export class PodResourcesOnDemand implements Component {
  readonly name = "pod resources";
  readonly #components: PodResourcesOnDemandComponents;
  readonly #path: string;
  #loading: Promise<GrpcServer> | undefined;

  constructor(components: PodResourcesOnDemandComponents, init: { readonly rootDir: string }) {
    this.#components = components;
    this.#path = join(init.rootDir, SOCKET);
  }

  async run(signal: AbortSignal): Promise<void> {
    const { log } = this.#components;
    const server = createServer((socket) => this.#serve(socket));
    const failed = (error: unknown): void =>
      log.warn("cannot serve pod resources", { path: this.#path, error: describeError(error) });
    server.on("error", failed);
    try {
      mkdirSync(dirname(this.#path), { recursive: true, mode: 0o750 });
      rmSync(this.#path, { force: true });
      server.listen(this.#path, () => chmodSync(this.#path, 0o660));
    } catch (error) {
      failed(error);
    }
    try {
      await aborted(signal);
    } finally {
      server.close();
      await this[Symbol.asyncDispose]();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#loading)?.[Symbol.asyncDispose]();
  }

  #serve(socket: Socket): void {
    socket.on("error", ignore("the connection closes with it"));
    this.#load().then(
      (server) => server.serve(socket),
      (error: unknown) => {
        this.#components.log.error("cannot load what serves pod resources", { error: describeError(error) });
        socket.destroy();
      },
    );
  }

  #load(): Promise<GrpcServer> {
    const make = async (): Promise<GrpcServer> => {
      const { GrpcServer } = await import("@picolet/runtime-cri/wire/grpc-server.ts");
      const { podResourcesMethods } = await import("../../pod-resources/pod-resources.ts");
      await this.#components.open();
      return new GrpcServer(this.#components, { path: this.#path, methods: podResourcesMethods(this.#components) });
    };
    this.#loading ??= make().catch((error: unknown) => {
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }
}
