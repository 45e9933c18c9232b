/**
 * A real image registry on the loopback (Debian's docker-registry), over plain HTTP, which containerd accepts there. A
 * second address of the same registry requires a user and a password.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Document, digestOf, INDEX_TYPE, MANIFEST_TYPE } from "../unit/images/oci-content.ts";
import type { Containerd } from "./containerd.ts";

const PROGRAM = "/usr/bin/docker-registry";
const START_LIMIT_MS = 30_000;

export const REGISTRY_USER = "picolet";
export const REGISTRY_PASSWORD = "correct horse";
/** The password by bcrypt, which is all that the registry's own htpasswd takes. */
const HTPASSWD = `${REGISTRY_USER}:$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2\n`;

export interface RegistryOptions {
  /** The registry itself requires REGISTRY_USER at both addresses. */
  readonly htpasswd?: boolean;
  /** It requires a token of this token server. */
  readonly tokens?: TokenAuthority;
}

export interface TokenAuthority {
  readonly realm: string;
  readonly service: string;
  readonly issuer: string;
  /** PEM, of what signs the tokens. */
  readonly certificate: string;
  /** With which the test puts something into a repository. */
  readonly push: (repository: string) => string;
}

/** Why no registry can run here; `undefined` when one can. */
export const registryMissing = (): string | undefined =>
  existsSync(PROGRAM) ? undefined : `not installed: ${PROGRAM}`;

export class Registry implements AsyncDisposable {
  /** `127.0.0.1:<port>`, the beginning of its images' names. */
  readonly address: string;
  /** The same, for those who know REGISTRY_USER and REGISTRY_PASSWORD. */
  readonly privateAddress: string;
  readonly #asked: { count: number };
  readonly #directory: string;
  readonly #process: ChildProcess;
  readonly #gate: Server;
  readonly #tokens: TokenAuthority | undefined;

  private constructor(
    directory: string,
    process: ChildProcess,
    gate: Gate,
    port: number,
    tokens: TokenAuthority | undefined,
  ) {
    this.#tokens = tokens;
    this.#directory = directory;
    this.#process = process;
    this.#gate = gate.server;
    this.#asked = gate.asked;
    this.address = `127.0.0.1:${port}`;
    this.privateAddress = `127.0.0.1:${(gate.server.address() as AddressInfo).port}`;
  }

  static async start({ htpasswd = false, tokens }: RegistryOptions = {}): Promise<Registry> {
    const directory = mkdtempSync(join(tmpdir(), "picolet-registry-"));
    const config = [
      "version: 0.1",
      `storage: { filesystem: { rootdirectory: ${JSON.stringify(directory)} } }`,
      "http: { addr: '127.0.0.1:0' }",
      ...(htpasswd
        ? [`auth: { htpasswd: { realm: test, path: ${JSON.stringify(join(directory, "htpasswd"))} } }`]
        : []),
      ...(tokens === undefined ? [] : [`auth: { token: ${tokenSettings(tokens, join(directory, "tokens.pem"))} }`]),
    ];
    writeFileSync(join(directory, "htpasswd"), HTPASSWD);
    writeFileSync(join(directory, "tokens.pem"), tokens?.certificate ?? "");
    writeFileSync(join(directory, "config.yml"), `${config.join("\n")}\n`);
    const command = ["--pdeathsig", "KILL", PROGRAM, "serve", join(directory, "config.yml")];
    const registry = spawn("setpriv", command, { stdio: ["ignore", "ignore", "pipe"] });
    try {
      const port = await listeningPort(registry);
      const gate = await openGate(port);
      return new Registry(directory, registry, gate, port, tokens);
    } catch (error) {
      registry.kill("SIGKILL");
      rmSync(directory, { recursive: true });
      throw error;
    }
  }

  /** Requests at the private address so far, let in or not. */
  get privateRequests(): number {
    return this.#asked.count;
  }

  /** @param image of `containerd`. @returns its name in this registry, at the open address */
  push(containerd: Containerd, image: string, repository: string): string {
    const name = `${this.address}/${repository}`;
    containerd.ctr("images", "tag", "--force", image, name);
    containerd.ctr("images", "push", "--plain-http", name);
    containerd.ctr("images", "remove", "--sync", name);
    return name;
  }

