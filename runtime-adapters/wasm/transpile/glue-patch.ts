/**
 * The driver of the patches of jco's glue. `generated-script.ts` lists the tables of patches; nothing else changes the
 * glue. jco's text is no interface: it can change with each version. A patch that does not match any more is reported
 * by its name, and its `onMiss` says what happens to the component.
 */

/** Consequence of a patch that does not match. */
type OnMiss =
  /** The component is refused, because it would behave incorrectly. */
  | "refuse"
  /** The whole list is skipped: the component runs with jco's own text, which takes more memory and time. */
  | "leave list"
  /** This patch alone is skipped, with the same cost. */
  | "leave patch";

interface Named {
  /** Names the part of jco's text that it changes. */
  readonly name: string;
  readonly why: string;
  readonly onMiss: OnMiss;
}

/** Replaces text. It must match, unless `ifThere` or `gone` allows otherwise. */
interface Replacement extends Named {
  readonly form: RegExp;
  readonly by: string | ((...groups: string[]) => string);
  /** It must match only where the text contains this: glue contains what its component uses. */
  readonly ifThere?: string;
  /** It need not match, but this must not be left afterwards. */
  readonly gone?: RegExp;
}

/** Changes text in a way that takes more than a replacement. */
interface Pass extends Named {
  /** @returns undefined: it does not match @throws RangeError likewise */
  readonly apply: (text: string) => string | undefined;
}

export type GluePatch = Replacement | Pass;

export interface Patched {
  readonly text: string;
  /** Names of the patches that did not match. */
  readonly missed: readonly string[];
  /** The worst consequence among them. */
  readonly outcome: "whole" | OnMiss;
}

const WORSE: readonly Patched["outcome"][] = ["whole", "leave patch", "leave list", "refuse"];

/** Applies all patches in order; one that does not match leaves the text unchanged. */
export function patched(source: string, patches: readonly GluePatch[]): Patched {
  const missed: string[] = [];
  let text = source;
  let outcome: Patched["outcome"] = "whole";
  for (const patch of patches) {
    const changed = "apply" in patch ? applied(patch, text) : replaced(patch, text);
    if (changed !== undefined) {
      text = changed;
      continue;
    }
    missed.push(patch.name);
    if (WORSE.indexOf(patch.onMiss) > WORSE.indexOf(outcome)) outcome = patch.onMiss;
  }
  return { text, missed, outcome };
}

function replaced({ form, by, ifThere, gone }: Replacement, text: string): string | undefined {
  if (ifThere !== undefined && !text.includes(ifThere)) return text;
  const changed = text.replace(form, by as string);
  if (gone !== undefined) return gone.test(changed) ? undefined : changed;
  return changed === text ? undefined : changed;
}

function applied({ apply }: Pass, text: string): string | undefined {
  try {
    return apply(text);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
