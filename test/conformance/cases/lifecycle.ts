/** Containers from start to end: init containers, sidecars, hooks, graceful ends, ephemeral containers. */
import assert from "node:assert/strict";
import type { V1Container, V1Lifecycle, V1LifecycleHandler, V1Pod } from "@kubernetes/client-node";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import type { TestContext } from "../framework/test-context.ts";
import { conditionOf, restartsOf, statusOf, type TestPod, timeOf } from "../framework/test-pod.ts";
import { awaitNote, note, STAYS, traced, tracedStay, traceOf, withTrace } from "../framework/traces.ts";

const hasStarted = (pod: V1Pod, container: string): boolean => {
  const { state, lastState } = statusOf(pod, container) ?? {};
  return [state, lastState].some((each) => each?.running !== undefined || each?.terminated !== undefined);
};

/** Long enough for what does not wait for its end to be seen to start before it. */
const LASTS = "sleep 1";

const initContainers = area("[sig-node] InitContainer", (should) => {
  const inits = (t: TestContext, ...scripts: string[]) =>
    scripts.map((script, at) => t.sh(script, { name: `init${at + 1}` }));

  function initialised(pod: TestPod): void {
    for (const each of pod.history) {
      const done = (name: string) => statusOf(each, name)?.state?.terminated?.exitCode === 0;
      if (hasStarted(each, "init2")) assert.ok(done("init1"), "init2 started before init1 was over");
      if (hasStarted(each, "run1"))
        assert.ok(done("init1") && done("init2"), "run1 started before the init containers were over");
    }
  }

  should("invoke init containers on a RestartNever pod", async (t) => {
    const pod = await t.start({
      initContainers: inits(t, LASTS, LASTS),
      containers: [t.sh("true", { name: "run1" })],
    });
    const done = await pod.succeeded();
    initialised(pod);
    assert.equal(conditionOf(done, "Initialized"), "True");
    assert.deepEqual(
      done.status?.initContainerStatuses?.map(({ name, ready }) => [name, ready]),
      [
        ["init1", true],
        ["init2", true],
      ],
    );
  });

  should("invoke init containers on a RestartAlways pod", async (t) => {
    const pod = await t.start({
      restartPolicy: "Always",
      initContainers: inits(t, LASTS, LASTS),
      containers: [t.sh(STAYS, { name: "run1" })],
    });
    const running = await pod.running();
    initialised(pod);
    assert.equal(conditionOf(running, "Initialized"), "True");
  });

  should(
    "not start app containers if init containers fail on a RestartAlways pod",
    async (t) => {
      const pod = await t.start({
        restartPolicy: "Always",
        initContainers: inits(t, "false", "true"),
        containers: [t.sh(STAYS, { name: "run1" })],
      });
      const failing = await pod.until("two restarts of init1", (each) => restartsOf(each, "init1") >= 2);
      assert.equal(failing.status?.phase, "Pending");
      const initialized = failing.status?.conditions?.find(({ type }) => type === "Initialized");
      assert.equal(initialized?.status, "False");
      assert.equal(initialized?.reason, "ContainersNotInitialized");
      assert.equal(initialized?.message, "containers with incomplete status: [init1 init2]");
      for (const name of ["init2", "run1"])
        assert.ok(!pod.history.some((each) => hasStarted(each, name)), `${name} ran`);
      assert.equal(statusOf(failing, "run1")?.state?.waiting?.reason, "PodInitializing");
    },
    { limitSeconds: 120 },
  );

  should("not start app containers and fail the pod if init containers fail on a RestartNever pod", async (t) => {
    const pod = await t.start({
      initContainers: inits(t, "true", "false"),
      containers: [t.sh(STAYS, { name: "run1" })],
    });
    const failed = await pod.phase("Failed");
    assert.equal(statusOf(failed, "init2")?.state?.terminated?.exitCode, 1);
    assert.ok(!pod.history.some((each) => hasStarted(each, "run1")), "run1 ran");
  });

  should("not run again when a container of the pod is restarted", async (t) => {
    const pod = await t.start(
      withTrace({
        restartPolicy: "Always",
        initContainers: [traced(t, "init", "true")],
        containers: [traced(t, "main", STAYS)],
      }),
    );
    await pod.running();
    await pod.exec(["/bin/sh", "-c", "kill 1"], "main");
    await pod.until("a restart", (each) => restartsOf(each, "main") === 1 && !!statusOf(each, "main")?.state?.running);
    assert.deepEqual(await traceOf(pod, "main"), ["init starts", "main starts", "main starts"]);
  });
});

