import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseAddress, plainAddress } from "./ip-address.ts";
import { type Destination, NetworkPolicy } from "./network-policy.ts";
import { MAX_NETWORK_RULES, MAX_NETWORK_TEXT_LENGTH, parseNetworkRules } from "./network-rules.ts";

const OWN = ["192.168.1.5", "2001:db8:1::5"];

function policy(text: string): NetworkPolicy {
  const { rules, problems } = parseNetworkRules(text);
  assert.deepEqual(problems, []);
  // As it comes to the runner.
  return new NetworkPolicy(JSON.parse(JSON.stringify(rules)), () => OWN);
}

/** `GET https://host:1`; the address after `->` is what the host was resolved to. */
function judged(rules: NetworkPolicy, wish: string): boolean {
  const [, method, protocol, host = "", port, address] =
    /^(?:(\w+) )?(\w+):\/\/\[?([^\]]*?)\]?:(\d+)(?: -> (\S+))?$/.exec(wish) ?? [];
  const destination = { protocol, host, port: Number(port), method } as Destination;
  return address === undefined ? rules.allows(destination) : rules.allowsResolved(destination, address);
}

const CASES: readonly (readonly [rules: string, allowed: readonly string[], refused: readonly string[]])[] = [
  ["", [], ["tcp://example.com:80", "tcp://192.0.2.1:80", "GET http://example.com:80"]],
  [
    "tcp://db.example.com:5432",
    ["tcp://db.example.com:5432", "tcp://DB.Example.com.:5432", "tcp://db.example.com:5432 -> 192.0.2.1"],
    [
      "tcp://db.example.com:5433",
      "udp://db.example.com:5432",
      "GET http://db.example.com:5432",
      "tcp://xdb.example.com:5432",
      "tcp://db.example.com.evil.example:5432",
      "tcp://192.0.2.1:5432",
      "tcp://db.example.com:5432 -> nonsense",
    ],
  ],
  [
    "tcp://*.example.com:1-1024",
    ["tcp://a.example.com:1", "tcp://a.b.example.com:1024"],
    ["tcp://example.com:80", "tcp://.example.com:80", "tcp://aexample.com:80", "tcp://a.example.com:1025"],
  ],
  [
    "tcp://10.0.0.0/8:80; tcp://[2001:db8::/32]:80",
    ["tcp://10.1.2.3:80", "tcp://[2001:db8::1]:80", "tcp://[::ffff:10.1.2.3]:80", "tcp://[64:ff9b::10.1.2.3]:80"],
    ["tcp://11.0.0.1:80", "tcp://[2001:db9::1]:80", "tcp://a.example:80", "tcp://a.example:80 -> 10.0.0.1"],
  ],
  [
    "GET,head http://api.example.com; https://api.example.com",
    ["GET http://api.example.com:80", "HEAD http://api.example.com:80", "POST https://api.example.com:443"],
    ["POST http://api.example.com:80", "http://api.example.com:80", "GET http://api.example.com:8080"],
  ],
  [
    "tcp://*:*",
    ["tcp://192.0.2.1:1", "tcp://a.example:65535", "tcp://a.example:80 -> 10.0.0.1"],
    [
      "tcp://127.0.0.1:80",
      "tcp://0.0.0.0:80",
      "tcp://[::]:80",
      "tcp://[::1]:80",
      "tcp://[::ffff:127.0.0.1]:80",
      "tcp://[64:ff9b::7f00:1]:80",
      "tcp://169.254.169.254:80",
      "tcp://[fe80::1]:80",
      "tcp://224.0.0.1:80",
      "tcp://192.168.1.5:80",
      "tcp://[2001:db8:1::5]:80",
      "tcp://[::ffff:192.168.1.5]:80",
      "tcp://rebound.example:80 -> 127.0.0.1",
      "tcp://rebound.example:80 -> ::ffff:169.254.169.254",
      "tcp://rebound.example:80 -> 192.168.1.5",
      "tcp://localhost:80 -> 127.0.0.1",
    ],
  ],
  [
    "tcp://0.0.0.0/0:80; tcp://[::/0]:80",
    ["tcp://192.0.2.1:80", "tcp://[2001:db8::1]:80"],
    ["tcp://127.0.0.1:80", "tcp://[::1]:80", "tcp://192.168.1.5:80", "tcp://169.254.169.254:80"],
  ],
  [
    "tcp://localhost:80",
    ["tcp://localhost:80 -> 127.0.0.1", "tcp://localhost:80 -> ::1", "tcp://127.0.0.1:80", "tcp://[::1]:80"],
    ["tcp://127.0.0.1:81", "tcp://localhost:80 -> 169.254.169.254", "tcp://192.168.1.5:80", "udp://127.0.0.1:80"],
  ],
  [
    "tcp://169.254.169.254:80; tcp://127.0.0.0/8:9; tcp://192.168.1.5:22; tcp://meta.example:80; tcp://x.example:22",
    [
      "tcp://169.254.169.254:80",
      "tcp://127.1.2.3:9",
      "tcp://192.168.1.5:22",
      "tcp://meta.example:80 -> 169.254.169.254",
      "tcp://x.example:22 -> 192.168.1.5",
    ],
    ["tcp://169.254.169.253:80", "tcp://127.0.0.1:10", "tcp://meta.example:80 -> 127.0.0.1"],
  ],
];

