/** Where this node itself can be asked: the local socket and the ports for health. */
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { HealthCheck } from "../api/health-port.ts";
import { HealthPort } from "../api/health-port.ts";
import { LocalApi, type LocalApiComponents, MAX_STREAMS } from "../api/local-api.ts";
import type { RuntimeHealth } from "../core/node/runtime-health.ts";
import { runSystemdNotify, ServiceNotify, serviceNotifyInit } from "../node/service-notify.ts";
import type { StoreState } from "../store/store-file.ts";
import type { AgentBase } from "./base/agent-base.ts";
import type { NodeBoardServices } from "./base/node-board-services.ts";
import type { NodeStreamsOnDemand } from "./base/node-streams-on-demand.ts";
import { makeKubeletPort } from "./kubelet/make-kubelet-port.ts";
import type { NodeAgentView } from "./node/node-agent-view.ts";
import type { Pods } from "./pods/make-pods.ts";
import { pushedPods } from "./pods/pod-sources.ts";
import type { Runtimes } from "./pods/runtimes.ts";

export interface LocalServersComponents extends Required<Pick<LocalApiComponents, "logs" | "shutdown" | "updates">> {
  readonly view: NodeAgentView;
  readonly runtimes: Runtimes;
  readonly pods: Pods;
  readonly boardServices: NodeBoardServices;
  readonly streams: NodeStreamsOnDemand;
}

/** Answers under way at the read-only port. A further one gets 429. */
const MAX_READERS = 8;

export function makeLocalServers(base: AgentBase, components: LocalServersComponents): readonly Component[] {
  const { clock, log } = base.ports;
  const { healthzPort, healthzBindAddress, readOnlyPort, address } = base.init.configuration;
  const { runtimes, pods, boardServices, view, logs, shutdown, updates, streams } = components;
  const { desired, state } = base.store;
  const pushed = pushedPods(base);
  const api = new LocalApi(
    {
      ...{ clock, log, view, logs, shutdown, updates, images: pods.images.images },
      pushed,
      keyvalue: () => boardServices.keyvalueBuckets(),
      streams: streams.handlers(MAX_STREAMS),
    },
    { socketPath: base.init.args.socketPath },
  );
  const checks = healthChecks({
    runtimes: runtimes.reports.health,
    store: state,
    wantedPods: () => desired.desired.current.pods.size,
    workers: () => pods.workers.size,
  });
  const healthz = new HealthPort({ checks, clock, log }, { address: healthzBindAddress, port: healthzPort });
  const readOnly = new HealthPort(
    { checks, streams: streams.handlers(MAX_READERS), clock, log },
    { address, port: readOnlyPort },
  );
  const service = serviceNotifyInit(process.env, process.pid);
  return [
    api,
    ...(service === undefined
      ? []
      : [
          new ServiceNotify(
            {
              ready: () => api.listen(),
              // A runtime or a store that fails is no better after a restart.
              problem: () => checks.find(({ name }) => name === "syncloop")?.problem(),
              notify: runSystemdNotify,
              ...{ clock, log },
            },
            service,
          ),
        ]),
    ...makeKubeletPort(base, { streams, pushed }),
    ...(healthzPort === 0 ? [] : [healthz]),
    ...(readOnlyPort === 0 ? [] : [readOnly]),
  ];
}

export interface HealthSources {
  /** Joined with what the runtimes say of themselves. */
  readonly runtimes: Watch<readonly RuntimeHealth[]>;
  readonly store: Watch<StoreState>;
  readonly wantedPods: () => number;
  readonly workers: () => number;
}

const PLEG_REASON = "PLEGNotHealthy";

/** The checks of `/healthz`. An answer shows that the agent's single thread is not blocked. */
export function healthChecks({ runtimes, store, wantedPods, workers }: HealthSources): readonly HealthCheck[] {
  const failing = (isPleg: boolean): string | undefined => {
    const ill = runtimes.current.filter(({ healthy, reason }) => !healthy && (reason === PLEG_REASON) === isPleg);
    return ill.length === 0 ? undefined : ill.map(({ name, message }) => `${name}: ${message}`).join(", ");
  };
  return [
    { name: "ping", problem: () => undefined },
    { name: "PLEG", problem: () => failing(true) },
    {
      name: "runtime",
      problem: () => (runtimes.current.length === 0 ? "no runtime has answered yet" : failing(false)),
    },
    { name: "store", problem: () => storeProblem(store.current) },
    {
      name: "syncloop",
      problem: () => {
        const idle = wantedPods() - workers();
        return idle > 0 ? `${idle} wanted pods have no worker` : undefined;
      },
    },
  ];
}

function storeProblem(state: StoreState): string | undefined {
  if (state.kind === "durable") return undefined;
  return `${state.kind === "unwritable" ? "cannot be written to" : "is in memory only"}: ${state.reason}`;
}
