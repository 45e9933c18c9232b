import { PicoletError } from "../errors.ts";
import { decodeCbor, encodeCbor } from "./encoding/cbor.ts";
import { encodeFrame, encodeMessageFrame, MAX_PAYLOAD_BYTES } from "./frames.ts";
import type { Sender } from "./lane-scheduler.ts";
import { MAX_AGENT_MESSAGE_BYTES, MAX_HUB_MESSAGE_BYTES, packMessage, unpackMessage } from "./message-codec.ts";
import { LANE_OF, type TunnelMessage } from "./messages.ts";
import { PendingAnswer } from "./pending.ts";
import { ReceiveBuffer } from "./receive-buffer.ts";
import type { Lane } from "./stream.ts";

/** Both ends wait for acknowledgements before they send much more; what is beyond this is a mistake of theirs. */
const MAX_QUEUED_MESSAGES = 64;
/** Two of the largest, so that one can be queued while another is on its way. */
const MAX_QUEUED_BYTES = 2 * MAX_HUB_MESSAGE_BYTES;

const MAX_MESSAGE_BYTES = { agent: MAX_AGENT_MESSAGE_BYTES, hub: MAX_HUB_MESSAGE_BYTES } as const;

/** The messages of one lane that were not handed to the link yet. */
export class MessageQueue implements Sender {
  readonly #lane: Lane;
  readonly #queue: Uint8Array[] = [];
  #queuedBytes = 0;
  /** How much of the first was sent in parts. */
  #sentOfFirst = 0;
  #waiters: Set<PendingAnswer<void>> | undefined;
  readonly #maxMessageBytes: number;

  constructor(lane: Lane, role: "agent" | "hub") {
    this.#lane = lane;
    this.#maxMessageBytes = MAX_MESSAGE_BYTES[role];
  }

  /** @throws `resource_exhausted` when it does not fit; nothing is queued then */
  push(message: TunnelMessage): void {
    const bytes = encodeCbor(packMessage(message));
    if (bytes.length > this.#maxMessageBytes) {
      const sizes = `${bytes.length} bytes: ${this.#maxMessageBytes} may be`;
      throw new PicoletError("resource_exhausted", `cannot send a message ${message.kind} of ${sizes}`);
    }
    if (this.#queue.length >= MAX_QUEUED_MESSAGES || this.#queuedBytes + bytes.length > MAX_QUEUED_BYTES) {
      throw new PicoletError("resource_exhausted", `cannot queue another ${message.kind}`, { retryable: true });
    }
    this.#queue.push(bytes);
    this.#queuedBytes += bytes.length;
  }

  nextFrame(): Uint8Array | undefined {
    const [first] = this.#queue;
    if (first === undefined) return undefined;
    if (first.length <= MAX_PAYLOAD_BYTES) {
      this.#shift(first);
      return encodeMessageFrame(first);
    }
    const bytes = first.subarray(this.#sentOfFirst, this.#sentOfFirst + MAX_PAYLOAD_BYTES);
    this.#sentOfFirst += bytes.length;
    const isLast = this.#sentOfFirst === first.length;
    if (isLast) this.#shift(first);
    return encodeFrame({ type: "part", lane: this.#lane, isLast, bytes });
  }

  #shift(first: Uint8Array): void {
    this.#queue.shift();
    this.#queuedBytes -= first.length;
    this.#sentOfFirst = 0;
    if (this.#queue.length === 0) for (const waiter of [...(this.#waiters ?? [])]) waiter.resolve();
  }

  async flushed(signal: AbortSignal): Promise<void> {
    if (this.#queue.length === 0) return;
    this.#waiters ??= new Set();
    const waiters = this.#waiters;
    const waiter = new PendingAnswer<void>("the wait", signal, (settled) => waiters.delete(settled));
    waiters.add(waiter);
    await waiter.promise;
  }

  /** Drops what is queued. */
  fail(error: PicoletError): void {
    this.#queue.length = 0;
    this.#queuedBytes = 0;
    for (const waiter of [...(this.#waiters ?? [])]) waiter.reject(error);
  }
}

/** Puts together what the peer had to cut. One message of each lane can be on its way. */
export class MessageAssembler {
  readonly #maxMessageBytes: number;
  #parts: Map<Lane, ReceiveBuffer> | undefined;

  /** @param role whose messages these are */
  constructor(role: "agent" | "hub") {
    this.#maxMessageBytes = MAX_MESSAGE_BYTES[role];
  }

  /** @returns the message when `bytes` was its last part @throws `invalid` */
  part(lane: Lane, bytes: Uint8Array, isLast: boolean): TunnelMessage | undefined {
    const buffer = this.#parts?.get(lane) ?? new ReceiveBuffer();
    if (buffer.length + bytes.length > this.#maxMessageBytes) {
      throw new PicoletError("invalid", `cannot read message: it is longer than ${this.#maxMessageBytes} bytes`);
    }
    buffer.push(bytes);
    if (!isLast) {
      this.#parts ??= new Map();
      this.#parts.set(lane, buffer);
      return undefined;
    }
    this.#parts?.delete(lane);
    const message = unpackMessage(decodeCbor(joined(buffer)));
    if (LANE_OF[message.kind] !== lane) {
      throw new PicoletError("invalid", `cannot read ${message.kind}: it came in the lane ${lane}`);
    }
    return message;
  }

  /** A message that came in one frame. @throws `invalid` when it came in the middle of another one of its lane */
  whole(message: TunnelMessage): TunnelMessage {
    if (this.#parts?.has(LANE_OF[message.kind]) === true) {
      throw new PicoletError("invalid", `cannot read ${message.kind}: it came before the rest of another message`);
    }
    return message;
  }

  clear(): void {
    this.#parts = undefined;
  }
}

function joined(buffer: ReceiveBuffer): Uint8Array {
  const bytes = new Uint8Array(buffer.length);
  let at = 0;
  for (let block = buffer.shift(); block !== undefined; block = buffer.shift()) {
    bytes.set(block, at);
    at += block.length;
  }
  return bytes;
}
