/**
 * The instances of a component that serves. Each handles one request at a time. A new one is made when all others are
 * busy, and one that traps is discarded. Requests beyond their number wait, up to a limit, and are refused above it.
 */
import type { HttpContext } from "../http/http-context.ts";
import type { IncomingRequest } from "../http/messages.ts";
import { ResponseOutparam } from "../http/messages.ts";
import type { Exchange } from "./exchange.ts";

export interface HandlerInstance {
  readonly context: HttpContext;
  /** Calls the component's `handle`. */
  handle(request: IncomingRequest, out: ResponseOutparam): Promise<unknown>;
  /** Discards it. Everything that it waits for ends. */
  discard(): void;
  /** It is discarded and nothing of it runs any more. Releases its resources of the host. */
  close?(): void;
}

export interface InstancePoolInit {
  readonly instances: number;
  readonly waiting: number;
  readonly timeoutMs: number;
}

export interface InstancePoolComponents {
  /** Throws when the component cannot be instantiated: then it can serve nothing any more. */
  readonly make: () => HandlerInstance;
  /** @returns whether there is memory for another instance */
  readonly mayGrow: () => boolean;
  /** Milliseconds, monotonic. */
  readonly now: () => number;
  /** Reports a fault of the component in one request. */
  readonly onFault: (exchange: Exchange, fault: unknown) => void;
  /** `make` has thrown. */
  readonly onBroken: (error: unknown) => void;
}

interface Underway {
  readonly exchange: Exchange;
  readonly instance: HandlerInstance;
  readonly sinceMs: number;
}

export class InstancePool {
  readonly #components: InstancePoolComponents;
  readonly #init: InstancePoolInit;
  readonly #idle: HandlerInstance[] = [];
  readonly #waiting: Exchange[] = [];
  /** As many as there are instances at most. Not a set, of which V8 makes another table whenever it is empty. */
  readonly #underway: Underway[] = [];

  constructor(components: InstancePoolComponents, init: InstancePoolInit) {
    this.#components = components;
    this.#init = init;
  }

  /**
   * Makes the first instance, so that a component that cannot be instantiated is found at the start.
   * @throws errors of its instantiation
   */
  prepare(): void {
    this.#idle.push(this.#components.make());
  }

  take(exchange: Exchange): void {
    const { waiting } = this.#init;
    // One at a time always goes, however little memory is left.
    const mayBegin = this.#underway.length === 0 || this.#components.mayGrow();
    if (mayBegin && (this.#idle.length > 0 || this.#mayMake())) this.#serve(exchange);
    else if (mayBegin && this.#waiting.length < waiting) this.#waiting.push(exchange);
    else exchange.answer(503, ["retry-after: 1"]);
  }

  /** True while an instance handles a request. */
  get isBusy(): boolean {
    return this.#underway.length > 0;
  }

  /** Ends what takes too long. Called about once a second while it is busy. */
  tick(): void {
    const latest = this.#components.now() - this.#init.timeoutMs;
    for (const each of this.#underway.filter(({ sinceMs }) => sinceMs <= latest)) {
      this.#end(each);
      this.#components.onFault(each.exchange, new Error(`no end after ${this.#init.timeoutMs / 1000} s`));
      each.exchange.broken(504);
      each.instance.discard();
      this.#next();
    }
  }

  #serve(exchange: Exchange): void {
    const instance = this.#idle.pop() ?? this.#made();
    if (instance === undefined) {
      exchange.answer(500);
      return;
    }
    const underway = { exchange, instance, sinceMs: this.#components.now() };
    this.#underway.push(underway);
    this.#handled(instance, exchange).then(
      () => this.#ended(underway),
      (error: unknown) => this.#trapped(underway, error),
    );
  }

  async #handled({ context, handle }: HandlerInstance, exchange: Exchange): Promise<void> {
    await handle(exchange.request(context), new ResponseOutparam(context, exchange));
  }

  #ended(underway: Underway): void {
    const { exchange, instance } = underway;
    if (!this.#end(underway)) {
      instance.close?.();
      return;
    }
    const fault = exchange.returned();
    if (fault !== undefined) this.#components.onFault(exchange, new Error(fault));
    this.#idle.push(instance);
    this.#next();
  }

  #trapped(underway: Underway, error: unknown): void {
    const { exchange, instance } = underway;
    if (this.#end(underway)) {
      this.#components.onFault(exchange, error);
      exchange.broken(500);
      instance.discard();
      this.#next();
    }
    instance.close?.();
  }

  /** @returns false: it was over already */
  #end(underway: Underway): boolean {
    const at = this.#underway.indexOf(underway);
    if (at < 0) return false;
    const last = this.#underway.pop();
    if (last !== undefined && last !== underway) this.#underway[at] = last;
    return true;
  }

  #next(): void {
    for (let exchange = this.#waiting.shift(); exchange !== undefined; exchange = this.#waiting.shift()) {
      if (exchange.isGone) continue;
      this.#serve(exchange);
      return;
    }
  }

  #mayMake(): boolean {
    return this.#underway.length < this.#init.instances;
  }

  #made(): HandlerInstance | undefined {
    try {
      return this.#components.make();
    } catch (error) {
      this.#components.onBroken(error);
      return undefined;
    }
  }
}
