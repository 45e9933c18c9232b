/** GPIO lines as the kernel has them: linux/gpio.h, version 2 of its structures (Linux 5.10). Pure. */
import type { Edge, EdgeEvent } from "@picolet/wit/generated/picolet-board-gpio.js";
import type { DeviceTarget } from "../../messages/device-request.ts";

/** How a line is opened, in the kernel's flags. */
export interface LineConfig {
  readonly flags: number;
  readonly debounceMicroseconds: number | undefined;
  /** The first level of an output. */
  readonly initial: boolean;
}

/** A chip with its granted lines. Without `wanted` they are listed. */
export interface GpioTarget extends DeviceTarget {
  readonly lines: readonly number[];
  /** The line to open: a number or name among the granted lines. */
  readonly wanted?: { readonly line: number | string; readonly config: LineConfig };
}

/** Names as in linux/gpio.h; the sizes are part of the requests' numbers. */
export const GPIO = {
  /** GPIO_GET_CHIPINFO_IOCTL: _IOR(0xb4, 0x01, struct gpiochip_info) */
  getChipInfo: 0x8044b401,
  /** GPIO_V2_GET_LINEINFO_IOCTL: _IOWR(0xb4, 0x05, struct gpio_v2_line_info) */
  getLineInfo: 0xc100b405,
  /** GPIO_V2_GET_LINE_IOCTL: _IOWR(0xb4, 0x07, struct gpio_v2_line_request) */
  getLine: 0xc250b407,
  /** GPIO_V2_LINE_GET_VALUES_IOCTL, GPIO_V2_LINE_SET_VALUES_IOCTL: _IOWR(0xb4, …, struct gpio_v2_line_values) */
  getValues: 0xc010b40e,
  setValues: 0xc010b40f,
  chipInfoBytes: 68,
  lineInfoBytes: 256,
  lineRequestBytes: 592,
  valuesBytes: 16,
  eventBytes: 48,
} as const;

/** GPIO_V2_LINE_FLAG_… */
export const LINE_FLAG = {
  used: 1 << 0,
  activeLow: 1 << 1,
  input: 1 << 2,
  output: 1 << 3,
  edgeRising: 1 << 4,
  edgeFalling: 1 << 5,
  openDrain: 1 << 6,
  openSource: 1 << 7,
  biasPullUp: 1 << 8,
  biasPullDown: 1 << 9,
  biasDisabled: 1 << 10,
} as const;
/** The flags that a component may request. */
export const LINE_FLAGS = 0x7fe;

const NAME_BYTES = 32;
const CHIP_LINES_AT = 64;
const INFO_OFFSET_AT = 64;
const INFO_FLAGS_AT = 72;
/** Offsets in struct gpio_v2_line_request. */
const CONSUMER_AT = 256;
const CONFIG_AT = 288;
const ATTRIBUTE_COUNT_AT = CONFIG_AT + 8;
const ATTRIBUTES_AT = CONFIG_AT + 32;
const ATTRIBUTE_BYTES = 24;
const LINE_COUNT_AT = 560;
const EVENT_BUFFER_AT = 564;
const FD_AT = 588;
const ATTRIBUTE_OUTPUT_VALUES = 2;
const ATTRIBUTE_DEBOUNCE = 3;
const RISING_EDGE = 1;
const LINE_SEQUENCE_AT = 20;

/** The mask of a request's first line. */
const ONLY_LINE = 1n;
/** The consumer of the line, as `gpioinfo` shows it. */
const CONSUMER = "picolet";
/** Edges that the kernel keeps for a component that does not fetch them; beyond that the oldest are lost. */
const EVENT_BUFFER = 256;

export const decodeChipLines = (memory: Buffer): number => memory.readUInt32LE(CHIP_LINES_AT);

export function encodeLineInfo(line: number): Buffer {
  const memory = Buffer.alloc(GPIO.lineInfoBytes);
  memory.writeUInt32LE(line, INFO_OFFSET_AT);
  return memory;
}

/** @returns `consumer` null when the line is free */
export function decodeLineInfo(memory: Buffer): { readonly name: string; readonly consumer: string | null } {
  const isUsed = (memory.readBigUInt64LE(INFO_FLAGS_AT) & BigInt(LINE_FLAG.used)) !== 0n;
  return { name: textAt(memory, 0), consumer: isUsed ? textAt(memory, NAME_BYTES) : null };
}

function textAt(memory: Buffer, at: number): string {
  const bytes = memory.subarray(at, at + NAME_BYTES);
  const end = bytes.indexOf(0);
  return bytes.subarray(0, end < 0 ? NAME_BYTES : end).toString("utf8");
}

export function encodeLineRequest(line: number, { flags, debounceMicroseconds, initial }: LineConfig): Buffer {
  const memory = Buffer.alloc(GPIO.lineRequestBytes);
  memory.writeUInt32LE(line, 0);
  memory.write(CONSUMER, CONSUMER_AT);
  memory.writeBigUInt64LE(BigInt(flags & LINE_FLAGS), CONFIG_AT);
  let attributes = 0;
  const attribute = (id: number, write: (at: number) => void): void => {
    const at = ATTRIBUTES_AT + attributes * ATTRIBUTE_BYTES;
    memory.writeUInt32LE(id, at);
    write(at + 8);
    memory.writeBigUInt64LE(ONLY_LINE, at + 16);
    attributes += 1;
  };
  if ((flags & LINE_FLAG.output) !== 0) {
    attribute(ATTRIBUTE_OUTPUT_VALUES, (at) => memory.writeBigUInt64LE(initial ? ONLY_LINE : 0n, at));
  }
  if (debounceMicroseconds !== undefined) {
    attribute(ATTRIBUTE_DEBOUNCE, (at) => memory.writeUInt32LE(debounceMicroseconds, at));
  }
  memory.writeUInt32LE(attributes, ATTRIBUTE_COUNT_AT);
  memory.writeUInt32LE(1, LINE_COUNT_AT);
  memory.writeUInt32LE((flags & LINE_FLAG.input) === 0 ? 0 : EVENT_BUFFER, EVENT_BUFFER_AT);
  return memory;
}

export const requestedFd = (memory: Buffer): number => memory.readInt32LE(FD_AT);

/** The values of a request with one line. */
export function encodeValues(level: boolean): Buffer {
  const memory = Buffer.alloc(GPIO.valuesBytes);
  memory.writeBigUInt64LE(level ? ONLY_LINE : 0n, 0);
  memory.writeBigUInt64LE(ONLY_LINE, 8);
  return memory;
}

export const decodeValues = (memory: Buffer): boolean => (memory.readBigUInt64LE(0) & ONLY_LINE) !== 0n;

/** @param memory as many whole events as were read */
export function decodeEvents(memory: Buffer): EdgeEvent[] {
  return Array.from({ length: Math.floor(memory.length / GPIO.eventBytes) }, (_, index) => {
    const at = index * GPIO.eventBytes;
    const edge: Edge = memory.readUInt32LE(at + 8) === RISING_EDGE ? "rising" : "falling";
    return { edge, timestamp: memory.readBigUInt64LE(at), sequence: memory.readUInt32LE(at + LINE_SEQUENCE_AT) };
  });
}
