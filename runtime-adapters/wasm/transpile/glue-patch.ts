/**
 * How jco's glue is changed: named patches of its text, in tables (`glue-patches.ts` and the lists that it names), applied here and
 * nowhere else. What jco writes is no interface: a patch whose place is not found any more is reported by its name, and it depends
 * on the patch what follows.
 */

/** What happens where a patch does not find its place. */
type OnMiss =
  /** The component is not made runnable: it would do something wrong. */
  | "refuse"
  /** The whole list is left out: the component runs with jco's own text, which takes more memory and time. */
  | "leave list"
  /** This patch alone is left out: likewise. */
  | "leave patch";

interface Named {
  /** What of jco's text it changes. */
  readonly name: string;
  readonly why: string;
  readonly onMiss: OnMiss;
}

/** Replaces a text. It must be found, unless one of these says otherwise. */
interface Replacement extends Named {
  readonly form: RegExp;
  readonly by: string | ((...groups: string[]) => string);
  /** It has to be found only where the text has this: glue has what its component uses. */
  readonly ifThere?: string;
  /** It need not be found, but this must not be left behind it. */
  readonly gone?: RegExp;
}

/** Does what takes more than a replacement. */
interface Pass extends Named {
  /** @returns undefined: its place is not found @throws RangeError likewise */
  readonly apply: (text: string) => string | undefined;
}

export type GluePatch = Replacement | Pass;

export interface Patched {
  readonly text: string;
  /** Names of patches that did not find their place. */
  readonly missed: readonly string[];
  /** What the worst of them leads to. */
  readonly outcome: "whole" | OnMiss;
}

const WORSE: readonly Patched["outcome"][] = ["whole", "leave patch", "leave list", "refuse"];

/** Applies all of them in order; a patch that is missed leaves the text as it was before it. */
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
