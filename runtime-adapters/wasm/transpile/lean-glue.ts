/**
 * jco 1.35 keeps a task and a subtask of WASI 0.3's concurrency for every call of a host function, also where everything is
 * synchronous: dozens of objects a call, and those of a call that ends by an exception (`WouldBlock`: every wait) stay for
 * ever. Where a component is synchronous throughout, its calls are made here what jco made of them before: lift, call,
 * lower. What nothing mentions then goes too, which is most of the file.
 *
 * Each form is matched as a whole. A component that has another one anywhere (one that is asynchronous) keeps
 * jco's own text unchanged.
 */
import { BEGIN_CALL, helpersOf, PART_CALLS, removeFlags, removeIdleContexts } from "./part-calls.ts";
import { removeUnused, statements } from "./unused-declarations.ts";

type Rewrite = readonly [form: RegExp, by: string | ((...groups: string[]) => string)];

const NO_ASYNC = "(?:(?!isAsync: true|isManualAsync: true)[\\s\\S])*?";

/** Of text without indentation. */
const REWRITES: readonly Rewrite[] = [
  // An import as the core module gets it: all that the wrapping does is to keep tasks.
  [
    /^let (trampoline\d+) = (_trampoline\d+)\.manuallyAsync \? new WebAssembly\.Suspending\(_suspendingImport\((\d+), _lowerImportBackwardsCompat\.bind\([\s\S]*?^\)\)\) : _lowerImportBackwardsCompat\.bind\(\n([\s\S]*?)^\);$/gm,
    (all, name, inner, part, description) =>
      /^isAsync: false,$/m.test(description as string) && /^funcTypeIsAsync: false,$/m.test(description as string)
        ? `const ${name} = _guardMayLeave(${part}, ${inner});`
        : (all as string),
  ],
  // A host function is called.
  [
    new RegExp(
      `^const hostProvided = true;\\n${NO_ASYNC}^const started = task\\.enterSync\\(\\);\\n(?:let ret;\\n)`,
      "gm",
    ),
    "let ret;\n",
  ],
  [
    /_withGlobalCurrentTaskMeta\(\{\ncomponentIdx: task\.componentIdx\(\),\ntaskID: task\.id\(\),\nfn: \(\) => _trackHostOperation\(\(\) => ((?:(?!_trackHostOperation)[\s\S])*?)\),\n\}\)\n;/g,
    "$1;",
  ],
  // The component is called.
  [
    new RegExp(
      `^const hostProvided = false;\\n${NO_ASYNC}^return _withGlobalCurrentTaskMeta\\(\\{\\n${NO_ASYNC}^fn: \\(\\) => \\{\\ntry \\{\\n`,
      "gm",
    ),
    BEGIN_CALL,
  ],
  [
    /_withGlobalCurrentTaskMeta\(\{\ntaskID: task\.id\(\),\ncomponentIdx: task\.componentIdx\(\),\nfn: \(\) => ([^\n]*),\n\}\);/g,
    "$1;",
  ],
  [
    /^\} catch \(err\) \{\nif \(!task\.isResolvedState\(\)\) \{\ntask\.setErrored\(err\);\ntask\.reject\(err\);\n\}\nif \(!task\.isExited\(\)\) \{ task\.exit\(\{ skipExclusiveLockCheck: true \}\); \}\nthrow err;\n\}\n\},\n\}\);\n/gm,
    "",
  ],
  // Either fails: the runner ends the component, or the instance.
  [
    /^\} catch \(err\) \{\s*_debugLog\('\[Instruction::Call\w+\] error during sync call', \{[\s\S]*?\}\);\ngetOrCreateAsyncState\(\d+\)\.markTrapped\(err\);\ntask\.setErrored\(err\);\ntask\.reject\(err\);\ntask\.exit\(\);\nthrow err;\s*^\}$/gm,
    "} finally {}",
  ],
  // Traps and other errors than a result's go up anyway, see getErrorPayload.
  [/^if \(getOrCreateAsyncState\(\d+\)\.markTrapped\(e\)\) \{ throw e; \}\n/gm, ""],
  [/^task\.resolve\(\[[^\n]*\]\);\ntask\.exit\(\);\n/gm, ""],
  // It cleans up after its result, and may not call the host meanwhile. A stack that is set aside now has a flag that stays as it is.
  [
    /^task\.resolve\(\[[^\n]*\]\);\n((?:const retCopy = [^\n]*;\n)?)let cstate = getOrCreateAsyncState\((\d+)\);\ncstate\.mayLeave = false;\n(postReturn\d+\([^\n]*\);\n)cstate\.mayLeave = true;\ntask\.exit\(\);\n/gm,
    "$1const _mayLeave = instanceFlags$2.value;\ninstanceFlags$2.value = 0;\n$3instanceFlags$2.value = _mayLeave;\n",
  ],
  ...PART_CALLS,
  [/^_debugLog\('\[iface=[^\n]*\{\n[\s\S]*?^\}\);\n/gm, ""],
  [/^_debugLog\('\[iface=[^\n]*\);\n/gm, ""],
];

const OPENING = /^function instantiate\([^\n]*\{\n/m;
const GENERATOR = /^let gen= ?\(function\* _initGenerator \(\) \{\n/m;
/** What must not be left anywhere. */
const TASKS =
  /\btask\.|\b(?:AsyncTask|AsyncSubtask|createNewCurrentTask|_lowerImportBackwardsCompat|_suspendingImport|CURRENT_TASK_MAY_BLOCK)\b|CurrentTaskMeta\b/;

/**
 * @param source without indentation, from `function instantiate(` on.
 * @returns the same with what every call takes off; undefined for a component that has forms beyond those known here.
 */
export function leanGlue(source: string): string | undefined {
  const normal = source.replace(/\n{2,}/g, "\n");
  const rewritten = removeFlags(REWRITES.reduce((text, [form, by]) => text.replace(form, by as string), normal));
  if (rewritten === undefined) return undefined;
  const opening = OPENING.exec(rewritten);
  const generator = GENERATOR.exec(rewritten);
  if (opening === null || generator === null) return undefined;
  const bodyStart = opening.index + opening[0].length;
  const rest = removeIdleContexts(rewritten.slice(generator.index));
  try {
    const kept = removeUnused(statements(rewritten.slice(bodyStart, generator.index)), rest);
    const lean = rewritten.slice(0, bodyStart) + helpersOf(rest) + kept.map(({ text }) => text).join("") + rest;
    return TASKS.test(lean) ? undefined : lean;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
