/** Liveness, readiness and startup probes of every kind. */
import assert from "node:assert/strict";
import type { V1Container, V1Pod, V1Probe } from "@kubernetes/client-node";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import type { TestContext } from "../framework/test-context.ts";
import { conditionOf, restartsOf, statusOf, type TestPod, timeOf } from "../framework/test-pod.ts";
import { STAYS } from "../framework/traces.ts";

/** In which a probe of a second's period would have failed many times over. */
const CALM_MS = 12_000;

const isReady = (pod: V1Pod): boolean => conditionOf(pod, "Ready") === "True";
const http = (path = "/healthz", port: number | string = 8080) => ({ httpGet: { path, port } });
const exec = (...command: string[]) => ({ exec: { command } });
const CAT_HEALTH = exec("cat", "/tmp/health");
/** Healthy from the start, and for ten seconds. */
const SICK_LATER = `mkdir -p /tmp; touch /tmp/health; sleep 8; rm /tmp/health; ${STAYS}`;
const HEALTHY = `mkdir -p /tmp; touch /tmp/health; ${STAYS}`;

const often = (probe: V1Probe): V1Probe => ({ periodSeconds: 1, failureThreshold: 1, ...probe });

async function startWith(t: TestContext, container: V1Container): Promise<TestPod> {
  return await t.start({ restartPolicy: "Always", containers: [container] });
}

async function isRestarted(pod: TestPod, times = 1): Promise<V1Pod> {
  return await pod.until(`${times} restarts`, (each) => restartsOf(each) >= times);
}

async function isLeftAlone(pod: TestPod): Promise<void> {
  await pod.running();
  await pod.stays(CALM_MS, "running, never restarted", (each) => restartsOf(each) === 0);
}