const METADATA = [
  "169.254.169.254",
  "169.254.170.2",
  "169.254.170.23",
  "169.254.0.23",
  "169.254.42.42",
  "168.63.129.16",
  "100.100.100.200",
  "192.0.0.192",
  "fd00:ec2::254",
  "fd00:ec2::23",
  "fd00:42::42",
  "fd20:ce::254",
  "fd00:c1::a9fe:a9fe",
  "fd00:a9fe:a9fe::1",
  "fe80::a9fe:a9fe",
];
/** Networks around them, names and anything: all that does not name the address itself. */
const WIDE = `
  tcp://*:*; tcp://0.0.0.0/0:*; tcp://[::/0]:*; tcp://169.254.0.0/16:*; tcp://169.254.169.254/31:*; tcp://100.64.0.0/10:*
  tcp://192.0.0.0/24:*; tcp://168.63.0.0/16:*; tcp://[fd00::/8]:*; tcp://[fd00:ec2::/32]:*; tcp://[fe80::/10]:*
  tcp://metadata.example:*; http://*:*; https://*:*; udp://*:*`;

/** Every way to write an IPv4 address into an IPv6 one. */
function* formsOf(address: string): Iterable<string> {
  yield address;
  if (address.includes(":")) return;
  const hex = address.split(".").map((part) => Number(part).toString(16).padStart(2, "0"));
  const [a, b, c, d] = hex;
  yield* [`::ffff:${address}`, `::${address}`, `64:ff9b::${address}`, `::ffff:0:${address}`];
  yield `64:ff9b:1::${address}`;
  yield* [
    `64:ff9b:1:${a}${b}:${c}:${d}00::`,
    `64:ff9b:1:aa${a}:${b}:${c}${d}::`,
    `64:ff9b:1:aabb:${a}:${b}${c}:${d}00::`,
  ];
  yield* [
    `2002:${a}${b}:${c}${d}::1`,
    `2001:0:${a}${b}:${c}${d}::1`,
    `fd00::5efe:${address}`,
    `fd00::200:5efe:${address}`,
  ];
  const inverted = hex.map((each) => (Number.parseInt(each, 16) ^ 0xff).toString(16).padStart(2, "0"));
  yield `2001:0:1:2:3:4:${inverted[0]}${inverted[1]}:${inverted[2]}${inverted[3]}`;
}

test("a metadata service is reached only by a rule with its own address, in every notation", () => {
  const wide = policy(WIDE);
  for (const address of METADATA) {
    for (const form of formsOf(address)) {
      const host = form.includes(":") ? `[${form}]` : form;
      for (const protocol of ["tcp", "udp", "GET http", "GET https"]) {
        for (const wish of [`${protocol}://${host}:80`, `${protocol}://metadata.example:80 -> ${form}`]) {
          assert.equal(judged(wide, wish), false, wish);
        }
      }
      assert.equal(judged(policy(`http://${host}`), `GET http://${host}:80`), true, `named: ${host}`);
    }
    const named = policy(`tcp://${address.includes(":") ? `[${address}]` : address}:80; tcp://metadata.example:80`);
    assert.equal(judged(named, `tcp://metadata.example:80 -> ${address}`), true);
  }
});

test("addresses beside metadata services are ordinary ones, and a zone is refused", () => {
  const wide = policy(WIDE);
  for (const host of ["100.100.100.201", "192.0.1.192", "168.63.129.17", "[fd00:ec3::254]", "[2002:c000:201::1]"]) {
    assert.equal(judged(wide, `tcp://${host}:80`), true, host);
  }
  for (const host of ["fe80::a9fe:a9fe%eth0", "fe80::1%1", "::ffff:169.254.169.254%eth0"]) {
    assert.equal(judged(wide, `GET http://[${host}]:80`), false, host);
    assert.equal(wide.allowsLookup(host), false, host);
  }
});

