/**
 * jco 1.35's glue for WASI 0.3 keeps something of every piece of a stream, and of every stream and future; it finds out by looking,
 * every millisecond to ten, that an event has come; and it takes a component for deadlocked that waits for the host to take what it
 * writes. Here each of that is mended in place, by the exact text: where one is not found as it is known here, the component
 * keeps jco's own text.
 */
import { shareForms } from "./shared-forms.ts";
import { removeComments, removeUnused, statements } from "./unused-declarations.ts";

/** What the host gives the glue beside what the component imports; see `host/async/async-run.ts`. */
const HOOKS = "imports['picolet:async']";

interface Patch {
  readonly form: RegExp;
  readonly by: string;
  /** Only where this is: glue has what its component uses. */
  readonly ifThere?: string;
}

const DROP_LIFTED =
  "dropFn: () => { _forgetStreamEnd(streamEnd); return streamEnd.drop({ allowPendingEvent: true }); },\n";
const DROP_LIFTED_HERE =
  "dropFn: () => { if (STREAMS.get(this.#rep) === this) { STREAMS.remove(this.#rep); } _forgetStreamEnd(streamEnd); return streamEnd.drop({ allowPendingEvent: true }); },\n";
/** An end may have left its table before: its number is another's then. */
const FORGET_STREAM_END = `const GONE_STREAM_ENDS = new Set();
function _forgetStreamEnd(end) {
const { table, componentIdx } = STREAM_TABLES[end.streamTableIdx()];
const { handles } = getOrCreateAsyncState(componentIdx);
if (handles.get(end.waitableIdx()) !== end) { return; }
handles.remove(end.waitableIdx());
table.remove(end.handle());
_endIsGone(STREAMS, GONE_STREAM_ENDS, end.globalStreamMapRep());
}
function _endIsGone(all, alone, rep) {
if (alone.delete(rep)) { all.remove(rep); } else { alone.add(rep); }
}
`;
const FORGET_FUTURE_END = `const GONE_FUTURE_ENDS = new Set();
function _forgetFutureEnd(end) {
const { table, componentIdx } = FUTURE_TABLES[end.futureTableIdx()];
const { handles } = getOrCreateAsyncState(componentIdx);
if (handles.get(end.waitableIdx()) !== end) { return; }
handles.remove(end.waitableIdx());
table.remove(end.handle());
_endIsGone(FUTURES, GONE_FUTURE_ENDS, end.globalFutureMapRep());
}
`;

/** What a task's caller gets, and when: once the task has returned and waits, or has ended. */
const RETURNING = `async function _resultOf(task) {
const result = await task.completionPromise();
if (task.getErrHandling() !== 'throw-result-err' || typeof result !== 'object' || result === null) { return result; }
if (result.tag === 'err') { throw new ComponentError(result.val); }
return result.tag === 'ok' ? result.val : result;
}
function _returning(task, args) {
${HOOKS}.began(task.exitPromise());
return Promise.race([_withGlobalCurrentTaskMetaAsync(args), _resultOf(task)]);
}
`;

