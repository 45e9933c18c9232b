/** wasi:http/types of WASI 0.3: header fields and request options. */

import { type FieldEntry, FieldList, Fields } from "../../shared/http/fields.ts";
import type { HttpContext } from "../../shared/http/http-context.ts";
import { Failure } from "../../shared/resources/failure.ts";
import { HostResource } from "../../shared/resources/handles.ts";
import type { AsyncContext } from "./async-context.ts";

export class AsyncFields extends Fields {
  static override fromList(context: HttpContext, entries: readonly FieldEntry[]): AsyncFields {
    const fields = new AsyncFields(context, new FieldList(), false);
    try {
      for (const [name, value] of entries) fields.append(name, value);
      return fields;
    } catch (error) {
      fields[Symbol.dispose]();
      throw error;
    }
  }

  override set(name: string, values: readonly Uint8Array[]): void {
    sized(() => super.set(name, values));
  }

  override append(name: string, value: Uint8Array): void {
    sized(() => super.append(name, value));
  }

  getAndDelete(name: string): Uint8Array[] {
    const values = this.get(name);
    this.delete(name);
    return values;
  }

  copyAll(): readonly FieldEntry[] {
    return this.entries();
  }

  override clone(): AsyncFields {
    return new AsyncFields(this.context, this.list.copy(), false);
  }
}

/** A change that traps in 0.2 has an error here. */
function sized<T>(change: () => T): T {
  try {
    return change();
  } catch (error) {
    throw error instanceof WebAssembly.RuntimeError ? new Failure({ tag: "size-exceeded" }) : error;
  }
}

type Duration = bigint | undefined;

export interface Timeouts {
  connect: Duration;
  firstByte: Duration;
  betweenBytes: Duration;
}

export class AsyncOptions extends HostResource {
  readonly #context: AsyncContext;
  readonly timeouts: Timeouts;
  readonly #immutable: boolean;

  constructor(
    context: AsyncContext,
    timeouts: Timeouts = { connect: undefined, firstByte: undefined, betweenBytes: undefined },
    immutable = false,
  ) {
    super(context.pool("request options"));
    this.#context = context;
    this.timeouts = timeouts;
    this.#immutable = immutable;
  }

  /** As a request shows them. */
  fixed(): AsyncOptions {
    return new AsyncOptions(this.#context, this.timeouts, true);
  }

  getConnectTimeout(): Duration {
    return this.timeouts.connect;
  }

  setConnectTimeout(duration: Duration): void {
    this.#set("connect", duration);
  }

  getFirstByteTimeout(): Duration {
    return this.timeouts.firstByte;
  }

  setFirstByteTimeout(duration: Duration): void {
    this.#set("firstByte", duration);
  }

  getBetweenBytesTimeout(): Duration {
    return this.timeouts.betweenBytes;
  }

  setBetweenBytesTimeout(duration: Duration): void {
    this.#set("betweenBytes", duration);
  }

  clone(): AsyncOptions {
    return new AsyncOptions(this.#context, { ...this.timeouts });
  }

  #set(which: keyof Timeouts, duration: Duration): void {
    if (this.#immutable) throw new Failure({ tag: "immutable" });
    this.timeouts[which] = duration;
  }
}
