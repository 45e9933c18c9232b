/** Pods that reach one another on one node, the node's own network, and ports of the node that lead to pods. */
import assert from "node:assert/strict";
import type { V1ContainerPort } from "@kubernetes/client-node";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import type { TestContext } from "../framework/test-context.ts";
import { statusOf, type TestPod } from "../framework/test-pod.ts";

const HTTP_PORT = 8080;
const UDP_PORT = 8081;

async function server(
  t: TestContext,
  ports: V1ContainerPort[] = [],
): Promise<{ pod: TestPod; ip: string; hostIP: string }> {
  const pod = await t.start(
    {
      containers: [
        t.tool(["http", String(HTTP_PORT)], { name: "http", ports }),
        t.tool(["udp", String(UDP_PORT)], { name: "udp" }),
      ],
    },
    { name: t.name("server") },
  );
  const { status } = await pod.running();
  return { pod, ip: status?.podIP ?? "", hostIP: status?.hostIP ?? "" };
}

/** An address as it stands in a URL. */
const inUrl = (ip: string): string => (ip.includes(":") ? `[${ip}]` : ip);
/** The server may not listen yet when its container has started. */
const fetching = (url: string): string =>
  `for i in $(seq 60); do wget -q -O- ${url} 2>/dev/null && exit 0; sleep 0.5; done; exit 1`;

const networking = area("[sig-network] Networking Granular Checks: Pods", (should) => {
  for (const [from, hostNetwork] of [
    ["intra-pod", false],
    ["node-pod", true],
  ] as const) {
    should(`function for ${from} communication: http`, async (t) => {
      const { pod, ip } = await server(t);
      const url = `http://${inUrl(ip)}:${HTTP_PORT}/hostname`;
      assert.equal(await t.output({ hostNetwork, containers: [t.sh(fetching(url))] }), pod.name);
    });

    should(`function for ${from} communication: udp`, async (t) => {
      const { pod, ip } = await server(t);
      const client = t.tool(["ask-udp", ip, String(UDP_PORT), "hello"]);
      assert.equal(await t.output({ hostNetwork, containers: [client] }), `${pod.name} got hello\n`);
    });
  }

  should("let containers of one pod speak over its loopback", async (t) => {
    const client = t.sh(fetching(`http://127.0.0.1:${HTTP_PORT}/echo?msg=near`));
    const pod = await t.start({ containers: [client, t.tool(["http", String(HTTP_PORT)], { name: "server" })] });
    await pod.until("the client's end", (each) => statusOf(each, "test")?.state?.terminated !== undefined);
    assert.equal(await pod.logs({ container: "test" }), "near");
  });

  should("keep a pod's address over its containers' restarts", async (t) => {
    const pod = await t.start({ restartPolicy: "Always", containers: [t.tool(["http", String(HTTP_PORT)])] });
    const before = (await pod.running()).status?.podIP;
    await pod.exec(["/bin/sh", "-c", "kill 1"]);
    const after = await pod.until("a restart", ({ status }) => {
      return status?.containerStatuses?.[0]?.restartCount === 1 && !!status.containerStatuses[0]?.state?.running;
    });
    assert.equal(after.status?.podIP, before);
  });

  should("see who calls as the caller's own address", async (t) => {
    const { ip } = await server(t);
    const pod = await t.start({ containers: [t.sh(fetching(`http://${inUrl(ip)}:${HTTP_PORT}/clientip`))] });
    const { status } = await pod.succeeded();
    assert.equal(await pod.logs(), status?.podIP);
  });
});

const hostPorts = area("[sig-network] HostPort", (should) => {
  const anyPort = (): number => 20_000 + Math.floor(Math.random() * 10_000);

  should("lead from a port of the node to the pod", async (t) => {
    const hostPort = anyPort();
    const { pod, hostIP } = await server(t, [{ containerPort: HTTP_PORT, hostPort }]);
    const url = `http://${inUrl(hostIP)}:${hostPort}/hostname`;
    assert.equal(await t.output({ hostNetwork: true, containers: [t.sh(fetching(url))] }), pod.name);
  });

  should(
    "validates that there is no conflict between pods with same hostPort but different protocol, which should both be reached",
    async (t) => {
      const hostPort = anyPort();
      const first = await server(t, [{ containerPort: HTTP_PORT, hostPort, protocol: "TCP" }]);
      const second = await server(t, [{ containerPort: UDP_PORT, hostPort, protocol: "UDP" }]);
      const url = `http://${inUrl(first.hostIP)}:${hostPort}/hostname`;
      assert.equal(await t.output({ hostNetwork: true, containers: [t.sh(fetching(url))] }), first.pod.name);
      const client = t.tool(["ask-udp", second.hostIP, String(hostPort), "hello"]);
      assert.equal(await t.output({ hostNetwork: true, containers: [client] }), `${second.pod.name} got hello\n`);
    },
  );
});

export const podNetworkTests: readonly ConformanceTest[] = [...networking, ...hostPorts];
