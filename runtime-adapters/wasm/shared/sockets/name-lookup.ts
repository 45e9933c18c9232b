/** wasi:sockets/ip-name-lookup, by the system's resolver: getaddrinfo(3) in libuv's thread pool. */
import { HostResource } from "../resources/handles.ts";
import { Pollable } from "../resources/polling.ts";
import { WakeListeners } from "../resources/wake-listeners.ts";
import { MAX_ADDRESSES } from "./network-access.ts";
import { addressValue, endpointOf, type IpAddressValue, socketAddress } from "./socket-addresses.ts";
import type { SocketContext } from "./socket-context.ts";
import { type NetworkErrorCode, networkErrorCode, networkFailure } from "./socket-errors.ts";

/** RFC 1035; in ASCII, a dot at the end not counted. */
const MAX_NAME_LENGTH = 253;
const MAX_LABEL_LENGTH = 63;
const LABEL_CHARACTERS = /^[\w-]+$/;

export type LookupOutcome = readonly IpAddressValue[] | NetworkErrorCode;

export function resolveAddresses(context: SocketContext, name: string): ResolveAddressStream {
  const begin = lookUp(context, name);
  const stream = new ResolveAddressStream(context);
  begin((outcome) => stream.end(outcome));
  return stream;
}

/**
 * @returns starts the look-up; it has to be called, and reports its outcome once
 * @throws errors that are known at once: `invalid-argument`, `access-denied`, `temporary-resolver-failure`
 */
export function lookUp(context: SocketContext, name: string): (done: (outcome: LookupOutcome) => void) => void {
  const literal = addressValue(name);
  if (literal !== undefined) return (done) => done([literal]);
  const ascii = asciiName(context, name);
  context.access.checkLookup(ascii);
  const giveBack = context.access.takeLookup();
  return (done) => {
    context.modules.dns().lookup(ascii, { all: true }, (error, found) => {
      giveBack();
      const addresses = (found ?? []).map(({ address }) => address);
      done(error === null ? remembered(context, ascii, addresses) : networkErrorCode(error));
    });
  };
}

/** Remembers the addresses, to which the component may then connect. */
function remembered({ access }: SocketContext, name: string, found: readonly string[]): readonly IpAddressValue[] {
  const values = found.slice(0, MAX_ADDRESSES).flatMap((text) => addressValue(text) ?? []);
  const asEndpoints = found.slice(0, MAX_ADDRESSES).map((address) => endpointOf(socketAddress({ address, port: 0 })));
  access.remember(
    name,
    asEndpoints.map(({ address }) => address),
  );
  return values;
}

function asciiName({ modules }: SocketContext, name: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: ASCII is what is looked for
  const ascii = (/^[\x00-\x7f]*$/.test(name) ? name : modules.url().domainToASCII(name)).replace(/\.$/, "");
  const isLabel = (label: string): boolean => label.length <= MAX_LABEL_LENGTH && LABEL_CHARACTERS.test(label);
  if (ascii.length > MAX_NAME_LENGTH || !ascii.split(".").every(isLabel)) throw networkFailure("invalid-argument");
  return ascii.toLowerCase();
}

export class ResolveAddressStream extends HostResource {
  readonly #context: SocketContext;
  readonly #wakes = new WakeListeners();
  /** The outcome that the component has not read yet; undefined: unknown. */
  #outcome: LookupOutcome | undefined;

  constructor(context: SocketContext) {
    super(context.handles.lookups);
    this.#context = context;
  }

  end(outcome: LookupOutcome): void {
    this.#outcome = outcome;
    this.#wakes.all();
  }

  /** One after the other, and undefined after the last. */
  resolveNextAddress(): IpAddressValue | undefined {
    if (this.#outcome === undefined) throw networkFailure("would-block");
    if (typeof this.#outcome === "string") throw networkFailure(this.#outcome);
    const [next, ...rest] = this.#outcome;
    this.#outcome = rest;
    return next;
  }

  subscribe(): Pollable {
    const readiness = { ready: () => this.#outcome !== undefined, onReady: this.#wakes.add };
    return new Pollable(this.#context.handles.pollables, this.#context.poller, readiness);
  }
}
