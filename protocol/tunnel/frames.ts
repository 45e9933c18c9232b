/**
 * The frames of the mux: each is one CBOR array in one binary WebSocket message. PROTOCOL.md has the table.
 */
import { PicoletError } from "../errors.ts";
import { decodeCbor, encodeCbor } from "./encoding/cbor.ts";
import { ListReader } from "./encoding/list-reader.ts";
import { packJson } from "./encoding/wire-json.ts";
import type { Lane, StreamError, StreamKind } from "./stream.ts";

/**
 * Payload of one frame. While it is written nothing else can be, so it bounds how long a ping waits: 13 s at 10 kbit/s,
 * 0.13 s at 1 Mbit/s. Also the largest that fits one TLS record (2^14), with which larger ones would be cut anyway.
 */
export const MAX_PAYLOAD_BYTES = 16_000;
/** Bounds a frame with its head (at most 16 bytes); the WebSocket's `maxPayload`. */
export const MAX_FRAME_BYTES = 16_384;

/** Order of weight; the place of a lane is its number on the wire. */
export const LANES: readonly Lane[] = ["control", "status", "interactive", "logs", "bulk"];
/** The place of a kind is its number on the wire. */
const STREAM_KINDS: readonly StreamKind[] = [
  ...(["logs", "exec", "attach", "portForward", "kubelet", "token", "telemetry", "samples"] as const),
];

export type Frame =
  /** A whole message, `[kind, …fields]`. */
  | { readonly type: "message"; readonly message: readonly unknown[] }
  /** A piece of a message that is larger than a frame. */
  | { readonly type: "part"; readonly lane: Lane; readonly isLast: boolean; readonly bytes: Uint8Array }
  | {
      readonly type: "open";
      readonly id: number;
      readonly kind: StreamKind;
      readonly lane: Lane;
      readonly params: unknown;
    }
  | { readonly type: "accept"; readonly id: number; readonly reply: unknown }
  | { readonly type: "reject"; readonly id: number; readonly error: StreamError }
  | { readonly type: "data"; readonly id: number; readonly bytes: Uint8Array }
  | { readonly type: "end"; readonly id: number }
  | { readonly type: "reset"; readonly id: number; readonly error: StreamError }
  | { readonly type: "credit"; readonly id: number; readonly bytes: number }
  | { readonly type: "ping"; readonly number: number }
  | { readonly type: "pong"; readonly number: number };

type StreamFrameType = "open" | "accept" | "reject" | "data" | "end" | "reset" | "credit";
/** Frames that name a stream. */
export type StreamFrame = Extract<Frame, { readonly type: StreamFrameType }>;

/** The place of a type is its number on the wire. */
export const FRAME_TYPES: readonly Frame["type"][] = [
  "message",
  "part",
  "open",
  "accept",
  "reject",
  "data",
  "end",
  "reset",
  "credit",
  "ping",
  "pong",
];
const NUMBER_OF = Object.fromEntries(FRAME_TYPES.map((type, index) => [type, index])) as Record<Frame["type"], number>;

/** Bounds an error, so that it fits a frame with any text that it quotes. */
const MAX_ERROR_CODE = 64;
const MAX_ERROR_MESSAGE = 1024;

/** A whole message that `encodeCbor` made of `[kind, …fields]`, fewer than 23 of them. */
export function encodeMessageFrame(message: Uint8Array): Uint8Array {
  const frame = new Uint8Array(message.length + 1);
  frame.set(message, 1);
  frame[0] = (message[0] ?? 0) + 1;
  frame[1] = NUMBER_OF.message;
  return frame;
}

export function encodeFrame(frame: Exclude<Frame, { readonly type: "message" }>): Uint8Array {
  return frame.type === "data" ? encodeData(frame.id, frame.bytes) : encodeCbor(arrayOf(frame));
}

function arrayOf(frame: Exclude<Frame, { readonly type: "data" | "message" }>): unknown[] {
  const number = NUMBER_OF[frame.type];
  switch (frame.type) {
    case "part":
      return [number, LANES.indexOf(frame.lane), frame.isLast, frame.bytes];
    case "open":
      return [number, frame.id, STREAM_KINDS.indexOf(frame.kind), LANES.indexOf(frame.lane), packJson(frame.params)];
    case "accept":
      return [number, frame.id, packJson(frame.reply)];
    case "reject":
    case "reset":
      return [
        number,
        frame.id,
        frame.error.code.slice(0, MAX_ERROR_CODE),
        frame.error.message.slice(0, MAX_ERROR_MESSAGE),
      ];
    case "end":
      return [number, frame.id];
    case "credit":
      return [number, frame.id, frame.bytes];
    case "ping":
    case "pong":
      return [number, frame.number];
  }
}

