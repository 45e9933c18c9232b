/** Makes the runtime adapters of this node, and detects their features. */
import { createHash } from "node:crypto";
import { realpathSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { aborted } from "@picolet/protocol/async/abort.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import { isCancelled } from "@picolet/protocol/errors.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { BoardServices } from "@picolet/runtime-contract/board-services.ts";
import type { RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { CriAdapter } from "@picolet/runtime-cri/cri-adapter.ts";
import { WasmOnDemand } from "@picolet/runtime-wasm/adapter/wasm-on-demand.ts";
import { type ProxySettings, proxiesOf, proxyProblem } from "@picolet/runtime-wasm/shared/oci/proxies.ts";
import type { RegistryConfiguration } from "@picolet/runtime-wasm/shared/oci/registries.ts";
import type { Configuration } from "../../config/configuration.ts";
import type { NodeCounts } from "../../core/node/node-counts.ts";
import { warnOfPod } from "../../core/pods/pod-warning.ts";
import { Pleg } from "../../observe/pleg.ts";
import { RuntimeReports } from "../../observe/runtime-reports.ts";
import type { OomKillLog } from "../../oom/oom-kill-log.ts";
import type { AgentBase } from "../base/agent-base.ts";
import { componentPrograms } from "../node/component-programs.ts";
import { DEFAULT_ROOT_DIR } from "../node/default-places.ts";
import { makeOomKillLog } from "./oom.ts";
import { NodeRuntimes } from "./runtime-router.ts";

export interface Runtimes {
  readonly router: NodeRuntimes;
  readonly adapters: readonly RuntimeAdapter[];
  readonly kills: OomKillLog;
  readonly pleg: Pleg;
  readonly reports: RuntimeReports;
  /** Undefined: this node has no container runtime. */
  readonly cri: CriAdapter | undefined;
}

/** The kubelet's `--seccomp-profile-root` below its root directory. */
const SECCOMP_FOLDER = "seccomp";
/** Beyond the interval of rotation: an agent that restarts, or is short of CPU time, still rotates a full log in it. */
const LOG_PATIENCE = seconds(60);

export function makeRuntimes(base: AgentBase, services: BoardServices): Runtimes {
  const { clock, random, log, counts } = base.ports;
  const kills = makeOomKillLog({ log, clock });
  const cri = containerAdapter(base, kills);
  const router = new NodeRuntimes(componentAdapter(base, services), cri);
  const { adapters } = router;
  const pleg = new Pleg({ adapters, clock, random, log, counts });
  const reports = new RuntimeReports({ adapters, relists: pleg.health, clock, log });
  return { router, adapters, kills, pleg, reports, cri };
}

function componentAdapter({ ports, init, node, store }: AgentBase, services: BoardServices): WasmOnDemand {
  const { clock, log } = ports;
  const { args, configuration } = init;
  const { wasm, cgroupRoot } = configuration;
  // The bundles lie side by side; this is one of them.
  const programs = dirname(realpathSync(process.argv[1] ?? ""));
  return new WasmOnDemand(
    {
      ...{ clock, log, cgroups: node.cgroups },
      hostIps: node.hostIps,
      warn: (pod, reason, message) => warnOfPod(store.events, pod, reason, message),
      services,
    },
    {
      rootDirectory: join(args.rootDir, "wasm"),
      // Lost at a reboot, like the processes: it is on a tmpfs beside the socket.
      stateDirectory: join(dirname(args.socketPath), "wasm"),
      nodePath: process.execPath,
      ...componentPrograms(programs),
      cgroupSettings: node.cgroupSettings,
      transpileCgroup: join("/", cgroupRoot, "picolet-transpile"),
      pullCgroup: join("/", cgroupRoot, "picolet-pull"),
      registries: registriesOf(wasm),
      caFile: wasm.http.caFile || undefined,
      p3: wasm.p3,
      logLimit: {
        maxBytes: configuration.containerLogMaxSize,
        patienceMs: configuration.containerLogMonitorInterval + LOG_PATIENCE,
      },
      proxies: registryProxies(wasm.proxy, process.env, log),
      spareCgroup: join("/", cgroupRoot, "picolet-spare"),
      denseCgroup: join("/", cgroupRoot, "picolet-dense"),
      limits: {
        maxComponentBytes: wasm.maxComponentSize,
        transpileMemoryLimitBytes: wasm.transpileMemory,
        transpileTimeout: wasm.transpileTimeout,
        startTimeout: wasm.startTimeout,
        spareRunners: wasm.spareRunners,
      },
    },
  );
}

/** Undefined: this node has no container runtime. */
function containerAdapter({ ports, init, node }: AgentBase, killed: OomKillLog): CriAdapter | undefined {
  const { clock, log, counts } = ports;
  const { args, configuration } = init;
  const { containerRuntimeEndpoint: endpoint, imageServiceEndpoint } = configuration;
  if (endpoint === "") return undefined;
  return new CriAdapter(
    { clock, log, killed, observe: (method, ms, error) => countCall(counts, method, ms, error) },
    {
      endpoint,
      ...(imageServiceEndpoint === "" ? {} : { imageEndpoint: imageServiceEndpoint }),
      owner: ownerOf(args.rootDir),
      requestTimeoutMs: configuration.runtimeRequestTimeout,
      cgroups: node.cgroupSettings,
      cgroupDriver: node.podCgroups.driver,
      memoryCapacityBytes: node.machine.memoryBytes,
      seccompProfileRoot: join(args.rootDir, SECCOMP_FOLDER),
      seccompDefault: configuration.seccompDefault,
      limitedSwap: configuration.memorySwap.swapBehavior === "LimitedSwap",
      singleProcessOomKill: configuration.singleProcessOOMKill ?? false,
    },
  );
}

/** A call that was given up is no failure of the runtime. */
function countCall(counts: NodeCounts, method: string, ms: number, error: unknown): void {
  counts.add("kubelet_runtime_operations_total", method);
  counts.observe("kubelet_runtime_operations_duration_seconds", ms, method);
  if (error !== undefined && !isCancelled(error)) counts.add("kubelet_runtime_operations_errors_total", method);
}

/**
 * Tells this agent's sandboxes from those of another on the same runtime. By the root directory, of which each agent
 * has its own: a board that is given another name must still find its pods, and `npm start` must leave a real node's
 * alone.
 */
function ownerOf(rootDir: string): string {
  if (rootDir === DEFAULT_ROOT_DIR) return "picolet";
  return `picolet-${createHash("sha256").update(resolve(rootDir)).digest("hex").slice(0, 16)}`;
}

/** An adapter's life is that of the agent; it does nothing by itself. */
export function adapterComponent(adapter: RuntimeAdapter): Component {
  return {
    name: `${adapter.name} runtime`,
    run: (signal) => aborted(signal),
    [Symbol.asyncDispose]: async () => await adapter[Symbol.asyncDispose](),
  };
}

/** Chooses the proxies for pulls of components: from the configuration, else from the agent's environment. */
export const registriesOf = ({ registries }: Configuration["wasm"]): readonly RegistryConfiguration[] =>
  registries.map(({ caFile, ...each }) => ({ ...each, caFile: caFile || undefined }));

export function registryProxies(
  configured: Configuration["wasm"]["proxy"],
  environment: Readonly<Record<string, string | undefined>>,
  log: Pick<Log, "warn">,
): ProxySettings {
  const { httpProxy = "", httpsProxy = "", noProxy = "" } = configured;
  if (`${httpProxy}${httpsProxy}${noProxy}` !== "") return { httpProxy, httpsProxy, noProxy };
  const settings = proxiesOf(environment);
  for (const name of ["httpProxy", "httpsProxy"] as const) {
    const reason = settings[name] === "" ? undefined : proxyProblem(settings[name]);
    if (reason !== undefined) log.warn("a proxy of the environment is not used", { variable: VARIABLES[name], reason });
  }
  return settings;
}

const VARIABLES = { httpProxy: "HTTP_PROXY", httpsProxy: "HTTPS_PROXY" } as const;
