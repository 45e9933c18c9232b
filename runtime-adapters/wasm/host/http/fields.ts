/** wasi:http/types.fields: header fields and trailers (RFC 9110, section 5). */
import { Failure } from "../failure.ts";
import { HostResource, trap } from "../handles.ts";
import type { HttpContext } from "./http-context.ts";

export type FieldEntry = readonly [name: string, value: Uint8Array];
type HeaderError = { readonly tag: "invalid-syntax" | "forbidden" | "immutable" };

/** Of one set of fields; servers commonly take 8 to 64 KiB. */
const MAX_FIELDS = 256;
const MAX_FIELDS_BYTES = 65_536;

/** They are about one connection, which is the host's (RFC 9110, 7.6.1), or say who is asked, which `authority` does. */
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
const TAB = 0x09;
const SPACE = 0x20;
const DELETE = 0x7f;

export const isForbidden = (name: string): boolean => FORBIDDEN.has(name.toLowerCase());

/** What several resources may look at; the component changes it through `Fields` alone. */
export class FieldList {
  entries: FieldEntry[] = [];
  #bytes = 0;

  /** @throws a trap when it becomes larger than anybody would send on */
  add(name: string, value: Uint8Array): void {
    this.#bytes += name.length + value.length;
    if (this.entries.length >= MAX_FIELDS || this.#bytes > MAX_FIELDS_BYTES) {
      throw trap(`more than ${MAX_FIELDS} header fields, or ${MAX_FIELDS_BYTES} bytes of them`);
    }
    this.entries.push([name, value]);
  }

  remove(name: string): void {
    const lower = name.toLowerCase();
    this.entries = this.entries.filter((each) => {
      const stays = each[0].toLowerCase() !== lower;
      if (!stays) this.#bytes -= each[0].length + each[1].length;
      return stays;
    });
  }

  values(name: string): Uint8Array[] {
    const lower = name.toLowerCase();
    return this.entries.flatMap((each) => (each[0].toLowerCase() === lower ? [each[1]] : []));
  }

  copy(): FieldList {
    const copied = new FieldList();
    for (const [name, value] of this.entries) copied.add(name, value);
    return copied;
  }

  /** As `node:http` takes them; bytes become the characters of the same number. */
  flat(): string[] {
    return this.entries.flatMap(([name, value]) => [name, Buffer.from(value).toString("latin1")]);
  }

  /** @param raw names and values in turn, as `node:http` gives them; what belongs to the connection is left out */
  static received(raw: readonly string[]): FieldList {
    const list = new FieldList();
    for (let at = 0; at + 1 < raw.length; at += 2) {
      const name = raw[at] as string;
      if (!isForbidden(name)) list.entries.push([name, Buffer.from(raw[at + 1] as string, "latin1")]);
    }
    return list;
  }
}

export class Fields extends HostResource {
  readonly #context: HttpContext;
  readonly #list: FieldList;
  readonly #immutable: boolean;

  constructor(context: HttpContext, list: FieldList, immutable: boolean) {
    super(context.pools.fields);
    this.#context = context;
    this.#list = list;
    this.#immutable = immutable;
  }

  static fromList(context: HttpContext, entries: readonly FieldEntry[]): Fields {
    const list = new FieldList();
    for (const [name, value] of entries) {
      check(name, [value]);
      list.add(name, value);
    }
    return new Fields(context, list, false);
  }

  get(name: string): Uint8Array[] {
    return this.#list.values(name);
  }

  has(name: string): boolean {
    return this.#list.values(name).length > 0;
  }

  set(name: string, values: readonly Uint8Array[]): void {
    this.#change(name, values);
    this.#list.remove(name);
    for (const value of values) this.#list.add(name, value);
  }

  delete(name: string): void {
    this.#change(name, []);
    this.#list.remove(name);
  }

  append(name: string, value: Uint8Array): void {
    this.#change(name, [value]);
    this.#list.add(name, value);
  }

  entries(): readonly FieldEntry[] {
    return this.#list.entries;
  }

  clone(): Fields {
    return new Fields(this.#context, this.#list.copy(), false);
  }

  /** The component gives it away, and cannot change it any more. */
  given(): FieldList {
    this[Symbol.dispose]();
    return this.#list;
  }

  #change(name: string, values: readonly Uint8Array[]): void {
    check(name, values);
    if (this.#immutable) throw failure("immutable");
  }
}

function check(name: string, values: readonly Uint8Array[]): void {
  if (!NAME.test(name) || !values.every(isFieldValue)) throw failure("invalid-syntax");
  if (isForbidden(name)) throw failure("forbidden");
}

const isFieldValue = (value: Uint8Array): boolean =>
  value.every((byte) => byte === TAB || (byte >= SPACE && byte !== DELETE));

const failure = (tag: HeaderError["tag"]): Failure<HeaderError> => new Failure({ tag });
