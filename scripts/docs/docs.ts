/**
 * `npm run docs`: makes docs/configuration.md, docs/hub-configuration.md, docs/edgectl.md, docs/hub-api.md,
 * docs/kinds.md, docs/metrics.md and docs/picolet-yaml.md, which are committed. The build takes man pages, completions
 * and the data of `edgectl explain` from here too. All are made of tables in the code.
 *
 * --check writes nothing and leaves with 1 when the committed ones are not what it would write: `npm run check` does
 * that
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { EDGECTL } from "@picolet/agent/cli/commands.ts";
import { SCRIPT_NAMES, SHELLS } from "@picolet/agent/cli/context/completion-scripts.ts";
import { CONFIGURATION_FIELDS } from "@picolet/agent/config/configuration-fields.ts";
import { describeFields } from "@picolet/agent/config/field-descriptions.ts";
import { FIELD_DOCUMENTATION, FIELD_GROUPS } from "@picolet/agent/config/field-documentation.ts";
import { KUBELET_FLAGS } from "@picolet/agent/config/kubelet-flags.ts";
import { PICOLET } from "@picolet/agent/main/node/agent-program.ts";
import { PROBE_METRICS, RESOURCE_METRICS } from "@picolet/agent/metrics/agent-metrics.ts";
import { CADVISOR_METRICS } from "@picolet/agent/metrics/cadvisor-metrics.ts";
import { KUBELET_METRICS } from "@picolet/agent/metrics/kubelet-metrics.ts";
import { BOARD_FILE_TEMPLATE, exampleOf } from "@picolet/firmware/first-boot/board-file-template.ts";
import { BOARD_FILE_DOCUMENTATION, BOARD_FILE_FIELDS } from "@picolet/firmware/first-boot/plan/board-file-fields.ts";
import { HUB_FIELDS } from "@picolet/hub/main/configuration-file.ts";
import { HUB } from "@picolet/hub/main/program.ts";
import type { UsageObjects } from "@picolet/hub-core/usage-objects.ts";
import type { ResourceDefinition } from "@picolet/hub-embedded/api/resource-definition.ts";
import { embeddedResources } from "@picolet/hub-embedded/embedded-resources.ts";
import { usageResources } from "@picolet/hub-embedded/resources/usage-resources.ts";
import { servedResources } from "@picolet/hub-embedded/server/served-resources.ts";
import type { Program } from "@picolet/protocol/command-line/program.ts";
import { FIELD_DESCRIPTIONS_FILE } from "@picolet/protocol/local-api/field-description.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { readOptions } from "../options.ts";
import { boardFileReference } from "./board-file-reference.ts";
import { commandReference } from "./command-reference.ts";
import { completionScripts } from "./completion-scripts.ts";
import { configurationReference } from "./configuration-reference.ts";
import { helmChart, prometheusRule } from "./helm-chart.ts";
import { hubApiReference } from "./hub-api-reference.ts";
import { hubConfigurationReference } from "./hub-configuration-reference.ts";
import { kindsReference } from "./kinds-reference.ts";
import { manPage } from "./man-page.ts";
import { type MetricsPath, metricsReference } from "./metrics-reference.ts";

const PROGRAMS = [EDGECTL, PICOLET, HUB];
const FIELDS = describeFields(CONFIGURATION_FIELDS, FIELD_DOCUMENTATION);

const METRICS: readonly MetricsPath[] = [
  { path: "/metrics", what: "The kubelet, its process and the board.", metrics: KUBELET_METRICS },
  {
    path: "/metrics/cadvisor",
    what:
      "The cgroups of the node, of pods and of containers, and the machine. Components that share a process have no\n" +
      "cgroup: `/metrics/resource` has them.",
    metrics: CADVISOR_METRICS,
  },
  { path: "/metrics/resource", what: "What metrics-server reads.", metrics: RESOURCE_METRICS },
  { path: "/metrics/probes", what: "Results of probes.", metrics: PROBE_METRICS },
];

const NO_USAGE: UsageObjects = { node: () => undefined, nodes: () => [], pod: () => undefined, pods: () => [] };

const servedByHub = (): readonly ResourceDefinition[] => {
  const stored = embeddedResources({ serviceAccountTokens: true });
  return servedResources([...stored, ...usageResources(NO_USAGE)], () => {
    throw new TypeError("no review is answered while resources are listed");
  });
};

/** Texts by path. */
type Files = ReadonlyMap<string, string>;

