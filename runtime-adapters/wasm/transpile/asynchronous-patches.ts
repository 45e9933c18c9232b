/**
 * jco 1.35's glue for WASI 0.3 keeps something of every piece of a stream, and of every stream and future; it finds out
 * by looking, every millisecond to ten, that an event has come; and it takes a component for deadlocked that waits for
 * the host to take what it writes. Each of that is mended here. For text without indentation.
 */
import type { GluePatch } from "./glue-patch.ts";
import { shareForms } from "./shared-forms.ts";
import { removeComments, withoutIdleDeclarations } from "./unused-declarations.ts";

/** The host's own functions for the glue, beside the component's imports; see `runner/wasi-p3/async-run.ts`. */
const HOOKS = "imports['picolet:async']";

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

/** A task's caller gets its result once the task has returned and waits, or has ended. */
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

const TRANSFERS = /^function (?:stream|future)Transfer\(/m;

/** A component that has another form anywhere keeps jco's own text unchanged. */
const onMiss = "leave list";

export const ASYNCHRONOUS: readonly GluePatch[] = [
  {
    name: "remarks, comments and empty lines",
    why: "the forms are without, and every runner keeps the text in memory",
    onMiss,
    apply: (text) => removeComments(text, "_debugLog(").replace(/\n[;\n]*\n/g, "\n"),
  },
  {
    name: "streams from one part to another",
    why: "what goes from one to another keeps its place in both, which is not known here",
    onMiss,
    apply: (text) => (TRANSFERS.test(text) ? undefined : text),
  },
  {
    name: "buffers of earlier calls",
    why: "nothing asks for them any more",
    onMiss,
    form: /^instanceBuffers\.set\(nextBufID, buffer\);\n/m,
    by: "",
    ifThere: "class BufferManager",
  },
  {
    name: "an event",
    why: "jco polls for it every 1 to 10 ms: the host is notified instead, and wakes up the tasks that wait",
    onMiss,
    form: /^(setPendingEvent\(fn\) \{\nthis\.#pendingEventFn = fn;\n)/m,
    by: `$1${HOOKS}.happened();\n`,
  },
  {
    name: "the search for deadlocks",
    why: "a component that waits for the host to take what it writes is none",
    onMiss,
    form: /STORE_TRAP\.error !== null \|\| STORE_ASYNC_STATE\.pendingHostOperations > 0\) \{ return; \}/,
    by: `STORE_TRAP.error !== null || STORE_ASYNC_STATE.pendingHostOperations > 0 || ${HOOKS}.isWaiting()) { return; }`,
  },
  {
    name: "the host's end of a stream",
    why: "it is in a table of the component's, where nothing takes it out",
    onMiss,
    form: /^const \{ readFn, hostWriteEnd, readEnd \} = genArgs;\n/m,
    by: "$&_forgetStreamEnd(hostWriteEnd);\n",
    ifThere: "function _genStreamHostInjectFn(",
  },
  {
    name: "a stream that the host drops",
    why: "its ends stay in the tables",
    onMiss,
    form: /^dropFn: \(\) => \{ return streamEnd\.drop\(\{ allowPendingEvent: true \}\); \},\n/m,
    by: DROP_LIFTED,
    ifThere: "function _liftFlatStream(",
  },
  {
    name: "a stream that the host drops, in its class",
    why: "likewise, and in the list of streams",
    onMiss,
    form: /^dropFn: \(\) => streamEnd\.drop\(\{ allowPendingEvent: true \}\),\n/m,
    by: DROP_LIFTED_HERE,
    ifThere: "class HostStream",
  },
  {
    name: "a stream whose end the component drops",
    why: "it is gone with both of its ends",
    onMiss,
    form: /^(function deleteStreamEnd\(args\) \{\n[\s\S]*?)^return streamEnd;\n\}\n/m,
    by: `$1_endIsGone(STREAMS, GONE_STREAM_ENDS, streamEnd.globalStreamMapRep());\nreturn streamEnd;\n}\n`,
    ifThere: "function deleteStreamEnd(",
  },
  {
    name: "the host's end of a future",
    why: "it is in a table of the component's, where nothing takes it out",
    onMiss,
    form: /^const \{ promise, hostWriteEnd, stringEncoding, getReallocFn \} = genArgs;\n/m,
    by: "$&_forgetFutureEnd(hostWriteEnd);\n",
    ifThere: "function _genFutureHostInjectFn(",
  },
  {
    name: "a future that the host has read",
    why: "it is read once",
    onMiss,
    form: /^return \{ value: vs\[0\] \};\n/m,
    by: "_forgetFutureEnd(this);\n$&",
    ifThere: "hostRead(args) {",
  },
  {
    name: "a future that is lifted",
    why: "it stays in the list of futures",
    onMiss,
    form: /^return future\.createUserFuture\(\);\n/m,
    by: "const lifted = future.createUserFuture();\nFUTURES.remove(rep);\nreturn lifted;\n",
    ifThere: "function futureNewFromLift(",
  },
  {
    name: "a future whose end the component drops",
    why: "it is gone with both of its ends",
    onMiss,
    form: /^(function removeFutureEndFromTable\(args\) \{\n[\s\S]*?)^return futureEnd;\n\}\n/m,
    by: `$1_endIsGone(FUTURES, GONE_FUTURE_ENDS, futureEnd.globalFutureMapRep());\nreturn futureEnd;\n}\n`,
    ifThere: "function removeFutureEndFromTable(",
  },
  {
    name: "the progress of a task",
    why: "its caller has what it returned as soon as it waits again, wherever it does",
    onMiss,
    form: /^task\.notifyProgress\(\);\nthis\.runTickLoop\(\);\n/m,
    by: "task.settleCompletion();\n$&",
  },
  {
    name: "what a task's caller gets",
    why: "what it returned, before it has ended",
    onMiss,
    form: /^async function _withGlobalCurrentTaskMetaAsync\(args\) \{\n/m,
    by: `${RETURNING}$&`,
  },
  {
    name: "a call of an export",
    why: "its caller gets that",
    onMiss,
    form: /^return await _withGlobalCurrentTaskMetaAsync\(\{\n/gm,
    by: "return await _returning(task, {\n",
  },
  {
    name: "the end of a task without a callback",
    why: "it may have returned long before it ends",
    onMiss,
    form: /^if \(!task\.hasCallback\(\)\) \{\ntask\.resolve\(\[ret\]\);\ntask\.exit\(\);\nreturn ret;\n/gm,
    by: "if (!task.hasCallback()) {\nif (!task.isResolvedState()) { task.resolve([ret]); }\ntask.exit();\nreturn _resultOf(task);\n",
    ifThere: "if (!task.hasCallback()) {",
  },
  {
    name: "a task that fails after it has returned",
    why: "no one else is notified",
    onMiss,
    form: /^if \(this\.isResolvedState\(\)\) \{\nthis\.#rejected = true;\nthis\.#errored = taskErr;\n/m,
    by: `$&if (this.#parentSubtask === null) { ${HOOKS}.failed(taskErr); }\n`,
  },
  {
    name: "a function of the host that would have to wait",
    why: "it reports that, and is called again",
    onMiss,
    form: /^const result = operation\(\);\n/m,
    by: `const result = ${HOOKS}.waited(operation);\n`,
    ifThere: "function _trackHostOperation(",
  },
  {
    name: "a stack that is set aside",
    why: "it is the engine's for ever, with all that it reaches, unless it goes on",
    onMiss,
    form: /^return \(async \(\) => \{\ntry \{\nreturn await fn\.apply\(null, args\);\n/m,
    by: `savedTask?.settleCompletion();\nreturn (async () => {\ntry {\nreturn await ${HOOKS}.unlessClosed(fn.apply(null, args));\n`,
  },
  {
    name: "tables of streams and futures",
    why: "what forgets their ends; what of it nothing calls goes with the declarations that nothing mentions",
    onMiss,
    form: /^function getOrCreateAsyncState\(/m,
    by: `${FORGET_STREAM_END}${FORGET_FUTURE_END}$&`,
  },
  {
    name: "declarations that nothing mentions",
    why: "every runner keeps their text in memory",
    onMiss,
    apply: (text) => withoutIdleDeclarations(text, (generator) => ({ generator, helpers: "" })),
  },
  {
    name: "forms of types",
    why: "what is equal is made once",
    onMiss,
    apply: shareForms,
  },
];
