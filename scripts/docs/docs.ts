/**
 * `npm run docs`: makes docs/configuration.md and docs/edgectl.md, which are committed, and man pages, completions and the
 * data of `edgectl explain` in dist/, of the tables of programs and fields.
 *
 * --check  writes nothing and leaves with 1 when the committed ones are not what it would write: `npm run check` does that
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { EDGECTL } from "@picolet/agent/cli/commands.ts";
import { SCRIPT_NAMES, SHELLS } from "@picolet/agent/cli/context/completion-scripts.ts";
import { CONFIGURATION_FIELDS } from "@picolet/agent/config/configuration-fields.ts";
import { describeFields } from "@picolet/agent/config/field-descriptions.ts";
import { FIELD_DOCUMENTATION, FIELD_GROUPS } from "@picolet/agent/config/field-documentation.ts";
import { PICOLET } from "@picolet/agent/main/program.ts";
import { HUB } from "@picolet/hub/main/program.ts";
import { FIELD_DESCRIPTIONS_FILE } from "@picolet/protocol/local-api/field-description.ts";
import { VERSION } from "@picolet/protocol/version.ts";
import { readOptions } from "../start/options.ts";
import { commandReference } from "./command-reference.ts";
import { configurationReference } from "./configuration-reference.ts";
import { manPage } from "./man-page.ts";

const PROGRAMS = [EDGECTL, PICOLET, HUB];
const FIELDS = describeFields(CONFIGURATION_FIELDS, FIELD_DOCUMENTATION);

/** Texts by path. */
type Files = ReadonlyMap<string, string>;

const committed = (): Files =>
  new Map([
    [
      "docs/configuration.md",
      configurationReference({ fields: FIELDS, groups: FIELD_GROUPS, programs: [PICOLET, HUB] }),
    ],
    ["docs/edgectl.md", commandReference(EDGECTL)],
  ]);

function built(): Files {
  const pages = PROGRAMS.map((program) => {
    const others = PROGRAMS.filter((each) => each !== program);
    const folder = `dist/man/man${program.section}`;
    return [`${folder}/${program.name}.${program.section}`, manPage(program, { version: VERSION, others })] as const;
  });
  const scripts = Object.entries(SCRIPT_NAMES).map(
    ([shell, name]) => [`dist/completions/${shell}/${name}`, SHELLS.get(shell) ?? ""] as const,
  );
  return new Map([...pages, ...scripts, [`dist/${FIELD_DESCRIPTIONS_FILE}`, `${JSON.stringify(FIELDS)}\n`]]);
}

/** What `npm run build` needs of it. */
export const writeBuiltDocuments = (): void => writeAll(built());

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
      console.error(`${names} is not what the tables of commands and fields say; run npm run docs`);
      process.exit(1);
    }
  } else {
    writeAll(committed());
    writeBuiltDocuments();
  }
}