const CBOR_ARRAY_OF_3 = 0x83;
const CBOR_UINT32 = 0x1a;
const CBOR_BYTES_UINT16 = 0x59;

/** Written by hand: the library would copy the payload into a buffer that it keeps. */
function encodeData(id: number, bytes: Uint8Array): Uint8Array {
  const idLength = id < 24 ? 1 : id < 256 ? 2 : id < 65_536 ? 3 : 5;
  const sizeLength = bytes.length < 24 ? 1 : bytes.length < 256 ? 2 : 3;
  const frame = new Uint8Array(2 + idLength + sizeLength + bytes.length);
  frame[0] = CBOR_ARRAY_OF_3;
  frame[1] = NUMBER_OF.data;
  putHead(frame, 2, 0, id, idLength);
  putHead(frame, 2 + idLength, CBOR_BYTES_UINT16 & 0xe0, bytes.length, sizeLength);
  frame.set(bytes, frame.length - bytes.length);
  return frame;
}

function putHead(frame: Uint8Array, at: number, major: number, value: number, length: number): void {
  if (length === 1) {
    frame[at] = major | value;
    return;
  }
  frame[at] = major | (CBOR_UINT32 - (length === 5 ? 0 : length === 3 ? 1 : 2));
  for (let left = value, place = length - 1; place > 0; place -= 1, left = Math.floor(left / 256)) {
    frame[at + place] = left & 0xff;
  }
}

/**
 * Byte strings of `part` and `data` are views of `bytes`.
 * @throws `invalid`: too long, no CBOR, no such frame
 */
export function decodeFrame(bytes: Uint8Array): Frame {
  if (bytes.length > MAX_FRAME_BYTES) {
    throw new PicoletError("invalid", `cannot read frame: it is longer than ${MAX_FRAME_BYTES} bytes`);
  }
  const array = decodeCbor(bytes);
  const type = Array.isArray(array) ? FRAME_TYPES[array[0]] : undefined;
  if (!Array.isArray(array) || type === undefined) {
    throw new PicoletError("invalid", "cannot read frame: its type is unknown");
  }
  if (type === "message") return { type, message: array.slice(1) };
  return readFrame(type, new ListReader(`${type} frame`, array, 1));
}

function readFrame(type: Exclude<Frame["type"], "message">, fields: ListReader): Frame {
  switch (type) {
    case "part":
      return { type, lane: readMessageLane(fields), isLast: fields.flag("last"), bytes: readPayload(fields) };
    case "open":
      return {
        type,
        id: readId(fields),
        kind: fields.oneOf("kind", STREAM_KINDS),
        lane: fields.oneOf("lane", LANES),
        params: fields.json("params"),
      };
    case "accept":
      return { type, id: readId(fields), reply: fields.json("reply") };
    case "reject":
    case "reset":
      return {
        type,
        id: readId(fields),
        error: { code: fields.text("code", MAX_ERROR_CODE), message: fields.text("message", MAX_ERROR_MESSAGE) },
      };
    case "data":
      return { type, id: readId(fields), bytes: readPayload(fields) };
    case "end":
      return { type, id: readId(fields) };
    case "credit":
      return { type, id: readId(fields), bytes: fields.count("bytes") };
    case "ping":
    case "pong":
      return { type, number: fields.count("number") };
  }
}

/** Stream ids are 32-bit: at ten streams a second they last thirteen years of one session. */
const MAX_ID = 0xffff_ffff;

function readId(fields: ListReader): number {
  const id = fields.count("id");
  if (id === 0 || id > MAX_ID) throw fields.wrong("id", "is no id of a stream");
  return id;
}

function readMessageLane(fields: ListReader): Lane {
  const lane = fields.oneOf("lane", LANES);
  if (lane !== "control" && lane !== "status") throw fields.wrong("lane", "is none that messages travel in");
  return lane;
}

function readPayload(fields: ListReader): Uint8Array {
  const bytes = fields.view("bytes", MAX_PAYLOAD_BYTES);
  if (bytes.length === 0) throw fields.wrong("bytes", "is empty");
  return bytes;
}
