/**
 * The parts of Node below `node:net` and `node:http`: libuv's TCP handle, and llhttp, the parser that has met the
 * hostile clients of years. Node's streams and event emitters would cost a served request more than the parser and the
 * system calls together, and each connection about 20 KiB. No public part of Node has one without the other. Where a
 * Node has no such private parts any more, `public-parts.ts` makes the same of public ones. The private ones are named
 * in this file alone.
 */

/** One write. Its object may be used again when it was not asynchronous. */
export interface WriteRequest {
  oncomplete: ((status: number) => void) | undefined;
}

/** Results below 0 are errno. */
export interface TcpListener {
  bind(address: string, port: number): number;
  bind6(address: string, port: number, flags: number): number;
  listen(backlog: number): number;
  onconnection: ((status: number, client: TcpHandle | undefined) => void) | undefined;
  close(): void;
}

/** One connection. Results below 0 are errno. */
export interface TcpHandle {
  setNoDelay(on: boolean): number;
  /** From then on all is read into it, and `onread` called without an argument. */
  useUserBuffer(buffer: Uint8Array): void;
  /**
   * `NodePrivateApi.bytesRead` has the number of bytes, or an errno.
   * @returns the buffer for the next read, if it changes
   */
  onread: (() => Uint8Array | undefined) | undefined;
  readStart(): number;
  readStop(): number;
  writeLatin1String(request: WriteRequest, text: string): number;
  /** @param chunks with `false`: bytes or a text, and its encoding, in turn */
  writev(request: WriteRequest, chunks: readonly unknown[], allBytes: boolean): number;
  readonly writeQueueSize: number;
  /** Once everything is written; 1 when it is done on return. */
  shutdown(request: WriteRequest): number;
  close(): void;
}

/** llhttp as Node binds it: callbacks are properties by number. */
export interface HttpParser {
  /** @returns the number of parsed bytes, or the parser's error */
  execute(bytes: Uint8Array): number | (Error & { readonly code?: string });
  /** The other side has ended. @returns the parser's error, if any */
  finish(): unknown;
  /** Not from within one of its callbacks. */
  close(): void;
  /**
   * Field names and values in turn; called ahead of `HEADERS_COMPLETE` where there are more than 32, and for trailers.
   */
  [ON_HEADERS]: (fields: readonly string[], url: string) => void;
  [ON_HEADERS_COMPLETE]: (
    versionMajor: number,
    versionMinor: number,
    fields: readonly string[] | undefined,
    method: number,
    url: string | undefined,
    statusCode: undefined,
    statusMessage: undefined,
    upgrade: boolean,
    shouldKeepAlive: boolean,
  ) => number;
  /** The bytes are a copy. */
  [ON_BODY]: (bytes: Uint8Array) => void;
  [ON_MESSAGE_COMPLETE]: () => void;
}

export const ON_HEADERS = 1;
export const ON_HEADERS_COMPLETE = 2;
export const ON_BODY = 3;
export const ON_MESSAGE_COMPLETE = 4;
const REQUEST = 1;
const STRICT = 0;

/** Results of `HEADERS_COMPLETE`: the body follows, or data that the parser does not know. */
export const PARSE_BODY = 0;
export const UPGRADE_FOLLOWS = 2;

/** libuv's UV_EOF. */
export const END_OF_FILE = -4095;

/** The private ones, or public ones in their place. */
export interface NodePrivateApi {
  /** How many times as much a connection takes at most as one of private parts. */
  readonly weight: number;
  /** The result of the `onread` that is running. */
  readonly bytesRead: number;
  /** True when the last write is still pending. */
  readonly isWriting: boolean;
  listener(): TcpListener;
  write(): WriteRequest;
  shutdown(): WriteRequest;
  requestParser(maxHeaderBytes: number): HttpParser;
  methodName(number: number): string;
}

interface StreamState {
  readonly streamBaseState: Int32Array;
  readonly kReadBytesOrError: number;
  readonly kLastWriteWasAsync: number;
  readonly WriteWrap: new () => WriteRequest;
  readonly ShutdownWrap: new () => WriteRequest;
}

interface HttpCommon {
  readonly HTTPParser: new () => HttpParser & {
    initialize(type: number, resource: object, maxHeaderBytes: number, lenientFlags: number): void;
  };
  /** By the parser's numbers, but for QUERY, which is the last. */
  readonly methods: readonly string[];
}

interface TcpWrap {
  readonly TCP: new (kind: number) => TcpListener;
  readonly constants: { readonly SERVER: number };
}

interface Bindings {
  readonly stream: StreamState;
  readonly tcp: TcpWrap;
  readonly http: HttpCommon;
}

/** The private parts where this Node has them, else the public ones, which are loaded then. */
export async function nodeParts(binding = nodeBinding()): Promise<NodePrivateApi> {
  const known = privateParts(binding);
  if (known !== undefined) return known;
  const { PublicParts } = await import("./public-parts.ts");
  return new PublicParts();
}

type Binding = ((this: NodeJS.Process, name: string) => unknown) | undefined;

const nodeBinding = (): Binding => Reflect.get(process, "binding") as Binding;

/** @returns undefined: this Node has no such parts */
export function privateParts(binding = nodeBinding()): NodePrivateApi | undefined {
  try {
    const stream = binding?.call(process, "stream_wrap") as StreamState | undefined;
    const tcp = binding?.call(process, "tcp_wrap") as TcpWrap | undefined;
    const http = process.getBuiltinModule("_http_common") as unknown as HttpCommon | undefined;
    const isThere =
      stream?.streamBaseState !== undefined &&
      [stream.WriteWrap, stream.ShutdownWrap, tcp?.TCP, http?.HTTPParser].every((each) => typeof each === "function");
    return isThere && tcp !== undefined && http !== undefined ? new PrivateParts({ stream, tcp, http }) : undefined;
  } catch {
    return undefined;
  }
}

class PrivateParts implements NodePrivateApi {
  readonly weight = 1;
  readonly #stream: StreamState;
  readonly #tcp: TcpWrap;
  readonly #http: HttpCommon;

  constructor({ stream, tcp, http }: Bindings) {
    this.#stream = stream;
    this.#tcp = tcp;
    this.#http = http;
  }

  get bytesRead(): number {
    const { streamBaseState, kReadBytesOrError } = this.#stream;
    return streamBaseState[kReadBytesOrError] as number;
  }

  get isWriting(): boolean {
    const { streamBaseState, kLastWriteWasAsync } = this.#stream;
    return streamBaseState[kLastWriteWasAsync] !== 0;
  }

  listener(): TcpListener {
    const { TCP, constants } = this.#tcp;
    return new TCP(constants.SERVER);
  }

  write(): WriteRequest {
    return new this.#stream.WriteWrap();
  }

  shutdown(): WriteRequest {
    return new this.#stream.ShutdownWrap();
  }

  requestParser(maxHeaderBytes: number): HttpParser {
    const parser = new this.#http.HTTPParser();
    parser.initialize(REQUEST, {}, maxHeaderBytes, STRICT);
    return parser;
  }

  methodName(number: number): string {
    const { methods } = this.#http;
    return methods[number] ?? "QUERY";
  }
}
