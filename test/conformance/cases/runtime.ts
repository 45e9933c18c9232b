/** Containers that end: states, restarts, messages, logs; and the images they are made of. */
import assert from "node:assert/strict";
import { dirname } from "node:path/posix";
import type { V1Container, V1Pod } from "@kubernetes/client-node";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import type { TestContext } from "../framework/test-context.ts";
import { conditionOf, restartsOf, statusOf, timeOf } from "../framework/test-pod.ts";

const STAYS = "trap 'exit 0' TERM; sleep 100000 & wait";

const blackbox = area("[sig-node] Container Runtime blackbox test", (should) => {
  const script = `echo run >> /count/n; n=$(wc -l < /count/n); [ $n -eq 1 ] && exit 1; [ $n -eq 2 ] && exit 0; ${STAYS}`;

  for (const [restartPolicy, phase, restarts] of [
    ["Always", "Running", 2],
    ["OnFailure", "Succeeded", 1],
    ["Never", "Failed", 0],
  ] as const) {
    should(
      `run with the expected status when starting a container that exits, restartPolicy ${restartPolicy}`,
      async (t) => {
        const volumeMounts = [{ name: "count", mountPath: "/count" }];
        const pod = await t.start({
          restartPolicy,
          containers: [t.sh(script, { volumeMounts })],
          volumes: [{ name: "count", emptyDir: { medium: "Memory" } }],
        });
        const fits = (each: V1Pod) => each.status?.phase === phase && restartsOf(each) === restarts;
        const settled = await pod.until(`phase ${phase} after ${restarts} restarts`, (each) => {
          return fits(each) && (phase !== "Running" || statusOf(each)?.state?.running !== undefined);
        });
        assert.equal(statusOf(settled)?.ready, phase === "Running");
        assert.equal(conditionOf(settled, "Ready"), phase === "Running" ? "True" : "False");
        if (phase !== "Running") assert.ok(statusOf(settled)?.state?.terminated !== undefined);
        else assert.equal(statusOf(settled)?.lastState?.terminated?.exitCode, 0);
        await pod.delete();
        await pod.gone();
      },
      { limitSeconds: 120 },
    );
  }

  const message = async (t: TestContext, phase: string, container: Partial<V1Container>, script: string) => {
    const pod = await t.start({ containers: [t.sh(script, container)] });
    return statusOf(await pod.phase(phase))?.state?.terminated?.message ?? "";
  };

  should("report termination message if TerminationMessagePath is set", async (t) => {
    const more = { terminationMessagePath: "/dev/termination-custom-log", securityContext: { runAsUser: 0 } };
    assert.equal(await message(t, "Succeeded", more, "echo -n DONE > /dev/termination-custom-log"), "DONE");
  });

  should(
    "report termination message if TerminationMessagePath is set as non-root user and at a non-default path",
    async (t) => {
      const more = { terminationMessagePath: "/dev/termination-custom-log", securityContext: { runAsUser: 10_000 } };
      assert.equal(await message(t, "Succeeded", more, "echo -n DONE > /dev/termination-custom-log"), "DONE");
    },
  );

  const fallback = { terminationMessagePolicy: "FallbackToLogsOnError" };

  should(
    "report termination message from log output if TerminationMessagePolicy FallbackToLogsOnError is set",
    async (t) => assert.equal(await message(t, "Failed", fallback, "echo -n DONE; exit 1"), "DONE"),
  );

  should(
    "report termination message as empty when pod succeeds and TerminationMessagePolicy FallbackToLogsOnError is set",
    async (t) => assert.equal(await message(t, "Succeeded", fallback, "echo DONE; exit 0"), ""),
  );

  should(
    "report termination message from file when pod succeeds and TerminationMessagePolicy FallbackToLogsOnError is set",
    async (t) => assert.equal(await message(t, "Succeeded", fallback, "echo -n OK > /dev/termination-log"), "OK"),
  );

  should("cut a termination message off at 4096 bytes", async (t) => {
    const text = await message(t, "Succeeded", {}, "head -c 10000 /dev/zero | tr '\\0' x > /dev/termination-log");
    assert.equal(text, "x".repeat(4096));
  });

  should("report exit code, reason and times of a container that fails", async (t) => {
    const pod = await t.start({ containers: [t.sh("exit 42")] });
    const terminated = statusOf(await pod.phase("Failed"))?.state?.terminated;
    assert.equal(terminated?.exitCode, 42);
    assert.equal(terminated?.reason, "Error");
    assert.ok(timeOf(terminated?.startedAt) <= timeOf(terminated?.finishedAt));
    assert.match(terminated?.containerID ?? "", /^[a-z-]+:\/\/\w+/);
  });

  should("say so when a command cannot be found", async (t) => {
    const pod = await t.start({ containers: [t.sh("", { command: ["/no/such/program"] })] });
    const { status } = await pod.phase("Failed");
    const terminated = status?.containerStatuses?.[0]?.state?.terminated;
    assert.equal(terminated?.reason, "StartError");
    assert.equal(terminated?.exitCode, 128);
    assert.match(terminated?.message ?? "", /no such file or directory/i);
  });
});

