/** Puts updates together: loaded with the first that is asked for. */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { ignore } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { DEFAULT_PULL_LIMITS, type RegistryAccess } from "@picolet/runtime-wasm/shared/messages/pull-request.ts";
import { endpointsOf } from "@picolet/runtime-wasm/shared/oci/registries.ts";
import type { NodeShutdownControl } from "../../core/node/node-shutdown-control.ts";
import { DurableFolderOnDisk } from "../../security/durable-folder.ts";
import { BOOT_CHECK, type BoardSoftware } from "../../updates/board-software.ts";
import { installedPackageVersion } from "../../updates/package-version.ts";
import { runUpdateTask } from "../../updates/update-child.ts";
import { UpdateFiles } from "../../updates/update-files.ts";
import { HOLD_FOLDER } from "../../updates/update-holds.ts";
import { Updates, type UpdatesComponents } from "../../updates/updates.ts";
import type { AgentBase } from "../base/agent-base.ts";
import { DEFAULT_CONFIG_PATH } from "../node/default-places.ts";
import type { NodeAgentView } from "../node/node-agent-view.ts";
import { systemctl } from "../node/systemctl.ts";
import type { Pods } from "../pods/make-pods.ts";
import { registriesOf, registryProxies } from "../pods/runtimes.ts";

export interface UpdatesParts {
  readonly pods: Pods;
  readonly view: NodeAgentView;
  readonly shutdown: NodeShutdownControl;
}

const KEYS_FOLDER = "update-keys";
const UNIT = "picolet-boot-check.service";
/** Bounds the program: Node's own 43 MiB, and a package that is verified as a whole. */
const MEMORY_LIMIT_BYTES = 320 * MEBIBYTE;
/** Only there to end one that hangs: 250 MiB at 1 KiB a second take three days. */
const TASK_LIMIT = seconds(7 * 24 * 3600);
const DEBIAN_ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };

/** @param directory the folder of updates */
export async function makeUpdates(
  base: AgentBase,
  { view, pods, shutdown }: UpdatesParts,
  { directory, software }: { readonly directory: string; readonly software: BoardSoftware },
): Promise<Updates> {
  const { ports, init, store, decisions, cluster } = base;
  const { configuration, args } = init;
  const configurationPath = args.configPath ?? DEFAULT_CONFIG_PATH;
  return new Updates(
    {
      files: new UpdateFiles({ folder: new DurableFolderOnDisk({ path: directory }), log: ports.log }),
      node: cluster.node,
      pods: () => view.pods(),
      conditions: () => view.node().conditions,
      tunnel: () => view.tunnel(),
      flash: () => view.flash(),
      access: registryAccess(base, pods),
      runTask: taskRunner(base),
      startCheck: (signal) => systemctl(["start", "--no-block", UNIT], { signal }),
      ...{ ...ports, shutdown, events: store.events, decisions },
    },
    {
      nodeName: configuration.nodeName,
      agentVersion: VERSION,
      packageVersion: (await installedPackageVersion()) ?? VERSION,
      architecture: DEBIAN_ARCHITECTURES[process.arch] ?? process.arch,
      ...{ software, directory, configurationPath },
      keysDirectory: join(dirname(configurationPath), KEYS_FOLDER),
      holdFolder: HOLD_FOLDER,
      runsNextConfiguration: isSame(configurationPath, join(directory, "next.yaml")),
      check: textAt(BOOT_CHECK) ?? "",
      ...configuration.updates,
    },
  );
}

/** With the node's own credentials, as for an image that no pod's secret is for. */
function registryAccess({ ports, init }: AgentBase, { images }: Pods): UpdatesComponents["access"] {
  const { wasm } = init.configuration;
  return async ({ domain, repository }, signal): Promise<RegistryAccess> => {
    const owner = { namespace: "", secrets: [], pod: undefined };
    const failed = ignore("the registry is asked without it, and names what it needs");
    const [found] = await images.credentials.lookUp({ domain, repository }, owner, failed, signal);
    return {
      repository,
      endpoints: endpointsOf(domain, registriesOf(wasm)),
      proxies: registryProxies(wasm.proxy, process.env, ports.log),
      credentials: found?.credentials,
      credentialsFrom: found === undefined ? undefined : "this node",
      limits: DEFAULT_PULL_LIMITS,
    };
  };
}

function taskRunner({ ports, init, node }: AgentBase): UpdatesComponents["runTask"] {
  const program = {
    ...{ nodePath: process.execPath, timeout: TASK_LIMIT, memoryLimitBytes: MEMORY_LIMIT_BYTES },
    programPath: join(dirname(process.argv[1] ?? ""), "picolet-update.cjs"),
    cgroupPath: join("/", init.configuration.cgroupRoot, "picolet-update"),
  };
  const child = { clock: ports.clock, cgroups: node.cgroups };
  return (task, onInstalling, signal) => runUpdateTask(child, program, task, onInstalling, signal);
}

function textAt(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/** Read when the agent has just started: it was started with the one, if both are the same. */
function isSame(path: string, next: string): boolean {
  const text = textAt(next);
  return text !== undefined && text === textAt(path);
}
