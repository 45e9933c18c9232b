/** Asks an API server the requests of the authorization matrix and says what it decided. */
import { Agent, request } from "undici";
import { FIXTURES, type Json } from "./access-fixtures.ts";
import type { MatrixRequest, Uids } from "./access-matrix.ts";

/** Collections whose names in answers count: which objects of others are seen. */
/** Nothing asked here is answered by a stream that goes on; one that does is a fault, which this shows. */
const BODY_TIMEOUT_MS = 60_000;
const IS_WATCH = /[?&]sendInitialEvents=|\/watch\//;
const SHOWN = /\/(pods|secrets|configmaps|nodes|resourceclaims|resourceslices)(\?|$)/;

export class MatrixAsker implements AsyncDisposable {
  readonly #url: string;
  readonly #dispatcher: Agent;

  constructor(url: string) {
    this.#url = url;
    this.#dispatcher = new Agent({ allowH2: false, connections: 4, bodyTimeout: BODY_TIMEOUT_MS });
  }

  /** `403`; of lists and watches that are answered `200:mine,static-a`, the fixtures that were shown. */
  async ask(asked: MatrixRequest, token: string): Promise<string> {
    const { status, body } = await this.#send(asked, token);
    const isShown =
      status === 200 && asked.method === "GET" && SHOWN.test(asked.path) && !asked.path.includes("/watch/");
    return isShown ? `${status}:${namesIn(body).join(",")}` : String(status);
  }

  /** Makes the fixtures that are not there. @returns their UIDs */
  async furnish(token: string): Promise<Uids> {
    const uids = new Map<string, string>();
    for (const { path, object } of FIXTURES) {
      const made = await this.#send({ key: "", method: "POST", path, body: object }, token);
      if (made.status !== 201 && made.status !== 409) throw new Error(`${path}: ${made.status} ${made.body}`);
      const { name } = object.metadata as { name: string };
      const got = await this.#send({ key: "", method: "GET", path: `${path}/${name}` }, token);
      const { metadata } = JSON.parse(got.body) as { metadata: { uid: string } };
      uids.set(`${path.split("/").at(-1)}/${name}`, metadata.uid);
    }
    return uids;
  }

  async #send(
    { method, path, body, contentType = "application/json", headers = {} }: MatrixRequest,
    token: string,
  ): Promise<{ readonly status: number; readonly body: string }> {
    const answer = await request(`${this.#url}${path}`, {
      dispatcher: this.#dispatcher,
      method: method as "GET",
      headers: {
        ...(token === "" ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { "content-type": contentType }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const { statusCode: status } = answer;
    if (status !== 200 || !IS_WATCH.test(path)) return { status, body: await answer.body.text() };
    // Watches by the paths of old have no bookmark to wait for: their status alone counts.
    return { status, body: path.includes("/watch/") ? await ended(answer.body) : await untilBookmark(answer.body) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#dispatcher.destroy();
  }
}

type Body = AsyncIterable<Buffer> & { destroy(): unknown; on(event: "error", listener: () => void): unknown };

async function untilBookmark(body: Body): Promise<string> {
  let text = "";
  for await (const chunk of body) {
    text += chunk.toString();
    // Its line may come in several pieces.
    if (text.includes('"BOOKMARK"') && text.endsWith("\n")) break;
  }
  await ended(body);
  return text;
}

async function ended(body: Body): Promise<string> {
  body.on("error", () => undefined);
  body.destroy();
  return "";
}

/** In lists and in the lines of watches; only fixtures, for a real server has objects of its own. */
function namesIn(text: string): readonly string[] {
  const objects = text
    .split("\n")
    .filter((line) => line !== "")
    .flatMap((line) => {
      const value = JSON.parse(line) as { items?: Json[]; object?: Json; type?: string };
      return value.type === undefined ? (value.items ?? []) : value.type === "ADDED" ? [value.object ?? {}] : [];
    });
  return objects
    .map((object) => object.metadata as { name: string; labels?: { fixture?: string } })
    .filter(({ labels }) => labels?.fixture === "yes")
    .map(({ name }) => name)
    .sort();
}
