/** `edgectl wasm check`: what a component wants, and whether a node would run it as this pod. */
import { stat } from "node:fs/promises";
import { describeError, PicoletError } from "@picolet/protocol/errors.ts";
import type { ComponentReport, ComponentToolRequest } from "@picolet/protocol/local-api/component-tool-messages.ts";
import { shapeOf } from "@picolet/runtime-wasm/adapter/images/component-blobs.ts";
import type { ComponentShape } from "@picolet/runtime-wasm/shared/binary/component-shape.ts";
import { sha256OfFile } from "@picolet/runtime-wasm/shared/files/durable-files.ts";
import { exportsHandler, exportsRun, ungrantedImports } from "@picolet/runtime-wasm/shared/grants/import-grants.ts";
import { type PodGrants, podGrants } from "@picolet/runtime-wasm/shared/grants/pod-grants.ts";
import { ToolRuntime } from "./tool-runtime.ts";

export async function checkComponent(request: ComponentToolRequest, signal: AbortSignal): Promise<ComponentReport> {
  const { file } = request;
  const { sizeBytes, sha256 } = await contentOf(file);
  const problems: string[] = [];
  let shape: ComponentShape = { imports: [], exports: [] };
  let grants: PodGrants | undefined;
  const onGrants = (ofPod: PodGrants): void => {
    grants = ofPod;
  };
  try {
    shape = shapeOf(file, sizeBytes);
    await wouldStart(request, onGrants, signal);
  } catch (error) {
    problems.push(describeError(error));
  }
  const asksHttp = grants?.network !== undefined || isServed(shape, grants);
  const ungranted = new Set(ungrantedImports(shape.imports, grants?.interfaces, asksHttp));
  return {
    file,
    sizeBytes,
    digest: `sha256:${sha256}`,
    imports: shape.imports.map((name) => ({ name, granted: !ungranted.has(name) })),
    exports: shape.exports,
    runs: problems.length === 0,
    problems,
  };
}

/** @returns whether it would be served if it had a port. Its outgoing requests are judged one by one. */
const isServed = ({ exports }: ComponentShape, grants: PodGrants | undefined): boolean =>
  exportsHandler(exports) && (!exportsRun(exports) || grants?.http !== undefined);

/** @param onGrants called with the pod's grants before they are compared with the component's imports */
async function wouldStart(
  request: ComponentToolRequest,
  onGrants: (grants: PodGrants) => void,
  signal: AbortSignal,
): Promise<void> {
  await using runtime = await ToolRuntime.create(request, signal);
  onGrants(podGrants(runtime.desired.pod));
  await runtime.adapter.check(runtime.desired, runtime.launch, signal);
}

async function contentOf(file: string): Promise<{ readonly sizeBytes: number; readonly sha256: string }> {
  try {
    const stats = await stat(file);
    if (!stats.isFile()) throw new PicoletError("invalid", "it is no file");
    return { sizeBytes: stats.size, sha256: await sha256OfFile(file) };
  } catch (error) {
    throw new PicoletError("invalid", `cannot read ${file}`, { cause: error });
  }
}

/** For people. */
export function reportText(report: ComponentReport): string {
  const { file, sizeBytes, digest, imports, exports, runs, problems } = report;
  const kibibytes = (sizeBytes / 1024).toFixed(1);
  const lines = [`${file}: ${kibibytes} KiB, ${digest}`];
  if (imports.length > 0) lines.push("imports");
  for (const { name, granted } of imports) lines.push(`  ${name}${granted ? "" : "  (not granted)"}`);
  if (exports.length > 0) lines.push("exports", ...exports.map((name) => `  ${name}`));
  lines.push(runs ? "This node would run it." : "This node would not run it:", ...problems.map((each) => `  ${each}`));
  return `${lines.join("\n")}\n`;
}
