/**
 * A component of WASI 0.3 with sockets, run within the test's own process: what it says as it comes, and peers on the
 * loopback.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { TestContext } from "node:test";
import type { AsyncLaunch } from "@picolet/runtime-wasm/shared/component/component-run.ts";
import { TlsContexts } from "@picolet/runtime-wasm/shared/http/tls-contexts.ts";
import { NetworkPolicy } from "@picolet/runtime-wasm/shared/network/network-policy.ts";
import { parseNetworkRules } from "@picolet/runtime-wasm/shared/network/network-rules.ts";
import type { AsyncComponent } from "./async-component.ts";

/** wasi:sockets by these rules of a pod's; undefined: without any network. */
export function networkOf(rules: string | undefined): AsyncLaunch {
  const parsed = parseNetworkRules(rules ?? "");
  assert.deepEqual(parsed.problems, []);
  const policy = new NetworkPolicy(parsed.rules, () => []);
  const outgoing = rules === undefined ? undefined : { policy, authorities: undefined, tls: new TlsContexts() };
  return { sockets: true, outgoing };
}

export class Talk {
  readonly #done: Promise<string>;
  #text = "";
  #wake = (): void => undefined;

  constructor(component: AsyncComponent, args: readonly string[], rules: string | undefined, onOutput?: () => unknown) {
    const heard = (bytes: Uint8Array): void => {
      this.#text += Buffer.from(bytes).toString();
      onOutput?.();
      this.#wake();
    };
    this.#done = component
      .run({ args, launch: networkOf(rules), onOutput: heard })
      .then(() => this.#text)
      .finally(() => this.#wake());
  }

  get text(): string {
    return this.#text;
  }

  get end(): Promise<string> {
    return this.#done;
  }

  /** Fails with the component's own fault. */
  async until(pattern: RegExp): Promise<RegExpExecArray> {
    let isOver = false;
    void this.#done.then(
      () => (isOver = true),
      () => (isOver = true),
    );
    for (;;) {
      const found = pattern.exec(this.#text);
      if (found !== null) return found;
      if (isOver) throw new Error(`it never said ${pattern}: ${await this.#done}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** @returns its port */
export async function peer(
  context: TestContext,
  handler: (socket: Socket) => void,
  host = "127.0.0.1",
): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    // Who is cut off may be.
    socket.on("error", () => undefined);
    handler(socket);
  });
  server.listen(0, host);
  await once(server, "listening");
  context.after(() => {
    for (const each of sockets) each.destroy();
    server.close();
  });
  return String((server.address() as AddressInfo).port);
}

export const echo = (socket: Socket): unknown => socket.pipe(socket);

/** Makes round trips on the loopback, so that pending events happen: each takes some turns of the event loop. */
export async function roundTrips(context: TestContext, count: number): Promise<void> {
  const client = connect({ port: Number(await peer(context, echo)), host: "127.0.0.1" });
  for (let trip = 0; trip < count; trip += 1) {
    client.write("x");
    await once(client, "data");
  }
  client.destroy();
}
