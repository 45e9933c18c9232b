/**
 * As whom and how apart containers run: users, groups, capabilities, namespaces, sysctls, runtime classes, names,
 * resources.
 */
import assert from "node:assert/strict";
import type { V1Container, V1PodSecurityContext, V1PodSpec, V1SecurityContext } from "@kubernetes/client-node";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import { ApiError } from "../framework/kube-api.ts";
import type { TestContext } from "../framework/test-context.ts";
import { restartsOf, statusOf } from "../framework/test-pod.ts";
import { STAYS } from "../framework/traces.ts";

async function runs(
  t: TestContext,
  script: string,
  container: V1SecurityContext = {},
  pod: V1PodSecurityContext = {},
  more: Partial<V1PodSpec> = {},
): Promise<string> {
  return await t.output({ securityContext: pod, containers: [t.sh(script, { securityContext: container })], ...more });
}

const WHO = "id -u; id -g";

const users = area("[sig-node] Security Context", (should) => {
  for (const uid of [65534, 0]) {
    should(`run the container with uid ${uid} when creating a container with runAsUser`, async (t) => {
      assert.equal(await runs(t, "id -u", { runAsUser: uid }), `${uid}\n`);
    });
  }

  should("support pod.Spec.SecurityContext.RunAsUser And pod.Spec.SecurityContext.RunAsGroup", async (t) => {
    assert.equal(await runs(t, WHO, {}, { runAsUser: 1001, runAsGroup: 2002 }), "1001\n2002\n");
  });

  should("support container.SecurityContext.RunAsUser And container.SecurityContext.RunAsGroup", async (t) => {
    const output = await runs(t, WHO, { runAsUser: 1001, runAsGroup: 2002 }, { runAsUser: 5, runAsGroup: 6 });
    assert.equal(output, "1001\n2002\n");
  });

  should("support pod.Spec.SecurityContext.SupplementalGroups", async (t) => {
    const output = await runs(t, "id -G", {}, { runAsUser: 1001, supplementalGroups: [1234, 5678], fsGroup: 999 });
    const groups = new Set(output.trim().split(" "));
    for (const group of ["1234", "5678", "999"]) assert.ok(groups.has(group), output);
  });

  should("run with an explicit non-root user ID when runAsNonRoot is set", async (t) => {
    assert.equal(await runs(t, "id -u", { runAsNonRoot: true, runAsUser: 1234 }), "1234\n");
  });

  const refused = async (t: TestContext, container: V1Container): Promise<string> => {
    const pod = await t.start({ containers: [container] });
    const waiting = await pod.until("CreateContainerConfigError", (each) => {
      return statusOf(each)?.state?.waiting?.reason === "CreateContainerConfigError";
    });
    return statusOf(waiting)?.state?.waiting?.message ?? "";
  };

  should("not run with an explicit root user ID when runAsNonRoot is set", async (t) => {
    const message = await refused(t, t.sh("true", { securityContext: { runAsNonRoot: true, runAsUser: 0 } }));
    assert.match(message, /^container's runAsUser breaks non-root policy/);
  });

  should("run with an image specified user ID when runAsNonRoot is set", async (t) => {
    const image = t.image("nonroot");
    const container = t.sh("id -u", { image, securityContext: { runAsNonRoot: true } });
    assert.equal(await t.output({ containers: [container] }), "1234\n");
  });

  should("not run without a specified user ID when runAsNonRoot is set", async (t) => {
    const message = await refused(t, t.sh("true", { securityContext: { runAsNonRoot: true } }));
    assert.match(message, /^container has runAsNonRoot and image will run as root/);
  });

  should("run the container with readonly rootfs when readOnlyRootFilesystem=true", async (t) => {
    assert.match(await runs(t, "touch /f 2>/dev/null || echo refused", { readOnlyRootFilesystem: true }), /refused\n$/);
  });

  should("run the container with writable rootfs when readOnlyRootFilesystem=false", async (t) => {
    assert.equal(await runs(t, "touch /f && echo written", { readOnlyRootFilesystem: false }), "written\n");
  });

  const MOUNTS = "mkdir -p /m; mount -t tmpfs none /m 2>/dev/null && echo mounted || echo refused";

  should("run the container as unprivileged when false", async (t) => {
    assert.equal(await runs(t, MOUNTS, { privileged: false }), "refused\n");
  });

  should("run the container as privileged when true", async (t) => {
    assert.equal(await runs(t, MOUNTS, { privileged: true }), "mounted\n");
  });

  const escalates = async (t: TestContext, allowPrivilegeEscalation: boolean | undefined): Promise<string> => {
    const flag = allowPrivilegeEscalation === undefined ? {} : { allowPrivilegeEscalation };
    const securityContext = { runAsUser: 1000, ...flag };
    return await t.output({
      containers: [t.tool([], { command: ["/tool-setuid", "privileges"], securityContext })],
    });
  };
  const ROOT = "uid 1000, effective 0, no new privileges 0\n";

  should("allow privilege escalation when not explicitly set and uid != 0", async (t) => {
    assert.equal(await escalates(t, undefined), ROOT);
  });

  should("not allow privilege escalation when false", async (t) => {
    assert.equal(await escalates(t, false), "uid 1000, effective 1000, no new privileges 1\n");
  });

  should("allow privilege escalation when true", async (t) => {
    assert.equal(await escalates(t, true), ROOT);
  });

  const CAPABILITIES = "grep CapEff /proc/self/status | cut -f2";
  const NET_ADMIN = 1n << 12n;
  const CHOWN = 1n;

  should("add and drop capabilities", async (t) => {
    const output = await runs(t, CAPABILITIES, { capabilities: { add: ["NET_ADMIN"], drop: ["CHOWN"] } });
    const effective = BigInt(`0x${output.trim()}`);
    assert.notEqual(effective & NET_ADMIN, 0n, "NET_ADMIN was not added");
    assert.equal(effective & CHOWN, 0n, "CHOWN was not dropped");
    const none = await runs(t, CAPABILITIES, { capabilities: { drop: ["ALL"] } });
    assert.equal(BigInt(`0x${none.trim()}`), 0n);
  });

  const SECCOMP = "grep '^Seccomp:' /proc/self/status | cut -f2";
  for (const [what, pod, container, mode] of [
    ["unconfined on the container", { type: "RuntimeDefault" }, { type: "Unconfined" }, "0\n"],
    ["unconfined on the pod", { type: "Unconfined" }, undefined, "0\n"],
    ["runtime/default", undefined, { type: "RuntimeDefault" }, "2\n"],
    ["default which is unconfined", undefined, undefined, "0\n"],
  ] as const) {
    should(`support seccomp ${what}`, async (t) => {
      const of = (seccompProfile: { type: string } | undefined) =>
        seccompProfile === undefined ? {} : { seccompProfile };
      assert.equal(await runs(t, SECCOMP, of(container), of(pod)), mode);
    });
  }

  should("mask and write-protect parts of /proc by default", async (t) => {
    const output = await runs(
      t,
      "(echo 1 > /proc/sys/kernel/panic) 2>/dev/null || echo refused; wc -c < /proc/timer_list",
    );
    assert.match(output, /refused\n0\n$/);
  });
});

/** Two are left of four: a dollar stands for itself when it is doubled. */
const PID = "echo $$$$";
const NAMESPACES = "readlink /proc/self/ns/ipc; readlink /proc/self/ns/net";

const namespaces = area("[sig-node] Container namespaces", (should) => {
  should("containers in pods using isolated PID namespaces should all receive PID 1", async (t) => {
    const pod = await t.start({ containers: [t.sh(PID), t.sh(PID, { name: "second" })] });
    await pod.succeeded();
    for (const container of ["test", "second"]) assert.equal(await pod.logs({ container }), "1\n");
  });

  should("processes in containers sharing a pod namespace should be able to see each other", async (t) => {
    const script = "trap 'exit 0' TERM; sleep 54321 & wait";
    const pod = await t.start({
      shareProcessNamespace: true,
      containers: [t.sh(script), t.sh(STAYS, { name: "second" })],
    });
    await pod.running();
    assert.match(await pod.shell("ps", "second"), /sleep 54321/);
    assert.notEqual((await pod.shell("pgrep -f 'sleep 100000' | head -1", "second")).trim(), "1");
  });

  should("show its pid in the host PID namespace where hostPID is set, and else not", async (t) => {
    // A process may end while it is listed, of which ls complains.
    const script = "ls /proc 2>/dev/null | grep -c '^[0-9]'";
    const own = Number(await t.output({ containers: [t.sh(script)] }));
    const host = Number(await t.output({ hostPID: true, containers: [t.sh(script)] }));
    assert.ok(own < 6 && host > own, `${own} processes of its own, ${host} of the host`);
  });

  should("share the host's IPC and network where it is asked for, and else not", async (t) => {
    const [ipc, net] = (await t.output({ hostIPC: true, hostNetwork: true, containers: [t.sh(NAMESPACES)] })).split(
      "\n",
    );
    const [otherIpc, otherNet] = (await t.output({ containers: [t.sh(NAMESPACES)] })).split("\n");
    const [againIpc, againNet] = (
      await t.output({ hostIPC: true, hostNetwork: true, containers: [t.sh(NAMESPACES)] })
    ).split("\n");
    assert.deepEqual([ipc, net], [againIpc, againNet]);
    assert.notEqual(ipc, otherIpc);
    assert.notEqual(net, otherNet);
  });

  should("give the containers of one pod one network and one IPC namespace", async (t) => {
    const pod = await t.start({ containers: [t.sh(NAMESPACES), t.sh(NAMESPACES, { name: "second" })] });
    await pod.succeeded();
    assert.equal(await pod.logs({ container: "test" }), await pod.logs({ container: "second" }));
  });
});

const sysctls = area("[sig-node] Sysctls", (should) => {
  for (const name of ["kernel.shm_rmid_forced", "kernel/shm_rmid_forced"]) {
    should(`support sysctls${name.includes("/") ? " with slashes as separator" : ""}`, async (t) => {
      const output = await runs(t, "cat /proc/sys/kernel/shm_rmid_forced", {}, { sysctls: [{ name, value: "1" }] });
      assert.equal(output, "1\n");
    });
  }

  should("reject invalid sysctls", async (t) => {
    const names = ["foo-", "kernel.shmmax", "safe-and-unsafe", "bar.."];
    const start = t.start({
      securityContext: { sysctls: names.map((name) => ({ name, value: "1" })) },
      containers: [t.sh("true")],
    });
    await assert.rejects(start, (error) => {
      assert.ok(error instanceof ApiError && error.code === 422, `${error}`);
      assert.match(error.message, /Invalid value: "foo-"/);
      assert.match(error.message, /Invalid value: "bar\.\."/);
      assert.doesNotMatch(error.message, /safe-and-unsafe|kernel\.shmmax/);
      return true;
    });
  });

  should("not launch unsafe, but not explicitly enabled sysctls on the node", async (t) => {
    const sysctls = [{ name: "kernel.msgmax", value: "100000" }];
    const pod = await t.start({ securityContext: { sysctls }, containers: [t.sh("true")] });
    const { status } = await pod.phase("Failed");
    assert.equal(status?.reason, "SysctlForbidden");
    assert.equal(status?.message, 'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted');
  });
});

const CLASSES = "/apis/node.k8s.io/v1/runtimeclasses";

const runtimeClasses = area("[sig-node] RuntimeClass", (should) => {
  const make = async (t: TestContext, handler: string, more: object = {}): Promise<string> => {
    const name = `${t.namespace}-${t.name("class")}`;
    await t.api.call("POST", CLASSES, {
      apiVersion: "node.k8s.io/v1",
      kind: "RuntimeClass",
      metadata: { name },
      handler,
      ...more,
    });
    t.defer(() => t.api.call("DELETE", `${CLASSES}/${name}`).catch(() => undefined));
    return name;
  };
  const isForbidden = (error: unknown) => error instanceof ApiError && error.code === 403;

  should("reject a Pod requesting a non-existent RuntimeClass", async (t) => {
    await assert.rejects(t.start({ runtimeClassName: "none-such", containers: [t.sh("true")] }), isForbidden);
  });

  should("reject a Pod requesting a deleted RuntimeClass", async (t) => {
    const runtimeClassName = await make(t, "runc");
    await t.api.call("DELETE", `${CLASSES}/${runtimeClassName}`);
    await assert.rejects(t.start({ runtimeClassName, containers: [t.sh("true")] }), isForbidden);
  });

  should("run a Pod requesting a RuntimeClass with a configured handler", async (t) => {
    const runtimeClassName = await make(t, "runc");
    await (await t.start({ runtimeClassName, containers: [t.sh("true")] })).succeeded();
  });

  should("not run a Pod requesting a RuntimeClass with an unconfigured handler", async (t) => {
    const runtimeClassName = await make(t, "no-such-handler");
    const pod = await t.start({ runtimeClassName, containers: [t.sh("true")] });
    const event = await pod.event("FailedCreatePodSandBox", ({ reason }) => reason === "FailedCreatePodSandBox");
    assert.match(event.message ?? "", /no runtime for "no-such-handler" is configured/);
    assert.equal(pod.latest?.status?.phase, "Pending");
  });

  should("schedule a Pod requesting a RuntimeClass and initialize its Overhead", async (t) => {
    const podFixed = { cpu: "10m", memory: "1Mi" };
    const runtimeClassName = await make(t, "runc", { overhead: { podFixed } });
    const pod = await t.start({ runtimeClassName, containers: [t.sh("true")] });
    await pod.succeeded();
    assert.deepEqual(pod.latest?.spec?.overhead, podFixed);
  });

  should("support RuntimeClasses API operations", async (t) => {
    const name = await make(t, "runc");
    const patched = await t.api.patch<{ metadata: { annotations: unknown } }>(`${CLASSES}/${name}`, {
      metadata: { annotations: { a: "b" } },
    });
    assert.deepEqual(patched.metadata.annotations, { a: "b" });
    const list = await t.api.get<{ items: { metadata: { name: string } }[] }>(CLASSES);
    assert.ok(list.items.some(({ metadata }) => metadata.name === name));
    await t.api.call("DELETE", `${CLASSES}/${name}`);
  });
});

const hostnames = area("[sig-node] Hostname of Pod", (should) => {
  const HOSTNAME = "hostname; hostname -f 2>/dev/null || true";

  should("a pod without subdomain field does not have FQDN, and should have its own name", async (t) => {
    const pod = await t.start({ containers: [t.sh("hostname")] });
    await pod.succeeded();
    assert.equal(await pod.logs(), `${pod.name}\n`);
  });

  should("take the hostname that it asks for", async (t) => {
    assert.equal(await t.output({ hostname: "chosen", containers: [t.sh("hostname")] }), "chosen\n");
  });

  should("a pod with subdomain field has FQDN, hostname should be the short name", async (t) => {
    const pod = await t.start({
      hostname: "short",
      subdomain: "sub",
      containers: [t.sh(`${HOSTNAME}; cat /etc/hosts`)],
    });
    await pod.succeeded();
    const output = await pod.logs();
    assert.match(output, /^short\n/);
    assert.match(output, new RegExp(`\\tshort\\.sub\\.${t.namespace}\\.svc\\S*\\tshort$`, "m"));
  });

  should("have its FQDN as its hostname when setHostnameAsFQDN is set to true", async (t) => {
    const spec = { hostname: "h", subdomain: "sub", setHostnameAsFQDN: true };
    const output = await t.output({ ...spec, containers: [t.sh("hostname")] });
    assert.match(output, new RegExp(`^h\\.sub\\.${t.namespace}\\.svc`));
  });

  should("use the dnsConfig of the pod", async (t) => {
    const dnsConfig = {
      nameservers: ["192.0.2.53"],
      searches: ["board.example.org"],
      options: [{ name: "ndots", value: "3" }, { name: "edns0" }],
    };
    const output = await t.output({ dnsPolicy: "None", dnsConfig, containers: [t.sh("cat /etc/resolv.conf")] });
    assert.equal(output, "search board.example.org\nnameserver 192.0.2.53\noptions ndots:3 edns0\n");
  });
});

const MEMORY_LIMIT = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes";

const resources = area("[sig-node] Container resources", (should) => {
  should(
    "hold a container to its memory limit: the containers terminated by OOM killer should have the reason set to OOMKilled",
    async (t) => {
      const limits = { memory: "24Mi" };
      const pod = await t.start({ containers: [t.tool(["allocate", "100"], { resources: { limits } })] });
      const terminated = statusOf(await pod.phase("Failed"))?.state?.terminated;
      assert.equal(terminated?.reason, "OOMKilled");
      assert.equal(terminated?.exitCode, 137);
    },
  );

  should("show a container its limits in its cgroup", async (t) => {
    const limits = { memory: "48Mi", cpu: "500m" };
    const output = await t.output({ containers: [t.sh(MEMORY_LIMIT, { resources: { limits } })] });
    assert.equal(output, `${48 * 1024 * 1024}\n`);
  });

  for (const [tier, requests] of [
    ["burstable", { cpu: "10m" }],
    ["besteffort", {}],
  ] as const) {
    should(`put pods under the ${tier} cgroup`, async (t) => {
      const pod = await t.start({ containers: [t.sh(STAYS, { resources: { requests } })] });
      await pod.running();
      const volumes = [{ name: "v", hostPath: { path: "/sys/fs/cgroup" } }];
      const volumeMounts = [{ name: "v", mountPath: "/host", readOnly: true }];
      const id = pod.uid.replaceAll("-", "?");
      const output = await t.output({
        containers: [t.sh(`find /host -type d -name '*pod${id}*' 2>/dev/null || true`, { volumeMounts })],
        volumes,
      });
      const found = output.trim().split("\n");
      assert.ok(found[0] !== "", "it has no cgroup");
      assert.ok(
        found.every((path) => path.includes(tier)),
        output,
      );
    });
  }

  should("let a container run on when it stays below its limit", async (t) => {
    const limits = { memory: "64Mi" };
    const pod = await t.start({ containers: [t.tool(["allocate", "20"], { resources: { limits } })] });
    await pod.logged("took 20 MiB");
    assert.equal(restartsOf(pod.latest), 0);
  });
});

export const isolationTests: readonly ConformanceTest[] = [
  ...users,
  ...namespaces,
  ...sysctls,
  ...runtimeClasses,
  ...hostnames,
  ...resources,
];