  /** The manifest or index that it has by that tag. */
  async document(repository: string, tag: string): Promise<Document> {
    const accept = `${INDEX_TYPE}, ${MANIFEST_TYPE}, application/vnd.docker.distribution.manifest.v2+json`;
    const response = await this.#send("GET", `/v2/${repository}/manifests/${tag}`, undefined, "", { accept });
    const content = await response.text();
    return { content, mediaType: response.headers.get("content-type") ?? MANIFEST_TYPE, digest: digestOf(content) };
  }

  /** Content made by the test, as any client of the distribution specification pushes it. */
  async pushContent(
    repository: string,
    tag: string,
    document: Document,
    blobs: readonly (Uint8Array | string)[],
  ): Promise<void> {
    for (const blob of blobs) {
      const opened = await this.#send("POST", `/v2/${repository}/blobs/uploads/`);
      const place = new URL(opened.headers.get("location") ?? "", `http://${this.address}`);
      place.searchParams.set("digest", digestOf(blob));
      await this.#send("PUT", place.pathname + place.search, blob, "application/octet-stream");
    }
    await this.#send("PUT", `/v2/${repository}/manifests/${tag}`, document.content, document.mediaType);
  }

  async #send(
    method: string,
    path: string,
    body?: Uint8Array | string,
    type = "",
    more: Readonly<Record<string, string>> = {},
  ): Promise<Response> {
    const repository = /^\/v2\/(.*)\/(?:manifests|blobs)\//.exec(path)?.[1] ?? "";
    const token = this.#tokens?.push(repository);
    const basic = Buffer.from(`${REGISTRY_USER}:${REGISTRY_PASSWORD}`).toString("base64");
    const authorization = token === undefined ? `Basic ${basic}` : `Bearer ${token}`;
    const headers = { authorization, "content-type": type, ...more };
    const response = await fetch(`http://${this.address}${path}`, {
      method,
      headers,
      body: body === undefined ? null : Buffer.from(body),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#gate.closeAllConnections();
    this.#gate.close();
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      const exited = once(this.#process, "exit");
      this.#process.kill("SIGKILL");
      await exited;
    }
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** JSON is YAML. */
const tokenSettings = ({ realm, service, issuer }: TokenAuthority, rootcertbundle: string): string =>
  JSON.stringify({ realm, service, issuer, rootcertbundle });

async function listeningPort(registry: ChildProcess): Promise<number> {
  const limit = AbortSignal.timeout(START_LIMIT_MS);
  let log = "";
  const exited = once(registry, "exit", { signal: limit }).then(() => {
    throw new Error(`the registry ended:\n${log}`);
  });
  exited.catch(() => undefined);
  const port = new Promise<number>((resolve) => {
    registry.stderr?.setEncoding("utf8").on("data", (text: string) => {
      log = (log + text).slice(-10_000);
      const found = /listening on 127\.0\.0\.1:(\d+)/.exec(log)?.[1];
      if (found !== undefined) resolve(Number(found));
    });
  });
  return await Promise.race([port, exited]);
}

interface Gate {
  readonly server: Server;
  readonly asked: { count: number };
}

/** Passes requests with the right credentials on to the registry. */
async function openGate(port: number): Promise<Gate> {
  const asked = { count: 0 };
  const wanted = `Basic ${Buffer.from(`${REGISTRY_USER}:${REGISTRY_PASSWORD}`).toString("base64")}`;
  const server = createServer((incoming, outgoing) => {
    asked.count += 1;
    const { authorization, ...headers } = incoming.headers;
    if (authorization !== wanted) {
      outgoing.writeHead(401, { "WWW-Authenticate": 'Basic realm="test"' }).end();
      return;
    }
    const { method, url: path } = incoming;
    const inner = request({ host: "127.0.0.1", port, method, path, headers }, (response) => {
      outgoing.writeHead(response.statusCode ?? 502, response.headers);
      response.pipe(outgoing);
    });
    inner.on("error", () => outgoing.destroy());
    incoming.pipe(inner);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, asked };
}
