/**
 * What is in a support bundle, in the order of its use to a maintainer: when the bundle is full, the last parts are
 * missing. To add a part, add its row.
 */
import { PANIC_RECORDS, panicRecords } from "@picolet/protocol/decisions/panic-records.ts";
import type { PodList, StatusAnswer } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import type { AgentClient } from "../context/agent-client.ts";
import { podPath, query } from "../context/objects.ts";
import type { BoardMachine } from "../doctor/board-machine.ts";

export interface BundleSources {
  readonly client: AgentClient;
  readonly machine: BoardMachine;
  /** The findings of `edgectl doctor`. */
  readonly examine: () => Promise<unknown>;
  /** Whose logs are wanted: `unwell`, `all` or `none`. */
  readonly podLogs: string;
}

/** Text, or an object that becomes JSON. */
export interface BundleFile {
  readonly name: string;
  readonly content: unknown;
}

export interface BundlePart {
  readonly what: string;
  /** Errors are noted in the bundle, and keep no other part from it. */
  readonly collect: (sources: BundleSources) => AsyncIterable<BundleFile> | Iterable<BundleFile>;
}

/** Bounds the agent's own log: some days of a healthy board, hours of one with much to say. */
const AGENT_LOG_LINES = 5000;
const KERNEL_LOG_LINES = 2000;
/** The newest: some 64 KiB each. */
const MOST_PANICS = 8;
const EVENTS = 1000;
/** Bounds the log of one container run. */
const LOG_LINES = 500;
const LOG_BYTES = 128 * KIBIBYTE;

export const BUNDLE_PARTS: readonly BundlePart[] = [
  { what: "the version of edgectl", collect: () => [{ name: "edgectl.json", content: { version: VERSION } }] },
  answer("status.json", "/v1/status"),
  answer("configuration.json", "/v1/config"),
  answer("pods.json", "/v1/pods"),
  answer("events.json", `/v1/events${query({ limit: EVENTS })}`),
  answer("updates.json", "/v1/updates"),
  answer("images.json", "/v1/images"),
  {
    what: "the findings of edgectl doctor",
    collect: async function* ({ examine }) {
      yield { name: "doctor.json", content: await examine() };
    },
  },
  output("agent.log", [
    "journalctl",
    "--unit=picolet",
    `--lines=${AGENT_LOG_LINES}`,
    "--no-pager",
    "--output=short-iso",
  ]),
  ...[
    ...["/etc/os-release", "/etc/picolet-release", "/proc/version", "/proc/cmdline", "/proc/uptime", "/proc/meminfo"],
    ...["/proc/cpuinfo", "/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"],
    ...["/proc/self/mountinfo", "/proc/cgroups", "/sys/fs/cgroup/cgroup.controllers", "/proc/swaps", "/proc/modules"],
    ...["/proc/diskstats", "/proc/net/dev", "/proc/net/route", "/proc/device-tree/model"],
  ].map(file),
  output("df.txt", ["df", "-k"]),
  output("inodes.txt", ["df", "-i"]),
  output("addresses.txt", ["ip", "-brief", "address"]),
  output("units.txt", ["systemctl", "--no-pager", "--full", "status", "picolet", "containerd"]),
  output("kernel.log", ["dmesg"], KERNEL_LOG_LINES),
  {
    what: "the last words of kernels",
    collect: function* ({ machine }) {
      for (const path of panicRecords(PANIC_RECORDS, machine.list).slice(-MOST_PANICS)) {
        const content = machine.read(path);
        if (content !== undefined) yield { name: `system${path}`, content };
      }
    },
  },
  { what: "the logs of pods", collect: logsOfPods },
];

function answer(name: string, path: string): BundlePart {
  return {
    what: name,
    collect: async function* ({ client }) {
      yield { name, content: await client.get<unknown>(path) };
    },
  };
}

/** Left out on boards that have no such file. */
function file(path: string): BundlePart {
  return {
    what: path,
    collect: function* ({ machine }) {
      const content = machine.read(path);
      // The kernel ends names of boards with a zero byte.
      if (content !== undefined) yield { name: `system${path}`, content: content.replaceAll("\0", "\n") };
    },
  };
}

/** Left out on boards without this program. @param lines of its end; undefined: all */
function output(name: string, [program = "", ...words]: readonly string[], lines?: number): BundlePart {
  return {
    what: name,
    collect: function* ({ machine }) {
      const text = machine.output(program, ...words);
      if (text === undefined) return;
      yield {
        name,
        content:
          lines === undefined
            ? text
            : text
                .split("\n")
                .slice(-lines - 1)
                .join("\n"),
      };
    },
  };
}

/** The end of each container's log, and that of its run before. */
async function* logsOfPods({ client, podLogs }: BundleSources): AsyncIterable<BundleFile> {
  if (podLogs === "none") return;
  const [status, pods] = [await client.get<StatusAnswer>("/v1/status"), await client.get<PodList>("/v1/pods")];
  const unwell = new Set(
    status.pods
      .filter(({ ready, phase, restarts }) => (!ready && phase !== "Succeeded") || restarts > 0)
      .map(({ namespace, name }) => `${namespace}/${name}`),
  );
  for (const pod of pods.items) {
    const { namespace, name } = pod.metadata;
    if (podLogs === "all" || unwell.has(`${namespace}/${name}`)) yield* logsOf(client, pod);
  }
}

async function* logsOf(client: AgentClient, { metadata, spec, status }: Pod): AsyncIterable<BundleFile> {
  const { namespace, name } = metadata;
  const statuses = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  for (const container of [...(spec.initContainers ?? []), ...spec.containers]) {
    const ran = statuses.find((each) => each.name === container.name);
    for (const previous of [false, true]) {
      if (ran === undefined || (previous ? ran.lastState.terminated : (ran.containerID ?? "")) === "") continue;
      if (previous && ran.lastState.terminated === undefined) continue;
      const bounds = { container: container.name, tailLines: LOG_LINES, limitBytes: LOG_BYTES, timestamps: true };
      const path = `${podPath({ namespace, name })}/log${query({ ...bounds, previous: previous || undefined })}`;
      const file = `logs/${namespace}_${name}/${container.name}${previous ? ".previous" : ""}.log`;
      yield { name: file, content: await textOf(client, path) };
    }
  }
}

/** Reads as much of it as there is; a runtime may have removed a log. */
async function textOf(client: AgentClient, path: string): Promise<string> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of (await client.stream(path)).chunks) pieces.push(piece);
  } catch (error) {
    return `${Buffer.concat(pieces).toString("utf8")}\n(${error instanceof Error ? error.message : String(error)})\n`;
  }
  return Buffer.concat(pieces).toString("utf8");
}