const sidecar = (container: V1Container): V1Container => ({ ...container, restartPolicy: "Always" });

const sidecars = area("[sig-node] Containers Lifecycle with restartable init containers", (should) => {
  should("start them in order, each before what comes after it", async (t) => {
    const pod = await t.start(
      withTrace({
        initContainers: [
          traced(t, "init1", `${LASTS}; ${note("init1 ends")}`),
          sidecar(traced(t, "side1", STAYS)),
          traced(t, "init2", `${LASTS}; ${note("init2 ends")}`),
          sidecar(traced(t, "side2", STAYS)),
        ],
        containers: [traced(t, "main", STAYS)],
      }),
    );
    const running = await pod.running();
    const inits = [1, 2].flatMap((at) => [`init${at} starts`, `init${at} ends`, `side${at} starts`]);
    assert.deepEqual(await traceOf(pod, "main"), [...inits, "main starts"]);
    assert.equal(statusOf(running, "side1")?.started, true);
    assert.equal(statusOf(running, "side1")?.ready, true);
  });

  should("wait for a sidecar's startup probe before the next container starts", async (t) => {
    const side = traced(t, "side", `sleep 2; ${note("side is up")}; touch /up; ${STAYS}`, {
      startupProbe: { exec: { command: ["test", "-e", "/up"] }, periodSeconds: 1, failureThreshold: 60 },
    });
    const pod = await t.start(withTrace({ initContainers: [sidecar(side)], containers: [traced(t, "main", STAYS)] }));
    await pod.running();
    assert.deepEqual(await traceOf(pod, "main"), ["side starts", "side is up", "main starts"]);
  });

  should("complete the pod when its containers have, sidecars or not", async (t) => {
    const pod = await t.start(
      withTrace({
        initContainers: [sidecar(traced(t, "side", tracedStay("side")))],
        containers: [traced(t, "main", awaitNote("side starts"))],
      }),
    );
    const done = await pod.succeeded();
    assert.ok(statusOf(done, "side")?.state?.terminated !== undefined, "the sidecar has not ended");
  });

  should("restart a sidecar that ends, whatever the pod's restartPolicy", async (t) => {
    const side = traced(t, "side", `[ $(grep -c "side starts" /trace/all) -ge 2 ] && { ${STAYS}; }; exit 1`);
    const pod = await t.start(withTrace({ initContainers: [sidecar(side)], containers: [traced(t, "main", STAYS)] }));
    const running = await pod.until("the sidecar's second run", (each) => {
      return restartsOf(each, "side") === 1 && statusOf(each, "side")?.state?.running !== undefined;
    });
    assert.equal(restartsOf(running, "main"), 0);
  });

  should("end sidecars in reverse order after all main containers have exited", async (t) => {
    // Times are reported in seconds: each container takes longer than one to end, so that no two end in the same second
    // by their order.
    const slow = "trap 'sleep 2; exit 0' TERM; sleep 100000 & wait";
    const pod = await t.start({
      terminationGracePeriodSeconds: 30,
      initContainers: ["side1", "side2", "side3"].map((name) => sidecar(t.sh(slow, { name }))),
      containers: [t.sh(slow, { name: "main" })],
    });
    await pod.running();
    await pod.delete();
    await pod.gone();
    const last = pod.history.at(-1);
    const order = ["main", "side3", "side2", "side1"];
    const times = order.map((name) => timeOf(statusOf(last, name)?.state?.terminated?.finishedAt));
    for (const [at, name] of order.entries()) {
      if (at > 0) assert.ok((times[at - 1] ?? 0) < (times[at] ?? 0), `${name} did not end after ${order[at - 1]}`);
    }
  });

  should("count a sidecar's readiness as the pod's", async (t) => {
    const readinessProbe = { exec: { command: ["test", "-e", "/ready"] }, periodSeconds: 1 };
    const side = sidecar(t.sh(STAYS, { name: "side", readinessProbe }));
    const pod = await t.start({ initContainers: [side], containers: [t.sh(STAYS, { name: "main" })] });
    const running = await pod.running();
    assert.equal(conditionOf(running, "Ready"), "False");
    await pod.shell("touch /ready", "side");
    await pod.ready();
  });

  should("restart a sidecar whose liveness probe fails", async (t) => {
    const livenessProbe = { exec: { command: ["test", "!", "-e", "/dead"] }, periodSeconds: 1, failureThreshold: 1 };
    const side = sidecar(t.sh(STAYS, { name: "side", livenessProbe }));
    const pod = await t.start({ initContainers: [side], containers: [t.sh(STAYS, { name: "main" })] });
    await pod.running();
    await pod.shell("touch /dead", "side");
    const restarted = await pod.until("a restart", (each) => restartsOf(each, "side") === 1);
    assert.equal(restartsOf(restarted, "main"), 0);
  });
});

