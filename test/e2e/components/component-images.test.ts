/**
 * Components from a private registry as a user of Kubernetes sees them: kubectl, the embedded hub, a board, htpasswd.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { ImageList } from "@picolet/protocol/local-api/status.ts";
import type { AgentNode } from "../../support/agent/agent-process.ts";
import { FleetBoard } from "../../support/agent/fleet-board.ts";
import { edgectl } from "../../support/agent/node-fixtures.ts";
import { REGISTRY_PASSWORD, REGISTRY_USER, Registry, registryMissing } from "../../support/containerd/real-registry.ts";
import { TokenServer } from "../../support/containerd/token-server.ts";
import { type Fleet, kubectlMissing } from "../../support/hub/test-fleet.ts";
import { artifact, digestOf, WASM_CONFIG } from "../../support/unit/images/oci-content.ts";
import { testComponent } from "../../support/wasm/components.ts";

const skip = registryMissing() ?? (kubectlMissing("1.32") || false);

let registry: Registry;
let board: FleetBoard;
let fleet: Fleet;
let node: AgentNode;

before(async () => {
  if (skip !== false) return;
  registry = await Registry.start({ htpasswd: true });
  board = await FleetBoard.start(undefined);
  ({ fleet, node } = board);
});

after(async () => {
  if (skip !== false) return;
  await using all = new AsyncDisposableStack();
  for (const each of [registry, board]) if (each !== undefined) all.use(each);
});

const podWith = (name: string, image: string, spec: object = {}): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name },
  spec: {
    ...{ nodeName: "node-a", runtimeClassName: "wasm", terminationGracePeriodSeconds: 1 },
    containers: [{ name: "app", image, args: ["say", "pulled", "hold"], imagePullPolicy: "Always" }],
    ...spec,
  },
});

const told = (pod: string, reason: string, text: RegExp): Promise<string> =>
  fleet.seen(
    [
      ...["get", "events", "--watch", `--field-selector=involvedObject.name=${pod},reason=${reason}`],
      ...["-o", 'jsonpath={.message}{"\\n"}'],
    ],
    (printed) => text.test(printed),
  );

const statusOf = (pod: string, path: string): Promise<string> =>
  fleet.kubectl(["get", "pod", pod, "-o", `jsonpath={.status.containerStatuses[0].${path}}`]);

/** A pod is ready when its component begins: until it has said something. */
const firstLineOf = (pod: string): Promise<string> =>
  fleet.seen(["logs", "-f", pod], (printed) => printed.endsWith("\n"));

/** With the right user. */
const makeSecret = (name: string, server: string, password = REGISTRY_PASSWORD): Promise<string> =>
  fleet.kubectl([
    ...["create", "secret", "docker-registry", name, `--docker-server=${server}`],
    ...[`--docker-username=${REGISTRY_USER}`, `--docker-password=${password}`],
  ]);

test("a pod's pull secret opens a component, and one without it is told why it waits", { skip }, async () => {
  const component = readFileSync(await testComponent("script.c"));
  const manifest = artifact(component);
  await registry.pushContent("shop/script", "1", manifest, [component, WASM_CONFIG]);
  const image = `${registry.address}/shop/script:1`;
  await makeSecret("pull", registry.address);
  await fleet.apply(podWith("without", image));
  await told("without", "Failed", /cannot pull \S+: \S+ does not let this node in \(401\), tried without credentials/);
  await told("without", "BackOff", /Back-off pulling image/);
  const reason = 'jsonpath={.status.containerStatuses[0].state.waiting.reason}{"\\n"}';
  await fleet.seen(["get", "pod", "without", "--watch", "-o", reason], (printed) =>
    /^(ErrImagePull|ImagePullBackOff)$/m.test(printed),
  );
  await fleet.apply(podWith("with", image, { imagePullSecrets: [{ name: "pull" }] }));
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/with", "--timeout=90s"]);
  await told("with", "Pulled", /Successfully pulled image .* Image size: \d+ bytes\./);
  assert.equal(await firstLineOf("with"), "pulled\n");
  assert.ok((await statusOf("with", "imageID")).includes(digestOf(component)));
  const { items } = JSON.parse(edgectl(node, "image", "list", "-o", "json")) as ImageList;
  const [held] = items.filter(({ tags }) => tags.includes(image));
  assert.deepEqual(held?.digests, [`${registry.address}/shop/script@${manifest.digest}`]);
  assert.match(
    edgectl(node, "image", "pull", image, "--namespace", "default", "--secret", "pull"),
    /^pulled .* into wasm/,
  );
  await fleet.kubectl(["delete", "pods", "with", "without", "--timeout=60s"]);
  assert.match(edgectl(node, "image", "rm", image), /^removed .* from wasm/);
  const { items: left } = JSON.parse(edgectl(node, "image", "list", "-o", "json")) as ImageList;
  assert.deepEqual(
    left.filter(({ tags }) => tags.includes(image)),
    [],
  );
});

test("a registry that takes tokens alone is entered by the secret, and who is not let in is told by whom and why", {
  skip,
}, async () => {
  const component = readFileSync(await testComponent("script.c"));
  await using tokens = await TokenServer.start([REGISTRY_USER, REGISTRY_PASSWORD]);
  await using own = await Registry.start({ tokens: tokens.trust });
  await own.pushContent("shop/script", "2", artifact(component), [component, WASM_CONFIG]);
  const image = `${own.address}/shop/script:2`;
  await makeSecret("tokens", own.address);
  await makeSecret("guess", own.address, "guess");
  await fleet.apply(podWith("guessing", image, { imagePullSecrets: [{ name: "guess" }] }));
  const refusal = `${tokens.address} does not let this node in \\(401\\), tried as "${REGISTRY_USER}" of secret default/guess`;
  const text = new RegExp(`Failed to pull image "${image}": .*${refusal}: UNAUTHORIZED: wrong user or password`);
  await told("guessing", "Failed", text);
  await told("guessing", "Failed", /^Error: ErrImagePull$/m);
  await told("guessing", "BackOff", new RegExp(`^Back-off pulling image "${image}"`, "m"));
  await told("guessing", "Failed", /^Error: ImagePullBackOff$/m);
  await fleet.apply(podWith("knowing", image, { imagePullSecrets: [{ name: "tokens" }] }));
  await fleet.kubectl(["wait", "--for=condition=Ready", "pod/knowing", "--timeout=90s"]);
  assert.equal(await firstLineOf("knowing"), "pulled\n");
  assert.deepEqual(
    tokens.asked.filter(({ isRight }) => isRight).map(({ scopes }) => scopes),
    [["repository:shop/script:pull"]],
  );
  await fleet.kubectl(["delete", "pods", "guessing", "knowing", "--timeout=60s"]);
});
