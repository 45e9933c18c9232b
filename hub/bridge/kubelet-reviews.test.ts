import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeClient, KubeObject, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import { PODS } from "@picolet/hub-core/kube-client/kube-client.ts";
import { ADMIN_USER, TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import { KubernetesReviews } from "./kubelet-reviews.ts";

const never = new AbortController().signal;
const POD_NAME = "authentication.kubernetes.io/pod-name";

test("what a token's user has besides name and groups goes with the question about its rights", async () => {
  await using server = await TestApiServer.start();
  const client = server.server.client(ADMIN_USER);
  const account = { metadata: { name: "scraper" } };
  await server.expect(201, "POST", "/api/v1/namespaces/default/serviceaccounts", { body: account });
  const pod = await client.create(
    PODS,
    { namespace: "default", name: "a" },
    { spec: { serviceAccountName: "scraper", containers: [{ name: "a", image: "a" }] } },
    {},
    never,
  );
  const boundObjectRef = { apiVersion: "v1", kind: "Pod", name: "a", uid: pod.metadata.uid };
  const path = "/api/v1/namespaces/default/serviceaccounts/scraper/token";
  const { status } = await server.expect(201, "POST", path, {
    body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: { boundObjectRef } },
  });
  const asked: unknown[] = [];
  const recording = {
    create: (type: ResourceType, ref: { namespace: string; name: string }, object: KubeObject) => {
      if (type.kind === "SubjectAccessReview") asked.push(object.spec);
      return client.create(type, ref, object, {}, never);
    },
  } as unknown as KubeClient;
  const reviews = new KubernetesReviews({ client: recording });
  const user = await reviews.userOfToken((status as { token: string }).token, never);
  assert.deepEqual(user?.extra?.[POD_NAME], ["a"]);
  assert.equal(await reviews.allows(user, { verb: "get", path: "/metrics" }, never), false);
  const { name, groups, extra } = user;
  assert.deepEqual(asked, [{ user: name, groups, extra, nonResourceAttributes: { verb: "get", path: "/metrics" } }]);
});