const images = area(
  "[sig-node] Container Runtime blackbox test when running a container with a new image",
  (should) => {
    const runs = (image: string, imagePullPolicy = "Always"): V1Container => ({
      ...{ name: "test", image, imagePullPolicy, command: ["/bin/sh", "-c", STAYS] },
    });
    const isPullFailure = (pod: V1Pod) =>
      ["ErrImagePull", "ImagePullBackOff"].includes(statusOf(pod)?.state?.waiting?.reason ?? "");

    should("not be able to pull image from invalid registry", async (t) => {
      const pod = await t.start({ containers: [runs("invalid.registry.invalid/no/such:1")] });
      const waiting = await pod.until("a failed pull", isPullFailure);
      assert.equal(waiting.status?.phase, "Pending");
      await pod.until("ImagePullBackOff", (each) => statusOf(each)?.state?.waiting?.reason === "ImagePullBackOff");
      const start = 'Failed to pull image "invalid.registry.invalid/no/such:1": ';
      await pod.event(start, ({ reason, message }) => reason === "Failed" && message?.startsWith(start) === true);
      await pod.event("Error: ErrImagePull", ({ message }) => message === "Error: ErrImagePull");
    });

    should("be able to pull image", async (t) => {
      const image = t.image("pullable");
      const pod = await t.start({ containers: [runs(image)] });
      const running = await pod.running();
      assert.match(statusOf(running)?.imageID ?? "", /sha256:[0-9a-f]{64}$/);
      await pod.event("Pulling", ({ message }) => message === `Pulling image "${image}"`);
      const pulled = await pod.event("Pulled", ({ reason }) => reason === "Pulled");
      assert.match(
        pulled.message ?? "",
        /^Successfully pulled image ".*" in .*s \(.*s including waiting\)\. Image size: \d+ bytes\.$/,
      );
    });

    should("pull again where the policy is Always, and else use what is at hand", async (t) => {
      const image = t.image("pullable");
      for (const [policy, message] of [
        ["Always", /^Successfully pulled image /],
        ["IfNotPresent", /^Container image ".*" already present on machine$/],
        ["Always", /^Successfully pulled image /],
      ] as const) {
        const pod = await t.start({ containers: [runs(image, policy)] });
        await pod.running();
        const pulled = await pod.event("Pulled", ({ reason }) => reason === "Pulled");
        assert.match(pulled.message ?? "", message);
      }
    });

    const pullSecret = async (t: TestContext): Promise<string> => {
      if (t.target.pullSecret === "") t.skip("no --pull-secret was given");
      const type = "kubernetes.io/dockerconfigjson";
      return await t.secret({ ".dockerconfigjson": t.target.pullSecret }, { type });
    };

    should("not be able to pull from private registry without secret", async (t) => {
      const image = t.image("private");
      const imagePullSecrets = [{ name: await pullSecret(t) }];
      await (await t.start({ imagePullSecrets, containers: [runs(image)] })).running();
      // Also where the image has come for another pod, that it is there is nothing to one that could not have got it.
      const pod = await t.start({ containers: [runs(image)] });
      await pod.until("a failed pull", isPullFailure);
      assert.equal(pod.latest?.status?.phase, "Pending");
    });

    should("be able to pull from private registry with secret", async (t) => {
      const imagePullSecrets = [{ name: await pullSecret(t) }];
      await (await t.start({ imagePullSecrets, containers: [runs(t.image("private"))] })).running();
    });

    should("be able to pull from private registry with the service account's secret", async (t) => {
      const name = await pullSecret(t);
      await t.create("serviceaccounts", { metadata: { name: "puller" }, imagePullSecrets: [{ name }] });
      const pod = await t.start({ serviceAccountName: "puller", containers: [runs(t.image("private"))] });
      await pod.running();
    });

    should("never pull where the policy is Never, and say that the image is not there", async (t) => {
      const pod = await t.start({ containers: [runs("localhost/none/such:1", "Never")] });
      const waiting = await pod.until("ErrImageNeverPull", (each) => {
        return statusOf(each)?.state?.waiting?.reason === "ErrImageNeverPull";
      });
      assert.equal(
        statusOf(waiting)?.state?.waiting?.message,
        'Container image "localhost/none/such:1" is not present with pull policy of Never',
      );
    });

    should("say so when an image's name cannot be one", async (t) => {
      const pod = await t.start({ containers: [runs("Not:a:Name")] });
      await pod.until("InvalidImageName", (each) => statusOf(each)?.state?.waiting?.reason === "InvalidImageName");
      await pod.event("InspectFailed", ({ reason }) => reason === "InspectFailed");
    });
  },
);

