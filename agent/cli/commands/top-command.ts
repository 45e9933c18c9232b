/** `edgectl top`: what the node, its pods and their containers use. */

import type { Arguments } from "@picolet/protocol/command-line/command-line.ts";
import { NEVER } from "@picolet/protocol/ports.ts";
import { INTERVAL } from "../context/command.ts";
import type { Context } from "../context/context.ts";
import { table } from "../context/context.ts";
import { EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { machineFormat, podLabel, printObject } from "../context/objects.ts";
import { Screen } from "../context/screen.ts";
import { humanBytes } from "../context/text-layout.ts";

/** The shown part of the kubelet's Summary API. */
interface Used {
  readonly cpu?: { readonly usageNanoCores?: number };
  readonly memory?: { readonly workingSetBytes?: number; readonly availableBytes?: number };
}
interface Summary {
  readonly node: Used & { readonly nodeName: string };
  readonly pods?: readonly (Used & {
    readonly podRef: { readonly name: string; readonly namespace: string };
    readonly containers?: readonly (Used & { readonly name: string })[];
  })[];
}

/** Shows it once in a pipe, for machines, or with --once. */
export async function runTop(context: Context, input: Arguments): Promise<number> {
  const format = machineFormat(input);
  const read = (): Promise<Summary> => context.client.get<Summary>("/stats/summary?only_cpu_and_memory=true");
  if (format !== undefined) {
    await context.terminal.write(printObject(await read(), format));
    return EXIT_HEALTHY;
  }
  const by = input.text("sort-by") ?? "cpu";
  if (input.flag("once") || context.terminal.columns === undefined) {
    await context.terminal.write(textOf(context, input, await read(), by));
    return EXIT_HEALTHY;
  }
  if (input.flag("no-headers")) throw usageError("--no-headers goes with --once");
  const screen = new Screen(context.terminal);
  for (;;) {
    await screen.show(textOf(context, input, await read(), by));
    await context.sleep(input.value(INTERVAL), NEVER);
  }
}

function textOf(context: Context, input: Arguments, { node, pods = [] }: Summary, by: string): string {
  const namespace = input.text("namespace");
  const shown = pods
    .filter(({ podRef }) => namespace === undefined || podRef.namespace === namespace)
    .sort((one, other) => compare(one, other, by) || (one.podRef.name < other.podRef.name ? -1 : 1));
  const rows = shown.flatMap(({ podRef, containers = [], ...used }) => [
    row(podLabel(podRef.namespace, podRef.name), used),
    ...(input.flag("containers") ? containers.map((each) => row(`  ${each.name}`, each)) : []),
  ]);
  return table(context, input, {
    headers: ["NAME", "CPU", "MEMORY"],
    rows: [row(`node ${node.nodeName}`, node), ...rows],
    nameColumns: 1,
  });
}

function compare(one: Used, other: Used, by: string): number {
  const key = ({ cpu, memory }: Used): number =>
    (by === "memory" ? memory?.workingSetBytes : cpu?.usageNanoCores) ?? -1;
  return key(other) - key(one);
}

/** CPU in thousandths of a core, as kubectl top has it; memory is the working set. */
function row(name: string, { cpu, memory }: Used): string[] {
  const nanoCores = cpu?.usageNanoCores;
  const bytes = memory?.workingSetBytes;
  return [
    name,
    nanoCores === undefined ? "-" : `${Math.ceil(nanoCores / 1e6)}m`,
    bytes === undefined ? "-" : humanBytes(bytes),
  ];
}