/** Of text without indentation and comments. Each has to be found. */
const PATCHES: readonly Patch[] = [
  // Buffers that nobody asks for any more.
  { form: /^instanceBuffers\.set\(nextBufID, buffer\);\n/m, by: "", ifThere: "class BufferManager" },
  // An event is there: whoever waits is to look now.
  { form: /^(setPendingEvent\(fn\) \{\nthis\.#pendingEventFn = fn;\n)/m, by: `$1${HOOKS}.happened();\n` },
  {
    form: /STORE_TRAP\.error !== null \|\| STORE_ASYNC_STATE\.pendingHostOperations > 0\) \{ return; \}/,
    by: `STORE_TRAP.error !== null || STORE_ASYNC_STATE.pendingHostOperations > 0 || ${HOOKS}.isWaiting()) { return; }`,
  },
  // The end of a stream that the host has for itself is in no table of the component's.
  {
    form: /^const \{ readFn, hostWriteEnd, readEnd \} = genArgs;\n/m,
    by: "$&_forgetStreamEnd(hostWriteEnd);\n",
    ifThere: "function _genStreamHostInjectFn(",
  },
  {
    form: /^dropFn: \(\) => \{ return streamEnd\.drop\(\{ allowPendingEvent: true \}\); \},\n/m,
    by: DROP_LIFTED,
    ifThere: "function _liftFlatStream(",
  },
  {
    form: /^dropFn: \(\) => streamEnd\.drop\(\{ allowPendingEvent: true \}\),\n/m,
    by: DROP_LIFTED_HERE,
    ifThere: "class HostStream",
  },
  // A stream is gone with both of its ends.
  {
    form: /^(function deleteStreamEnd\(args\) \{\n[\s\S]*?)^return streamEnd;\n\}\n/m,
    by: `$1_endIsGone(STREAMS, GONE_STREAM_ENDS, streamEnd.globalStreamMapRep());\nreturn streamEnd;\n}\n`,
    ifThere: "function deleteStreamEnd(",
  },
  // The same of futures.
  {
    form: /^const \{ promise, hostWriteEnd, stringEncoding, getReallocFn \} = genArgs;\n/m,
    by: "$&_forgetFutureEnd(hostWriteEnd);\n",
    ifThere: "function _genFutureHostInjectFn(",
  },
  // One of the component's is read once.
  { form: /^return \{ value: vs\[0\] \};\n/m, by: "_forgetFutureEnd(this);\n$&", ifThere: "hostRead(args) {" },
  {
    form: /^return future\.createUserFuture\(\);\n/m,
    by: "const lifted = future.createUserFuture();\nFUTURES.remove(rep);\nreturn lifted;\n",
    ifThere: "function futureNewFromLift(",
  },
  {
    form: /^(function removeFutureEndFromTable\(args\) \{\n[\s\S]*?)^return futureEnd;\n\}\n/m,
    by: `$1_endIsGone(FUTURES, GONE_FUTURE_ENDS, futureEnd.globalFutureMapRep());\nreturn futureEnd;\n}\n`,
    ifThere: "function removeFutureEndFromTable(",
  },
  // The caller of a task has what it returned as soon as that waits again, wherever it does.
  { form: /^task\.notifyProgress\(\);\nthis\.runTickLoop\(\);\n/m, by: "task.settleCompletion();\n$&" },
  { form: /^async function _withGlobalCurrentTaskMetaAsync\(args\) \{\n/m, by: `${RETURNING}$&` },
  { form: /^return await _withGlobalCurrentTaskMetaAsync\(\{\n/gm, by: "return await _returning(task, {\n" },
  // Without a callback too, and it may have returned long before it ends.
  {
    form: /^if \(!task\.hasCallback\(\)\) \{\ntask\.resolve\(\[ret\]\);\ntask\.exit\(\);\nreturn ret;\n/gm,
    by: "if (!task.hasCallback()) {\nif (!task.isResolvedState()) { task.resolve([ret]); }\ntask.exit();\nreturn _resultOf(task);\n",
    ifThere: "if (!task.hasCallback()) {",
  },
  // Of what fails after that the host is told, as nobody else is.
  {
    form: /^if \(this\.isResolvedState\(\)\) \{\nthis\.#rejected = true;\nthis\.#errored = taskErr;\n/m,
    by: `$&if (this.#parentSubtask === null) { ${HOOKS}.failed(taskErr); }\n`,
  },
  // A function of the host that would have to wait says so, and is called again.
  {
    form: /^const result = operation\(\);\n/m,
    by: `const result = ${HOOKS}.waited(operation);\n`,
    ifThere: "function _trackHostOperation(",
  },
  // A stack that has been set aside is the engine's for ever, with all that it reaches, unless it goes on.
  {
    form: /^return \(async \(\) => \{\ntry \{\nreturn await fn\.apply\(null, args\);\n/m,
    by: `savedTask?.settleCompletion();\nreturn (async () => {\ntry {\nreturn await ${HOOKS}.unlessClosed(fn.apply(null, args));\n`,
  },
];

/** What of them nothing calls is taken out again. */
const HELPERS_BEFORE = /^function getOrCreateAsyncState\(/m;
const TRANSFERS = /^function (?:stream|future)Transfer\(/m;
const OPENING = /^function instantiate\([^\n]*\{\n/m;
const GENERATOR = /^let gen= ?\(function\* _initGenerator \(\) \{\n/m;

/**
 * @param source without indentation, from `function instantiate(` on
 * @returns undefined for one with forms beyond those known here, which is whatever is not for WASI 0.3 too
 */
export function asyncGlue(source: string): string | undefined {
  try {
    let text = removeComments(source, "_debugLog(").replace(/\n[;\n]*\n/g, "\n");
    // Of one component alone: what goes from one to another keeps its place in both.
    if (TRANSFERS.test(text)) return undefined;
    for (const { form, by, ifThere } of PATCHES) {
      if (ifThere !== undefined && !text.includes(ifThere)) continue;
      const patched = text.replace(form, by);
      if (patched === text) return undefined;
      text = patched;
    }
    if (!HELPERS_BEFORE.test(text)) return undefined;
    text = text.replace(HELPERS_BEFORE, `${FORGET_STREAM_END}${FORGET_FUTURE_END}$&`);
    const opening = OPENING.exec(text);
    const generator = GENERATOR.exec(text);
    if (opening === null || generator === null) return undefined;
    const bodyStart = opening.index + opening[0].length;
    const rest = text.slice(generator.index);
    const kept = removeUnused(statements(text.slice(bodyStart, generator.index)), rest);
    return shareForms(text.slice(0, bodyStart) + kept.map((each) => each.text).join("") + rest);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
