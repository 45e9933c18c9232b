/**
 * jco 1.35 keeps a task and a subtask of WASI 0.3's concurrency for every call of a host function, also where
 * everything is synchronous: dozens of objects a call, and those of a call that ends by an exception (`WouldBlock`:
 * every wait) stay for ever. Where a component is synchronous throughout, its calls are made here what jco made of them
 * before: lift, call, lower. What nothing mentions then goes too, which is most of the file.
 *
 * Calls between the parts of a component (those of JavaScript have several: `componentize-qjs`) have a task each as
 * well, of which nothing is needed but two numbers: the context (component model, canonical ABI, `context.get` and
 * `context.set`), which each call begins with as zeros, and which is the caller's again when it has ended. Such calls
 * nest, and an instance has one stack at a time, which may be set aside: so one list of contexts is enough. A call that
 * traps ends nothing here: the next call of an export begins with an empty list. What
 * `shared/resources/event-loop.ts` makes of such a call returns before its stack has ended, hence nothing is done at
 * the end of an export either.
 *
 * All of it is for text without indentation.
 */
import type { GluePatch } from "./glue-patch.ts";
import { withoutIdleDeclarations } from "./unused-declarations.ts";

const NO_ASYNC = "(?:(?!isAsync: true|isManualAsync: true)[\\s\\S])*?";

/** Names with an underscore: none that jco makes of a component's begins so. */
const CONTEXTS = `let _context = [0, 0];
const _callers = [];
const _beginCall = () => { _callers.length = 0; _context = [0, 0]; };
const _enterCall = () => { _callers.push(_context); _context = [0, 0]; };
const _exitCall = () => { _context = _callers.pop(); };
const _contextGet0 = () => _context[0];
const _contextGet1 = () => _context[1];
const _contextSet0 = value => { _context[0] = value; };
const _contextSet1 = value => { _context[1] = value; };
`;
/** With its name: `shared/resources/event-loop.ts` knows by it what never waits. */
const LEAVING = `const _leaving = (flags, fn) => {
const checked = (...args) => {
if (flags.value !== 1) { throw new WebAssembly.RuntimeError("cannot leave component instance"); }
return fn(...args);
};
return Object.assign(Object.defineProperty(checked, "name", { value: fn.name }), { fnName: fn.fnName });
};
`;
/** The first statement of an export's call. */
const BEGIN_CALL = "_beginCall();\n";
const USES_CONTEXTS = /\b_(?:enterCall|exitCall|context[GS]et[01])\b/;

const FLAGS = /^(const (instanceFlags\d+) = [^\n]*;\n)INSTANCE_FLAGS\.set\(\d+, \2\);\n/gm;
const GUARDED = /\b_guardMayLeave\((\d+), (_?trampoline\d+)\)/g;

/** Must not be left anywhere. */
const TASKS =
  /\btask\.|\b(?:AsyncTask|AsyncSubtask|createNewCurrentTask|_lowerImportBackwardsCompat|_suspendingImport|CURRENT_TASK_MAY_BLOCK)\b|CurrentTaskMeta\b/;

/** A component that has another form anywhere (one that is asynchronous) keeps jco's own text unchanged. */
const onMiss = "leave list";

