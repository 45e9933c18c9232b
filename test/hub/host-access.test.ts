/**
 * The hub's check of a component's network against what the agent makes of the same annotation: no grant slips between.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { hostAccess } from "@picolet/hub-embedded/admission/host-access.ts";
import { NetworkPolicy } from "@picolet/runtime-wasm/shared/network/network-policy.ts";
import { type Protocol, parseNetworkRules } from "@picolet/runtime-wasm/shared/network/network-rules.ts";
import fc from "fast-check";

const ANNOTATION = "wasm.picolet.io/network";
/** Addresses that only a rule with such an address may reach. */
const LOCAL = [
  ...["127.0.0.1", "127.8.8.8", "0.0.0.0", "169.254.169.254", "224.0.0.251", "255.255.255.255"],
  ...["::1", "::", "fe80::1", "ff02::fb", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::7f00:1", "::127.0.0.1"],
];
const PROTOCOLS: readonly Protocol[] = ["tcp", "udp", "http", "https"];
const PORTS = [80, 8080];

const numbers = fc.integer({ min: 0, max: 255 });
const ipv4 = fc.oneof(
  fc.tuple(numbers, numbers, numbers, numbers).map((parts) => parts.join(".")),
  fc.constantFrom("127.0.0.1", "127.1", "0x7f.1", "2130706433", "127.0.0.01", "169.254.169.254", "0.0.0.0"),
);
const ipv6 = fc.oneof(fc.ipV6(), fc.constantFrom(...LOCAL.filter((each) => each.includes(":"))));
const suffix = fc.oneof(
  fc.constant(""),
  fc.integer({ min: 0, max: 128 }).map((length) => `/${length}`),
);
const host = fc.oneof(
  fc.constantFrom(...LOCAL).map((address) => (address.includes(":") ? `[${address}]` : address)),
  fc.tuple(ipv4, suffix).map(([address, length]) => address + length),
  fc.tuple(ipv6, suffix).map(([address, length]) => `[${address}${length}]`),
  fc.constantFrom("*", "localhost", "LOCALHOST", "localhost.", "*.localhost", "db.example.com", "*.com", "127.0.0.1."),
);
const port = fc.oneof(
  { weight: 20, arbitrary: fc.constantFrom(":*", ":8080", ":1-65535", ":80") },
  { weight: 1, arbitrary: fc.string({ maxLength: 3 }) },
);
const scheme = fc.oneof(fc.constantFrom(...PROTOCOLS, "TCP", "GET http", "get,head https"));
const entry = fc.oneof(
  {
    weight: 20,
    arbitrary: fc.tuple(scheme, host, port).map(([protocol, name, rest]) => `${protocol}://${name}${rest}`),
  },
  { weight: 1, arbitrary: fc.constantFrom("listen tcp:8080", "Listen\tudp:*", " listen  tcp:1-5", "listen:tcp:1") },
  { weight: 1, arbitrary: fc.string({ maxLength: 12 }) },
);
const annotation = fc
  .array(entry, { maxLength: 3 })
  .chain((entries) => fc.constantFrom(";", "\n", " ; ", ";;", "\r\n").map((separator) => entries.join(separator)));

test("whatever the agent would let reach the node, the hub finds in the annotation", () => {
  const judged = { local: 0, listening: 0, free: 0 };
  fc.assert(
    fc.property(annotation, (text) => {
      const { rules, problems } = parseNetworkRules(text);
      // The agent starts no component then.
      if (problems.length > 0) return;
      const policy = new NetworkPolicy(rules, () => []);
      const reaches = PROTOCOLS.some((protocol) =>
        PORTS.some((each) => {
          const to = (name: string) => ({
            protocol,
            host: name,
            port: each,
            method: protocol.startsWith("http") ? "GET" : undefined,
          });
          const byName = ["localhost", "db.example.com", "a.localhost"].some((name) =>
            LOCAL.some((address) => policy.allowsResolved(to(name), address)),
          );
          return byName || LOCAL.some((address) => policy.allows(to(address)));
        }),
      );
      const found = hostAccess({ annotations: { [ANNOTATION]: text }, spec: {} }, { relaxesUserNamespaces: false });
      if (reaches) judged.local += 1;
      else if (rules.listen.length > 0) judged.listening += 1;
      else judged.free += 1;
      if (reaches || rules.listen.length > 0) assert.ok(found, text);
    }),
    { numRuns: 1000, seed: 12 },
  );
  // Both kinds were met often: the annotations are not mere noise.
  assert.ok(judged.local > 50 && judged.listening > 10 && judged.free > 100, JSON.stringify(judged));
});