const kubelet = area("[sig-node] Kubelet", (should) => {
  should("print the output to logs when scheduling a busybox command in a pod", async (t) => {
    assert.equal(await t.output({ containers: [t.sh("echo 'Hello World'")] }), "Hello World\n");
  });

  should("have an terminated reason when scheduling a busybox command that always fails in a pod", async (t) => {
    const pod = await t.start({ restartPolicy: "Always", containers: [t.sh("", { command: ["/bin/false"] })] });
    const failed = await pod.until("a termination", ({ status }) => {
      const [container] = status?.containerStatuses ?? [];
      return (container?.state?.terminated ?? container?.lastState?.terminated) !== undefined;
    });
    const status = statusOf(failed);
    const terminated = status?.state?.terminated ?? status?.lastState?.terminated;
    assert.equal(terminated?.reason, "Error");
    assert.equal(terminated?.exitCode, 1);
  });

  should("be possible to delete when scheduling a busybox command that always fails in a pod", async (t) => {
    const pod = await t.start({ restartPolicy: "Always", containers: [t.sh("", { command: ["/bin/false"] })] });
    await pod.until("a restart", (each) => restartsOf(each) > 0);
    await pod.delete();
    await pod.gone();
  });

  should("back off a container that keeps failing", async (t) => {
    const pod = await t.start({ restartPolicy: "Always", containers: [t.sh("exit 1")] });
    const waiting = await pod.until("CrashLoopBackOff", (each) => {
      return statusOf(each)?.state?.waiting?.reason === "CrashLoopBackOff";
    });
    const name = `${pod.name}_${pod.namespace}(${pod.uid})`;
    assert.match(
      statusOf(waiting)?.state?.waiting?.message ?? "",
      new RegExp(`^back-off \\d+s restarting failed container=test pod=${name.replace(/[()]/g, "\\$&")}$`),
    );
    const event = await pod.event("BackOff", ({ reason }) => reason === "BackOff");
    assert.equal(event.message, `Back-off restarting failed container test in pod ${name}`);
    assert.equal(event.type, "Warning");
  });

  should("write entries to /etc/hosts when scheduling a busybox Pod with hostAliases", async (t) => {
    const hostAliases = [{ ip: "123.45.67.89", hostnames: ["foo", "bar"] }];
    const output = await t.output({ hostAliases, containers: [t.sh("cat /etc/hosts")] });
    assert.match(output, /^# Kubernetes-managed hosts file\./);
    assert.match(output, /^# Entries added by HostAliases\.\n123\.45\.67\.89\tfoo\tbar$/m);
  });

  should("write entries to /etc/hosts when hostNetwork is enabled", async (t) => {
    const hostAliases = [{ ip: "123.45.67.89", hostnames: ["foo", "bar"] }];
    const output = await t.output({ hostNetwork: true, hostAliases, containers: [t.sh("cat /etc/hosts")] });
    assert.match(output, /^# Kubernetes-managed hosts file \(host network\)\./);
    assert.match(output, /^123\.45\.67\.89\tfoo\tbar$/m);
  });

  should("not write to root filesystem when scheduling a read only busybox container", async (t) => {
    const securityContext = { readOnlyRootFilesystem: true };
    const output = await t.output({
      containers: [t.sh("(echo test > /file) 2>/dev/null || echo refused", { securityContext })],
    });
    assert.match(output, /refused\n$/);
  });

  should(
    "manage /etc/hosts of pods with an own network, but not where a volume is mounted or the network is the host's",
    async (t) => {
      const volumeMounts = [{ name: "own", mountPath: "/etc/hosts", subPath: "hosts" }];
      const map = await t.configMap({ hosts: "127.0.0.1 mine\n" });
      const pod = await t.start({
        containers: [t.sh("cat /etc/hosts"), t.sh("cat /etc/hosts", { name: "own", volumeMounts })],
        volumes: [{ name: "own", configMap: { name: map } }],
      });
      const ip = (await pod.succeeded()).status?.podIP ?? "none";
      const managed = await pod.logs({ container: "test" });
      assert.match(
        managed,
        /^# Kubernetes-managed hosts file\.\n127\.0\.0\.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n/,
      );
      assert.ok(managed.includes(`${ip}\t${pod.name}\n`), managed);
      assert.equal(await pod.logs({ container: "own" }), "127.0.0.1 mine\n");
      const onHost = await t.output({ hostNetwork: true, containers: [t.sh("cat /etc/hosts")] });
      assert.doesNotMatch(onHost, /^# Kubernetes-managed hosts file\.\n/);
    },
  );
});

const logs = area("[sig-node] Container logs", (should) => {
  const LINES = "for i in 1 2 3 4 5; do echo line $i; done; sleep 0.5; echo error >&2";

  should("be given by their last lines, with times, and since a time", async (t) => {
    const pod = await t.start({ containers: [t.sh(LINES)] });
    await pod.succeeded();
    assert.equal(await pod.logs({ query: { tailLines: "2" } }), "line 5\nerror\n");
    const stamped = await pod.logs({ query: { timestamps: "true", tailLines: "1" } });
    assert.match(stamped, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d) error\n$/);
    assert.equal(await pod.logs({ query: { limitBytes: "6" } }), "line 1");
    const future = new Date(Date.now() + 3_600_000).toISOString();
    assert.equal(await pod.logs({ query: { sinceTime: future } }), "");
    assert.match(await pod.logs({ query: { sinceSeconds: "3600" } }), /line 1/);
  });

  should("be there of the previous instance of a container that was restarted", async (t) => {
    const volumeMounts = [{ name: "v", mountPath: "/v" }];
    const script = `[ -e /v/x ] && { echo second; ${STAYS}; }; touch /v/x; echo first; exit 1`;
    const pod = await t.start({
      restartPolicy: "Always",
      containers: [t.sh(script, { volumeMounts })],
      volumes: [{ name: "v", emptyDir: {} }],
    });
    await pod.until("the second instance", (each) => restartsOf(each) === 1 && !!statusOf(each)?.state?.running);
    await pod.logged("second");
    assert.equal(await pod.logs({ previous: true }), "first\n");
  });

  should("join what was written in one line, however long", async (t) => {
    const output = await t.output({ containers: [t.sh("head -c 50000 /dev/zero | tr '\\0' x; echo")] });
    assert.equal(output, `${"x".repeat(50_000)}\n`);
  });

  should("follow what a container writes until it ends", async (t) => {
    const pod = await t.start({ containers: [t.sh("for i in 1 2 3; do echo $i; sleep 0.3; done; echo end")] });
    assert.equal(await pod.logged("end\n"), "1\n2\n3\nend\n");
  });

  should("lie where the node's log collectors look for them", async (t) => {
    const pod = await t.start({ containers: [t.sh(`echo here; ${STAYS}`)] });
    const running = await pod.running();
    await pod.logged("here");
    const id = statusOf(running)?.containerID?.replace(/^.*\/\//, "") ?? "";
    const onNode = async (path: string, script: string) => {
      const volumeMounts = [{ name: "log", mountPath: path, readOnly: true }];
      return await t.output({
        containers: [t.sh(script, { volumeMounts })],
        volumes: [{ name: "log", hostPath: { path } }],
      });
    };
    const folder = t.target.containerLogs;
    const link = `${folder}/${pod.name}_${pod.namespace}_test-${id}.log`;
    const log = (await onNode(folder, `until readlink ${link}; do sleep 0.2; done`)).trim();
    assert.match(await onNode(dirname(log), `cat ${log}`), /^\S+ stdout F here$/m);
  });
});

export const runtimeTests: readonly ConformanceTest[] = [...blackbox, ...images, ...kubelet, ...logs];
