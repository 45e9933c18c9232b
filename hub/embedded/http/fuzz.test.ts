/** The server answers any request with a Status, stays alive, and never reports a fault of its own. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type AskInit, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import fc from "fast-check";
import { parseFieldSelector, parseLabelSelector } from "../api/selectors.ts";
import { StatusError } from "../api/status-error.ts";
import { negotiate } from "./negotiation.ts";
import { parsePath } from "./request-info.ts";

const server = await TestApiServer.start();
after(() => server[Symbol.asyncDispose]());
await server.expect(201, "POST", "/api/v1/namespaces/default/configmaps", {
  body: { metadata: { name: "a" }, data: { k: "v" } },
});

const segment = fc.oneof(
  fc.constantFrom(
    "api",
    "apis",
    "v1",
    "apps",
    "namespaces",
    "default",
    "pods",
    "configmaps",
    "a",
    "status",
    "binding",
    "proxy",
    "watch",
    "daemonsets",
    "nodes",
    "openapi",
    "v3",
    "..",
    "%2e%2e",
    "%",
    "%00",
    "",
    "token",
    "eviction",
    "selfsubjectaccessreviews",
    "authorization.k8s.io",
    "log",
  ),
  fc.string({ maxLength: 12 }).map(encodeURIComponent),
);
const path = fc.oneof(
  fc.array(segment, { maxLength: 9 }).map((parts) => `/${parts.join("/")}`),
  fc
    .tuple(fc.constantFrom("configmaps", "pods", "nodes", "secrets", "events"), fc.array(segment, { maxLength: 3 }))
    .map(([plural, rest]) => ["/api/v1/namespaces/default", plural, ...rest].join("/")),
);
const query = fc
  .dictionary(
    fc.constantFrom(
      "labelSelector",
      "fieldSelector",
      "limit",
      "continue",
      "resourceVersion",
      "resourceVersionMatch",
      "dryRun",
      "fieldManager",
      "fieldValidation",
      "pretty",
      "force",
      "gracePeriodSeconds",
      "propagationPolicy",
      "timeoutSeconds",
      "includeObject",
    ),
    fc.oneof(
      fc.constantFrom("All", "0", "1", "Strict", "true", "Foreground", "metadata.name=a", "a in (b,c)", "Exact"),
      fc.string({ maxLength: 20 }),
    ),
    { maxKeys: 4 },
  )
  .map((all) => new URLSearchParams(all).toString());
const key = fc.oneof(
  fc.constantFrom(
    "metadata",
    "spec",
    "data",
    "name",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "containers",
    "kind",
    "apiVersion",
    "status",
    "uid",
    "toString",
    "constructor",
    "resourceVersion",
    "generateName",
    "target",
    "deleteOptions",
    "preconditions",
  ),
  fc.string({ maxLength: 6 }),
);
const { json } = fc.letrec((tie) => ({
  json: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom("a", "default", "", "v1", "ConfigMap", 0, -1, 1.5, true, null),
    fc.array(tie("json"), { maxLength: 3 }),
    fc.dictionary(key, tie("json"), { maxKeys: 4 }),
  ),
}));
const body = fc.oneof(
  json.map((value) => JSON.stringify(value)),
  fc.string(),
  fc.uint8Array({ maxLength: 100 }),
);
const type = fc.constantFrom(
  "application/json",
  "application/yaml",
  "application/vnd.kubernetes.protobuf",
  "application/json-patch+json",
  "application/merge-patch+json",
  "application/strategic-merge-patch+json",
  "application/apply-patch+yaml",
  "text/plain",
);

test("requests of any path, query and body", { timeout: 120_000 }, async () => {
  const method = fc.constantFrom("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS");
  await fc.assert(
    fc.asyncProperty(method, path, query, body, type, async (verb, where, options, content, contentType) => {
      // The fixture's own namespace stays.
      if (verb === "DELETE" && /^\/api\/v1\/namespaces(\/|$)/.test(where) && where.split("/").length < 6) return;
      const init: AskInit = verb === "GET" || verb === "HEAD" ? {} : { body: content, type: contentType };
      const answer = await server.ask(verb, `${where}?${options}`, init);
      assert.ok(
        answer.status < 500 || answer.status === 503 || answer.status === 504,
        `${verb} ${where}?${options} ${answer.text}`,
      );
      if (answer.status >= 400 && verb !== "HEAD") {
        assert.equal(answer.body.kind, "Status", answer.text);
        assert.equal(answer.body.code, answer.status);
      }
    }),
    { numRuns: 1200 },
  );
  const faults = server.log.entries.filter(({ level }) => level === "error");
  assert.deepEqual(faults, []);
  assert.equal((await server.ask("GET", "/readyz")).status, 200);
});

test("objects of the right outline and any content", { timeout: 120_000 }, async () => {
  const plural = fc.constantFrom("configmaps", "secrets", "pods", "events", "serviceaccounts");
  await fc.assert(
    fc.asyncProperty(
      plural,
      fc.dictionary(key, json, { maxKeys: 4 }),
      fc.dictionary(key, json, { maxKeys: 4 }),
      async (resource, fields, spec) => {
        const made = {
          ...fields,
          metadata: { generateName: "x-" },
          ...(resource === "pods" ? { spec: { containers: [{ name: "c", image: "i" }], ...spec } } : {}),
        };
        const answer = await server.ask("POST", `/api/v1/namespaces/default/${resource}`, {
          body: JSON.stringify(made),
        });
        assert.ok(answer.status < 500, `${JSON.stringify(made)} ${answer.text}`);
      },
    ),
    { numRuns: 600 },
  );
});

test("headers of any kind", () => {
  fc.assert(
    fc.property(
      fc.string({
        unit: fc.constantFrom(
          "a",
          "/",
          "*",
          ";",
          ",",
          "=",
          "q",
          "0",
          ".",
          "application/json",
          "as=Table",
          "v=v1",
          "g=meta.k8s.io",
          " ",
        ),
      }),
      (header) => void negotiate(header),
    ),
  );
});

test("paths of any kind are taken apart or refused", () => {
  fc.assert(fc.property(path, (text) => void parsePath(text)));
  assert.deepEqual(parsePath("/api/v1/namespaces/default/pods/p/exec/"), {
    ...{ kind: "resource", group: "", version: "v1", plural: "pods", namespace: "default", name: "p" },
    ...{ subresource: "exec", rest: "", isWatchPath: false },
  });
  const proxied = parsePath("/api/v1/nodes/n/proxy/a%2Fb/c/");
  assert.equal(proxied?.kind === "resource" ? proxied.rest : "", "/a%2Fb/c/");
});

test("selectors of any kind are understood or refused", () => {
  const text = fc.oneof(
    fc.string(),
    fc.string({
      unit: fc.constantFrom("a", "b", "=", "!", ",", "(", ")", " in ", " notin ", "<", ">", "\\", "1", "/", "."),
    }),
  );
  for (const parse of [parseLabelSelector, parseFieldSelector]) {
    fc.assert(
      fc.property(text, (selector) => {
        try {
          parse(selector);
        } catch (error) {
          assert.ok(error instanceof StatusError && error.statusCode === 400, String(error));
        }
      }),
      { numRuns: 2000 },
    );
  }
});
