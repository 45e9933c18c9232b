/**
 * What of Node lies below `node:net` and `node:http`: libuv's TCP handle, and llhttp, the parser that has met the hostile
 * clients of years. Their streams and event emitters would cost a served request more than the parser and the system calls
 * together, and each connection some 20 KiB. No public part of Node gives the one without the other. The version of Node is
 * fixed with the product, and `http-connection.test.ts` sees when this changes.
 */

/** Of one write; the handle's own may be used again when it was not asynchronous. */
export interface WriteRequest {
  oncomplete: ((status: number) => void) | undefined;
}

/** Results below 0 are errno. */
export interface TcpHandle {
  bind(address: string, port: number): number;
  bind6(address: string, port: number, flags: number): number;
  listen(backlog: number): number;
  onconnection: ((status: number, client: TcpHandle | undefined) => void) | undefined;
  setNoDelay(on: boolean): number;
  /** From then on all is read into it, and `onread` called without an argument. */
  useUserBuffer(buffer: Uint8Array): void;
  /** `NodePrivateApi.bytesRead` has the number of bytes, or an errno. @returns what the next read goes into, if that changes */
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
  initialize(type: number, resource: object, maxHeaderBytes: number, lenientFlags: number): void;
  /** @returns bytes that were read, or what is wrong with them */
  execute(bytes: Uint8Array): number | (Error & { readonly code?: string });
  /** The other side has ended. @returns what is wrong with that */
  finish(): unknown;
  /** Not from within one of its callbacks. */
  close(): void;
  /** Field names and values in turn; called ahead of `HEADERS_COMPLETE` where there are more than 32, and for trailers. */
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

/** What `HEADERS_COMPLETE` returns: the body follows, or nothing that the parser would know. */
export const PARSE_BODY = 0;
export const UPGRADE_FOLLOWS = 2;

/** Of libuv. */
export const END_OF_FILE = -4095;

interface StreamState {
  readonly streamBaseState: Int32Array;
  readonly kReadBytesOrError: number;
  readonly kLastWriteWasAsync: number;
  readonly WriteWrap: new () => WriteRequest;
  readonly ShutdownWrap: new () => WriteRequest;
}

interface HttpCommon {
  readonly HTTPParser: new () => HttpParser;
  /** By the parser's numbers, but for QUERY, which is the last. */
  readonly methods: readonly string[];
}

export class NodePrivateApi {
  readonly #stream: StreamState;
  readonly #http: HttpCommon;
  readonly #tcp: { readonly TCP: new (kind: number) => TcpHandle; readonly constants: { readonly SERVER: number } };

  constructor() {
    const binding = Reflect.get(process, "binding") as (name: string) => unknown;
    this.#stream = binding.call(process, "stream_wrap") as StreamState;
    this.#tcp = binding.call(process, "tcp_wrap") as never;
    this.#http = process.getBuiltinModule("_http_common") as unknown as HttpCommon;
  }

  /** Of the `onread` that is running. */
  get bytesRead(): number {
    const { streamBaseState, kReadBytesOrError } = this.#stream;
    return streamBaseState[kReadBytesOrError] as number;
  }

  /** Whether the write that has just been made goes on. */
  get isWriting(): boolean {
    const { streamBaseState, kLastWriteWasAsync } = this.#stream;
    return streamBaseState[kLastWriteWasAsync] !== 0;
  }

  server(): TcpHandle {
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