test("a rule allows exactly what it names", () => {
  for (const [text, allowed, refused] of CASES) {
    const rules = policy(text);
    for (const wish of allowed) assert.equal(judged(rules, wish), true, `"${text}" allows ${wish}`);
    for (const wish of refused) assert.equal(judged(rules, wish), false, `"${text}" refuses ${wish}`);
  }
});

test("listening and look-ups are granted separately", () => {
  const rules = policy("listen tcp:8080-8081\nudp://*.example.com:53\nhttps://api.example.org");
  assert.deepEqual([rules.allowsListen("tcp", 8081), rules.allowsListen("tcp", 8082)], [true, false]);
  assert.deepEqual([rules.allowsListen("udp", 8080), rules.allowsListen("tcp", 0)], [false, false]);
  assert.deepEqual([rules.allowsLookup("a.example.com"), rules.allowsLookup("api.example.org")], [true, false]);
  assert.deepEqual([rules.allowsSockets("tcp"), rules.allowsSockets("udp")], [true, true]);
  assert.equal(policy("https://api.example.org").allowsSockets("tcp"), false);
});

test("all mistakes of an annotation are reported at once", () => {
  const wrong: readonly (readonly [entry: string, problem: RegExp])[] = [
    ["nonsense", /write \[METHODS\]/],
    ["ftp://a.example:21", /no protocol ftp/],
    ["tcp://a.example", /no port/],
    ["tcp://a.example:0", /0 is no port/],
    ["tcp://a.example:70000", /70000 is no port/],
    ["tcp://a.example:9-8", /9-8 is no port/],
    ["GET tcp://a.example:1", /methods belong/],
    ["GET,,PUT http://a.example", /no HTTP method/],
    ["https://a.example/path", /neither|write/],
    ["tcp://10.1.0.0/8:1", /bits set beyond/],
    ["tcp://10.0.0.0/33:1", /neither an address/],
    ["tcp://10.1:1", /neither an address/],
    ["tcp://0x7f000001:1", /neither an address/],
    ["tcp://a..example:1", /no host/],
    ["tcp://b\u00fccher.example:1", /no host/],
    ["tcp://a.*.example:1", /no host/],
    ["listen http:80", /listen tcp:PORT/],
    ["listen tcp:", /no port/],
  ];
  const { problems } = parseNetworkRules(wrong.map(([entry]) => entry).join(" ;\n"));
  assert.equal(problems.length, wrong.length);
  for (const [index, [entry, problem]] of wrong.entries()) {
    assert.match(problems[index] ?? "", problem);
    assert.ok(problems[index]?.startsWith(`"${entry}"`));
  }
  assert.match(parseNetworkRules("x".repeat(MAX_NETWORK_TEXT_LENGTH + 1)).problems[0] ?? "", /longer than/);
  assert.match(parseNetworkRules("x;".repeat(MAX_NETWORK_RULES + 1)).problems[0] ?? "", /more than/);
});

test("no text breaks the parser, and parsed rules parse again", () => {
  const piece = fc.constantFrom(
    "tcp",
    "udp",
    "https",
    "://",
    "*",
    "a.b",
    "10.0.0.0",
    "/8",
    "[",
    "::1",
    "]",
    ":",
    "1",
    "-",
    "listen ",
    ";",
    "\n",
    " ",
    "GET ",
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string({ unit: "binary" }),
        fc.array(piece).map((parts) => parts.join("")),
      ),
      (text) => {
        const { rules, problems } = parseNetworkRules(text);
        const entries = text.split(/[;\n]/).filter((entry) => entry.trim() !== "").length;
        assert.ok(problems.length + rules.connect.length + rules.listen.length === entries);
      },
    ),
  );
});

test("an address in every notation is read as the system reads it", () => {
  fc.assert(
    fc.property(fc.ipV6(), (text) => {
      const parsed = parseAddress(text);
      assert.equal(parsed?.family, 6, text);
      const hex = parsed.bits.toString(16).padStart(32, "0");
      const groups = hex.match(/.{4}/g)?.map((group) => Number.parseInt(group, 16).toString(16));
      const canonical = (host: string): string => new URL(`http://[${host}]`).hostname;
      assert.equal(canonical(groups?.join(":") ?? ""), canonical(text));
    }),
  );
  fc.assert(
    fc.property(fc.ipV4(), (text) => {
      assert.deepEqual(plainAddress(parseAddress(`::ffff:${text}`) ?? assert.fail()), parseAddress(text));
    }),
  );
  for (const text of [
    "1.2.3",
    "1.2.3.04",
    "256.1.1.1",
    "1::2::3",
    ":::",
    "1:2:3:4:5:6:7:8:9",
    "::1.2.3.4:5",
    "fe80::1%eth0",
    "",
  ]) {
    assert.equal(parseAddress(text), undefined, text);
  }
});
