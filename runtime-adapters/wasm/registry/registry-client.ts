/** One registry, as the OCI distribution specification has it: manifests and blobs of one repository. */
import { createHash } from "node:crypto";
import { ignore, PicoletError } from "@picolet/protocol/errors.ts";
import type { RegistryAccess } from "../shared/messages/pull-request.ts";
import type { RegistryEndpoint } from "../shared/oci/registries.ts";
import { Authorizer } from "./authorizer.ts";
import { MANIFEST_TYPES, MAX_DOCUMENT_BYTES } from "./documents.ts";
import { refusal, registryErrorText, statusFailure, unavailable } from "./failures.ts";
import { HttpClient, type HttpResponse } from "./http-client.ts";

export interface FetchedDocument {
  readonly content: Buffer;
  /** `sha256:…` of the content, or the digest it was asked for by. */
  readonly digest: string;
}

/**
 * Bounds the tries: the first is anonymous, the second has credentials, the third follows a token that has just
 * expired.
 */
const MAX_TRIES = 3;
/** Bounds an answer that reports an error. */
const MAX_COMPLAINT_BYTES = 16_384;

export class RegistryClient implements AsyncDisposable {
  readonly #http: HttpClient;
  readonly #authorizer: Authorizer;
  readonly #base: string;
  readonly #timeoutMs: number;

  constructor(endpoint: RegistryEndpoint, request: RegistryAccess) {
    const { repository, credentials, credentialsFrom, limits, proxies } = request;
    const { documentTimeoutMs } = limits;
    this.#http = new HttpClient(limits, endpoint.caFile, proxies);
    this.#base = `${endpoint.url}/v2/${repository}`;
    this.#timeoutMs = documentTimeoutMs;
    const init = { url: new URL(endpoint.url), repository, credentials, credentialsFrom, documentTimeoutMs };
    this.#authorizer = new Authorizer(this.#http, init);
  }

  /** @throws `corrupt` when it is not what its digest says, `not_found` … */
  async manifest(reference: string, signal: AbortSignal): Promise<FetchedDocument> {
    const accept = MANIFEST_TYPES.join(", ");
    const response = await this.#get(`manifests/${reference}`, { accept }, `manifest ${reference}`, signal);
    const content = await this.#http.read(response, MAX_DOCUMENT_BYTES, `the manifest ${reference}`);
    const isDigest = reference.includes(":");
    const reported = response.header("docker-content-digest");
    const wanted = isDigest ? reference : isKnownDigest(reported) ? reported : undefined;
    const digest = wanted === undefined ? digestOf(content, "sha256") : checkedDigest(content, wanted);
    return { content, digest };
  }

  /** A small blob, whole: an image's configuration. */
  async document(digest: string, signal: AbortSignal): Promise<Buffer> {
    const response = await this.#get(`blobs/${digest}`, {}, `blob ${digest}`, signal);
    const content = await this.#http.read(response, MAX_DOCUMENT_BYTES, `the blob ${digest}`);
    checkedDigest(content, digest);
    return content;
  }

  /** From `offset` on, if the registry can: 206; else the whole: 200; 416 where there is nothing behind `offset`. */
  async blob(digest: string, offset: number, signal: AbortSignal): Promise<HttpResponse> {
    const headers: Record<string, string> = offset > 0 ? { range: `bytes=${offset}-` } : {};
    return this.#get(`blobs/${digest}`, headers, `blob ${digest}`, signal, "none");
  }

  /** The bytes from `first` to `last`, both of them. @throws `unavailable` when the registry gives no ranges */
  async range(digest: string, first: number, last: number, signal: AbortSignal): Promise<HttpResponse> {
    const range = `bytes=${first}-${last}`;
    const response = await this.#get(`blobs/${digest}`, { range }, `blob ${digest}`, signal, "none");
    if (response.status === 206 && response.header("content-range")?.startsWith(`bytes ${first}-${last}/`)) {
      return response;
    }
    response.body.on("error", ignore("it is not what was asked for")).destroy();
    throw unavailable(`${response.host} answers no requests for a part of a blob`);
  }

  async #get(
    path: string,
    headers: Readonly<Record<string, string>>,
    what: string,
    signal: AbortSignal,
    timeoutMs: number | "none" = this.#timeoutMs,
  ): Promise<HttpResponse> {
    const url = new URL(`${this.#base}/${path}`);
    for (let attempt = 1; ; attempt += 1) {
      const authorized = { ...headers, ...this.#authorizer.headers };
      const response = await this.#http.send(
        url,
        { headers: authorized, timeoutMs: timeoutMs === "none" ? undefined : timeoutMs },
        signal,
      );
      const { status, host } = response;
      if (status === 200 || status === 206 || status === 416) return response;
      const asked = response.isAsked && status === 401 ? response.header("www-authenticate") : undefined;
      const answer = await this.#http.read(response, MAX_COMPLAINT_BYTES, `the answer of ${host}`);
      const reported = registryErrorText(answer.toString(), asked);
      if (asked !== undefined && attempt < MAX_TRIES) await this.#authorizer.answer(asked, signal);
      else if (status === 401 || status === 403) throw refusal(host, status, this.#authorizer.tried, reported);
      else throw statusFailure(status, what, host, reported);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#http[Symbol.asyncDispose]();
  }
}

const isKnownDigest = (digest: string | undefined): digest is string =>
  digest !== undefined && /^sha(?:256:[0-9a-f]{64}|512:[0-9a-f]{128})$/.test(digest);

const digestOf = (content: Buffer, algorithm: string): string =>
  `${algorithm}:${createHash(algorithm).update(content).digest("hex")}`;

function checkedDigest(content: Buffer, wanted: string): string {
  const actual = digestOf(content, wanted.slice(0, wanted.indexOf(":")));
  if (actual === wanted) return wanted;
  throw new PicoletError("corrupt", `the registry gave ${actual} in the place of ${wanted}`, { retryable: true });
}
