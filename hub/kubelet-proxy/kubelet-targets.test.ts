import assert from "node:assert/strict";
import type { LookupAddress } from "node:dns";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { blockListOf, KubeletTargets, type OwnEndpoint } from "./kubelet-targets.ts";

interface Registry {
  readonly endpoints?: Readonly<Record<string, OwnEndpoint>>;
  readonly ports?: readonly number[];
  readonly networks?: readonly string[];
  readonly nodeAddresses?: readonly string[];
}

const targets = ({ endpoints = {}, ports = [], networks = [], nodeAddresses = [] }: Registry = {}): KubeletTargets =>
  new KubeletTargets(
    {
      own: {
        ownEndpoint: (node) => endpoints[node],
        isOwnPort: (port) => ports.includes(port),
        isNodeAddress: (address) => nodeAddresses.includes(address),
        advertisedAddress: "203.0.113.7",
      },
    },
    { networks },
  );

const claim = (address: string, port = 10250) => ({ node: "evil", claimed: { address, port } });
const NOT_ALLOWED = { code: "permission_denied", reason: "AddressNotAllowed", message: /^address not allowed/ };

test("a node of this hub is dialed where the hub listens, with any status", () => {
  const advertised = { address: "203.0.113.7", port: 20_001 };
  const own = { address: "127.0.0.1", port: 20_001, advertised, isConnected: true };
  const { host, port } = targets({ endpoints: { evil: own } }).endpointOf(claim("198.51.100.1"));
  assert.deepEqual({ host, port }, { host: "127.0.0.1", port: 20_001 });
  const away = targets({ endpoints: { evil: { ...own, isConnected: false } } });
  assert.equal(away.endpointOf(claim("203.0.113.7", 20_001)).host, "127.0.0.1", "away, and nowhere else since");
  assert.equal(away.endpointOf(claim("198.51.100.1")).host, "198.51.100.1", "connected to another hub by now");
  assert.equal(away.endpointOf({ node: "evil", claimed: undefined }).port, 20_001);
});

test("addresses at which no kubelet of another machine can be are refused, in every notation", () => {
  const refused = [
    ...["127.0.0.1", "127.255.0.9", "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255", "240.0.0.1"],
    ...["100.100.100.200", "192.0.0.192", "fd00:ec2::254"],
    ...["::", "::1", "fe80::1", "fe80::1%eth0", "febf::1", "ff02::1", "::ffff:127.0.0.1", "::FFFF:7f00:1"],
    ...["0:0:0:0:0:ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::"],
  ];
  for (const address of refused) assert.throws(() => targets().endpointOf(claim(address)), NOT_ALLOWED, address);
  for (const address of ["10.1.2.3", "192.168.0.9", "fd00::9", "2001:db8::1", "::ffff:10.0.0.1"]) {
    assert.equal(targets().endpointOf(claim(address)).host, address);
  }
  for (const port of [0, -1, 65_536, 1.5]) {
    assert.throws(() => targets().endpointOf(claim("10.1.2.3", port)), NOT_ALLOWED, String(port));
  }
});

test("ports of the hub itself are refused at every address of this machine", () => {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const own = targets({ ports: [6443], networks: ["0.0.0.0/0", "::/0"] });
  for (const { address } of all) assert.throws(() => own.endpointOf(claim(address, 6443)), NOT_ALLOWED, address);
  assert.throws(() => own.endpointOf(claim("::ffff:127.0.0.1", 6443)), NOT_ALLOWED);
  assert.equal(own.endpointOf(claim("127.0.0.1", 6444)).port, 6444);
  assert.equal(own.endpointOf(claim("10.254.254.254", 6443)).port, 6443);
});

test("an operator can name the networks of kubelets, loopback among them", () => {
  const narrowed = targets({ networks: ["10.0.0.0/8", "127.0.0.1"] });
  assert.equal(narrowed.endpointOf(claim("10.9.9.9")).host, "10.9.9.9");
  assert.equal(narrowed.endpointOf(claim("127.0.0.1")).host, "127.0.0.1");
  for (const address of ["192.168.0.1", "127.0.0.2", "2001:db8::1"]) {
    assert.throws(() => narrowed.endpointOf(claim(address)), NOT_ALLOWED, address);
  }
  for (const cidr of ["10.0.0.0/33", "10.0.0.0/", "net", "10.0.0.0/8/8", "fd00::/129", ""]) {
    assert.throws(() => blockListOf([cidr]), { code: "invalid" }, cidr);
  }
});

test("a name is judged by the address that is connected to", async () => {
  const resolve = (name: string, all: boolean): Promise<string | readonly LookupAddress[]> => {
    const { lookup } = targets().endpointOf(claim(name));
    return new Promise((resolve, reject) =>
      lookup(name, { all }, (error, address) => (error === null ? resolve(address) : reject(error))),
    );
  };
  // The resolver knows these without asking anyone; each is loopback.
  for (const name of ["localhost", "127.1", "2130706433", "0x7f000001"]) {
    for (const all of [true, false]) await assert.rejects(resolve(name, all), NOT_ALLOWED, name);
  }
  assert.equal(await resolve("167772161", false), "10.0.0.1");
  assert.deepEqual(await resolve("167772161", true), [{ address: "10.0.0.1", family: 4 }]);
});

test("a node that has not come back since the hub was started is away, and one without an address unknown", () => {
  const own = targets({ ports: [20_001], networks: ["127.0.0.0/8"] });
  assert.throws(() => own.endpointOf(claim("203.0.113.7")), { code: "unavailable", message: /is not connected/ });
  assert.throws(() => own.endpointOf({ node: "evil", claimed: undefined }), { code: "unavailable" });
});

test("a node is not led to the address that the hub gives to another one", () => {
  const own = targets({ nodeAddresses: ["10.200.0.9"], networks: ["10.0.0.0/8"] });
  for (const address of ["10.200.0.9", "::ffff:10.200.0.9"]) {
    for (const port of [10_250, 6443]) {
      assert.throws(() => own.endpointOf(claim(address, port)), { code: "unavailable", message: /is not connected/ });
    }
  }
  assert.equal(own.endpointOf(claim("10.200.0.10")).host, "10.200.0.10");
  const advertised = { address: "10.200.0.9", port: 10_250 };
  const away = { address: "127.0.0.1", port: 20_001, advertised, isConnected: false };
  const { host, port } = targets({ endpoints: { evil: away } }).endpointOf(claim("10.200.0.9"));
  assert.deepEqual([host, port], ["127.0.0.1", 20_001], "its own address is dialed where the hub listens");
});
