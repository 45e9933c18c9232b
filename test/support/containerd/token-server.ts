/**
 * A token server of Docker's kind (distribution, "Token Authentication Specification"): signs JWTs with a key of its
 * own, which a real registry verifies by a certificate, never having spoken to it.
 */
import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, randomUUID, sign } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import {
  type CertificateAuthority,
  issueClientCertificate,
  makeAuthority,
} from "@picolet/hub/identity/certificate-authority.ts";
import { certificatesOf } from "@picolet/protocol/pki/pem.ts";
import type { TokenAuthority } from "./real-registry.ts";

/** docker-registry 2.8 takes a token for that long after it has expired. */
const LEEWAY_SECONDS = 60;
const SERVICE = "registry of tests";
const ISSUER = "token server of tests";

/** ES256: by the id of a key that the registry trusts; RS256: by a certificate that one of it has issued. */
export type TokenAlgorithm = "ES256" | "RS256";

export interface AskedToken {
  readonly scopes: readonly string[];
  /** "": anonymous. */
  readonly account: string;
  readonly isRight: boolean;
}

export class TokenServer implements AsyncDisposable {
  readonly asked: AskedToken[] = [];
  /** The lifetime of tokens, in the registry's eyes. */
  lifeSeconds = 300;
  /** Chooses the scopes of a token among the requested ones. */
  granted = (scopes: readonly string[]): readonly string[] => scopes;
  /** Answers in place of a token. */
  answer: ((response: ServerResponse) => void) | undefined;
  readonly #account: readonly [user: string, password: string];
  readonly #authority: CertificateAuthority = makeAuthority("tokens", { days: 1, now: new Date() });
  readonly #key: KeyObject;
  readonly #header: Readonly<Record<string, unknown>>;
  readonly #server: Server;

  private constructor(server: Server, account: readonly [user: string, password: string], algorithm: TokenAlgorithm) {
    this.#server = server;
    this.#account = account;
    if (algorithm === "ES256") {
      this.#key = this.#authority.key;
      this.#header = { typ: "JWT", alg: algorithm, kid: keyId(this.#key) };
    } else {
      const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
      this.#key = privateKey;
      this.#header = { typ: "JWT", alg: algorithm, x5c: [this.#certified(publicKey)] };
    }
  }

  /** @param account the only one that it knows */
  static async start(
    account: readonly [user: string, password: string],
    algorithm: TokenAlgorithm = "ES256",
  ): Promise<TokenServer> {
    const server = createServer();
    const tokens = new TokenServer(server, account, algorithm);
    server.on("request", ({ url = "", headers }, response) => tokens.#serve(url, headers.authorization, response));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return tokens;
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** For a registry that is to take its tokens. */
  get trust(): TokenAuthority {
    const { certificate } = this.#authority;
    const realm = `http://${this.address}/token`;
    return { realm, service: SERVICE, issuer: ISSUER, certificate, push: (repository) => this.#pushToken(repository) };
  }

  #serve(url: string, authorization: string | undefined, response: ServerResponse): void {
    const { searchParams } = new URL(url, "http://any");
    const scopes = searchParams.getAll("scope");
    const account = searchParams.get("account") ?? "";
    const isRight = authorization === `Basic ${Buffer.from(this.#account.join(":")).toString("base64")}`;
    this.asked.push({ scopes, account, isRight });
    if (this.answer !== undefined) this.answer(response);
    else if (searchParams.get("service") !== SERVICE) response.writeHead(400).end();
    else if (authorization !== undefined && !isRight) {
      response.writeHead(401).end('{"errors":[{"code":"UNAUTHORIZED","message":"wrong user or password"}]}');
    } else {
      // An anonymous client gets a token too, without rights, as with Docker Hub.
      const token = this.#token(account, isRight ? this.granted(scopes) : []);
      response.end(JSON.stringify({ token, expires_in: this.lifeSeconds }));
    }
  }

  #pushToken(repository: string): string {
    return this.#token("pusher", [`repository:${repository}:pull,push`]);
  }

  #token(subject: string, scopes: readonly string[]): string {
    const now = Math.floor(Date.now() / 1000);
    const access = scopes.map((scope) => {
      const [, type, name, actions = ""] = /^([^:]+):(.*):([^:]*)$/.exec(scope) ?? [];
      return { type, name, actions: actions.split(",") };
    });
    const expires = now + this.lifeSeconds - LEEWAY_SECONDS;
    const times = { iat: now, nbf: Math.min(now, expires) - 10, exp: expires, jti: randomUUID() };
    const text = [this.#header, { iss: ISSUER, aud: SERVICE, sub: subject, access, ...times }]
      .map((each) => Buffer.from(JSON.stringify(each)).toString("base64url"))
      .join(".");
    const signature = sign("sha256", Buffer.from(text), { key: this.#key, dsaEncoding: "ieee-p1363" });
    return `${text}.${signature.toString("base64url")}`;
  }

  /** In base64, as x5c has it. */
  #certified(key: KeyObject): string {
    const request = {
      subject: [{ type: "CN", value: "signer" }],
      publicKey: key.export({ type: "spki", format: "der" }),
    };
    const asked = request as unknown as Parameters<typeof issueClientCertificate>[1];
    const issued = issueClientCertificate(this.#authority, asked, { days: 1, now: new Date() });
    return Buffer.from(certificatesOf(issued)[0] ?? []).toString("base64");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** As libtrust has it: the first 240 bits of the key's hash in base32, in groups of four. */
function keyId(key: KeyObject): string {
  const hash = createHash("sha256")
    .update(createPublicKey(key).export({ type: "spki", format: "der" }))
    .digest();
  const bits = [...hash.subarray(0, 30)].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  const letters = bits.replace(/.{5}/g, (five) => BASE32[Number.parseInt(five, 2)] ?? "");
  return (letters.match(/.{4}/g) ?? []).join(":");
}
