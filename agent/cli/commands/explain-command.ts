import { type Arguments, didYouMean } from "@picolet/protocol/command-line/command-line.ts";
import type { FieldDescription } from "@picolet/protocol/local-api/field-description.ts";
import { readFields } from "../context/configuration-fields.ts";
import { type Context, widthOf } from "../context/context.ts";
import { EXIT_HEALTHY, usageError } from "../context/exit-codes.ts";
import { machineFormat, printObject } from "../context/objects.ts";
import { wrap } from "../context/text-layout.ts";

/** `edgectl explain [FIELD]`: what the fields of the agent's configuration mean. Needs no agent. */
export async function runExplain(context: Context, input: Arguments): Promise<number> {
  const fields = readFields(context.readBeside);
  const [path] = input.positionals;
  const chosen = path === undefined ? fields : withInner(fields, path);
  const format = machineFormat(input);
  await context.terminal.write(
    format === undefined ? explanation(chosen, path, widthOf(context)) : printObject(chosen, format),
  );
  return EXIT_HEALTHY;
}

/** The field and those in it. */
function withInner(fields: readonly FieldDescription[], path: string): readonly FieldDescription[] {
  // A path as problems and `edgectl config` name it: `wasm.registries[0].host`.
  const name = path.replaceAll(/\[\d+\]/g, "[]").replace(/\[\]$/, "");
  const own = fields.filter(
    (each) => each.path === name || each.path.startsWith(`${name}.`) || each.path.startsWith(`${name}[`),
  );
  if (own.length > 0) return own;
  const known = fields.map((each) => each.path);
  throw usageError(`the configuration has no field "${path}"${didYouMean(path, known, "")}`);
}

function explanation(fields: readonly FieldDescription[], path: string | undefined, width: number): string {
  if (path === undefined) {
    const shown = fields.filter((each) => each.isActedUpon && !/[.[]/.test(each.path));
    return shown
      .map((each) => `${each.path}\n    ${wrap(each.meaning, width - 4, 0).replaceAll("\n", "\n    ")}\n`)
      .join("");
  }
  return fields.map((each) => entryOf(each, width)).join("\n");
}

function entryOf({ path, type, default: byDefault, meaning, isActedUpon }: FieldDescription, width: number): string {
  const lines = [
    `${path}: ${type}`,
    ...(byDefault === undefined ? [] : [`default: ${byDefault}`]),
    ...(isActedUpon ? [] : ["accepted, and not acted upon"]),
    meaning,
  ];
  return lines.map((line, index) => `${wrap(line, width, index === 0 ? 4 : 0)}\n`).join("");
}