export const SYNCHRONOUS: readonly GluePatch[] = [
  { name: "empty lines", why: "the forms are without", onMiss, form: /\n{2,}/g, by: "\n", gone: /\n\n/ },
  {
    name: "an import as the core module gets it",
    why: "all that the wrapping does is to keep tasks",
    onMiss,
    form: /^let (trampoline\d+) = (_trampoline\d+)\.manuallyAsync \? new WebAssembly\.Suspending\(_suspendingImport\((\d+), _lowerImportBackwardsCompat\.bind\([\s\S]*?^\)\)\) : _lowerImportBackwardsCompat\.bind\(\n([\s\S]*?)^\);$/gm,
    by: (all, name, inner, part, description) =>
      /^isAsync: false,$/m.test(description as string) && /^funcTypeIsAsync: false,$/m.test(description as string)
        ? `const ${name} = _guardMayLeave(${part}, ${inner});`
        : (all as string),
    gone: /\b_lowerImportBackwardsCompat\.bind\(/,
  },
  {
    name: "the beginning of a call of the host",
    why: "a task and a subtask for each call",
    onMiss,
    form: new RegExp(
      `^const hostProvided = true;\\n${NO_ASYNC}^const started = task\\.enterSync\\(\\);\\n(?:let ret;\\n)`,
      "gm",
    ),
    by: "let ret;\n",
    gone: /^const hostProvided = true;$/m,
  },
  {
    name: "the host's function within its call",
    why: "it is called within a current task",
    onMiss,
    form: /_withGlobalCurrentTaskMeta\(\{\ncomponentIdx: task\.componentIdx\(\),\ntaskID: task\.id\(\),\nfn: \(\) => _trackHostOperation\(\(\) => ((?:(?!_trackHostOperation)[\s\S])*?)\),\n\}\)\n;/g,
    by: "$1;",
    gone: /\b_trackHostOperation\(\(\) =>/,
  },
  {
    name: "the beginning of a call of the component",
    why: "a task for each call",
    onMiss,
    form: new RegExp(
      `^const hostProvided = false;\\n${NO_ASYNC}^return _withGlobalCurrentTaskMeta\\(\\{\\n${NO_ASYNC}^fn: \\(\\) => \\{\\ntry \\{\\n`,
      "gm",
    ),
    by: BEGIN_CALL,
    gone: /^const hostProvided = false;$/m,
  },
  {
    name: "the core function within a call of the component",
    why: "it is called within a current task",
    onMiss,
    form: /_withGlobalCurrentTaskMeta\(\{\ntaskID: task\.id\(\),\ncomponentIdx: task\.componentIdx\(\),\nfn: \(\) => ([^\n]*),\n\}\);/g,
    by: "$1;",
    gone: /_withGlobalCurrentTaskMeta\(\{\ntaskID: task\.id\(\),\ncomponentIdx: task\.componentIdx\(\),\nfn: \(\) => \w+\(/,
  },
  {
    name: "the end of a call of the component that fails",
    why: "it ends the task that is not there",
    onMiss,
    form: /^\} catch \(err\) \{\nif \(!task\.isResolvedState\(\)\) \{\ntask\.setErrored\(err\);\ntask\.reject\(err\);\n\}\nif \(!task\.isExited\(\)\) \{ task\.exit\(\{ skipExclusiveLockCheck: true \}\); \}\nthrow err;\n\}\n\},\n\}\);\n/gm,
    by: "",
    gone: /^\} catch \(err\) \{\nif \(!task\./m,
  },
  {
    name: "the end of a core function that fails",
    why: "either fails: the runner ends the component, or the instance",
    onMiss,
    form: /^\} catch \(err\) \{\s*_debugLog\('\[Instruction::Call\w+\] error during sync call', \{[\s\S]*?\}\);\ngetOrCreateAsyncState\(\d+\)\.markTrapped\(err\);\ntask\.setErrored\(err\);\ntask\.reject\(err\);\ntask\.exit\(\);\nthrow err;\s*^\}$/gm,
    by: "} finally {}",
    gone: /^getOrCreateAsyncState\(\d+\)\.markTrapped\(err\);$/m,
  },
  {
    name: "traps among a result's errors",
    why: "traps and other errors than a result's go up anyway, see getErrorPayload",
    onMiss,
    form: /^if \(getOrCreateAsyncState\(\d+\)\.markTrapped\(e\)\) \{ throw e; \}\n/gm,
    by: "",
    gone: /\.markTrapped\(e\)\) \{/,
  },
  {
    name: "the result of a call",
    why: "it ends the task that is not there",
    onMiss,
    form: /^task\.resolve\(\[[^\n]*\]\);\ntask\.exit\(\);\n/gm,
    by: "",
    gone: /^task\.resolve\(\[[^\n]*\]\);\ntask\./m,
  },
  {
    name: "the clean-up after a result",
    why: "it may not call the host meanwhile; a stack that is set aside now has a flag that stays as it is",
    onMiss,
    form: /^task\.resolve\(\[[^\n]*\]\);\n((?:const retCopy = [^\n]*;\n)?)let cstate = getOrCreateAsyncState\((\d+)\);\ncstate\.mayLeave = false;\n(postReturn\d+\([^\n]*\);\n)cstate\.mayLeave = true;\ntask\.exit\(\);\n/gm,
    by: "$1const _mayLeave = instanceFlags$2.value;\ninstanceFlags$2.value = 0;\n$3instanceFlags$2.value = _mayLeave;\n",
    gone: /^task\.resolve\(\[/m,
  },
  {
    name: "the beginning of a call of another part",
    why: "a context instead of a task",
    onMiss,
    form: /^const (trampoline\d+) = _symmetricSyncGuestCallEnter;$/gm,
    by: "const $1 = _enterCall;",
    gone: /= _symmetricSyncGuestCallEnter;/,
  },
  {
    name: "the end of a call of another part",
    why: "a context instead of a task",
    onMiss,
    form: /^const (trampoline\d+) = _symmetricSyncGuestCallExit;$/gm,
    by: "const $1 = _exitCall;",
    gone: /= _symmetricSyncGuestCallExit;/,
  },
  {
    name: "a context's numbers",
    why: "those of the call, not of a task",
    onMiss,
    form: /\bcontext(Get|Set)\.bind\(null, \{ (?:componentIdx: \d+, )?slot: ([01]) \}\)/g,
    by: "_context$1$2",
    gone: /\bcontext(?:Get|Set)\.bind\(/,
  },
  {
    name: "the task that a part is instantiated in",
    why: "while it is instantiated, each part has a context of its own",
    onMiss,
    form: /^let _initTaskID(\d+);$/gm,
    by: "const _initContext$1 = [0, 0];",
    gone: /^let _initTaskID/m,
  },
  {
    name: "the beginning of that task",
    why: "it has a context instead",
    onMiss,
    form: /^\[, _initTaskID(\d+)\] = createNewCurrentTask\(\{\ncomponentIdx: \1,\nisAsync: false,\ncallingWasmExport: true,\nentryFnName: '<initialize>',\n\}\);\n_setGlobalCurrentTaskMeta\(\{ componentIdx: \1, taskID: _initTaskID\1\}\);\n/gm,
    by: "",
    gone: /^\[, _initTaskID\d+\] =/m,
  },
  {
    name: "a turn of that task",
    why: "it has a context instead",
    onMiss,
    form: /\(_setGlobalCurrentTaskMeta\(\{ componentIdx: (\d+), taskID: _initTaskID\1 \}\), /g,
    by: "(_context = _initContext$1, ",
    gone: /\b_setGlobalCurrentTaskMeta\(\{ componentIdx: \d+, taskID: _initTaskID/,
  },
  {
    name: "the end of that task",
    why: "it has a context instead",
    onMiss,
    form: /^_clearCurrentTask\(\{ componentIdx: (\d+), taskID: _initTaskID\1\}\);\nclearCurrentTask\(\1, _initTaskID\1\);\n/gm,
    by: "",
    gone: /^_clearCurrentTask\(\{ componentIdx: \d+, taskID: _initTaskID/m,
  },
  {
    name: "debug output of several lines",
    why: "it makes objects that nothing reads",
    onMiss: "leave patch",
    form: /^_debugLog\('\[iface=[^\n]*\{\n[\s\S]*?^\}\);\n/gm,
    by: "",
    gone: /^_debugLog\('\[iface=[^\n]*\{$/m,
  },
  {
    name: "debug output of one line",
    why: "it makes objects that nothing reads",
    onMiss: "leave patch",
    form: /^_debugLog\('\[iface=[^\n]*\);\n/gm,
    by: "",
    gone: /^_debugLog\('\[iface=/m,
  },
  {
    name: "the flag that forbids calls of the host",
    why: "only adapters between parts and the clean-up after a result clear it: without them it is always set",
    onMiss,
    apply: withFlags,
  },
  {
    name: "declarations that nothing mentions",
    why: "most of the file: every runner keeps its text in memory",
    onMiss,
    apply: (text) => withoutIdle(text),
  },
  {
    name: "what is left of tasks",
    why: "a task that something else begins or ends would be none",
    onMiss,
    apply: (text) => (TASKS.test(text) ? undefined : text),
  },
];

/** @returns undefined: flags are asked that are not there */
function withFlags(text: string): string | undefined {
  const names = [...text.matchAll(FLAGS)].map(([, , name = ""]) => name);
  const areUsed = names.some((name) => (text.match(new RegExp(`\\b${name}\\b`, "g")) ?? []).length > 2);
  if (!areUsed) return text.replace(FLAGS, "").replace(GUARDED, "$2");
  if ([...text.matchAll(GUARDED)].some(([, part]) => !names.includes(`instanceFlags${part}`))) return undefined;
  return text.replace(FLAGS, "$1").replace(GUARDED, "_leaving(instanceFlags$1, $2)");
}

const withoutIdle = (text: string): string | undefined =>
  withoutIdleDeclarations(text, (generated) => {
    const hasContexts = USES_CONTEXTS.test(generated);
    const generator = hasContexts ? generated : generated.replaceAll(BEGIN_CALL, "");
    const helpers = (hasContexts ? CONTEXTS : "") + (generator.includes("_leaving(") ? LEAVING : "");
    return { generator, helpers };
  });
