/** The hub's kubelet endpoints over real TLS, with agents whose answers a test gives. */

import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request as httpsRequest, type RequestOptions } from "node:https";
import { connect, type TLSSocket } from "node:tls";
import { KubeletDialer } from "@picolet/hub/kubelet-proxy/kubelet-dialer.ts";
import { KubeletProxy, type KubeletProxyInit } from "@picolet/hub/kubelet-proxy/kubelet-proxy.ts";
import { KubeletTargets } from "@picolet/hub/kubelet-proxy/kubelet-targets.ts";
import type { AccessQuestion, KubeletUser } from "@picolet/kubelet-api/serving/kubelet-access.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { WatchSource } from "@picolet/protocol/async/watch.ts";
import type { Clock } from "@picolet/protocol/ports.ts";
import { WebSocket } from "ws";
import { TlsAuthority } from "../identity/tls-authority.ts";
import { endOfRun } from "../ports/end-of-run.ts";
import { RecordedLog } from "../ports/recorders.ts";
import { LocalFleet } from "./local-fleet.ts";

export interface Answer {
  readonly status: number;
  readonly contentType: string | undefined;
  readonly body: string;
}

const API_SERVER = [
  { type: "O", value: "kubeadm:cluster-admins" },
  { type: "CN", value: "kube-apiserver-kubelet-client" },
] as const;

export class KubeletHub implements AsyncDisposable {
  readonly fleet = new LocalFleet();
  readonly authority = new TlsAuthority("kubelet hub");
  readonly log = new RecordedLog();
  /** Every question about rights, as `user verb subresource`. */
  readonly questions: string[] = [];
  allows: (user: KubeletUser, question: AccessQuestion) => boolean = () => true;
  readonly tls: WatchSource<{ privateKey: string; certificateChain: string; clientCa: string }>;
  readonly proxy: KubeletProxy;
  readonly dialer: KubeletDialer;
  readonly client: { readonly certificate: string; readonly privateKey: string };
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor(init: Partial<KubeletProxyInit> = {}, clock: Clock = systemClock) {
    const serving = this.authority.issueServer();
    this.client = this.authority.issueClient(API_SERVER);
    this.tls = new WatchSource({
      privateKey: serving.privateKey,
      certificateChain: serving.certificate,
      clientCa: this.authority.ca,
    });
    const reviews = {
      userOfToken: async (token: string) => (token === "good" ? { name: "scraper", groups: ["metrics"] } : undefined),
      allows: async (user: KubeletUser, question: AccessQuestion) => {
        this.questions.push(`${user.name} ${question.verb} ${question.subresource}`);
        return this.allows(user, question);
      },
    };
    const { fleet, tls, log } = this;
    this.proxy = new KubeletProxy(
      { fleet, reviews, tls, clock, log },
      { address: "127.0.0.1", host: "127.0.0.1", ports: undefined, ...init },
    );
    this.dialer = new KubeletDialer({
      clock,
      tls: new WatchSource({
        certificateChain: this.client.certificate,
        privateKey: this.client.privateKey,
        kubeletCa: this.authority.ca,
      }),
      targets: new KubeletTargets({ own: this.proxy }, { networks: [] }),
    });
    this.#running = endOfRun(this.proxy.run(this.#stop.signal));
  }

  /** Resolves when the node's port is open. */
  async port(node: string): Promise<number> {
    for (;;) {
      try {
        return this.proxy.endpointOf(node).port;
      } catch {
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
  }

  /** As an API server; `options` take the place of its certificate. */
  async ask(node: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    const request = httpsRequest({ ...(await this.#options(node)), path, ...options });
    request.end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    let body = "";
    for await (const piece of response) body += String(piece);
    return { status: response.statusCode ?? 0, contentType: response.headers["content-type"], body };
  }

  async webSocket(node: string, path: string, protocols: readonly string[]): Promise<WebSocket> {
    const { host, port, ...options } = await this.#options(node);
    return new WebSocket(`wss://${host}:${port}${path}`, [...protocols], options);
  }

  async socket(node: string): Promise<TLSSocket> {
    const socket = connect(await this.#options(node));
    await once(socket, "secureConnect");
    return socket;
  }

  async #options(node: string) {
    const { certificate: cert, privateKey: key } = this.client;
    return { host: "127.0.0.1", port: await this.port(node), ca: this.authority.ca, cert, key, agent: false as const };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.dialer[Symbol.dispose]();
    await this.#running;
    await this.proxy[Symbol.asyncDispose]();
  }
}
