/** `edgectl join` as it changes a configuration; `test/distribution/service.test.ts` joins a hub with it. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { after, describe, test } from "node:test";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const HASH = `sha256:${"ab".repeat(32)}`;
const OTHER_HASH = `sha256:${"cd".repeat(32)}`;
const TOKEN = "abcdef.0123456789abcdef";
const HUB = ["hub.example.com", "--token", TOKEN, "--ca-hash", HASH];

describe("edgectl join", () => {
  const folder = new TempFolder();
  let runs = 0;

  after(() => folder[Symbol.dispose]());

  /** @param text of the configuration before; `undefined`: there is none */
  function join(text: string | undefined, words: readonly string[] = HUB, input = "") {
    runs += 1;
    const home = folder.at(String(runs));
    mkdirSync(home);
    const config = `${home}/config.yaml`;
    if (text !== undefined) writeFileSync(config, text, { mode: 0o600 });
    const args = ["join", ...words, "--config", config, "--no-start"];
    const { status, stdout, stderr } = spawnSync("dist/board/bin/edgectl", args, { encoding: "utf8", input });
    const read = (path: string): string => (existsSync(path) ? readFileSync(path, "utf8") : "");
    return { status, stdout, stderr, config, text: read(config), token: `${home}/join-token`, read };
  }

  test("a board without a configuration gets one, and a token that root alone may read", () => {
    const { status, stdout, stderr, config, text, token, read } = join(undefined);
    assert.equal(status, 0, stderr);
    assert.equal(stdout, `${config}: the hub is https://hub.example.com:10270\n`);
    assert.equal(
      text,
      `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nhub:\n  server: https://hub.example.com:10270\n  tokenFile: ${token}\n  caHash: ${HASH}\n`,
    );
    assert.equal(read(token), `${TOKEN}\n`);
    assert.equal(statSync(token).mode & 0o777, 0o600);
  });

  test("comments and all other fields stay, and what named the hub before goes", () => {
    const before = `# my board\nmaxPods: 20 # few\nhub:\n  server: https://hub.example.com:10270\n  token: ${TOKEN}\n  caHash: ${OTHER_HASH}\n  heartbeatInterval: 20s\n`;
    const { status, stderr, text, config } = join(
      before,
      ["https://hub.example.com:10270", "--token-file", "-", "--ca-hash", HASH],
      TOKEN,
    );
    assert.equal(status, 0, stderr);
    assert.match(text, /^# my board\nmaxPods: 20 # few\n/);
    assert.match(text, /heartbeatInterval: 20s/);
    assert.equal(statSync(config).mode & 0o777, 0o600, "it may hold secrets");
    assert.doesNotMatch(text, new RegExp(`${TOKEN}|${OTHER_HASH}`));
  });

  for (const [what, before, words, message] of [
    [
      "another hub",
      "hub: {server: https://old.example.com:10270}\n",
      HUB,
      /has the hub https:\/\/old\.example\.com:10270.*--replace/,
    ],
    ["a file that is no YAML", "maxPods: [\n", HUB, /is no YAML mapping: correct it first/],
    [
      "a configuration that is wrong otherwise",
      "maxPods: many\n",
      HUB,
      /the configuration would be wrong:\n.*config\.yaml.*maxPods/s,
    ],
    ["a hash that is none", "maxPods: 20\n", ["hub.example.com", "--token", TOKEN, "--ca-hash", "abc"], /caHash/],
  ] as const)
    test(`${what} is refused, and the file stays as it was`, () => {
      const { status, stderr, text, token, config } = join(before, words);
      assert.equal(status, 1, stderr);
      assert.match(stderr, message);
      assert.equal(text, before);
      assert.equal(existsSync(token), false);
      assert.equal(existsSync(`${config}.new`), false);
    });

  for (const [words, message] of [
    [["hub.example.com", "--ca-hash", HASH], /--token or --token-file/],
    [["hub.example.com", "--token", TOKEN], /--ca-hash or --ca-file/],
    [["http://hub.example.com", "--token", TOKEN, "--ca-hash", HASH], /by https or wss, not by http/],
    [["hub example", "--token", TOKEN, "--ca-hash", HASH], /no address of a hub: write hub\.example\.com/],
  ] as const)
    test(`wrong usage says what is missing: ${words.join(" ")}`, () => {
      const { status, stderr } = join(undefined, words);
      assert.equal(status, 64);
      assert.match(stderr, message);
    });

  test("--proxy is the way to the hub, and stays when the board joins again without it", () => {
    const { status, text, stderr } = join("maxPods: 20\n", [...HUB, "--proxy", "http://proxy.example:3128"]);
    assert.equal(status, 0, stderr);
    assert.match(text, /\n {2}proxy: http:\/\/proxy\.example:3128\n/);
    assert.match(join(text).text, /\n {2}proxy: http:\/\/proxy\.example:3128\n/);
    const wrong = join("maxPods: 20\n", [...HUB, "--proxy", "socks5://proxy.example"]);
    assert.equal(wrong.status, 1);
    assert.match(wrong.stderr, /hub\.proxy: Invalid value: must be a URL such as/);
  });

  test("--replace takes a board to another hub", () => {
    const { status, text } = join("hub: {server: https://old.example.com:10270, caFile: /old.pem}\n", [
      ...HUB,
      "--replace",
    ]);
    assert.equal(status, 0);
    assert.match(text, /hub\.example\.com:10270/);
    assert.doesNotMatch(text, /old/);
  });
});
