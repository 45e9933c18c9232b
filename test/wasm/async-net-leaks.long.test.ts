/** Connections, pieces and datagrams of WASI 0.3 leave nothing behind, of which jco's own glue keeps some KiB each. */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, type TestContext, test } from "node:test";
import { heldMemory } from "../support/unit/machine/held-memory.ts";
import { AsyncComponent } from "../support/wasm/async-component.ts";
import { echo, peer, Talk } from "../support/wasm/async-talk.ts";

/**
 * Bounds the bytes of each: the test runner follows promises, up to 0.9 KiB of a connection; without it there are some
 * 30 bytes. jco keeps 20 KiB.
 */
const BOUND_BYTES = 1024;
/** A line of output each 500. */
const TIMES = Number(process.env.PICOLET_P3_CONNECTIONS ?? 2000);
const RULES = "tcp://127.0.0.1:*; listen tcp:*; listen udp:*";

let component: AsyncComponent;

before(async () => {
  component = await AsyncComponent.of("async-net.c");
});

after(() => component?.[Symbol.dispose]());

/** Held in the heap when it says something, but what it begins with. */
class Held {
  readonly #bytes: number[] = [];

  readonly look = (): void => void this.#bytes.push(heldMemory().heap);

  check(): void {
    assert.ok(this.#bytes.length >= 4);
    const grown = (this.#bytes.at(-1) as number) - (this.#bytes[1] as number);
    assert.ok(grown < BOUND_BYTES * TIMES, `${TIMES} times have left ${grown} bytes`);
  }
}

test("connections that it makes leave nothing behind", async (context) => {
  const held = new Held();
  const args = ["again", "127.0.0.1", await peer(context, echo), String(TIMES)];
  assert.match(await new Talk(component, args, RULES, held.look).end, /ok\n$/);
  held.check();
});

test("connections that it is given leave nothing behind", async () => {
  const held = new Held();
  const talk = new Talk(component, ["serve", "0", String(TIMES)], RULES, held.look);
  const [, port] = await talk.until(/listening (\d+)\n/);
  let left = TIMES;
  const oneAfterTheOther = async (): Promise<void> => {
    while (left-- > 0) {
      const client = connect({ port: Number(port), host: "127.0.0.1", allowHalfOpen: true });
      client.end("word");
      await once(client.resume(), "end");
    }
  };
  await Promise.all(Array.from({ length: 20 }, oneAfterTheOther));
  assert.match(await talk.end, new RegExp(`served ${TIMES}\n$`));
  held.check();
});

test("pieces that it sends leave nothing behind", async (context) => {
  const held = new Held();
  const port = await peer(context, (socket) => void socket.resume());
  let dots = 0;
  const args = ["flood", "127.0.0.1", port, String(4 * TIMES)];
  const talk = new Talk(component, args, RULES, () => {
    dots += 1;
    if (dots % 100 === 0) held.look();
  });
  assert.match(await talk.end, new RegExp(`${4 * TIMES}\nsent: ok\n$`));
  held.check();
});

test("datagrams leave nothing behind", async (context) => {
  const held = new Held();
  const talk = new Talk(component, ["answer", "0", String(TIMES)], "udp://127.0.0.1:*", held.look);
  const [, port] = await talk.until(/bound (\d+)\n/);
  await answered(context, Number(port));
  assert.match(await talk.end, /answered\n$/);
  held.check();
});

async function answered(context: TestContext, port: number): Promise<void> {
  const socket = createSocket("udp4");
  context.after(() => socket.close());
  for (let left = TIMES; left > 0; left -= 1) {
    socket.send("word", port, "127.0.0.1");
    await once(socket, "message");
  }
}
