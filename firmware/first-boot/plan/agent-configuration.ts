/**
 * The agent's configuration with the fields of `picolet.yaml` in it. Comments, and fields that something else has
 * written, stay; fields that an earlier `picolet.yaml` set, and this one does not, go.
 */
import { editableConfiguration } from "@picolet/agent/cli/commands/hub-configuration.ts";
import { type Document, isMap } from "yaml";
import { type Fields, isFields } from "./agent-fields.ts";
import { AGENT_CONFIGURATION } from "./places.ts";

type Path = readonly string[];

interface Edited {
  readonly text: string;
  /** The fields that were set, for the next time. */
  readonly owned: readonly Path[];
}

/** @param present "" for none; what is no YAML mapping is left out, as the agent could not have used it */
export function editedConfiguration(init: {
  readonly present: string;
  readonly owned: readonly Path[];
  readonly fields: Fields;
}): Edited {
  const document = editable(init.present);
  for (const path of init.owned) removeField(document, path);
  const leaves = [...leavesOf(init.fields, [])];
  for (const [path, value] of leaves) {
    // A scalar in the place of a mapping gives way to it.
    for (let depth = 1; depth < path.length; depth += 1) {
      const above = path.slice(0, depth);
      if (!isMap(document.getIn(above))) document.setIn(above, document.createNode({}));
    }
    document.setIn(path, document.createNode(value));
  }
  return { text: document.toString(), owned: leaves.map(([path]) => path) };
}

function editable(present: string): Document {
  try {
    return editableConfiguration(present, AGENT_CONFIGURATION);
  } catch {
    return editableConfiguration("", AGENT_CONFIGURATION);
  }
}

/** Mappings that it leaves empty go too. */
function removeField(document: Document, path: Path): void {
  for (let depth = path.length; depth > 0; depth -= 1) {
    const at = path.slice(0, depth);
    const there: unknown = document.getIn(at);
    if (depth < path.length && !(isMap(there) && there.items.length === 0)) return;
    if (document.hasIn(at)) document.deleteIn(at);
  }
}

/** An empty mapping is a value too. */
function* leavesOf(value: Fields, path: Path): Generator<readonly [Path, unknown]> {
  for (const [key, inner] of Object.entries(value)) {
    const at = [...path, key];
    if (isFields(inner) && Object.keys(inner).length > 0) yield* leavesOf(inner, at);
    else yield [at, inner];
  }
}
