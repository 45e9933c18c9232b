/**
 * A host function that waits is called again after the wait, with the same arguments
 * (`shared/resources/event-loop.ts`). jco's glue removes a handle that is given away from the component's table before
 * it calls, so that the second call would not find it. Where such a function waits, the handle is removed after the
 * call instead: the component does not run meanwhile.
 */

/** Functions that take a handle and wait, by what the glue calls them. */
const WAITING: readonly string[] = ["wasi:keyvalue/atomics@0.2.0-draft2#swap"];

const NAMED = /^(_trampoline\d+)\.fnName = '([^']*)';$/gm;
const TAKEN =
  /^else \{\n+(captureTable\d+\.delete\(rep\d+\);)\n+\}\n+(rscTableRemove\((handleTable\d+), (handle\d+)\);)\n/gm;
const RETURNED = /^var variant\d+ = ret;$/m;

/**
 * @param source without indentation
 * @returns undefined: it calls such a function in a form that is not known here
 */
export function keepHandles(source: string): string | undefined {
  let kept = source;
  for (const [, trampoline = "", name = ""] of source.matchAll(NAMED)) {
    if (!WAITING.includes(name)) continue;
    // WASI 0.3: the glue waits itself, and calls once.
    if (kept.includes(`const ${trampoline} = async function(`)) continue;
    const start = kept.indexOf(`const ${trampoline} = function(`);
    const end = kept.indexOf(`${trampoline}.fnName = `, start);
    const call = start < 0 || end < 0 ? undefined : withKeptHandle(kept.slice(start, end));
    if (call === undefined) return undefined;
    kept = kept.slice(0, start) + call + kept.slice(end);
  }
  return kept;
}

function withKeptHandle(call: string): string | undefined {
  const [taken, another] = [...call.matchAll(TAKEN)];
  if (taken === undefined || another !== undefined || !RETURNED.test(call)) return undefined;
  const [all, forget, remove, table, handle] = taken;
  // One that is free is refused at once, as it would have been.
  const checked = call.replace(all, () => `if (${table}[${handle} << 1] & T_FLAG) ${remove}\n`);
  return checked.replace(RETURNED, (returned) => `${forget}\n${remove}\n${returned}`);
}
