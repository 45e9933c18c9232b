/**
 * Random pods for the API server: it accepts each, or names the path that is wrong; and a node can read what it
 * accepts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import fc from "fast-check";
import { type Json, randomManifests } from "../support/agent/random-manifests.ts";
import { TestApiServer } from "../support/unit/embedded/api-server.ts";

const RUNS = 500;
const PODS = "/api/v1/namespaces/default/pods";
const AROUND = { config: "config", secret: "secret", claim: "claim", hostFolder: "/srv", nodeName: "board" };

const CONTAINERS = [{ name: "app", image: "example/app:1" }];
const pod = (metadata: object, spec: object): [Json] => [
  { apiVersion: "v1", kind: "Pod", metadata: { name: "web", ...metadata }, spec: { containers: CONTAINERS, ...spec } },
];
const TOO_MUCH = { preferredDuringSchedulingIgnoredDuringExecution: [{ weight: 2 ** 40, podAffinityTerm: {} }] };
/** Drawn pods that broke the server before. */
const DRAWN_BEFORE: [Json][] = [
  [{ metadata: { annotations: {} } }],
  pod({ annotations: null, finalizers: null }, {}),
  pod({}, { affinity: { podAntiAffinity: TOO_MUCH } }),
];

interface Refusal {
  readonly reason?: string;
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly field?: string }[] };
}

/** A valid name becomes another valid one. */
const renamed = (manifest: unknown, name: string): unknown =>
  JSON.parse(JSON.stringify(manifest, (key, value: unknown) => (key === "name" && value === "web" ? name : value)));

test("a manifest drawn from the schema is taken, or refused at a path", async () => {
  await using api = await TestApiServer.start();
  const manifests = randomManifests({ ...AROUND, firstHostPort: 8080, failingComponent: "example/none:1" });
  await api.expect(201, "POST", "/apis/node.k8s.io/v1/runtimeclasses", {
    body: { apiVersion: "node.k8s.io/v1", kind: "RuntimeClass", metadata: { name: "wasm" }, handler: "wasm" },
  });
  let taken = 0;
  let drawn = 0;
  const property = fc.asyncProperty(manifests, async (manifest) => {
    drawn += 1;
    // A pod with a finalizer stays.
    const { status, body, text } = await api.ask("POST", PODS, { body: renamed(manifest, `web-${drawn}`) });
    if (status === 201) {
      taken += 1;
      const parsed = parsePod(body);
      assert.ok(parsed.ok, `a node cannot read it: ${JSON.stringify(parsed)}`);
      const { name } = body.metadata as { readonly name: string };
      await api.expect(200, "DELETE", `${PODS}/${name}?gracePeriodSeconds=0`);
      return;
    }
    assert.ok(status >= 400 && status < 500, `${status} ${text}`);
    const { reason, message, details } = body as Refusal;
    assert.ok(reason !== undefined && message !== undefined, text);
    if (status === 422)
      assert.ok(
        (details?.causes ?? []).every(({ field }) => field !== undefined),
        text,
      );
  });
  await fc.assert(property, { numRuns: RUNS, examples: DRAWN_BEFORE });
  assert.ok(taken > RUNS / 20, `${taken} of ${RUNS} were taken`);
});
