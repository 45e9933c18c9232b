/**
 * jco 1.35 writes out how a type is lifted and lowered wherever it occurs, and each import twice: for a host function
 * that it calls by setting the stack aside, and for one that it does not. A component that uses most of wasi:sockets
 * has the same fifteen error codes 150 times. What is equal is made once here.
 */

const EITHER =
  /^let (trampoline\d+) = (_trampoline\d+)\.manuallyAsync \? new WebAssembly\.Suspending\(_suspendingImport\((\d+), (_lowerImportBackwardsCompat\.bind\([\s\S]*?^\))\)\) : (_lowerImportBackwardsCompat\.bind\(\n[\s\S]*?^\));$/gm;
const FORM = /\b_(?:lower|lift)Flat(?:Variant|Result|Option)\(/g;
/** Names that have the same meaning everywhere: a form with only these can be shared. */
const CONSTANT = /^(?:_(?:lower|lift)Flat\w+|\w+(?=:)|null|true|false|\d+)$/;
const GENERATOR = /^let gen= ?\(function\* _initGenerator \(\) \{\n/m;
/** Smaller ones are not worth a name. */
const MIN_LENGTH = 200;

/** @param glue without indentation */
export const shareForms = (glue: string): string => withForms(withOneOfBoth(glue));

function withOneOfBoth(text: string): string {
  return text.replace(EITHER, (all, name: string, inner: string, at: string, one: string, other: string) =>
    one.replace(/\s+/g, "") === other.replace(/\s+/g, "")
      ? `let ${name} = ${other};\nif (${inner}.manuallyAsync) { ${name} = new WebAssembly.Suspending(_suspendingImport(${at}, ${name})); }`
      : all,
  );
}

function withForms(text: string): string {
  const opening = GENERATOR.exec(text);
  if (opening === null) return text;
  const start = opening.index + opening[0].length;
  const body = text.slice(start);
  const names = new Map<string, string>();
  const counts = new Map<string, number>();
  const found: { readonly at: number; readonly end: number; readonly form: string }[] = [];
  for (const { index, 0: begin } of body.matchAll(FORM)) {
    const end = closing(body, index + begin.length - 1);
    const form = body.slice(index, end);
    if (form.length < MIN_LENGTH || !isConstant(form)) continue;
    counts.set(form, (counts.get(form) ?? 0) + 1);
    found.push({ at: index, end, form });
  }
  let result = "";
  let from = 0;
  for (const { at, end, form } of found) {
    if (at < from || (counts.get(form) ?? 0) < 2) continue;
    const name = names.get(form) ?? `sharedForm${names.size}`;
    names.set(form, name);
    result += body.slice(from, at) + name;
    from = end;
  }
  const shared = [...names].map(([form, name]) => `const ${name} = ${form};\n`).join("");
  return text.slice(0, start) + shared + result + body.slice(from);
}

/** Names in quotes are no names. */
const isConstant = (form: string): boolean =>
  (form.replace(/'[^'\n]*'/g, "").match(/[\w$]+:?/g) ?? []).every((word) => word.endsWith(":") || CONSTANT.test(word));

function closing(text: string, open: number): number {
  let depth = 0;
  for (let at = open; at < text.length; at += 1) {
    const character = text[at];
    if (character === "'") at = text.indexOf("'", at + 1);
    else if (character === "(" || character === "[" || character === "{") depth += 1;
    else if (character === ")" || character === "]" || character === "}") {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return text.length;
}
