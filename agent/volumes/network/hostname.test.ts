import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { podHostname } from "./hostname.ts";
import { nodeHostsFile, podHostsFile } from "./hosts-file.ts";

test("a pod's name, its hostname, its domain, and what the kernel is told", () => {
  const cases: readonly (readonly [Parameters<typeof podOf>[0], string, string, string])[] = [
    [{}, "web", "", "web"],
    [{ hostname: "custom" }, "custom", "", "custom"],
    [{ subdomain: "svc" }, "web", "svc.default.svc.cluster.local", "web"],
    [
      { subdomain: "svc", setHostnameAsFQDN: true },
      "web",
      "svc.default.svc.cluster.local",
      "web.svc.default.svc.cluster.local",
    ],
    [{ setHostnameAsFQDN: true }, "web", "", "web"],
  ];
  for (const [spec, hostname, domain, kernelHostname] of cases)
    assert.deepEqual(podHostname(podOf(spec), "cluster.local"), { hostname, domain, kernelHostname });
});

test("a long name is cut where the kernel cuts, and never ends in a sign", () => {
  assert.equal(podHostname(podOf({}, { name: "x".repeat(100) }), "").hostname, "x".repeat(63));
  assert.equal(podHostname(podOf({}, { name: `${"x".repeat(61)}--y` }), "").hostname, "x".repeat(61));
});

test("a full name that the kernel cannot hold is refused", () => {
  const pod = podOf({ subdomain: "s".repeat(60), setHostnameAsFQDN: true });
  assert.throws(
    () => podHostname(pod, "cluster.local"),
    (error) =>
      isPicoletError(error, "invalid") &&
      /is too long \(64 characters is the max, \d+ characters requested\)/.test(error.message),
  );
});

test("/etc/hosts as the kubelet writes it", () => {
  const pod = podOf({
    subdomain: "svc",
    hostAliases: [
      { ip: "192.0.2.9", hostnames: ["gateway", "gw.example.org"] },
      { ip: "192.0.2.10", hostnames: ["other"] },
    ],
  });
  const text = podHostsFile(pod, ["10.1.2.3", "fd00::3"], podHostname(pod, "cluster.local"));
  assert.equal(
    text,
    `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
10.1.2.3	web.svc.default.svc.cluster.local	web
fd00::3	web.svc.default.svc.cluster.local	web

# Entries added by HostAliases.
192.0.2.9	gateway	gw.example.org
192.0.2.10	other
`,
  );
  assert.match(podHostsFile(podOf(), ["10.1.2.3"], podHostname(podOf(), "x")), /\n10\.1\.2\.3\tweb\n$/);
  assert.equal(
    nodeHostsFile(podOf({ hostAliases: [{ ip: "192.0.2.9", hostnames: ["gw"] }] }), "127.0.0.1\tlocalhost\n"),
    "# Kubernetes-managed hosts file (host network).\n127.0.0.1\tlocalhost\n\n# Entries added by HostAliases.\n192.0.2.9\tgw\n",
  );
});
