/**
 * Authorizes requests: Basic, or a token of the registry's token server (distribution, "Token Authentication
 * Specification" and "OAuth2 Token Authentication"), with credentials or anonymously.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { parseObject, textOf } from "@picolet/runtime-contract/archive/json-fields.ts";
import type { ImageCredentials } from "@picolet/runtime-contract/runtime-adapter.ts";
import { type Challenge, parseChallenges } from "./challenge.ts";
import { refusal, registryErrorText, statusFailure } from "./failures.ts";
import type { HttpClient, HttpRequest } from "./http-client.ts";

export interface AuthorizerInit {
  /** The registry. */
  readonly url: URL;
  readonly repository: string;
  readonly credentials: ImageCredentials | undefined;
  readonly credentialsFrom: string | undefined;
  readonly documentTimeoutMs: number;
}

/** Tokens have some KiB. */
const MAX_TOKEN_BYTES = 262_144;
const CLIENT_ID = "picolet";

export class Authorizer {
  readonly #http: HttpClient;
  readonly #init: AuthorizerInit;
  readonly #credentials: ImageCredentials | undefined;
  #header: string | undefined;

  constructor(http: HttpClient, init: AuthorizerInit) {
    this.#http = http;
    this.#init = init;
    this.#credentials = isFor(init.credentials, init.url) ? init.credentials : undefined;
    const token = this.#credentials?.registryToken;
    if (token) this.#header = `Bearer ${token}`;
  }

  /** The headers of the next request; empty before the registry has asked for an authorization. */
  get headers(): Readonly<Record<string, string>> {
    return this.#header === undefined ? {} : { authorization: this.#header };
  }

  /** For messages. */
  get tried(): string {
    const from = this.#init.credentialsFrom;
    if (this.#credentials === undefined) return "without credentials";
    const { username } = this.#credentials;
    return `as ${username === "" ? "the holder of a token" : JSON.stringify(username)}${from === undefined ? "" : ` of ${from}`}`;
  }

  /** @param asked the header WWW-Authenticate. @throws `permission_denied` when there is nothing left to try */
  async answer(asked: string, signal: AbortSignal): Promise<void> {
    const challenges = parseChallenges(asked);
    const bearer = challenges.find(({ scheme }) => scheme === "bearer");
    if (bearer !== undefined) {
      this.#header = `Bearer ${await this.#token(bearer, signal)}`;
      return;
    }
    const { username = "", password = "" } = this.#credentials ?? {};
    const basic = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
    const isBasic = challenges.some(({ scheme }) => scheme === "basic");
    if (!isBasic || username === "" || this.#header === basic) throw refusal(this.#init.url.host, 401, this.tried, "");
    this.#header = basic;
  }

  async #token({ parameters }: Challenge, signal: AbortSignal): Promise<string> {
    const { url, repository, documentTimeoutMs } = this.#init;
    const realm = this.#realm(parameters.get("realm") ?? "");
    const service = parameters.get("service") ?? "";
    const scope = parameters.get("scope") ?? `repository:${repository}:pull`;
    const { target, ...request } = tokenRequest(realm, { service, scope }, this.#credentials);
    const about = { timeoutMs: documentTimeoutMs, role: `the token server of ${url.host}` };
    const response = await this.#http.send(target, { ...request, ...about }, signal);
    const content = await this.#http.read(response, MAX_TOKEN_BYTES, `the token of ${realm.host}`);
    const reported = response.status === 200 ? "" : registryErrorText(content.toString("utf8"));
    if ([400, 401, 403].includes(response.status)) throw refusal(realm.host, response.status, this.tried, reported);
    if (response.status !== 200) throw statusFailure(response.status, "token", realm.host, reported);
    const answer = parseObject(content, `the token of ${realm.host}`);
    const token = textOf(answer, "token") || textOf(answer, "access_token");
    if (token === undefined || token === "" || !/^[\x21-\x7e]+$/.test(token)) {
      throw new PicoletError("failed", `${realm.host} gives no token for ${url.host}`, { retryable: true });
    }
    return token;
  }

  /** Credentials for a registry over HTTPS go only to a token server over HTTPS; over HTTP either is accepted. */
  #realm(text: string): URL {
    const { url } = this.#init;
    const realm = URL.canParse(text) ? new URL(text) : undefined;
    if (realm?.protocol === "https:" || (realm?.protocol === "http:" && url.protocol === "http:")) return realm;
    const message = `${url.host} sends to a token server that cannot be asked: ${JSON.stringify(text.slice(0, 200))}`;
    throw new PicoletError("failed", message, { retryable: true });
  }
}

/** With an identity token a form, else a query. */
function tokenRequest(
  realm: URL,
  { service, scope }: { readonly service: string; readonly scope: string },
  credentials: ImageCredentials | undefined,
): HttpRequest & { readonly target: URL } {
  if (credentials?.identityToken) {
    const form = { grant_type: "refresh_token", service, scope, client_id: CLIENT_ID };
    const body = new URLSearchParams({ ...form, refresh_token: credentials.identityToken }).toString();
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    return { target: realm, method: "POST", headers, body };
  }
  const target = new URL(realm);
  if (service !== "") target.searchParams.set("service", service);
  for (const each of scope.split(" ")) if (each !== "") target.searchParams.append("scope", each);
  if (credentials === undefined || credentials.username === "") return { target, headers: {} };
  target.searchParams.set("account", credentials.username);
  const pair = Buffer.from(`${credentials.username}:${credentials.password}`).toString("base64");
  return { target, headers: { authorization: `Basic ${pair}` } };
}

/** Those for one host are shown to no other. */
function isFor(credentials: ImageCredentials | undefined, url: URL): boolean {
  const address = credentials?.serverAddress ?? "";
  if (address === "") return true;
  const text = address.includes("://") ? address : `${url.protocol}//${address}`;
  return URL.canParse(text) && new URL(text).host === url.host;
}
