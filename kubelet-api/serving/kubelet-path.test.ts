import assert from "node:assert/strict";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { parseKubeletPath, subresourcesOf } from "./kubelet-path.ts";

test("paths of the kubelet are taken apart", () => {
  const of = parseKubeletPath;
  const web = { namespace: "default", pod: "web", uid: "" };
  assert.deepEqual(of("/exec/default/web/main?command=sh&command=-c&command=a%20b%26&input=1&output=1&error=1"), {
    ...{ kind: "exec", ...web, container: "main", command: ["sh", "-c", "a b&"] },
    streams: { stdin: true, stdout: true, stderr: true, tty: false },
  });
  assert.deepEqual(of("/attach/default/web/some-uid/main?output=true&error=1&tty=1"), {
    ...{ kind: "attach", ...web, uid: "some-uid", container: "main", command: [] },
    streams: { stdin: false, stdout: true, stderr: false, tty: true },
  });
  assert.deepEqual(of("/portForward/default/web?port=80&port=81,82"), {
    kind: "portForward",
    ...web,
    ports: [80, 81, 82],
  });
  assert.deepEqual(of("/run/default/web/main?cmd=ls%20-l"), {
    kind: "run",
    ...web,
    container: "main",
    command: ["ls", "-l"],
  });
  assert.deepEqual(of("/containerLogs/default/web/main?tailLines=3&x="), {
    ...{ kind: "logs", namespace: "default", pod: "web", container: "main" },
    query: { tailLines: "3", x: "" },
  });
  assert.deepEqual(of("/stats/summary?a=b"), { kind: "get", path: "/stats/summary?a=b" });
});

test("what is allowed for one path is not reached by another way of writing a second one", () => {
  for (const prefix of ["/stats/..", "/metrics/%2e%2e", "/logs/x/../..", "/pods\\..", "/stats/.%2E"]) {
    const url = `${prefix}/exec/default/web/main?output=1&command=ls`;
    assert.equal(parseKubeletPath(url).kind, "exec");
    assert.deepEqual(subresourcesOf(url), ["proxy"], url);
  }
  assert.throws(() => parseKubeletPath("/%2e//a/stats"), /the path is none/);
  const text = fc.string({ unit: fc.constantFrom("/", ".", "%2e", "\\", "stats", "exec", "a", "%2f", ";", "#", "?") });
  fc.assert(
    fc.property(text, (path) => {
      const url = `/${path}`;
      let parsed: ReturnType<typeof parseKubeletPath>;
      try {
        parsed = parseKubeletPath(url);
      } catch {
        return;
      }
      // The path that is passed on to the node is the one that was authorized.
      if (parsed.kind === "get") assert.deepEqual(subresourcesOf(parsed.path), subresourcesOf(url));
      else assert.deepEqual(subresourcesOf(url), ["proxy"]);
    }),
    { numRuns: 5000 },
  );
});

test("any path is understood or refused", () => {
  const segment = fc.oneof(
    fc.constantFrom("exec", "attach", "run", "portForward", "containerLogs", "", "..", "%", "%2F"),
    fc.string({ maxLength: 10 }),
  );
  const pair = fc.tuple(
    fc.constantFrom("port", "command", "cmd", "input", "output", "tty"),
    fc.string({ maxLength: 10 }),
  );
  const url = fc.tuple(fc.array(segment, { maxLength: 7 }), fc.array(pair, { maxLength: 5 })).map(([path, query]) => {
    return `/${path.join("/")}?${query.map(([name, value]) => `${name}=${value}`).join("&")}`;
  });
  fc.assert(
    fc.property(fc.oneof(url, fc.string()), (text) => {
      try {
        assert.ok(parseKubeletPath(text).kind);
      } catch (error) {
        assert.ok(error instanceof PicoletError && ["invalid", "not_found"].includes(error.code), String(error));
      }
    }),
    { numRuns: 2000 },
  );
});
