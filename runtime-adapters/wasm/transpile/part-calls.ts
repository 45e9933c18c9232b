/**
 * Calls between the parts of a component that is made of several (those of JavaScript are: `componentize-qjs`). jco keeps a
 * task for each, of which nothing is needed where all is synchronous but two numbers: the context (component model, canonical
 * ABI, `context.get` and `context.set`), which each call begins with as zeros, and which is the caller's again when it has ended.
 * Such calls nest, and an instance has one stack at a time, which may be set aside: so one list of contexts is enough.
 *
 * A call that traps ends nothing here: the next call of an export begins with an empty list. What jco's glue makes of such a call in
 * `host/event-loop.ts` returns before its stack has ended, hence nothing is done at the end of an export either.
 */

/** Names with an underscore: none that jco makes of a component's begins so. */
const HELPERS = `let _context = [0, 0];
const _callers = [];
const _beginCall = () => { _callers.length = 0; _context = [0, 0]; };
const _enterCall = () => { _callers.push(_context); _context = [0, 0]; };
const _exitCall = () => { _context = _callers.pop(); };
const _contextGet0 = () => _context[0];
const _contextGet1 = () => _context[1];
const _contextSet0 = value => { _context[0] = value; };
const _contextSet1 = value => { _context[1] = value; };
`;

/** With its name: `host/event-loop.ts` knows by it what never waits. */
const LEAVING = `const _leaving = (flags, fn) => {
const checked = (...args) => {
if (flags.value !== 1) { throw new WebAssembly.RuntimeError("cannot leave component instance"); }
return fn(...args);
};
return Object.assign(Object.defineProperty(checked, "name", { value: fn.name }), { fnName: fn.fnName });
};
`;

const BEGIN = "_beginCall();\n";
const USES = /\b_(?:enterCall|exitCall|context[GS]et[01])\b/;

/** What an export's call begins with. */
export const BEGIN_CALL = BEGIN;

/** Of text without indentation and empty lines. */
export const PART_CALLS: readonly (readonly [form: RegExp, by: string])[] = [
  [/^const (trampoline\d+) = _symmetricSyncGuestCallEnter;$/gm, "const $1 = _enterCall;"],
  [/^const (trampoline\d+) = _symmetricSyncGuestCallExit;$/gm, "const $1 = _exitCall;"],
  [/\bcontext(Get|Set)\.bind\(null, \{ (?:componentIdx: \d+, )?slot: ([01]) \}\)/g, "_context$1$2"],
  // While it is instantiated, each part has a context of its own.
  [/^let _initTaskID(\d+);$/gm, "const _initContext$1 = [0, 0];"],
  [
    /^\[, _initTaskID(\d+)\] = createNewCurrentTask\(\{\ncomponentIdx: \1,\nisAsync: false,\ncallingWasmExport: true,\nentryFnName: '<initialize>',\n\}\);\n_setGlobalCurrentTaskMeta\(\{ componentIdx: \1, taskID: _initTaskID\1\}\);\n/gm,
    "",
  ],
  [
    /\(_setGlobalCurrentTaskMeta\(\{ componentIdx: (\d+), taskID: _initTaskID\1 \}\), /g,
    "(_context = _initContext$1, ",
  ],
  [
    /^_clearCurrentTask\(\{ componentIdx: (\d+), taskID: _initTaskID\1\}\);\nclearCurrentTask\(\1, _initTaskID\1\);\n/gm,
    "",
  ],
];

const FLAGS = /^(const (instanceFlags\d+) = [^\n]*;\n)INSTANCE_FLAGS\.set\(\d+, \2\);\n/gm;
const GUARDED = /\b_guardMayLeave\((\d+), (_?trampoline\d+)\)/g;

/**
 * The flag that forbids calls of the host is only ever cleared by adapters between parts, and while an export cleans up after
 * its result: without them it says nothing.
 * @returns undefined: flags are asked that are not there
 */
export function removeFlags(text: string): string | undefined {
  const names = [...text.matchAll(FLAGS)].map(([, , name = ""]) => name);
  const areUsed = names.some((name) => (text.match(new RegExp(`\\b${name}\\b`, "g")) ?? []).length > 2);
  if (!areUsed) return text.replace(FLAGS, "").replace(GUARDED, "$2");
  if ([...text.matchAll(GUARDED)].some(([, part]) => !names.includes(`instanceFlags${part}`))) return undefined;
  return text.replace(FLAGS, "$1").replace(GUARDED, "_leaving(instanceFlags$1, $2)");
}

/** @param text with `PART_CALLS` rewritten @returns what its body needs before it */
export function helpersOf(text: string): string {
  return (USES.test(text) ? HELPERS : "") + (text.includes("_leaving(") ? LEAVING : "");
}

/** @returns the same where no context is asked for */
export const removeIdleContexts = (text: string): string => (USES.test(text) ? text : text.replaceAll(BEGIN, ""));