/** A pod that prints each request it gets. */
async function listener(t: TestContext): Promise<{ pod: TestPod; host: string }> {
  const pod = await t.start({ containers: [t.tool(["http", "8080"], { name: "server" })] }, { name: "listener" });
  await pod.running();
  const { status } = await pod.until("an address", (each) => each.status?.podIP !== undefined);
  return { pod, host: status?.podIP ?? "" };
}

/** With a certificate of its own making; serves `/hook`, and prints what was asked for. */
async function tlsListener(t: TestContext): Promise<{ pod: TestPod; host: string }> {
  const script = [
    "mkdir -p /srv /tmp && cd /srv && echo fine > hook",
    "printf '[req]\\ndistinguished_name=d\\n[d]\\n' > /tmp/c",
    "openssl req -x509 -newkey rsa:2048 -nodes -keyout /tmp/k -out /tmp/crt -days 1 -subj /CN=x -config /tmp/c 2>/dev/null",
    "trap 'exit 0' TERM; openssl s_server -accept 8443 -key /tmp/k -cert /tmp/crt -WWW & wait",
  ].join(" && ");
  const env = [{ name: "PATH", value: "/usr/bin:/bin" }];
  const pod = await t.start({ containers: [t.sh(script, { image: t.image("https"), env })] }, { name: "listener" });
  await pod.logged("ACCEPT");
  return { pod, host: (await pod.running()).status?.podIP ?? "" };
}

