/** The kubelet's own API and its metrics, as an administrator asks for them through the API server. */
import assert from "node:assert/strict";
import type { V1Pod, V1PodList } from "@kubernetes/client-node";
import { area, type ConformanceTest } from "../framework/conformance-test.ts";
import { ApiError } from "../framework/kube-api.ts";
import type { TestContext } from "../framework/test-context.ts";
import { STAYS } from "../framework/traces.ts";
import { absenceOf, PUBLISHED_METRICS, type PublishedMetric } from "../metrics/published-metrics.ts";

interface Usage {
  readonly memory?: { readonly workingSetBytes?: number };
  readonly cpu?: { readonly usageCoreNanoSeconds?: number };
}

interface Summary {
  readonly node: Usage & { readonly nodeName: string };
  readonly pods: readonly {
    readonly podRef: { readonly name: string; readonly namespace: string };
    readonly containers?: readonly (Usage & { readonly name: string })[];
  }[];
}

const proxy = (t: TestContext, path: string): string => `/api/v1/nodes/${t.node}/proxy${path}`;

/** @returns the status of the refusal */
async function refusal(answer: Promise<unknown>): Promise<number> {
  try {
    await answer;
  } catch (error) {
    if (error instanceof ApiError) return error.code;
    throw error;
  }
  throw new Error("it was not refused");
}

const API = { group: "kubeletApi" };

const api = area("[sig-node] Kubelet API", (should) => {
  should(
    "be healthy, by its own words",
    async (t) => {
      for (const path of ["/healthz", "/healthz/ping", "/healthz/syncloop"]) {
        assert.equal(await t.api.text(proxy(t, path)), "ok", path);
      }
    },
    API,
  );

  should(
    "list its pods and those that run",
    async (t) => {
      const pod = await t.start({ containers: [t.sh(STAYS)] });
      await pod.running();
      for (const path of ["/pods", "/runningpods/"]) {
        const list = await t.api.get<V1PodList>(proxy(t, path));
        assert.equal(list.kind, "PodList", path);
        const isMine = ({ metadata }: V1Pod): boolean =>
          metadata?.name === pod.name && metadata.namespace === t.namespace;
        const mine = list.items.find(isMine);
        assert.equal(mine?.spec?.containers[0]?.name, "test", path);
      }
    },
    API,
  );

  should(
    "report resource usage through the stats api",
    async (t) => {
      const pod = await t.start({ containers: [t.sh(STAYS)] });
      await pod.running();
      const summary = await t.api.get<Summary>(proxy(t, "/stats/summary"));
      assert.equal(summary.node.nodeName, t.node);
      assert.ok((summary.node.memory?.workingSetBytes ?? 0) > 0);
      const mine = summary.pods.find(({ podRef }) => podRef.name === pod.name && podRef.namespace === t.namespace);
      const container = mine?.containers?.find(({ name }) => name === "test");
      assert.ok((container?.memory?.workingSetBytes ?? 0) > 0, JSON.stringify(mine));
      assert.ok((container?.cpu?.usageCoreNanoSeconds ?? 0) > 0, JSON.stringify(mine));
    },
    API,
  );

  should(
    "give a container's log, and run a command in it",
    async (t) => {
      const pod = await t.start({ containers: [t.sh(`echo first; echo second; ${STAYS}`)] });
      await pod.running();
      const of = `${t.namespace}/${pod.name}/test`;
      await pod.logged("second");
      assert.equal(await t.api.text(proxy(t, `/containerLogs/${of}`), { tailLines: "1" }), "second\n");
      const query = { cmd: "echo 42" };
      assert.equal(await t.api.call("POST", proxy(t, `/run/${of}`), undefined, { query }), 42);
    },
    API,
  );

  should(
    "show its configuration",
    async (t) => {
      const { kubeletconfig } = await t.api.get<{ kubeletconfig: Record<string, unknown> }>(proxy(t, "/configz"));
      assert.equal(typeof kubeletconfig.maxPods, "number");
      assert.equal(typeof kubeletconfig.cgroupDriver, "string");
    },
    API,
  );

  should(
    "answer 404 for a path or a container that is not there, and 405 for a method that a path does not take",
    async (t) => {
      assert.equal(await refusal(t.api.text(proxy(t, "/nothing"))), 404);
      assert.equal(await refusal(t.api.text(proxy(t, `/containerLogs/${t.namespace}/none/test`))), 404);
      for (const path of ["/pods", "/stats/summary", "/configz", "/metrics"]) {
        assert.equal(await refusal(t.api.call("POST", proxy(t, path))), 405, path);
      }
    },
    API,
  );
});

const METRICS = { group: "metrics" };

/** Types of an exposition, by name. */
const typesOf = (text: string): ReadonlyMap<string, string> =>
  new Map(Array.from(text.matchAll(/^# TYPE (\S+) (\S+)$/gm), ([, name = "", type = ""]) => [name, type]));

/** The sorted labels of a metric's series. */
function labelsOf(text: string, name: string): ReadonlySet<string> {
  const series = text.matchAll(new RegExp(`^${name}(?:_bucket|_sum|_count)?\\{([^\\n]*)\\} `, "gm"));
  return new Set(
    Array.from(series, ([, labels = ""]) =>
      Array.from(labels.matchAll(/(\w+)="(?:[^"\\]|\\.)*"/g), ([, label = ""]) => label)
        .filter((label) => label !== "le")
        .sort()
        .join(),
    ),
  );
}

const published = (path: PublishedMetric["path"]): readonly PublishedMetric[] =>
  PUBLISHED_METRICS.filter((each) => each.path === path);

const metrics = area("[sig-instrumentation] Kubelet metrics", (should) => {
  for (const path of ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"] as const) {
    should(
      `have the published types and labels at ${path}`,
      async (t) => {
        const containers = [{ ...t.sh(STAYS), readinessProbe: { exec: { command: ["/bin/true"] }, periodSeconds: 1 } }];
        const pod = await t.start({ containers });
        await pod.ready();
        const text = await t.api.text(proxy(t, path));
        const types = typesOf(text);
        const known = published(path).filter(({ name }) => types.has(name));
        assert.ok(known.length > 0, text.slice(0, 2_000));
        for (const { name, type, labels } of known) {
          if (type !== "") assert.equal(types.get(name), type, name);
          for (const own of labelsOf(text, name)) assert.equal(own, labels.join(), name);
        }
        const lacking = published(path).filter(
          ({ stability, name }) => stability === "STABLE" && !types.has(name) && absenceOf(name) === undefined,
        );
        assert.deepEqual(
          lacking.map(({ name }) => name),
          [],
        );
      },
      METRICS,
    );
  }

  should(
    "have those of a container",
    async (t) => {
      const pod = await t.start({ containers: [t.sh(STAYS)] });
      await pod.running();
      const text = await t.api.text(proxy(t, "/metrics/resource"));
      const labels = `container="test",namespace="${t.namespace}",pod="${pod.name}"`;
      assert.ok(text.includes(`container_memory_working_set_bytes{${labels}}`), text.slice(0, 2_000));
      assert.ok(text.includes(`container_cpu_usage_seconds_total{${labels}}`));
      assert.match(text, /^node_cpu_usage_seconds_total /m);
    },
    METRICS,
  );
});

export const kubeletApiTests: readonly ConformanceTest[] = [...api, ...metrics];
