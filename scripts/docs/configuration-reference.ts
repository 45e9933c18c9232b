/** docs/configuration.md. Pure. */
import type { FieldGroup } from "@picolet/agent/config/field-documentation.ts";
import { labelOf } from "@picolet/agent/config/kubelet-flag-values.ts";
import { effectOf, type IdleFlag, isSetting, type KubeletFlag } from "@picolet/agent/config/kubelet-flags.ts";
import type { Program } from "@picolet/protocol/command-line/program.ts";
import type { FieldDescription } from "@picolet/protocol/local-api/field-description.ts";
import { code, flagTable, prose, table } from "./markdown.ts";

const INTRODUCTION = `# Configuration

<!-- Made by \`npm run docs\` of the agent's table of fields and of the programs' tables of flags: do not edit. -->

The agent reads \`/etc/picolet/config.yaml\`, or the file that \`--config\` names: YAML or JSON, a
KubeletConfiguration (\`kubelet.config.k8s.io/v1beta1\`) of Kubernetes 1.34 with picolet's own fields beside the
kubelet's. Without a file all values are defaults. An unknown field, a value of another type or out of its range is
refused: the agent prints every problem with its line and exits with 78. \`picolet --check-config\` only checks the
file. [Flags of the kubelet](#the-kubelets-flags) win over it.

\`edgectl config\` shows what is in force and where each value comes from. \`edgectl explain FIELD\` shows the entry of a
field on the board.

- A **duration** is written as Go writes it: \`20s\`, \`1m30s\`, \`4h\`.
- A **size** is a Kubernetes quantity of bytes: \`64Mi\`, \`1Gi\`, \`1048576\`.
- An empty value (\`""\`, \`0\`, \`0s\`) stands for the default, as in the kubelet, unless the entry gives it a meaning.
`;

interface ConfigurationReferenceInit {
  readonly fields: readonly FieldDescription[];
  readonly groups: readonly FieldGroup[];
  /** Whose flags are listed after the fields. */
  readonly programs: readonly Program[];
  readonly kubeletFlags: readonly KubeletFlag[];
}

export function configurationReference({ fields, groups, programs, kubeletFlags }: ConfigurationReferenceInit): string {
  const paths = groups.flatMap((group) => Object.keys(group.fields));
  const ignored = paths.flatMap((path) => fields.filter((each) => each.path === path && !each.isActedUpon));
  const chapters = groups.flatMap(({ title, fields: own }) => {
    // In the order of the documentation, which puts first what most boards set.
    const rows = Object.keys(own).flatMap((path) => fields.filter((each) => each.path === path && each.isActedUpon));
    return rows.length === 0 ? [] : [`## ${title}\n\n${fieldTable(rows)}\n`];
  });
  return [
    INTRODUCTION,
    ...chapters,
    `## Accepted and not acted upon\n\nA kubelet's file is taken as it is. When one of these says something else than its default, the agent's start and\n\`--check-config\` report it.\n\n${fieldTable(ignored)}\n`,
    ...programs.map(flagsOf),
    kubeletChapter(kubeletFlags),
  ].join("\n");
}

export const fieldTable = (fields: readonly FieldDescription[]): string =>
  table(
    ["field", "type", "default", "meaning"],
    fields.map(({ path, type, default: byDefault = "", meaning }) => [
      code(path),
      prose(type),
      byDefault.includes(" ") ? prose(byDefault) : code(byDefault),
      prose(meaning),
    ]),
  );

function flagsOf({ name, commands, globals, defaultWords }: Program): string {
  const main = commands.find(({ words }) => words.join(" ") === defaultWords?.join(" "));
  return `## Flags of ${name}\n\n${flagTable([...(main?.flags ?? []), ...globals].filter(({ group }) => group === undefined))}\n`;
}

const KUBELET_FLAGS_INTRODUCTION = `picolet takes the flags of a kubelet of Kubernetes 1.34 by name. A flag wins over the file; of feature gates the file's
stay that no flag names. Where the kubelet calls a flag deprecated, the agent's start says so, and names the field. A
wrong value is reported with the flag, and the agent exits with 78. \`--config\`, \`--root-dir\`, \`--help\` and
\`--version\` are the kubelet's too.
`;

/** Lists the field that each flag sets; then the flags that set nothing, by reason. */
function kubeletChapter(flags: readonly KubeletFlag[]): string {
  const rows = flags
    .filter(isSetting)
    .map((flag) => [
      code(`--${flag.name}`),
      code(labelOf(flag.form)),
      code(flag.field),
      flag.isOwn ? "none: the kubelet has the field alone" : flag.isCurrent ? "current" : "deprecated",
    ]);
  const idle = flags.filter((each): each is IdleFlag => !isSetting(each));
  const byReason = Map.groupBy(idle, (flag) => `${effectOf(flag)}: ${flag.instead}`);
  const reasons = [...byReason].map(([reason, members]) => [
    members.map(({ name }) => code(`--${name}`)).join(", "),
    prose(reason),
  ]);
  return [
    `## The kubelet's flags\n`,
    KUBELET_FLAGS_INTRODUCTION,
    `${table(["flag", "value", "field", "in the kubelet"], rows)}\n`,
    `These set nothing. The agent's start names the ones that it accepts without effect.\n`,
    `${table(["flags", "what to do instead"], reasons)}\n`,
  ].join("\n");
}
