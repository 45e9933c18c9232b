import { PicoletError } from "../../errors.ts";
import { dnsSubdomainProblems } from "../../kubernetes/name-rules.ts";
import { unpackJson, unpackText } from "./wire-json.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Reads the fields of one array from the wire, in order. Elements that are not read are skipped. Its values do not
 * point into the frame. Every method throws `invalid` with the field's name for an element of another type.
 */
export class ListReader {
  readonly #what: string;
  readonly #list: readonly unknown[];
  #next: number;

  /** @param what whose fields these are: "hello", "statuses.items[3]" */
  constructor(what: string, list: readonly unknown[], start = 0) {
    this.#what = what;
    this.#list = list;
    this.#next = start;
  }

  get isAtEnd(): boolean {
    return this.#next >= this.#list.length;
  }

  wrong(name: string, problem: string): PicoletError {
    return new PicoletError("invalid", `cannot read ${this.#what}: ${name}: ${problem}`);
  }

  #take(): unknown {
    const value = this.#list[this.#next];
    this.#next += 1;
    return value;
  }

  /** Returns any element; the caller checks it. Byte strings point into the frame. */
  value(): unknown {
    return this.#take();
  }

  flag(name: string): boolean {
    const value = this.#take();
    if (typeof value !== "boolean") throw this.wrong(name, "is neither true nor false");
    return value;
  }

  integer(name: string): number {
    const value = this.#take();
    if (!Number.isSafeInteger(value)) throw this.wrong(name, "is not a whole number");
    return value as number;
  }

  /** A whole number that is not negative. */
  count(name: string): number {
    const value = this.integer(name);
    if (value < 0) throw this.wrong(name, "is negative");
    return value;
  }

  /** Reads an index into `choices`. */
  oneOf<T>(name: string, choices: readonly T[]): T {
    const choice = choices[this.count(name)];
    if (choice === undefined) throw this.wrong(name, "is none of what it may be");
    return choice;
  }

  text(name: string, maxLength: number): string {
    const value = this.#guarded(name, unpackText);
    if (value.length > maxLength) throw this.wrong(name, `is longer than ${maxLength} characters`);
    return value;
  }

  /** Reads the name of a Kubernetes object, which goes into paths of the API. */
  name(name: string): string {
    const value = this.#guarded(name, unpackText);
    if (dnsSubdomainProblems(value).length > 0) throw this.wrong(name, "is no name of a Kubernetes object");
    return value;
  }

  nameOrNone(name: string): string {
    if (this.#list[this.#next] !== "") return this.name(name);
    this.#next += 1;
    return "";
  }

  uid(name: string, maxLength: number): string {
    const value = this.text(name, maxLength);
    if (value === "") throw this.wrong(name, "is empty");
    return value;
  }

  texts(name: string, maxItems: number, maxLength: number): string[] {
    const list = this.list(name, maxItems);
    const texts: string[] = [];
    while (!list.isAtEnd) texts.push(list.text(String(texts.length), maxLength));
    return texts;
  }

  bytes(name: string, length: number): Uint8Array {
    const value = this.#take();
    if (!(value instanceof Uint8Array) || value.length !== length) throw this.wrong(name, `is not ${length} bytes`);
    return Uint8Array.from(value);
  }

  /** Points into the frame. */
  view(name: string, maxLength: number): Uint8Array {
    const value = this.#take();
    if (!(value instanceof Uint8Array)) throw this.wrong(name, "is no bytes");
    if (value.length > maxLength) throw this.wrong(name, `is longer than ${maxLength} bytes`);
    return value;
  }

  bytesOrNone(name: string, length: number): Uint8Array {
    const value = this.#list[this.#next];
    return this.bytes(name, value instanceof Uint8Array && value.length === 0 ? 0 : length);
  }

  json(name: string): unknown {
    return this.#guarded(name, unpackJson);
  }

  object(name: string): Fields {
    const value = this.json(name);
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw this.wrong(name, "is no object");
    return value as Fields;
  }

  list(name: string, maxItems: number): ListReader {
    const value = this.#take();
    if (!Array.isArray(value)) throw this.wrong(name, "is no list");
    if (value.length > maxItems) throw this.wrong(name, `has more than ${maxItems} elements`);
    return new ListReader(`${this.#what}.${name}`, value);
  }

  lists(name: string, maxItems: number): ListReader[] {
    const list = this.list(name, maxItems);
    const lists: ListReader[] = [];
    while (!list.isAtEnd) {
      const index = lists.length;
      const inner = list.#take();
      if (!Array.isArray(inner)) throw list.wrong(String(index), "is no list");
      lists.push(new ListReader(`${this.#what}.${name}[${index}]`, inner));
    }
    return lists;
  }

  #guarded<T>(name: string, read: (packed: unknown) => T): T {
    try {
      return read(this.#take());
    } catch (error) {
      throw new PicoletError("invalid", `cannot read ${this.#what}: ${name}`, { cause: error });
    }
  }
}
