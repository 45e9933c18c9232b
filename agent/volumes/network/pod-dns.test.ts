import assert from "node:assert/strict";
import { test } from "node:test";
import type { DnsConfig } from "@picolet/runtime-contract/runtime-adapter.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import fc from "fast-check";
import { parseResolvConf, podDns } from "./pod-dns.ts";

const HOST: DnsConfig = { servers: ["192.0.2.53"], searches: ["lan"], options: ["rotate"] };
const CLUSTER = { servers: ["10.96.0.10"], domain: "cluster.local" };
const NO_CLUSTER = { servers: [], domain: "cluster.local" };
const OWN: DnsConfig = {
  servers: ["10.96.0.10"],
  searches: ["default.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"],
  options: ["ndots:5"],
};

test("each policy, with and without a cluster's DNS", () => {
  assert.deepEqual(podDns(podOf(), HOST, CLUSTER).dns, OWN);
  assert.deepEqual(podDns(podOf({ hostNetwork: true }), HOST, CLUSTER).dns, HOST);
  assert.deepEqual(podDns(podOf({ hostNetwork: true, dnsPolicy: "ClusterFirstWithHostNet" }), HOST, CLUSTER).dns, OWN);
  assert.deepEqual(podDns(podOf({ dnsPolicy: "Default" }), HOST, CLUSTER).dns, HOST);
  const none = podDns(podOf({ dnsPolicy: "None", dnsConfig: { nameservers: ["1.1.1.1"] } }), HOST, CLUSTER);
  assert.deepEqual(none.dns, { servers: ["1.1.1.1"], searches: [], options: [] });
  const fallback = podDns(podOf(), HOST, NO_CLUSTER);
  assert.deepEqual(fallback, { dns: HOST, warnings: [], missingClusterDns: true });
  assert.equal(podDns(podOf({ dnsPolicy: "Default" }), HOST, NO_CLUSTER).missingClusterDns, false);
  assert.deepEqual(podDns(podOf(), HOST, { servers: ["10.96.0.10"], domain: "" }).dns.searches, ["lan"]);
  assert.deepEqual(podDns(podOf({ dnsPolicy: "Default" }), undefined, CLUSTER).dns, {
    servers: ["127.0.0.1"],
    searches: ["."],
    options: [],
  });
});

test("dnsConfig is added, its options count, what is named twice is there once", () => {
  const dnsConfig = {
    nameservers: ["192.0.2.53", "1.1.1.1"],
    searches: ["lan", "example.org"],
    options: [{ name: "ndots", value: "2" }, { name: "edns0" }],
  };
  assert.deepEqual(podDns(podOf({ dnsConfig }), HOST, CLUSTER).dns, {
    servers: ["10.96.0.10", "192.0.2.53", "1.1.1.1"],
    searches: [...OWN.searches, "example.org"],
    options: ["ndots:2", "edns0"],
  });
});

test("without a resolver configuration a pod asks its own machine, by each family of address", () => {
  const pod = podOf({ dnsPolicy: "Default" });
  const { dns } = podDns(pod, undefined, CLUSTER, ["192.0.2.1", "2001:db8::1"]);
  assert.deepEqual(dns, { servers: ["127.0.0.1", "::1"], searches: ["."], options: [] });
});

test("what is beyond the limits is left out, and said", () => {
  const many = (count: number, name: (index: number) => string): string[] =>
    Array.from({ length: count }, (_, i) => name(i));
  const servers = podDns(
    podOf({ dnsPolicy: "Default" }),
    { ...HOST, servers: many(5, (i) => `192.0.2.${i}`) },
    CLUSTER,
  );
  assert.deepEqual(servers.dns.servers, ["192.0.2.0", "192.0.2.1", "192.0.2.2"]);
  assert.deepEqual(servers.warnings, [
    "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 192.0.2.0 192.0.2.1 192.0.2.2",
  ]);
  const searchesOf = (searches: readonly string[]): readonly string[] =>
    podDns(podOf({ dnsPolicy: "Default" }), { ...HOST, searches }, CLUSTER).dns.searches;
  assert.equal(searchesOf(many(40, (i) => `s${i}`)).length, 32);
  assert.equal(searchesOf(["x".repeat(254), "ok"]).length, 1);
  const long = searchesOf(many(32, (i) => `${i}.${"x".repeat(97)}`));
  assert.ok(long.join(" ").length <= 2048 && long.length >= 20);
});

test("resolv.conf as people write it", () => {
  const text = `# a comment
search one.example.
  nameserver   192.0.2.1
nameserver 2001:db8::53 # not a comment to resolv.conf either
search lan. .
options ndots:1
nameserver
options rotate timeout:2 ndots:3
sortlist 130.155.160.0`;
  assert.deepEqual(parseResolvConf(text), {
    servers: ["192.0.2.1", "2001:db8::53"],
    searches: ["lan"],
    options: ["ndots:3", "rotate", "timeout:2"],
  });
});

test("whatever a node and a pod say, the resolver can have it", () => {
  const name = fc.stringMatching(/^[a-z0-9.-]{1,300}$/);
  const config = fc.record({
    nameservers: fc.array(name, { maxLength: 6 }),
    searches: fc.array(name, { maxLength: 40 }),
    options: fc.array(fc.record({ name, value: fc.option(name, { nil: undefined }) }), { maxLength: 4 }),
  });
  const host = fc.record({
    servers: fc.array(name, { maxLength: 6 }),
    searches: fc.array(name, { maxLength: 40 }),
    options: fc.array(name, { maxLength: 4 }),
  });
  const policy = fc.constantFrom("Default", "ClusterFirst", "None");
  const base = podOf();
  fc.assert(
    fc.property(policy, fc.option(host, { nil: undefined }), config, (dnsPolicy, ofHost, dnsConfig) => {
      const pod = { ...base, spec: { ...base.spec, dnsPolicy, dnsConfig } } as typeof base;
      const { dns, warnings } = podDns(pod, ofHost, CLUSTER);
      assert.ok(dns.servers.length <= 3 && dns.searches.length <= 32);
      assert.ok(dns.searches.join(" ").length <= 2048 && dns.searches.every((each) => each.length <= 253));
      assert.equal(new Set(dns.searches).size, dns.searches.length, "nothing is searched twice");
      assert.ok(warnings.length <= 2);
    }),
  );
});

test("no text makes the parser fail or gives a value with white space", () => {
  const parts = fc.constantFrom("nameserver", "search", "options", " ", "\t", "\n", "a.b", ".", "#", "\r", "\0");
  fc.assert(
    fc.property(fc.array(parts), (words) => {
      const { servers, searches, options } = parseResolvConf(words.join(""));
      for (const value of [...servers, ...searches, ...options]) assert.doesNotMatch(value, /\s/);
    }),
  );
});
