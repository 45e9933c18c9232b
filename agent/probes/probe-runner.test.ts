import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import type { PodManifest, Probe } from "@picolet/protocol/pod/pod.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { GrpcHealthAnswer } from "@picolet/runtime-contract/grpc-health.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, firstContainer, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { HttpGetter } from "./handlers/http-getter.ts";
import { ProbeTimeout } from "./handlers/probe-outcome.ts";
import { ProbeRunner } from "./probe-runner.ts";

type ContainerDraft = NonNullable<NonNullable<NonNullable<PodManifest["spec"]>["containers"]>[number]>;
type ProbeDraft = NonNullable<ContainerDraft["livenessProbe"]>;

const never = new AbortController().signal;

/** Runs a probe of one container. @returns `failure: message` */
async function outcomeOf(
  probe: ProbeDraft,
  given: { readonly ports?: number; readonly answer?: GrpcHealthAnswer; readonly signal?: AbortSignal } = {},
): Promise<string> {
  const ports = given.ports === undefined ? [] : [{ name: "web", containerPort: given.ports }];
  const pod = desired(podOf({ containers: [{ name: "app", image: "example/app:1", ports, livenessProbe: probe }] }));
  const container = firstContainer(pod);
  const adapter = {} as unknown as RuntimeAdapter;
  const asked: unknown[] = [];
  const runner = new ProbeRunner({
    http: new HttpGetter(),
    grpc: {
      check: (target, timeout) => {
        asked.push(target.host, target.port, target.service, timeout);
        return Promise.resolve(given.answer ?? { kind: "unreached" });
      },
    },
    expand: (text) => text,
    runtimeRequestTimeout: seconds(120),
  });
  const target = { pod, container, containerId: "app-0", adapter, podIp: "127.0.0.1" };
  const outcome = await runner.run(container.livenessProbe as Probe, target, given.signal ?? never);
  const text = "message" in outcome ? `${outcome.kind}: ${outcome.message}` : outcome.kind;
  return text.replaceAll(/127\.0\.0\.1:\d+/g, "HERE") + (asked.length > 0 ? ` (${asked.join(" ")})` : "");
}

test("httpGet: what a status means", async () => {
  const server = createServer((request, response) => {
    const status = Number(request.url?.slice(1));
    response.writeHead(status, status === 302 ? { location: "http://elsewhere.example/" } : {});
    response.end("the body");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const at = (path: string) => outcomeOf({ httpGet: { path, port: "web" } }, { ports: port });
  try {
    assert.equal(await at("/200"), "success");
    assert.equal(await at("/302"), "warning: Probe terminated redirects, Response body: the body");
    assert.equal(await at("/404"), "failure: HTTP probe failed with statuscode: 404");
    assert.equal(await at("/500"), "failure: HTTP probe failed with statuscode: 500");
  } finally {
    server.close();
    server.closeAllConnections();
  }
  assert.equal(await at("/200"), 'failure: Get "http://HERE/200": dial tcp HERE: connect: connection refused');
  assert.equal(await outcomeOf({ httpGet: { port: "http" } }), 'error: strconv.Atoi: parsing "http": invalid syntax');
});

test("tcpSocket: whether the port accepts a connection", async () => {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  assert.equal(await outcomeOf({ tcpSocket: { port } }), "success");
  assert.equal(await outcomeOf({ tcpSocket: { port: "web" } }, { ports: port }), "success");
  assert.equal(await outcomeOf({ tcpSocket: { port, host: "localhost" } }), "success");
  const late = AbortSignal.abort(new ProbeTimeout());
  assert.equal(await outcomeOf({ tcpSocket: { port } }, { signal: late }), "failure: dial tcp HERE: i/o timeout");
  server.close();
  await once(server, "close");
  assert.equal(await outcomeOf({ tcpSocket: { port } }), "failure: dial tcp HERE: connect: connection refused");
});

const GRPC: readonly (readonly [answer: GrpcHealthAnswer, outcome: string])[] = [
  [{ kind: "answered", status: 1 }, "success"],
  [{ kind: "answered", status: 2 }, 'failure: service unhealthy (responded with "NOT_SERVING")'],
  [{ kind: "answered", status: 0 }, 'failure: service unhealthy (responded with "UNKNOWN")'],
  [{ kind: "answered", status: 9 }, 'failure: service unhealthy (responded with "9")'],
  [{ kind: "unreached" }, 'failure: timeout: failed to connect service "HERE" within 2s: context deadline exceeded'],
  [{ kind: "late" }, "failure: timeout: health rpc did not complete within 2s"],
  [
    { kind: "unimplemented", message: "no such service" },
    "failure: error: this server does not implement the grpc health protocol (grpc.health.v1.Health): no such service",
  ],
  [
    { kind: "failed", error: "rpc error: code = NotFound desc = unknown service" },
    "failure: error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
  ],
];

for (const [answer, outcome] of GRPC) {
  test(`grpc: ${outcome}`, async () => {
    const told = await outcomeOf({ grpc: { port: 50051, service: "my.Service" }, timeoutSeconds: 2 }, { answer });
    assert.equal(told, `${outcome} (127.0.0.1 50051 my.Service 2000)`);
  });
}
