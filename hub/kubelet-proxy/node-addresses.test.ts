import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { IncomingStream } from "@picolet/protocol/tunnel/stream.ts";
import { fixedPort } from "@picolet/test/support/unit/machine/fixed-port.ts";
import { KubeletHub } from "@picolet/test/support/unit/streaming/kubelet-hub.ts";
import { addressRangeOf } from "./node-addresses.ts";

const NEVER = new AbortController().signal;
const NODES = ["a", "b", "c"];

/** An agent that says which one it is. */
const agent =
  (name: string) =>
  (stream: IncomingStream): void => {
    void (async () => {
      const accepted = stream.accept({ status: 200, contentType: "text/plain" });
      await accepted.write(Buffer.from(name), NEVER);
      accepted.end();
    })();
  };

async function hubWith(t: TestContext, cidr: string): Promise<{ readonly hub: KubeletHub; readonly port: number }> {
  const port = await fixedPort();
  const hub = new KubeletHub({ nodeAddresses: { range: addressRangeOf(cidr), port } });
  t.after(() => hub[Symbol.asyncDispose]());
  return { hub, port };
}

const at = (host: string, port: number) => ({ host, port, checkServerIdentity: () => undefined });

test("each node is reached on one port, at an address of its own, and at the port of the hub's address as well", async (t) => {
  const { hub, port } = await hubWith(t, "127.77.0.0/16");
  for (const node of NODES) hub.fleet.connect(node, { kubelet: agent(node) });
  const addresses = new Map<string, string>();
  for (const node of NODES) {
    await hub.port(node);
    const endpoint = hub.proxy.endpointOf(node);
    assert.equal(endpoint.port, port);
    assert.match(endpoint.address, /^127\.77\./);
    assert.equal((await hub.ask(node, "/pods", at(endpoint.address, port))).body, node);
    const own = hub.proxy.ownEndpoint(node);
    assert.equal((await hub.ask(node, "/pods", at("127.0.0.1", own?.port ?? 0))).body, node);
    assert.deepEqual(own?.advertised, endpoint);
    addresses.set(node, endpoint.address);
  }
  assert.equal(new Set(addresses.values()).size, NODES.length);
  const other = await hubWith(t, "127.77.0.0/16");
  for (const node of NODES.toReversed()) {
    await other.hub.port(node);
    assert.equal(other.hub.proxy.endpointOf(node).address, addresses.get(node), "the same at the next hub");
  }
});

test("a node for which there is no address is reached at the hub's", async (t) => {
  const { hub, port } = await hubWith(t, "127.78.0.0/30");
  const ports: number[] = [];
  for (const node of NODES) {
    hub.fleet.connect(node, { kubelet: agent(node) });
    ports.push(await hub.port(node));
  }
  assert.deepEqual(ports.slice(0, 2), [port, port]);
  const last = hub.proxy.endpointOf("c");
  assert.deepEqual([last.address, last.port !== port], ["127.0.0.1", true]);
  assert.equal((await hub.ask("c", "/pods")).body, "c");
  assert.equal(hub.log.entries[0]?.message, "all addresses for kubelet endpoints are taken");
});

test("a network that is not this machine's is said so, with how to mend it, and nodes are reached at the hub's address", async (t) => {
  const { hub } = await hubWith(t, "203.0.113.0/24");
  hub.fleet.connect("a", { kubelet: agent("a") });
  await hub.port("a");
  while (hub.log.entries.length === 0) await new Promise((resolve) => setImmediate(resolve));
  const [entry] = hub.log.entries;
  assert.equal(entry?.message, "cannot listen at a node's own address; it is reached at the hub's");
  assert.equal(entry.fields.mend, "ip route add local 203.0.113.0/24 dev lo");
  assert.equal(hub.proxy.endpointOf("a").address, "127.0.0.1");
  assert.equal((await hub.ask("a", "/pods")).body, "a");
  assert.equal(hub.log.entries.length, 1, "said once");
});

test("ranges are IPv4 networks", () => {
  assert.deepEqual(addressRangeOf("10.200.3.9/16"), { cidr: "10.200.3.9/16", first: 0x0ac80001, count: 65_534 });
  assert.equal(addressRangeOf("10.0.0.4/30").count, 2);
  for (const wrong of [
    "",
    "10.0.0.0",
    "10.0.0.0/7",
    "10.0.0.0/31",
    "10.0.0.0/x",
    "10.0.0/16",
    "fd00::/64",
    "10.0.0.0/16/1",
  ]) {
    assert.throws(() => addressRangeOf(wrong), { code: "invalid", message: /is no IPv4 network of \/8 to \/30/ });
  }
});
