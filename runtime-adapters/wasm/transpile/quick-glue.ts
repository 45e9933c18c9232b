/**
 * What jco 1.35's glue does in each call that a component of WASI 0.2 need not have done: it keeps what the component holds in
 * maps, of which V8 makes another table whenever one is empty, and each of those tables keeps what was in the one before it from
 * the collector of young garbage; it asks WebAssembly for a memory's buffer for every number that it writes; and it
 * notes what was lent for a call, though what is the host's has no handle of the glue's that could be taken back.
 *
 * Each form is matched as a whole; where one is not found, or not everywhere, jco's own text stays.
 */

const CAPTURES = /^const captureTable\d+= new Map\(\);$/gm;
/** By the numbers of `shared/resources/handles.ts`, which begin anew from the lowest that is free. */
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

/** @param lean glue as `leanGlue` leaves it */
export const quickGlue = (lean: string): string => withoutLoans(withoutReps(withKeptBuffers(withArrays(lean))));

function withArrays(text: string): string {
  const opening = /^function instantiate\([^\n]*\{\n/m.exec(text);
  if (opening === null || text.search(CAPTURES) < 0) return text;
  const start = opening.index + opening[0].length;
  const body = text.slice(start).replace(CAPTURES, (each) => each.replace("= new Map()", " = new Captured()"));
  return text.slice(0, start) + CAPTURED + body;
}

function withKeptBuffers(text: string): string {
  if (!text.includes(VIEWS)) return text;
  const [before = "", after = ""] = text.split(VIEWS);
  return (
    before +
    KEPT_VIEWS +
    after.replace(COPIED, "new Uint8Array(bufferOf($1), $2, $3).slice()").replace(BUFFER, "bufferOf($1)")
  );
}

/** Numbers that were given; nothing asks for them. */
function withoutReps(text: string): string {
  const without = text
    .replace(/^table\._createdReps\.add\(rep\);\n/m, "")
    .replace(/^handleTable\d+\._createdReps = new Set\(\);\n/gm, "");
  return without.includes("_createdReps") ? text : without;
}

function withoutLoans(text: string): string {
  const without = text.replace(LENT, "").replace(TAKEN_BACK, "").replace(BORROWS, "");
  return without.includes("curResourceBorrows") ? text : without;
}
