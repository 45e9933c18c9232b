/**
 * I2C transfers as the kernel has them: linux/i2c.h and linux/i2c-dev.h of 64-bit machines. Buses that speak nothing
 * but SMBus are given those of its commands that look the same on the line. Pure.
 */
import type { Operation } from "@picolet/wit/generated/picolet-board-i2c.js";
import type { DeviceTarget } from "../../messages/device-request.ts";
import { TEN_BIT_FLAG } from "./grant.ts";

export interface I2cTarget extends DeviceTarget {
  readonly address: number;
}

export const I2C_SLAVE = 0x0703;
export const I2C_TENBIT = 0x0704;
export const I2C_FUNCS = 0x0705;
export const I2C_RDWR = 0x0707;
export const I2C_SMBUS = 0x0720;
/** The size of the result of `I2C_FUNCS`. */
export const FUNCS_BYTES = 8;

/** I2C_RDWR_IOCTL_MAX_MSGS, and the limit of one message in drivers/i2c/i2c-dev.c. */
export const MAX_OPERATIONS = 42;
export const MAX_OPERATION_BYTES = 8192;

const I2C_M_RD = 0x0001;
const I2C_M_TEN = 0x0010;
/** struct i2c_rdwr_ioctl_data, struct i2c_msg */
const TRANSFER_BYTES = 16;
const MESSAGE_BYTES = 16;

/** I2C_FUNC_… */
const FUNC = {
  i2c: 0x00000001,
  readByte: 0x00020000,
  writeByte: 0x00040000,
  readByteData: 0x00080000,
  writeByteData: 0x00100000,
  readBlock: 0x04000000,
  writeBlock: 0x08000000,
} as const;
const SMBUS_WRITE = 0;
const SMBUS_READ = 1;
const SMBUS_BYTE = 1;
const SMBUS_BYTE_DATA = 2;
const SMBUS_I2C_BLOCK_DATA = 8;
const MAX_BLOCK_BYTES = 32;
/** struct i2c_smbus_ioctl_data, and behind it union i2c_smbus_data, whose first byte is a block's length. */
const SMBUS_HEADER_BYTES = 16;
const SMBUS_BYTES = SMBUS_HEADER_BYTES + 34;

export const supportsI2c = (functions: number): boolean => (functions & FUNC.i2c) !== 0;

const bytesOf = (operation: Operation): number => (operation.tag === "read" ? operation.val : operation.val.length);

export const isTooLarge = (operations: readonly Operation[]): boolean =>
  operations.length > MAX_OPERATIONS || operations.some((each) => bytesOf(each) > MAX_OPERATION_BYTES);

/** A transfer, with the places of the bytes that the device sends. */
export interface Transfer {
  readonly memory: Buffer;
  readonly reads: readonly { readonly at: number; readonly length: number }[];
}

/**
 * The argument of `I2C_RDWR`.
 * @param operations not too large
 * @param addressOf returns the address of a buffer, for the kernel
 */
export function encodeTransfer(
  device: number,
  operations: readonly Operation[],
  addressOf: (memory: Buffer) => bigint,
): Transfer {
  const messages = TRANSFER_BYTES;
  let at = messages + operations.length * MESSAGE_BYTES;
  const memory = Buffer.alloc(operations.reduce((sum, each) => sum + bytesOf(each), at));
  const address = addressOf(memory);
  const isTenBit = (device & TEN_BIT_FLAG) !== 0;
  const reads: { at: number; length: number }[] = [];
  for (const [index, operation] of operations.entries()) {
    const length = bytesOf(operation);
    const isRead = operation.tag === "read";
    const message = messages + index * MESSAGE_BYTES;
    memory.writeUInt16LE(device & ~TEN_BIT_FLAG, message);
    memory.writeUInt16LE((isRead ? I2C_M_RD : 0) | (isTenBit ? I2C_M_TEN : 0), message + 2);
    memory.writeUInt16LE(length, message + 4);
    memory.writeBigUInt64LE(address + BigInt(at), message + 8);
    if (operation.tag === "read") reads.push({ at, length });
    else memory.set(operation.val, at);
    at += length;
  }
  memory.writeBigUInt64LE(address + BigInt(messages), 0);
  memory.writeUInt32LE(operations.length, 8);
  return { memory, reads };
}

/**
 * The argument of `I2C_SMBUS`.
 * @returns undefined when no command of SMBus has this form, or the bus does not have it
 */
export function encodeSmbus(
  operations: readonly Operation[],
  functions: number,
  addressOf: (memory: Buffer) => bigint,
): Transfer | undefined {
  const command = smbusCommand(operations);
  if (command === undefined || (functions & command.needs) === 0) return undefined;
  const memory = Buffer.alloc(SMBUS_BYTES);
  const { isRead, register, size, data, length } = command;
  memory[0] = isRead ? SMBUS_READ : SMBUS_WRITE;
  memory[1] = register;
  memory.writeUInt32LE(size, 4);
  memory.writeBigUInt64LE(addressOf(memory) + BigInt(SMBUS_HEADER_BYTES), 8);
  const isBlock = size === SMBUS_I2C_BLOCK_DATA;
  if (isBlock) memory[SMBUS_HEADER_BYTES] = length;
  const at = SMBUS_HEADER_BYTES + (isBlock ? 1 : 0);
  memory.set(data, at);
  return { memory, reads: isRead ? [{ at, length }] : [] };
}

interface SmbusCommand {
  readonly isRead: boolean;
  readonly register: number;
  readonly size: number;
  readonly needs: number;
  /** The bytes to write. */
  readonly data: Uint8Array;
  readonly length: number;
}

function smbusCommand(operations: readonly Operation[]): SmbusCommand | undefined {
  const [first, second] = operations;
  if (first === undefined || operations.length > 2) return undefined;
  const none = new Uint8Array();
  if (first.tag === "read") {
    if (second !== undefined || first.val !== 1) return undefined;
    return { isRead: true, register: 0, size: SMBUS_BYTE, needs: FUNC.readByte, data: none, length: 1 };
  }
  const [register = 0] = first.val;
  if (second !== undefined) {
    if (second.tag !== "read" || first.val.length !== 1) return undefined;
    if (second.val === 1) {
      return { isRead: true, register, size: SMBUS_BYTE_DATA, needs: FUNC.readByteData, data: none, length: 1 };
    }
    if (second.val < 1 || second.val > MAX_BLOCK_BYTES) return undefined;
    const needs = FUNC.readBlock;
    return { isRead: true, register, size: SMBUS_I2C_BLOCK_DATA, needs, data: none, length: second.val };
  }
  const data = first.val.subarray(1);
  const written = { isRead: false, register, data, length: data.length };
  if (first.val.length === 1) return { ...written, size: SMBUS_BYTE, needs: FUNC.writeByte };
  if (data.length === 1) return { ...written, size: SMBUS_BYTE_DATA, needs: FUNC.writeByteData };
  if (data.length < 1 || data.length > MAX_BLOCK_BYTES) return undefined;
  return { ...written, size: SMBUS_I2C_BLOCK_DATA, needs: FUNC.writeBlock };
}

/** @returns a copy of the bytes of each read */
export const bytesRead = ({ memory, reads }: Transfer): Uint8Array[] =>
  reads.map(({ at, length }) => Uint8Array.prototype.slice.call(memory, at, at + length));
