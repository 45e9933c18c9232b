import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { parseHubArguments, type ServeArguments } from "./arguments.ts";

const serve = (...args: string[]): ServeArguments => {
  const parsed = parseHubArguments(args);
  assert.equal(parsed.command, "serve");
  return parsed as ServeArguments;
};

test("serve is what is meant without a command", () => {
  assert.deepEqual(serve("--embedded").cluster, { kind: "embedded", dataDir: "/var/lib/picolet-hub" });
  assert.deepEqual(serve().cluster, { kind: "kubernetes", kubeconfig: undefined });
  assert.deepEqual(serve("serve", "--kubeconfig", "k").cluster, { kind: "kubernetes", kubeconfig: "k" });
});

test("addresses, ports, names and durations", () => {
  const args = serve(
    "--embedded",
    "--tunnel-address=127.0.0.1:0",
    "--api-address=[::1]:7000",
    "--kubelet-ports=20000-20009",
    "--kubelet-addresses=10.200.0.0/24",
    "--server-name=a",
    "--server-name=b",
    "--renewal-window=48h",
  );
  assert.deepEqual(args.tunnel, { host: "127.0.0.1", port: 0 });
  assert.deepEqual(args.api, { host: "::1", port: 7000 });
  assert.deepEqual(args.kubeletPorts, [20_000, 20_009]);
  assert.deepEqual(args.kubeletAddresses, { cidr: "10.200.0.0/24", first: 0x0ac80001, count: 254 });
  assert.throws(() => serve("--kubelet-addresses=10.200.0.0"), {
    message: /^--kubelet-addresses: 10\.200\.0\.0 is no/,
  });
  assert.deepEqual(args.serverNames, ["a", "b"]);
  assert.equal(args.renewalWindow, 48 * 3_600_000);
  assert.deepEqual(serve("--tunnel-address", ":9").tunnel, { host: "0.0.0.0", port: 9 });
  assert.deepEqual(serve("--tunnel-address", "hub").tunnel, { host: "hub", port: 10_270 });
});

test("the other commands", () => {
  const embedded = { kind: "embedded", dataDir: "d" };
  const at = ["--embedded", "--data-dir", "d"];
  assert.deepEqual(parseHubArguments(["token", "create", ...at, "--ttl", "1h", "--description", "x"]), {
    command: "token create",
    cluster: embedded,
    ttl: 3_600_000,
    description: "x",
    replaceNodes: false,
    uses: undefined,
  });
  const uses = (count: string) => parseHubArguments(["token", "create", ...at, "--uses", count]);
  assert.equal((uses("50") as { readonly uses?: number }).uses, 50);
  for (const wrong of ["0", "10001", "-1", "many"]) assert.throws(() => uses(wrong), { message: /^--uses must be/ });
  assert.deepEqual(parseHubArguments(["token", "list", ...at]), { command: "token list", cluster: embedded });
  assert.deepEqual(parseHubArguments(["token", "delete", "abc", ...at]), {
    command: "token delete",
    cluster: embedded,
    id: "abc",
  });
  assert.deepEqual(parseHubArguments(["node", "reset", "board", ...at]), {
    command: "node reset",
    cluster: embedded,
    node: "board",
  });
  assert.deepEqual(parseHubArguments(["ca", "hash", ...at]), { command: "ca hash", cluster: embedded });
  assert.deepEqual(parseHubArguments(["backup", "f", "--data-dir", "d"]), {
    command: "backup",
    dataDir: "d",
    file: "f",
  });
  assert.deepEqual(parseHubArguments(["restore", "f", "--data-dir", "d", "--accept-restored-store", "0123abcd"]), {
    command: "restore",
    dataDir: "d",
    file: "f",
    acceptRestoredStore: "0123abcd",
  });
  assert.deepEqual(parseHubArguments(["keys", "rotate", "--data-dir", "d"]), { command: "keys rotate", dataDir: "d" });
  const fleets = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];
  assert.deepEqual(serve(...fleets.map((each) => `--adopt-fleet=${each}`)).adoptFleets, fleets);
  assert.deepEqual(parseHubArguments(["token", "create", "--help"]), {
    command: "help",
    words: ["token", "create"],
  });
  assert.deepEqual(parseHubArguments(["token", "--help"]), { command: "help", words: ["token"] });
  assert.deepEqual(parseHubArguments(["help", "serve"]), { command: "help", words: ["serve"] });
  for (const args of [["--help"], ["help"]]) assert.deepEqual(parseHubArguments(args), { command: "help", words: [] });
  for (const args of [["--version"], ["version"]]) assert.deepEqual(parseHubArguments(args), { command: "version" });
});

