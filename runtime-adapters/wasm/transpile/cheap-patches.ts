/**
 * jco 1.35's glue does work in each call that a component of WASI 0.2 does not need. These patches remove it, after
 * those of `synchronous-patches.ts`. Each is skipped by itself where it does not match, or not everywhere.
 */
import type { GluePatch } from "./glue-patch.ts";

const onMiss = "leave patch";

const CAPTURES = /^const captureTable\d+= new Map\(\);$/gm;
/** By the numbers of `shared/resources/handles.ts`, which begin again from the lowest that is free. */
const CAPTURED = `class Captured {
all = [];
get(rep) { return this.all[rep]; }
set(rep, what) {
while (this.all.length < rep) { this.all.push(undefined); }
this.all[rep] = what;
}
delete(rep) { this.all[rep] = undefined; }
}
`;

const VIEWS = `let dv = new DataView(new ArrayBuffer());
const dataView = mem => dv.buffer === mem.buffer ? dv : dv = new DataView(mem.buffer);
`;
/** The buffer of a memory that has grown is detached, and has no length any more. */
const KEPT_VIEWS = `let dv, viewed, kept = new ArrayBuffer();
const bufferOf = mem => {
if (viewed !== mem || kept.byteLength === 0) {
viewed = mem;
kept = mem.buffer;
dv = new DataView(kept);
}
return kept;
};
const dataView = mem => { bufferOf(mem); return dv; };
`;
/** Not the memory of one of several parts as an export of its own (`exports3.memory`). */
const BUFFER = /(?<![\w$.])(memory\d*)\.buffer\b/g;
/** A few bytes are in V8's own heap that way, without a buffer of their own. */
const COPIED = /\bnew Uint8Array\((memory\d+)\.buffer\.slice\((ptr\d+), \2 \+ (len\d+) \* 1\)\)/g;

const LENT = /^curResourceBorrows\.push\(rsc\d+\);\n/gm;
const TAKEN_BACK = /^for \(const entry of curResourceBorrows\) \{\n[\s\S]*?^\}\ncurResourceBorrows = \[\];\n/gm;
const BORROWS = /^let curResourceBorrows = \[\];\n/m;

export const CHEAP: readonly GluePatch[] = [
  {
    name: "maps of what the component holds",
    why: "V8 makes another table whenever one is empty, and each keeps what was in the one before it from the young collector",
    onMiss,
    apply: withArrays,
  },
  {
    name: "views of a memory",
    why: "WebAssembly is asked for a memory's buffer for every number that is written",
    onMiss,
    apply: withKeptBuffers,
  },
  { name: "numbers that were given", why: "nothing asks for them", onMiss, apply: withoutReps },
  {
    name: "what was lent for a call",
    why: "what is the host's has no handle of the glue's that could be taken back",
    onMiss,
    apply: withoutLoans,
  },
];

function withArrays(text: string): string | undefined {
  if (!/^const captureTable\d+ ?=/m.test(text)) return text;
  const opening = /^function instantiate\([^\n]*\{\n/m.exec(text);
  if (opening === null) return undefined;
  const start = opening.index + opening[0].length;
  const body = text.slice(start).replace(CAPTURES, (each) => each.replace("= new Map()", " = new Captured()"));
  if (/^const captureTable\d+ ?= new Map/m.test(body)) return undefined;
  return text.slice(0, start) + CAPTURED + body;
}

function withKeptBuffers(text: string): string | undefined {
  if (!text.includes(VIEWS)) return text.includes("dataView") ? undefined : text;
  const [before = "", after = ""] = text.split(VIEWS);
  return (
    before +
    KEPT_VIEWS +
    after.replace(COPIED, "new Uint8Array(bufferOf($1), $2, $3).slice()").replace(BUFFER, "bufferOf($1)")
  );
}

function withoutReps(text: string): string | undefined {
  const without = text
    .replace(/^table\._createdReps\.add\(rep\);\n/m, "")
    .replace(/^handleTable\d+\._createdReps = new Set\(\);\n/gm, "");
  return without.includes("_createdReps") ? undefined : without;
}

function withoutLoans(text: string): string | undefined {
  const without = text.replace(LENT, "").replace(TAKEN_BACK, "").replace(BORROWS, "");
  return without.includes("curResourceBorrows") ? undefined : without;
}