/** The references and the chart of the hub, which are committed. */
export const committed = (): Files =>
  new Map([
    [
      "docs/configuration.md",
      configurationReference({
        fields: FIELDS,
        groups: FIELD_GROUPS,
        programs: [PICOLET, HUB],
        kubeletFlags: KUBELET_FLAGS,
      }),
    ],
    ...[...helmChart((name) => readFileSync(`hub/deploy/${name}`, "utf8"))].map(
      ([path, text]) => [`hub/deploy/chart/${path}`, text] as const,
    ),
    [
      "hub/deploy/monitoring/prometheus-rule.yaml",
      prometheusRule(readFileSync("hub/deploy/monitoring/rules.yaml", "utf8")),
    ],
    ["docs/edgectl.md", commandReference(EDGECTL)],
    ["docs/hub-configuration.md", hubConfigurationReference(HUB_FIELDS)],
    [
      "docs/picolet-yaml.md",
      boardFileReference({
        fields: describeFields(BOARD_FILE_FIELDS, BOARD_FILE_DOCUMENTATION),
        example: exampleOf(readFileSync(BOARD_FILE_TEMPLATE, "utf8")),
      }),
    ],
    ["docs/hub-api.md", hubApiReference(servedByHub())],
    ["docs/kinds.md", kindsReference(servedByHub())],
    ["docs/metrics.md", metricsReference(METRICS)],
  ]);

function manPages(programs: readonly Program[]): Files {
  const pages = programs.map((program) => {
    const others = PROGRAMS.filter((each) => each !== program);
    const path = `share/man/man${program.section}/${program.name}.${program.section}`;
    return [path, manPage(program, { version: VERSION, others })] as const;
  });
  return new Map(pages);
}

/** Completions of a program that no program answers. */
const completions = (program: Program): Files =>
  new Map(
    [...completionScripts(program)].map(([shell, [file, script]]) => [`share/completions/${shell}/${file}`, script]),
  );

/** Man pages, completions and descriptions of fields that a board carries, by path below its folder. */
export function boardDocuments(): Files {
  const scripts = Object.entries(SCRIPT_NAMES).map(
    ([shell, name]) => [`share/completions/${shell}/${name}`, SHELLS.get(shell) ?? ""] as const,
  );
  const fields = [`lib/${FIELD_DESCRIPTIONS_FILE}`, `${JSON.stringify(FIELDS)}\n`] as const;
  return new Map([...manPages([EDGECTL, PICOLET]), ...scripts, ...completions(PICOLET), fields]);
}

/** The man page and the completions that a hub carries. */
export const hubDocuments = (): Files => new Map([...manPages([HUB]), ...completions(HUB)]);

function writeAll(files: Files): void {
  for (const [path, text] of files) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
}

if (import.meta.main) {
  const input = readOptions({
    name: "docs",
    summary: "makes references, man pages and completions of the tables of commands and fields",
    flags: [{ name: "check", help: "write nothing; leave with 1 when a committed reference is not up to date" }],
  });
  if (input.flag("check")) {
    const drifted = [...committed()].filter(([path, text]) => !existsSync(path) || readFileSync(path, "utf8") !== text);
    if (drifted.length > 0) {
      const names = drifted.map(([path]) => path).join(", ");
      console.error(`${names} is not what the tables of the code say; run npm run docs`);
      process.exit(1);
    }
  } else {
    writeAll(committed());
  }
}