test("Pod Security is configured as kube-apiserver's is", () => {
  const plain = serve("--embedded");
  assert.deepEqual([plain.admissionConfigFile, plain.relaxesUserNamespaces], [undefined, false]);
  const gate = "UserNamespacesPodSecurityStandards";
  const given = serve("--embedded", "--admission-control-config-file", "a.yaml", "--feature-gates", `${gate}=true`);
  assert.deepEqual([given.admissionConfigFile, given.relaxesUserNamespaces], ["a.yaml", true]);
  assert.equal(serve("--embedded", "--feature-gates", `${gate}=false`).relaxesUserNamespaces, false);
});

test("the name at which kubectl reaches the hub", () => {
  const server = (...args: string[]): unknown => {
    const parsed = parseHubArguments(["kubeconfig", ...args]);
    return parsed.command === "kubeconfig" ? parsed.server : "";
  };
  assert.deepEqual(server("--server", "hub.example"), { host: "hub.example", port: undefined });
  assert.deepEqual(server("--server", "hub.example:443"), { host: "hub.example", port: 443 });
  assert.deepEqual(server("--server=[2001:db8::1]:7443"), { host: "[2001:db8::1]", port: 7443 });
  assert.equal(server(), undefined);
  for (const wrong of ["", "https://hub.example", "hub.example/", "me@hub", "a b", "hub:70000"])
    assert.throws(() => server("--server", wrong), /--server: must be NAME or NAME:PORT/);
});

test("what is wrong is named", () => {
  const cases: readonly (readonly [readonly string[], RegExp])[] = [
    [["fly"], /unknown command "fly"/],
    [["--embeded"], /unknown flag --embeded; did you mean "--embedded"/],
    [["toekn", "create"], /: unknown command "toekn"; did you mean "token"\?$/],
    [["serve", "--embedded", "--no-such-thing=1"], /: unknown flag --no-such-thing$/],
    [["token", "create", "--tll", "1h"], /: unknown flag --tll; did you mean "--ttl"\?$/],
    [["--store-max-bytes", "64MB"], /not "64MB"; did you mean "64M" \(10\^6\) or "64Mi" \(2\^20\)\?$/],
    [["--embedded", "--kubeconfig", "k"], /exclude each other/],
    [["--tunnel-address", "a:b:c"], /--tunnel-address must be HOST:PORT/],
    [["--tunnel-address", "10270"], /--tunnel-address must be HOST:PORT/],
    [["--tunnel-address", "a:70000"], /--tunnel-address must be HOST:PORT/],
    [["--kubelet-ports", "9-8"], /--kubelet-ports must be FIRST-LAST/],
    [["--drain-time", "soon"], /--drain-time must be a duration/],
    [["--feature-gates", "AllAlpha=true"], /--feature-gates must be one of UserNamespacesPodSecurityStandards=true/],
    [["--log-format", "xml"], /--log-format must be one of text, json/],
    [["token"], /create, list, delete/],
    [["token", "delete"], /token delete needs ID/],
    [["node", "reset", "a", "b"], /node reset takes no "b"/],
    [["ca"], /ca needs one of: hash/],
    [["backup"], /backup needs FILE/],
    [["keys"], /keys needs one of: rotate/],
    [["keys", "burn"], /unknown command "keys burn"/],
    [["--telemetry-otlp-token-file", "t"], /--telemetry-otlp-token-file is of no use without --telemetry-otlp/],
    [["--telemetry-influx", "http://me@host/"], /--telemetry-influx must be an http:\/\/ or https:\/\/ URL/],
    [["--store-max-bytes", "1Ki"], /--store-max-bytes must be a size of 1Mi or more, such as 256Mi/],
    [["--kubelet-network", "ten"], /--kubelet-network: ten is no network/],
    [["token", "create", "--ttl", "soon"], /--ttl must be a duration such as 1h, not "soon"/],
    [["--embedded", "--accept-restored-store", "yes"], /needs the code of 8 digits/],
    [["--accept-restored-store", "0123abcd"], /of no use without --embedded/],
    [["--adopt-fleet", "no id"], /is no id of a fleet/],
    [["serve", "extra"], /serve takes no "extra"/],
  ];
  for (const [args, message] of cases) assert.throws(() => parseHubArguments(args), message);
});

test("no arguments at all make it throw anything but `invalid`", () => {
  const words = fc.constantFrom(
    "serve",
    "token",
    "create",
    "--embedded",
    "--ttl",
    "--tunnel-address",
    "node",
    "reset",
    "=",
  );
  fc.assert(
    fc.property(fc.array(fc.oneof(words, fc.string()), { maxLength: 6 }), (args) => {
      try {
        parseHubArguments(args);
      } catch (error) {
        assert.ok(isPicoletError(error, "invalid"), String(error));
      }
    }),
  );
});