const probes = area("[sig-node] Probing container", (should) => {
  should("with readiness probe should not be ready before initial delay and never restart", async (t) => {
    const pod = await startWith(
      t,
      t.tool(["http", "8080"], { readinessProbe: { ...http(), initialDelaySeconds: 5, periodSeconds: 1 } }),
    );
    const ready = await pod.ready();
    const condition = ready.status?.conditions?.find(({ type }) => type === "Ready");
    const took = timeOf(condition?.lastTransitionTime) - timeOf(statusOf(ready)?.state?.running?.startedAt);
    assert.ok(took >= 5_000 && took <= t.atMost(30_000), `ready after ${took} ms`);
    assert.equal(restartsOf(ready), 0);
  });

  should("with readiness probe that fails should never be ready and never restart", async (t) => {
    const pod = await startWith(t, t.sh(STAYS, { readinessProbe: often(exec("false")) }));
    await pod.running();
    await pod.stays(CALM_MS, "not ready, never restarted", (each) => !isReady(each) && restartsOf(each) === 0);
    const event = await pod.event("Unhealthy", ({ reason }) => reason === "Unhealthy");
    assert.match(event.message ?? "", /^Readiness probe failed: /);
  });

  should('be restarted with a exec "cat /tmp/health" liveness probe', async (t) => {
    const pod = await startWith(
      t,
      t.sh(SICK_LATER, { livenessProbe: often({ ...CAT_HEALTH, initialDelaySeconds: 3 }) }),
    );
    await isRestarted(pod);
    const unhealthy = await pod.event("Unhealthy", ({ reason }) => reason === "Unhealthy");
    assert.match(unhealthy.message ?? "", /^Liveness probe failed: cat: can't open '\/tmp\/health'/);
    await pod.event("Killing", ({ message }) => message === "Container test failed liveness probe, will be restarted");
  });

  should('*not* be restarted with a exec "cat /tmp/health" liveness probe', async (t) => {
    await isLeftAlone(
      await startWith(t, t.sh(HEALTHY, { livenessProbe: often({ ...CAT_HEALTH, initialDelaySeconds: 3 }) })),
    );
  });

  should("be restarted with a /healthz http liveness probe", async (t) => {
    const livenessProbe = often({ ...http(), initialDelaySeconds: 2, timeoutSeconds: t.atMost(1) });
    const pod = await startWith(t, t.tool(["http", "8080", "6"], { livenessProbe }));
    await isRestarted(pod);
    const { message } = await pod.event("Unhealthy", ({ reason }) => reason === "Unhealthy");
    assert.equal(message, "Liveness probe failed: HTTP probe failed with statuscode: 500");
  });

  should("*not* be restarted with a tcp:8080 liveness probe", async (t) => {
    await isLeftAlone(
      await startWith(
        t,
        t.tool(["http", "8080"], { livenessProbe: often({ tcpSocket: { port: 8080 }, initialDelaySeconds: 2 }) }),
      ),
    );
  });

  should("be restarted with a tcp liveness probe of a port where nobody listens", async (t) => {
    const livenessProbe = often({ tcpSocket: { port: 8081 }, initialDelaySeconds: 2 });
    const pod = await startWith(t, t.tool(["http", "8080"], { livenessProbe }));
    await isRestarted(pod);
    const { message } = await pod.event("Unhealthy", ({ reason }) => reason === "Unhealthy");
    assert.match(message ?? "", /^Liveness probe failed: dial tcp .*:8081: connect: connection refused$/);
  });

  should(
    "have monotonically increasing restart count",
    async (t) => {
      const pod = await startWith(t, t.tool(["http", "8080", "1"], { livenessProbe: often(http()) }));
      await isRestarted(pod, 3);
      const counts = pod.history.map((each) => restartsOf(each));
      assert.deepEqual(
        counts,
        counts.toSorted((one, other) => one - other),
      );
    },
    { limitSeconds: 180 },
  );

  should("*not* be restarted with a /healthz http liveness probe", async (t) => {
    const ports = [{ name: "named", containerPort: 8080 }];
    const livenessProbe = often({ ...http("/healthz", "named"), initialDelaySeconds: 2 });
    await isLeftAlone(await startWith(t, t.tool(["http", "8080"], { ports, livenessProbe })));
  });

  should("be restarted with an exec liveness probe with timeout", async (t) => {
    const livenessProbe = often({ ...exec("/bin/sleep", "10"), timeoutSeconds: 1 });
    const pod = await startWith(t, t.sh(STAYS, { livenessProbe }));
    await isRestarted(pod);
    const { message } = await pod.event("Unhealthy", ({ reason }) => reason === "Unhealthy");
    assert.match(
      message ?? "",
      /^Liveness probe failed: command timed out|^Liveness probe failed: command "\/bin\/sleep 10" timed out/,
    );
  });

  should("not be ready with an exec readiness probe timeout", async (t) => {
    const readinessProbe = often({ ...exec("/bin/sh", "-c", "sleep 10"), timeoutSeconds: 1 });
    const pod = await startWith(t, t.sh(STAYS, { readinessProbe }));
    await pod.running();
    await pod.stays(CALM_MS, "not ready", (each) => !isReady(each));
  });

  should("be restarted with a failing exec liveness probe that took longer than the timeout", async (t) => {
    const livenessProbe = often({ ...exec("/bin/sh", "-c", "sleep 15; exit 1"), timeoutSeconds: 1 });
    await isRestarted(await startWith(t, t.sh(STAYS, { livenessProbe })));
  });

  should("be restarted with a local redirect http liveness probe", async (t) => {
    const livenessProbe = often(http("/redirect?loc=/healthz"));
    await isRestarted(await startWith(t, t.tool(["http", "8080", "3"], { livenessProbe })));
  });

  should("*not* be restarted with a non-local redirect http liveness probe", async (t) => {
    const livenessProbe = often({ ...http("/redirect?loc=http://0.0.0.0/"), initialDelaySeconds: 2 });
    const pod = await startWith(t, t.tool(["http", "8080"], { livenessProbe }));
    await isLeftAlone(pod);
    const { message } = await pod.event("ProbeWarning", ({ reason }) => reason === "ProbeWarning");
    assert.match(message ?? "", /^Liveness probe warning: Probe terminated redirects/);
  });

  should("be restarted startup probe fails", async (t) => {
    const pod = await startWith(
      t,
      t.sh(STAYS, { startupProbe: { ...exec("false"), periodSeconds: 1, failureThreshold: 2 } }),
    );
    await isRestarted(pod);
    await pod.event("Killing", ({ message }) => message === "Container test failed startup probe, will be restarted");
  });

  should("*not* be restarted by liveness probe because startup probe delays it", async (t) => {
    const startupProbe = { ...exec("false"), periodSeconds: 1, failureThreshold: 60 };
    await isLeftAlone(await startWith(t, t.sh(STAYS, { startupProbe, livenessProbe: often(exec("false")) })));
  });

  should("be restarted by liveness probe after startup probe enables it", async (t) => {
    const startupProbe = { ...exec("cat", "/tmp/startup"), periodSeconds: 1, failureThreshold: 60 };
    const script = `mkdir -p /tmp; sleep 8; touch /tmp/startup; ${STAYS}`;
    const pod = await startWith(t, t.sh(script, { startupProbe, livenessProbe: often(exec("false")) }));
    await isRestarted(pod);
    const first = statusOf(pod.latest)?.lastState?.terminated;
    assert.ok(timeOf(first?.finishedAt) - timeOf(first?.startedAt) >= 7_000, "it was killed before it had started up");
  });

  should("be ready immediately after startupProbe succeeds", async (t) => {
    const startupProbe = { ...exec("cat", "/tmp/startup"), periodSeconds: 1, failureThreshold: 60 };
    const readinessProbe = { ...exec("true"), periodSeconds: 60 };
    const pod = await startWith(t, t.sh(`mkdir -p /tmp; ${STAYS}`, { startupProbe, readinessProbe }));
    await pod.running();
    await pod.shell("touch /tmp/startup");
    const started = await pod.until("started", (each) => statusOf(each)?.started === true);
    const at = performance.now();
    assert.equal(restartsOf(started), 0);
    await pod.ready();
    assert.ok(performance.now() - at < t.atMost(5_000), "readiness was asked for late");
  });

  for (const kind of ["livenessProbe", "startupProbe"] as const) {
    const name = kind === "livenessProbe" ? "LivenessProbe" : "StartupProbe";
    should(`override timeoutGracePeriodSeconds when ${name} field is set`, async (t) => {
      const probe = often({ ...exec("false"), terminationGracePeriodSeconds: 2, initialDelaySeconds: 1 });
      const pod = await t.start({
        restartPolicy: "Always",
        terminationGracePeriodSeconds: 500,
        containers: [t.sh("trap '' TERM; while :; do sleep 1; done", { [kind]: probe })],
      });
      const restarted = await isRestarted(pod);
      const terminated = statusOf(restarted)?.lastState?.terminated;
      assert.equal(terminated?.exitCode, 137);
      await pod.delete(0);
    });
  }

  should("*not* be restarted with a GRPC liveness probe", async (t) => {
    const livenessProbe = often({ grpc: { port: 5000 }, initialDelaySeconds: 2 });
    const pod = await startWith(t, t.tool(["grpc", "5000", "-1"], { livenessProbe }));
    await isLeftAlone(pod);
    assert.match(await pod.logs(), /health asked, serving: 1/);
  });

  should("be restarted with a GRPC liveness probe", async (t) => {
    const pod = await startWith(
      t,
      t.tool(["grpc", "5000", "5"], { livenessProbe: often({ grpc: { port: 5000 }, initialDelaySeconds: 2 }) }),
    );
    await isRestarted(pod);
    const { message } = await pod.event("Unhealthy", ({ reason }) => reason === "Unhealthy");
    assert.match(message ?? "", /^Liveness probe failed: service unhealthy \(responded with "NOT_SERVING"\)/);
  });

  should(
    "mark readiness on pods to false while pod is in progress of terminating when a pod has a readiness probe",
    async (t) => {
      const ending = t.atMost(6_000) / 1000;
      const script = `trap 'rm /tmp/health; sleep ${ending}; exit 0' TERM; mkdir -p /tmp; touch /tmp/health; sleep 100000 & wait`;
      const pod = await t.start({
        terminationGracePeriodSeconds: 5 * ending,
        containers: [t.sh(script, { readinessProbe: often(CAT_HEALTH), livenessProbe: often(CAT_HEALTH) })],
      });
      await pod.ready();
      await pod.delete();
      const notReady = await pod.until("not ready while it ends", (each) => !isReady(each));
      assert.notEqual(notReady.metadata?.deletionTimestamp, undefined);
      assert.notEqual(statusOf(notReady)?.state?.running, undefined, "it was not ready only once it had ended");
      await pod.gone();
      assert.equal(restartsOf(pod.history.at(-1)), 0);
    },
  );

  should("send the headers of an http probe, and the user agent of a kubelet", async (t) => {
    const httpHeaders = [{ name: "X-Custom", value: "yes" }];
    const readinessProbe = often({ httpGet: { path: "/healthz", port: 8080, httpHeaders } });
    const pod = await startWith(t, t.tool(["http", "8080"], { readinessProbe }));
    await pod.ready();
    const log = await pod.logged(/header X-Custom: yes/i);
    assert.match(log, /header User-Agent: kube-probe\/\S*/i);
  });

  should("be ready only after as many successes as the success threshold says", async (t) => {
    const readinessProbe = { ...exec("true"), periodSeconds: 1, successThreshold: 4 };
    const pod = await startWith(t, t.sh(STAYS, { readinessProbe }));
    const ready = await pod.ready();
    const at = timeOf(ready.status?.conditions?.find(({ type }) => type === "Ready")?.lastTransitionTime);
    assert.ok(at - timeOf(statusOf(ready)?.state?.running?.startedAt) >= 2_000, "it was ready too early");
  });
});

export const probeTests: readonly ConformanceTest[] = probes;
