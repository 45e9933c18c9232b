import assert from "node:assert/strict";
import { test } from "node:test";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import fc from "fast-check";
import { httpRequestOf, redirectedRequest, requestText, urlOf } from "./http-request.ts";

interface Action {
  readonly path?: string;
  readonly port?: number | string;
  readonly host?: string;
  readonly scheme?: "HTTP" | "HTTPS";
  readonly httpHeaders?: { name: string; value: string }[];
}

function containerWith(action: Action): Container {
  const ports = [{ name: "web", containerPort: 8080 }];
  const httpGet = { port: 80, ...action };
  const pod = podOf({ containers: [{ name: "app", image: "example/app:1", ports, livenessProbe: { httpGet } }] });
  const [container] = pod.spec.containers;
  assert.ok(container);
  return container;
}

function requestOf(action: Action, podIp = "10.0.0.5") {
  const container = containerWith(action);
  const httpGet = container.livenessProbe?.httpGet;
  assert.ok(httpGet);
  return httpRequestOf(httpGet, container, podIp, "probe");
}

const TARGETS: readonly (readonly [path: string, target: string])[] = [
  ["/", "/"],
  ["/healthz", "/healthz"],
  ["healthz", "/healthz"],
  ["?foo", "/?foo"],
  ["/path?bar=1&b=%20", "/path?bar=1&b=%20"],
  ["/a b/ü", "/a%20b/%C3%BC"],
  ["/a%2fb%zz", "/a%2fb%25zz"],
  ["/x#fragment", "/x"],
  ["/x?y#fragment", "/x?y"],
  ["http://other.example/z?q", "/z?q"],
  ["/q?a b", "/q?a%20b"],
  ["/:a@b;c,d=e!$&'()*+~", "/:a@b;c,d=e!$&'()*+~"],
];

test("a path becomes what Go's client asks for", () => {
  for (const [path, target] of TARGETS) assert.equal(requestOf({ path }).target, target, path);
});

test("the request is the kubelet's, header by header", () => {
  assert.equal(
    requestText(requestOf({ path: "/healthz", port: "web" })),
    "GET /healthz HTTP/1.1\r\nHost: 10.0.0.5:8080\r\nUser-Agent: kube-probe/1.34\r\nAccept: */*\r\nConnection: close\r\n\r\n",
  );
  const httpHeaders = [
    { name: "x-custom-header", value: "b" },
    { name: "HOST", value: "web.example" },
    { name: "X-Custom-Header", value: "a" },
    { name: "empty", value: "" },
    { name: "accept", value: "" },
    { name: "user-agent", value: "mine" },
  ];
  assert.equal(
    requestText(requestOf({ path: "/", httpHeaders }, "fd00::5")),
    "GET / HTTP/1.1\r\nHost: web.example\r\nUser-Agent: mine\r\nEmpty: \r\nX-Custom-Header: b\r\nX-Custom-Header: a\r\nConnection: close\r\n\r\n",
  );
  const silent = [
    { name: "User-Agent", value: "" },
    { name: "Host", value: "" },
    { name: "Accept", value: "text/plain" },
  ];
  assert.equal(
    requestText(requestOf({ path: "/", httpHeaders: silent }, "fd00::5")),
    "GET / HTTP/1.1\r\nHost: [fd00::5]:80\r\nAccept: text/plain\r\nConnection: close\r\n\r\n",
  );
});

test("host, scheme and port are the action's", () => {
  assert.equal(
    urlOf(requestOf({ host: "other.example", scheme: "HTTPS", port: 8443, path: "/x" })),
    "https://other.example:8443/x",
  );
  assert.equal(urlOf(requestOf({ path: "/" }, "fd00::5")), "http://[fd00::5]:80/");
});

test("a header that cannot be sent, and a port that is none, are said as Go says them", () => {
  const container = containerWith({});
  const action = { path: "/", port: "nothing", scheme: "HTTP" } as const;
  assert.throws(() => httpRequestOf(action, container, "10.0.0.5", "probe"), {
    message: 'strconv.Atoi: parsing "nothing": invalid syntax',
  });
  assert.throws(() => httpRequestOf({ ...action, port: 0 }, container, "10.0.0.5", "probe"), {
    message: "invalid port number: 0",
  });
  const wrong = requestOf({ httpHeaders: [{ name: "X-A", value: "a\r\nInjected: yes" }] });
  assert.throws(() => requestText(wrong), { message: 'net/http: invalid header field value for "X-A"' });
  const host = requestOf({ httpHeaders: [{ name: "Host", value: "a\r\nInjected: yes" }] });
  assert.throws(() => requestText(host), { message: 'net/http: invalid header field value for "Host"' });
});

test("a redirect keeps headers, and the Host while the way is relative", () => {
  const from = requestOf({ path: "/a/b?c", httpHeaders: [{ name: "Host", value: "web.example" }] });
  const relative = redirectedRequest(from, "../d");
  assert.equal(urlOf(relative), "http://10.0.0.5:80/d");
  assert.equal(relative.hostHeader, "web.example");
  const absolute = redirectedRequest(from, "https://10.0.0.5/x?y#z");
  assert.equal(urlOf(absolute), "https://10.0.0.5:443/x?y");
  assert.equal(absolute.hostHeader, "");
  assert.ok(requestText(absolute).includes("\r\nReferer: http://10.0.0.5:80/a/b?c\r\n"));
  assert.ok(!requestText(redirectedRequest(absolute, "http://10.0.0.5/")).includes("Referer: https:"));
  assert.equal(redirectedRequest(from, "http://[fd00::1]:99/").host, "fd00::1");
  assert.throws(() => redirectedRequest(from, "http://["), {
    message: 'failed to parse Location header "http://[": invalid URL',
  });
  assert.throws(() => redirectedRequest(from, "ftp://10.0.0.5/"), { message: 'unsupported protocol scheme "ftp"' });
});

test("no path, host or header breaks out of its line", () => {
  const text = fc.string({ unit: "binary", maxLength: 60 });
  fc.assert(
    fc.property(text, text, (path, value) => {
      const { httpGet } = containerWith({}).livenessProbe ?? {};
      assert.ok(httpGet);
      const action = { ...httpGet, path, httpHeaders: [{ name: "X-A", value }] };
      const request = httpRequestOf(action, containerWith({}), "10.0.0.5", "probe");
      assert.match(request.target, /^\/[\x21-\x7e]*$/);
      let sent: string;
      try {
        sent = requestText(request);
      } catch (error) {
        assert.match((error as Error).message, /^net\/http: invalid header field value/);
        return;
      }
      assert.equal(sent.split("\r\n").length, 8);
      assert.ok(!sent.replaceAll("\r\n", "").includes("\n"));
    }),
    { numRuns: 2000 },
  );
});
