/** As much of an API server as kubectl needs for exec, attach, port-forward, cp and logs of one pod: plain HTTP on loopback. */

import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { KubeletConnector, KubeletTarget } from "../../hub/embedded/kubelet-connector.ts";
import type { DesiredPod } from "../../runtime-adapters/contract/runtime-adapter.ts";

const POD_VERBS = ["get", "list"];
const VERSION = { major: "1", minor: "32", gitVersion: "v1.32.0", platform: "linux/amd64" };

export class KubectlFront implements AsyncDisposable {
  readonly #server: Server;
  readonly #pods = new Map<string, unknown>();
  readonly #connector: KubeletConnector;
  readonly #target: () => KubeletTarget;
  readonly #life = new AbortController();

  constructor(connector: KubeletConnector, target: () => KubeletTarget) {
    this.#connector = connector;
    this.#target = target;
    this.#server = createServer((request, response) => void this.#answer(request, response));
    this.#server.on("upgrade", (request, socket, head) => void this.#upgrade(request, socket, head));
  }

  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  show({ pod }: DesiredPod): void {
    const containerStatuses = pod.spec.containers.map(({ name }) => ({ name, ready: true, state: { running: {} } }));
    const status = { phase: "Running", containerStatuses };
    this.#pods.set(pod.metadata.name, { ...pod, spec: { ...pod.spec, nodeName: "edge-1" }, status });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#life.abort();
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const json = (status: number, body: unknown): void => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    const { pathname } = new URL(request.url ?? "", "http://front");
    if (pathname === "/version") return json(200, VERSION);
    if (pathname === "/api") return json(200, { kind: "APIVersions", versions: ["v1"] });
    if (pathname === "/apis") return json(200, { kind: "APIGroupList", apiVersion: "v1", groups: [] });
    if (pathname === "/api/v1") {
      const pods = { name: "pods", singularName: "pod", namespaced: true, kind: "Pod", verbs: POD_VERBS };
      return json(200, { kind: "APIResourceList", apiVersion: "v1", groupVersion: "v1", resources: [pods] });
    }
    const { name, subresource } = partsOf(pathname);
    const pod = this.#pods.get(name);
    if (subresource === "log") return await this.#log(request, response);
    if (pod === undefined) {
      return json(404, {
        kind: "Status",
        apiVersion: "v1",
        status: "Failure",
        reason: "NotFound",
        code: 404,
        message: `pods "${name}" not found`,
      });
    }
    json(200, pod);
  }

  async #log(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const asked = { method: "GET", path: kubeletPath(request), headers: {}, body: undefined };
    const answer = await this.#connector.request(this.#target(), asked, this.#life.signal);
    response.writeHead(answer.status, { "content-type": String(answer.headers["content-type"]) });
    response.flushHeaders();
    await pipeline(answer.body, response).catch(() => response.destroy());
  }

  async #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const asked = {
      method: request.method ?? "",
      path: kubeletPath(request),
      headers: request.headers,
      body: undefined,
    };
    const answer = await this.#connector.upgrade(this.#target(), asked, this.#life.signal);
    if (answer.kind === "refused") {
      socket.write(`HTTP/1.1 ${answer.status} Refused\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n`);
      return await pipeline(answer.body, socket).catch(() => undefined);
    }
    const { connection, headers } = answer;
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${String(value)}\r\n`);
    socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join("")}\r\n`);
    if (head.length > 0) connection.write(head);
    await Promise.all([
      pipeline(socket, connection).catch(() => connection.destroy()),
      pipeline(connection, socket).catch(() => socket.destroy()),
    ]);
  }
}

/** `/api/v1/namespaces/default/pods/web/exec` */
function partsOf(pathname: string): {
  readonly namespace: string;
  readonly name: string;
  readonly subresource: string;
} {
  const [, , , , namespace = "", , name = "", subresource = ""] = pathname.split("/");
  return { namespace, name, subresource };
}

function kubeletPath(request: IncomingMessage): string {
  const url = new URL(request.url ?? "", "http://front");
  const { namespace, name, subresource } = partsOf(url.pathname);
  if (subresource === "portforward") return `/portForward/${namespace}/${name}`;
  const container = url.searchParams.get("container") ?? "main";
  url.searchParams.delete("container");
  if (subresource === "log") return `/containerLogs/${namespace}/${name}/${container}?${url.searchParams}`;
  const query = new URLSearchParams();
  for (const [option, kubelet] of Object.entries({ stdin: "input", stdout: "output", stderr: "error", tty: "tty" })) {
    if (url.searchParams.get(option) === "true") query.append(kubelet, "1");
  }
  for (const word of url.searchParams.getAll("command")) query.append("command", word);
  return `/${subresource}/${namespace}/${name}/${container}?${query}`;
}
