/**
 * Reaches a kubelet as kube-apiserver does (1.34): what the kubelet answers to a refused upgrade goes on as it is, of
 * logs only some of it.
 */
import { request } from "node:https";
import type { Duplex } from "node:stream";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import type {
  KubeletConnector,
  KubeletRequest,
  KubeletResponse,
  KubeletTarget,
  KubeletUpgrade,
} from "@picolet/hub-core/kubelet-connector.ts";

export interface KubeletPassageInit {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

type Answer = KubeletResponse & { readonly connection: Duplex | undefined };

export class KubeletPassage implements KubeletConnector {
  readonly #tls: KubeletPassageInit;

  constructor(tls: KubeletPassageInit) {
    this.#tls = tls;
  }

  async request(target: KubeletTarget, asked: KubeletRequest, signal: AbortSignal): Promise<KubeletResponse> {
    const answer = await this.#ask(target, asked, signal);
    return answer.status < 300 ? answer : logStatus(answer.status, await text(answer.body));
  }

  async upgrade(target: KubeletTarget, asked: KubeletRequest, signal: AbortSignal): Promise<KubeletUpgrade> {
    const { connection, ...answer } = await this.#ask(target, asked, signal);
    if (connection === undefined) return { kind: "refused", ...answer };
    return { kind: "upgraded", headers: answer.headers, connection };
  }

  #ask(target: KubeletTarget, { method, path, headers }: KubeletRequest, signal: AbortSignal): Promise<Answer> {
    const { address: host, port } = target.claimed ?? {};
    return new Promise((resolve, reject) => {
      const asking = request({ ...this.#tls, host, port, method, path, headers, signal, agent: false });
      asking.on("error", reject);
      asking.on("response", (body) => {
        resolve({ status: body.statusCode ?? 0, headers: body.headers, body, connection: undefined });
      });
      asking.on("upgrade", (response, connection) => {
        resolve({ status: 101, headers: response.headers, body: response, connection });
      });
      asking.end();
    });
  }
}

/** GenericHttpResponseChecker with NewGenericServerResponse of k8s.io/apimachinery: which texts reach the client. */
function logStatus(code: number, body: string): KubeletResponse {
  const shown =
    code === 400 || code === 403
      ? body
      : code === 404
        ? "the server could not find the requested resource"
        : code === 500 || (code > 500 && code !== 503 && code !== 504)
          ? `an error on the server (${JSON.stringify(body)}) has prevented the request from succeeding`
          : "the server is currently unable to handle the request";
  const reason = code === 400 ? "BadRequest" : code === 404 ? "NotFound" : "InternalError";
  const status = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message: shown, reason, code };
  const answer = Buffer.from(JSON.stringify(status));
  const headers = { "content-type": "application/json", "content-length": answer.length };
  return { status: code, headers, body: Readable.from([answer]) };
}
