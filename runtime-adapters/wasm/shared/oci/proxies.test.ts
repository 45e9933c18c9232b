import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type ProxySettings, proxiesOf, proxyFor, proxyProblem } from "./proxies.ts";

const SETTINGS: ProxySettings = { httpProxy: "plain:3128", httpsProxy: "http://u:p@secure:3128", noProxy: "" };

const nameFor = (url: string, noProxy = ""): string | undefined =>
  proxyFor(new URL(url), { ...SETTINGS, noProxy })?.name;

test("each scheme has its proxy, and the loopback none", () => {
  assert.equal(nameFor("https://r.example/v2/"), "http://secure:3128");
  assert.equal(nameFor("http://r.example/v2/"), "http://plain:3128");
  for (const host of ["localhost", "127.0.0.1", "127.9.9.9:5000", "[::1]:5000"]) {
    assert.equal(nameFor(`https://${host}/`), undefined, host);
  }
  assert.equal(proxyFor(new URL("https://r.example"), SETTINGS)?.url.password, "p");
});

test("noProxy has the meaning that it has for Go's programs", () => {
  const cases: readonly [noProxy: string, url: string, isProxied: boolean][] = [
    ["*", "https://a.example", false],
    ["example", "https://a.example", false],
    ["a.example", "https://a.example", false],
    ["a.example", "https://b.a.example", false],
    ["a.example", "https://ba.example", true],
    [".a.example", "https://a.example", true],
    [".a.example", "https://b.a.example", false],
    ["*.a.example", "https://b.a.example", false],
    ["A.Example", "https://a.example", false],
    [" x , a.example ", "https://a.example", false],
    ["a.example:443", "https://a.example", false],
    ["a.example:5000", "https://a.example", true],
    ["a.example:5000", "https://a.example:5000", false],
    ["10.0.0.0/8", "https://10.1.2.3:5000", false],
    ["10.0.0.0/8", "https://11.1.2.3", true],
    ["10.1.2.3", "https://10.1.2.3", false],
    ["10.1.2.3:5000", "https://10.1.2.3:5001", true],
    ["[2001:db8::1]:443", "https://[2001:db8::1]", false],
    ["2001:DB8::/32", "https://[2001:db8::1]", false],
    ["2001:db8:0::1", "https://[2001:db8::1]", false],
    ["10.0.0.0/99,.,,/", "https://10.0.0.1", true],
  ];
  for (const [noProxy, url, isProxied] of cases) {
    assert.equal(nameFor(url, noProxy) !== undefined, isProxied, `${noProxy} ${url}`);
  }
});

test("variables in capitals take precedence over those in small letters", () => {
  const environment = { HTTPS_PROXY: "a", https_proxy: "b", http_proxy: "c", no_proxy: "d", NO_PROXY: "" };
  assert.deepEqual(proxiesOf(environment), { httpProxy: "c", httpsProxy: "a", noProxy: "d" });
});

test("an invalid proxy is reported, and not used", () => {
  for (const text of ["socks5://p:1", "http://p/path", "http://", "ftp://p", "http://p:99999", "p q"]) {
    assert.notEqual(proxyProblem(text), undefined, text);
    assert.equal(proxyFor(new URL("https://r.example"), { ...SETTINGS, httpsProxy: text }), undefined, text);
  }
  for (const text of ["p", "p:3128", "http://p", "https://u:p@p:1/", "[::1]:3128"])
    assert.equal(proxyProblem(text), undefined, text);
});

test("any text is accepted or refused without an exception", () => {
  const host = fc.oneof(
    fc.domain(),
    fc.ipV4(),
    fc.ipV6().map((each) => `[${each}]`),
  );
  const entry = fc.oneof(
    host,
    fc.string(),
    fc.tuple(fc.ipV4(), fc.nat(200)).map((pair) => pair.join("/")),
  );
  fc.assert(
    fc.property(host, fc.string(), fc.array(entry), (name, proxy, entries) => {
      const settings = { httpProxy: proxy, httpsProxy: proxy, noProxy: entries.join(",") };
      const found = proxyFor(new URL(`https://${name}/`), settings);
      if (found !== undefined) assert.ok(/^https?:\/\/[^@]+$/.test(found.name), found.name);
      // A host that is named literally is excluded.
      assert.equal(proxyFor(new URL(`https://${name}/`), { ...settings, noProxy: name }), undefined);
    }),
  );
});
