/** wasi:http/types.fields: header fields and trailers (RFC 9110, section 5). */
import { Failure } from "../resources/failure.ts";
import { HostResource, trap } from "../resources/handles.ts";
import type { HttpContext } from "./http-context.ts";

export type FieldEntry = readonly [name: string, value: Uint8Array];
type HeaderError = { readonly tag: "invalid-syntax" | "forbidden" | "immutable" };

/** Bounds one set of fields. Servers commonly take 8 to 64 KiB. */
const MAX_FIELDS = 256;
const MAX_FIELDS_BYTES = 65_536;

/** Fields about one connection, which is the host's (RFC 9110, 7.6.1), and `host`, which `authority` replaces. */
const FORBIDDEN: ReadonlySet<string> = new Set([
  "connection",
  "host",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** RFC 9110, 5.5: tabs, visible characters, and all beyond ASCII. */
const VALUE = /^[\t -~\x80-\xff]*$/;

export const isForbidden = (name: string): boolean => FORBIDDEN.has(name.toLowerCase());

/** V8 keeps so few bytes in its own heap, and would make a buffer for them that others can see. */
const COPIED_BYTES = 64;

/** Bytes become the characters of the same number, because fields are mostly made, looked up and sent as text. */
export function latin1(bytes: Uint8Array): string {
  if (bytes.length <= COPIED_BYTES) return Buffer.from(bytes).toString("latin1");
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
}

/** Fields that several resources may read. The component changes them through `Fields` alone. */
export class FieldList {
  /** Names and values in turn. */
  #flat: string[] = [];
  #characters = 0;
  /** True while fields of the connection may be among them. Most components read few fields, or none. */
  #isRaw = false;

  get size(): number {
    return this.flat.length / 2;
  }

  /** Names and values in turn. */
  get flat(): readonly string[] {
    if (!this.#isRaw) return this.#flat;
    this.#isRaw = false;
    const own: string[] = [];
    for (const [name, value] of pairsOf(this.#flat)) if (!isForbidden(name)) own.push(name, value);
    this.#flat = own;
    return own;
  }

  /** As the interface has them. */
  get entries(): FieldEntry[] {
    return this.pairs().map(([name, value]) => [name, Buffer.from(value, "latin1")]);
  }

  pairs(): [name: string, value: string][] {
    return [...pairsOf(this.flat)];
  }

  /** @throws a trap when it becomes larger than a peer would send on */
  add(name: string, value: string): void {
    this.#characters += name.length + value.length;
    if (this.size >= MAX_FIELDS || this.#characters > MAX_FIELDS_BYTES) {
      throw trap(`more than ${MAX_FIELDS} header fields, or ${MAX_FIELDS_BYTES} bytes of them`);
    }
    this.#flat.push(name, value);
  }

  remove(name: string): void {
    if (!this.has(name)) return;
    const kept = this.pairs().filter((each) => !isSame(each[0], name));
    this.#flat = kept.flat();
    this.#characters = this.#flat.reduce((sum, each) => sum + each.length, 0);
  }

  has(name: string): boolean {
    const { flat } = this;
    for (let at = 0; at < flat.length; at += 2) if (isSame(flat[at] as string, name)) return true;
    return false;
  }

  values(name: string): string[] {
    const found: string[] = [];
    const { flat } = this;
    for (let at = 0; at < flat.length; at += 2) {
      if (isSame(flat[at] as string, name)) found.push(flat[at + 1] as string);
    }
    return found;
  }

  copy(): FieldList {
    const copied = new FieldList();
    for (const [name, value] of this.pairs()) copied.add(name, value);
    return copied;
  }

  /** @param raw names and values in turn, as received; fields of the connection are left out */
  static received(raw: readonly string[]): FieldList {
    const list = new FieldList();
    list.#flat = raw as string[];
    list.#isRaw = true;
    return list;
  }
}

function* pairsOf(flat: readonly string[]): Generator<[name: string, value: string]> {
  for (let at = 0; at + 1 < flat.length; at += 2) yield [flat[at] as string, flat[at + 1] as string];
}

const isSame = (one: string, other: string): boolean =>
  one.length === other.length && (one === other || one.toLowerCase() === other.toLowerCase());

export class Fields extends HostResource {
  protected readonly context: HttpContext;
  protected readonly list: FieldList;
  readonly #immutable: boolean;

  constructor(context: HttpContext, list: FieldList, immutable: boolean) {
    super(context.pools.fields);
    this.context = context;
    this.list = list;
    this.#immutable = immutable;
  }

  static fromList(context: HttpContext, entries: readonly FieldEntry[]): Fields {
    const list = new FieldList();
    for (const [name, value] of entries) list.add(name, checked(name, value));
    return new Fields(context, list, false);
  }

  get(name: string): Uint8Array[] {
    return this.list.values(name).map((each) => Buffer.from(each, "latin1"));
  }

  has(name: string): boolean {
    return this.list.has(name);
  }

  set(name: string, values: readonly Uint8Array[]): void {
    checkName(name);
    const texts = values.map((each) => checked(name, each));
    this.#checkMutable();
    this.list.remove(name);
    for (const each of texts) this.list.add(name, each);
  }

  delete(name: string): void {
    checkName(name);
    this.#checkMutable();
    this.list.remove(name);
  }

  append(name: string, value: Uint8Array): void {
    const text = checked(name, value);
    this.#checkMutable();
    this.list.add(name, text);
  }

  entries(): readonly FieldEntry[] {
    return this.list.entries;
  }

  clone(): Fields {
    return new Fields(this.context, this.list.copy(), false);
  }

  /** The component gives it away, and cannot change it any more. */
  given(): FieldList {
    this[Symbol.dispose]();
    return this.list;
  }

  #checkMutable(): void {
    if (this.#immutable) throw failure("immutable");
  }
}

function checkName(name: string): void {
  if (!NAME.test(name)) throw failure("invalid-syntax");
  if (isForbidden(name)) throw failure("forbidden");
}

/** @returns the value as text */
function checked(name: string, value: Uint8Array): string {
  const text = latin1(value);
  if (!VALUE.test(text)) throw failure("invalid-syntax");
  checkName(name);
  return text;
}

const failure = (tag: HeaderError["tag"]): Failure<HeaderError> => new Failure({ tag });
