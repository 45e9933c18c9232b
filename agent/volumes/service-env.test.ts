import assert from "node:assert/strict";
import { test } from "node:test";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { desired, firstContainer, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { containerEnv } from "./container-env.ts";
import { serviceEnv } from "./values/service-env.ts";

type Fields = Readonly<Record<string, unknown>>;

function objectsOf(services: Readonly<Record<string, Fields>>): TestClusterObjects {
  const objects = new TestClusterObjects(new VirtualClock());
  for (const [key, spec] of Object.entries(services)) objects.set(`Service/${key}`, { spec });
  return objects;
}

const API_SERVER = { clusterIP: "10.96.0.1", ports: [{ name: "https", port: 443, targetPort: 6443 }] };
const WEB = {
  clusterIP: "10.96.0.7",
  ports: [
    { name: "http", port: 80, protocol: "TCP" },
    { name: "dns-udp", port: 53, protocol: "UDP" },
  ],
};

const envOf = (objects: TestClusterObjects, namespace: string, all = true): Record<string, string> =>
  Object.fromEntries(serviceEnv(objects, namespace, all).map(({ name, value }) => [name, value]));

test("a Service is told by its address, its ports, and as Docker's links were", () => {
  assert.deepEqual(envOf(objectsOf({ "shop/my-web": WEB, "other/my-web": API_SERVER }), "shop"), {
    MY_WEB_SERVICE_HOST: "10.96.0.7",
    MY_WEB_SERVICE_PORT: "80",
    MY_WEB_SERVICE_PORT_HTTP: "80",
    MY_WEB_SERVICE_PORT_DNS_UDP: "53",
    MY_WEB_PORT: "tcp://10.96.0.7:80",
    MY_WEB_PORT_80_TCP: "tcp://10.96.0.7:80",
    MY_WEB_PORT_80_TCP_PROTO: "tcp",
    MY_WEB_PORT_80_TCP_PORT: "80",
    MY_WEB_PORT_80_TCP_ADDR: "10.96.0.7",
    MY_WEB_PORT_53_UDP: "udp://10.96.0.7:53",
    MY_WEB_PORT_53_UDP_PROTO: "udp",
    MY_WEB_PORT_53_UDP_PORT: "53",
    MY_WEB_PORT_53_UDP_ADDR: "10.96.0.7",
  });
});

test("the API server is told to every pod, others to those with service links alone", () => {
  const objects = objectsOf({ "default/kubernetes": API_SERVER, "default/other": WEB, "shop/web": WEB });
  const names = (namespace: string, all: boolean): string[] =>
    Object.keys(envOf(objects, namespace, all)).filter((name) => name.endsWith("_SERVICE_HOST"));
  assert.deepEqual(names("shop", true), ["KUBERNETES_SERVICE_HOST", "WEB_SERVICE_HOST"]);
  assert.deepEqual(names("shop", false), ["KUBERNETES_SERVICE_HOST"]);
  assert.deepEqual(names("default", true), ["KUBERNETES_SERVICE_HOST", "OTHER_SERVICE_HOST"]);
  assert.equal(envOf(objects, "shop").KUBERNETES_SERVICE_PORT, "443");
});

test("one named kubernetes in the pod's own namespace does not stand before the API server's", () => {
  const objects = objectsOf({ "default/kubernetes": API_SERVER, "shop/kubernetes": WEB });
  const hosts = serviceEnv(objects, "shop", true).filter(({ name }) => name === "KUBERNETES_SERVICE_HOST");
  assert.deepEqual(hosts, [{ name: "KUBERNETES_SERVICE_HOST", value: "10.96.0.1" }]);
  objects.set("Service/default/kubernetes", { spec: { clusterIP: "None" } });
  assert.equal(envOf(objects, "shop").KUBERNETES_SERVICE_HOST, "10.96.0.7");
});

test("IPv6 addresses are in brackets where a port follows", () => {
  const env = envOf(objectsOf({ "shop/web": { clusterIP: "fd00::7", ports: [{ port: 80 }] } }), "shop");
  assert.deepEqual(
    [env.WEB_SERVICE_HOST, env.WEB_PORT, env.WEB_PORT_80_TCP_ADDR],
    ["fd00::7", "tcp://[fd00::7]:80", "fd00::7"],
  );
});

test("what has no address of its own is left out, and no object makes it fail", () => {
  const objects = objectsOf({
    "shop/headless": { ...WEB, clusterIP: "None" },
    "shop/alias": { type: "ExternalName", externalName: "example.org" },
    "shop/empty": { ...WEB, clusterIP: "" },
  });
  objects.set("Service/shop/broken", { spec: null });
  assert.deepEqual(envOf(objects, "shop"), {});
  fc.assert(
    fc.property(fc.jsonValue(), fc.jsonValue(), (spec, ports) => {
      const any = new TestClusterObjects(new VirtualClock());
      any.set("Service/shop/a", { spec });
      any.set("Service/shop/b", { spec: { clusterIP: "10.0.0.1", ports } });
      for (const { name, value } of serviceEnv(any, "shop", true))
        assert.equal(typeof name + typeof value, "stringstring");
    }),
  );
});

test("a container's own variables come before the Services', and can refer to them", () => {
  const container = {
    name: "app",
    image: "example/app:1",
    env: [
      { name: "WEB_PORT", value: "own" },
      { name: "URL", value: "http://$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT)/$(WEB_PORT)" },
    ],
  };
  const pod = desired(podOf({ containers: [container] }), "uid-1");
  const objects = objectsOf({ "default/web": { clusterIP: "10.96.0.7", ports: [{ port: 80 }] } });
  const context = { pod, nodeName: "board", hostIPs: [], podIPs: [], allocatable: {}, objects };
  const env = containerEnv(firstContainer(pod), context);
  const values = new Map(env.map(({ name, value }) => [name, value]));
  assert.deepEqual(env.slice(0, 2), [
    { name: "WEB_PORT", value: "own" },
    { name: "URL", value: "http://10.96.0.7:80/own" },
  ]);
  assert.equal(values.get("WEB_SERVICE_HOST"), "10.96.0.7");
  assert.equal(env.length, values.size);
});