const hooks = area("[sig-node] Container Lifecycle Hook when create a pod with lifecycle hook", (should) => {
  for (const [kind, what] of [
    ["postStart", "poststart"],
    ["preStop", "prestop"],
  ] as const) {
    const hooked = async (
      t: TestContext,
      handler: V1LifecycleHandler,
      more: Partial<V1Container> = {},
    ): Promise<TestPod> => {
      const lifecycle: V1Lifecycle = { [kind]: handler };
      const pod = await t.start({
        terminationGracePeriodSeconds: 30,
        containers: [t.sh(STAYS, { name: "hooked", lifecycle, ...more })],
      });
      await pod.running();
      if (kind === "preStop") await pod.delete();
      return pod;
    };

    should(`execute ${what} exec hook properly`, async (t) => {
      const { pod, host } = await listener(t);
      const command = ["/bin/wget", "-q", "-O-", `http://${host}:8080/echo?msg=${what}`];
      await hooked(t, { exec: { command } });
      await pod.logged(`GET /echo?msg=${what} `);
    });

    should(`execute ${what} http hook properly`, async (t) => {
      const { pod, host } = await listener(t);
      const httpHeaders = [{ name: "X-Hook", value: "asked" }];
      await hooked(t, { httpGet: { host, port: 8080, path: `/echo?msg=${what}`, httpHeaders } });
      const log = await pod.logged(/header X-Hook: asked/i);
      assert.match(log, new RegExp(`GET /echo\\?msg=${what} `));
      assert.match(log, /header User-Agent: kube-lifecycle\//i);
    });

    should(`execute ${what} https hook properly`, async (t) => {
      const { pod, host } = await tlsListener(t);
      await hooked(t, { httpGet: { host, port: 8443, path: "/hook", scheme: "HTTPS" } });
      await pod.logged("FILE:hook");
    });
  }

  should("kill a container whose postStart hook fails, and say so", async (t) => {
    const lifecycle = { postStart: { exec: { command: ["/bin/sh", "-c", "echo went wrong; exit 3"] } } };
    const pod = await t.start({ containers: [t.sh(STAYS, { lifecycle })] });
    const event = await pod.event("FailedPostStartHook", ({ reason }) => reason === "FailedPostStartHook");
    assert.match(event.message ?? "", /^PostStartHook failed/);
    await pod.phase("Failed", "Succeeded");
    await pod.event("Killing", ({ message }) => message === "FailedPostStartHook");
  });

  should("not start the next container before the postStart hook of the one before is over", async (t) => {
    const postStart = { exec: { command: ["/bin/sh", "-c", `sleep 2; ${note("hook is over")}`] } };
    const pod = await t.start(
      withTrace({
        containers: [traced(t, "first", STAYS, { lifecycle: { postStart } }), traced(t, "second", STAYS)],
      }),
    );
    await pod.running();
    assert.deepEqual(await traceOf(pod, "second"), ["first starts", "hook is over", "second starts"]);
  });

  should("end a container after a preStop hook that sleeps", async (t) => {
    const lifecycle = { preStop: { sleep: { seconds: 3 } } };
    const pod = await t.start({ terminationGracePeriodSeconds: 30, containers: [t.sh(STAYS, { lifecycle })] });
    await pod.running();
    const at = performance.now();
    await pod.delete();
    await pod.gone();
    const took = performance.now() - at;
    assert.ok(took >= 3_000 && took < t.atMost(15_000), `it took ${took} ms`);
  });

  should("cut a preStop sleep short when the grace period is reduced", async (t) => {
    const lifecycle = { preStop: { sleep: { seconds: 60 } } };
    const pod = await t.start({ terminationGracePeriodSeconds: 100, containers: [t.sh(STAYS, { lifecycle })] });
    await pod.running();
    const at = performance.now();
    await pod.delete();
    await pod.until("its end to begin", ({ metadata }) => metadata?.deletionTimestamp !== undefined);
    await pod.delete(2);
    await pod.gone();
    assert.ok(performance.now() - at < t.atMost(30_000), `it took ${performance.now() - at} ms`);
  });

  should("say so when a preStop hook fails, and end the container all the same", async (t) => {
    const lifecycle = { preStop: { exec: { command: ["/bin/false"] } } };
    const pod = await t.start({ terminationGracePeriodSeconds: 10, containers: [t.sh(STAYS, { lifecycle })] });
    await pod.running();
    await pod.delete();
    await pod.event("FailedPreStopHook", ({ reason }) => reason === "FailedPreStopHook");
    await pod.gone();
  });
});

/** The deadline is set when the pod runs, because a slow board starts it later than any short deadline. */
async function endedByDeadline(pod: TestPod): Promise<V1Pod> {
  await pod.running();
  await pod.patch({ spec: { activeDeadlineSeconds: 1 } });
  return await pod.phase("Failed");
}

const ending = area("[sig-node] Containers Lifecycle", (should) => {
  should("call prestop when killing a pod", async (t) => {
    const { pod: server, host } = await listener(t);
    const command = ["/bin/wget", "-q", "-O-", `http://${host}:8080/echo?msg=prestop`];
    const pod = await t.start({
      terminationGracePeriodSeconds: 30,
      containers: [t.sh(STAYS, { name: "tester", lifecycle: { preStop: { exec: { command } } } })],
    });
    await pod.running();
    await pod.delete();
    await server.logged("msg=prestop");
    await pod.gone();
  });

  for (const [name, seconds, least, most] of [
    ["respect termination grace period seconds", 5, 5_000, 20_000],
    ["kill at once with a grace period of 0", 0, 0, 8_000],
  ] as const) {
    should(name, async (t) => {
      const pod = await t.start({
        terminationGracePeriodSeconds: 30,
        containers: [t.sh("trap '' TERM; while :; do sleep 1; done")],
      });
      await pod.running();
      const at = performance.now();
      await pod.delete(seconds);
      await pod.gone();
      const took = performance.now() - at;
      assert.ok(took >= least && took < t.atMost(most), `it took ${took} ms`);
    });
  }

  should("respect termination grace period seconds with long-running preStop hook", async (t) => {
    const lifecycle = { preStop: { exec: { command: ["/bin/sleep", "60"] } } };
    const pod = await t.start({ terminationGracePeriodSeconds: 5, containers: [t.sh(STAYS, { lifecycle })] });
    await pod.running();
    const at = performance.now();
    await pod.delete();
    await pod.gone();
    const took = performance.now() - at;
    assert.ok(took >= 4_500 && took < t.atMost(20_000), `it took ${took} ms`);
  });

  should("report exit code 137 and reason Error of containers terminated forcefully by SIGKILL", async (t) => {
    const pod = await t.start({
      terminationGracePeriodSeconds: 1,
      containers: [t.sh("trap '' TERM; echo trapped; while :; do sleep 1; done")],
    });
    await pod.logged("trapped");
    const failed = await endedByDeadline(pod);
    const terminated = statusOf(failed)?.state?.terminated;
    assert.equal(terminated?.exitCode, 137);
    assert.equal(terminated?.reason, "Error");
  });

  should("send the stop signal that the container asks for", async (t) => {
    const script = `trap 'echo -n usr1 > /dev/termination-log; exit 0' USR1; trap '' TERM; echo trapped; while :; do sleep 0.2; done`;
    const lifecycle = { stopSignal: "SIGUSR1" };
    const pod = await t.start({
      os: { name: "linux" },
      terminationGracePeriodSeconds: 20,
      containers: [t.sh(script, { lifecycle })],
    });
    const asked = await t.api.get<V1Pod>(pod.path);
    if (asked.spec?.containers[0]?.lifecycle?.stopSignal === undefined) t.skip("the API server keeps no stop signals");
    await pod.logged("trapped");
    assert.equal(statusOf(await endedByDeadline(pod))?.state?.terminated?.message, "usr1");
  });

  should("transition to a final phase a pod which is deleted while pending", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS, { image: "invalid.registry.invalid/no/such:1" })] });
    await pod.until("ImagePullBackOff", (each) => /Pull/.test(statusOf(each)?.state?.waiting?.reason ?? ""));
    await pod.delete();
    await pod.gone();
    assert.equal(pod.history.at(-1)?.status?.phase, "Failed");
  });

  should("restart a container whose image is changed", async (t) => {
    const pod = await t.start({ restartPolicy: "Always", containers: [t.sh(STAYS)] });
    await pod.running();
    await pod.patch({ spec: { containers: [{ name: "test", image: t.image("other") }] } });
    const changed = await pod.until("the other image", (each) => {
      return restartsOf(each) === 1 && statusOf(each)?.state?.running !== undefined;
    });
    assert.equal(statusOf(changed)?.image, t.image("other"));
    assert.equal((await pod.shell("echo $OTHER")).trim(), "yes");
    await pod.event("Killing", ({ message }) => message === "Container test definition changed, will be restarted");
  });
});

