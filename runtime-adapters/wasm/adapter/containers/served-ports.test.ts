import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import type { ComponentShape } from "../../shared/binary/component-shape.ts";
import { parseHttpOptions } from "../../shared/grants/http-options.ts";
import { refuseTakenPort } from "./served-ports.ts";

const SERVES: ComponentShape = { imports: [], exports: ["wasi:http/incoming-handler@0.2.0"] };
const BOTH: ComponentShape = { imports: [], exports: [...SERVES.exports, "wasi:cli/run@0.2.0"] };
const RUNS: ComponentShape = { imports: [], exports: ["wasi:cli/run@0.2.0"] };
const SHAPES: Readonly<Record<string, ComponentShape>> = { serves: SERVES, both: BOTH, runs: RUNS };

/** `name image port` */
const containers = (...texts: readonly string[]) =>
  texts.map((text) => {
    const [name = "", image = "", port] = text.split(" ");
    return { name, image, ports: port === undefined ? [] : [{ containerPort: Number(port) }], restartPolicy: "Always" };
  });

/** What is said of the container's port, which is its own or the annotation's. */
async function said(name: string, port: number, spec: object, annotation?: string): Promise<string | undefined> {
  const pod = { metadata: {}, spec: { containers: [], ...spec } } as unknown as Pod;
  const options = annotation === undefined ? undefined : parseHttpOptions(annotation).options;
  try {
    await refuseTakenPort(pod, name, port, options, async (image) => SHAPES[image]);
    return undefined;
  } catch (error) {
    const { reason, message } = error as { readonly reason: string; readonly message: string };
    assert.equal(reason, "CreateContainerConfigError");
    return message;
  }
}

test("of two containers with one port the second is refused, with both names", async () => {
  const spec = { containers: containers("a serves 80", "b serves 80", "c serves 81") };
  assert.equal(await said("a", 80, spec), undefined);
  assert.equal(
    await said("b", 80, spec),
    "the containers a and b would both be served on port 80 of the node: give each a containerPort of its own",
  );
  assert.equal(await said("c", 81, spec), undefined);
  assert.match(
    (await said("b", 8080, spec, "port=8080")) ?? "",
    /^the containers a and b would both be served on port 8080 .* leave port=8080 out of the annotation wasm\.picolet\.io\/http/,
  );
});

test("a container that is run, absent, on another port or without one takes no port", async () => {
  const names = ["a runs 80", "b absent 80", "c serves 81", "d serves", "e both 80", "last serves 80"];
  assert.equal(await said("last", 80, { containers: containers(...names) }), undefined);
  // With the annotation one that could be both is served.
  assert.match(
    (await said("last", 80, { containers: containers(...names) }, "instances=1")) ?? "",
    /containers e and last/,
  );
});

test("sidecars come before the containers, ephemeral containers after them; other init containers are over by then", async () => {
  const initContainers = containers("over serves 80", "sidecar serves 81").map((each) =>
    each.name === "over" ? { ...each, restartPolicy: undefined } : each,
  );
  const spec = {
    initContainers,
    containers: containers("a serves 80"),
    ephemeralContainers: containers("e serves 80"),
  };
  assert.equal(await said("a", 80, spec), undefined);
  assert.match((await said("a", 81, spec)) ?? "", /containers sidecar and a/);
  assert.match((await said("e", 80, spec)) ?? "", /containers a and e/);
  assert.equal(await said("sidecar", 81, spec), undefined);
  assert.equal(await said("over", 80, spec), undefined);
});
