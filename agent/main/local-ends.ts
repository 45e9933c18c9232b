/** Where this node itself can be asked: the local socket and the ports for health. */
import type { Component } from "@picolet/protocol/async/component.ts";
import type { HealthCheck } from "../api/health-port.ts";
import { HealthPort } from "../api/health-port.ts";
import { LocalApi, type LocalApiComponents, MAX_STREAMS } from "../api/local-api.ts";
import { runSystemdNotify, ServiceNotify, serviceNotifyInit } from "../node/service-notify.ts";
import { type AgentFacts, checkProblem, HEALTH_CHECKS, judgeAgent } from "../plan/node/judge-node.ts";
import type { AgentBase } from "./base/agent-base.ts";
import type { NodeBoardServices } from "./base/node-board-services.ts";
import type { NodeStreamsOnDemand } from "./base/node-streams-on-demand.ts";
import type { NodeDevices } from "./devices/node-devices.ts";
import { makeKubeletPort } from "./kubelet/make-kubelet-port.ts";
import type { NodeAgentView } from "./node/node-agent-view.ts";
import type { Pods } from "./pods/make-pods.ts";
import { pushedPods } from "./pods/pod-sources.ts";

export interface LocalServersComponents
  extends Required<Pick<LocalApiComponents, "logs" | "shutdown" | "updates" | "why">> {
  readonly view: NodeAgentView;
  readonly pods: Pods;
  readonly boardServices: NodeBoardServices;
  readonly devices: NodeDevices;
  readonly streams: NodeStreamsOnDemand;
}

/** Answers under way at the read-only port. A further one gets 429. */
const MAX_READERS = 8;

export function makeLocalServers(base: AgentBase, components: LocalServersComponents): readonly Component[] {
  const { clock, log } = base.ports;
  const { healthzPort, healthzBindAddress, readOnlyPort, address } = base.init.configuration;
  const { pods, boardServices, view, logs, shutdown, updates, streams, why, devices } = components;
  const pushed = pushedPods(base);
  const api = new LocalApi(
    {
      ...{ clock, log, view, logs, shutdown, updates, why, images: pods.images.images },
      pushed,
      workers: pods.workers,
      factoryReset: async () => {
        const [{ resetToFactory }, { systemctl }] = await Promise.all([
          import("./node/factory-reset.ts"),
          import("./node/systemctl.ts"),
        ]);
        await resetToFactory({ systemctl });
      },
      devices: async () => {
        const { deviceReports } = await import("./devices/device-reports.ts");
        return deviceReports(devices.list(), base.init.configuration.devices, view.pods());
      },
      keyvalue: () => boardServices.keyvalueBuckets(),
      streams: streams.handlers(MAX_STREAMS),
    },
    { socketPath: base.init.args.socketPath },
  );
  const checks = healthChecks(() => view.facts());
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

/** The checks of `/healthz`. An answer shows that the agent's single thread is not blocked. */
export const healthChecks = (facts: () => AgentFacts): readonly HealthCheck[] =>
  HEALTH_CHECKS.map((name) => ({ name, problem: () => checkProblem(judgeAgent(facts()), name) }));