const ephemeral = area("[sig-node] Ephemeral Containers", (should) => {
  const debug = (t: TestContext, name: string) => ({
    spec: { ephemeralContainers: [{ ...t.sh(STAYS, { name }), targetContainerName: "main" }] },
  });

  should("start an ephemeral container in an existing pod", async (t) => {
    const script = "trap 'exit 0' TERM; sleep 54321 & wait";
    const pod = await t.start({ containers: [t.sh(script, { name: "main" })] });
    await pod.running();
    await pod.patch(debug(t, "debugger"), "ephemeralcontainers");
    const running = await pod.until("the ephemeral container to run", (each) => {
      return statusOf(each, "debugger")?.state?.running !== undefined;
    });
    assert.equal(restartsOf(running, "main"), 0);
    assert.equal(await pod.shell("echo polo", "debugger"), "polo\n");
    assert.match(await pod.shell("ps", "debugger"), /sleep 54321/, "it does not see its target");
  });

  should("update the ephemeral containers in an existing pod", async (t) => {
    const pod = await t.start({ containers: [t.sh(STAYS, { name: "main" })] });
    await pod.running();
    for (const name of ["one", "two"]) {
      await pod.patch(debug(t, name), "ephemeralcontainers");
      await pod.until(`${name} to run`, (each) => statusOf(each, name)?.state?.running !== undefined);
    }
    assert.equal(pod.latest?.status?.ephemeralContainerStatuses?.length, 2);
  });

  should("not restart an ephemeral container that ends", async (t) => {
    const pod = await t.start({ restartPolicy: "Always", containers: [t.sh(STAYS, { name: "main" })] });
    await pod.running();
    const once = { ...t.sh("exit 7", { name: "once" }) };
    await pod.patch({ spec: { ephemeralContainers: [once] } }, "ephemeralcontainers");
    const ended = await pod.until("its end", (each) => statusOf(each, "once")?.state?.terminated !== undefined);
    assert.equal(statusOf(ended, "once")?.state?.terminated?.exitCode, 7);
    await pod.stays(3_000, "ended", (each) => statusOf(each, "once")?.state?.terminated !== undefined);
    assert.equal(conditionOf(pod.latest, "Ready"), "True");
  });
});

export const lifecycleTests: readonly ConformanceTest[] = [
  ...initContainers,
  ...sidecars,
  ...hooks,
  ...ending,
  ...ephemeral,
];
