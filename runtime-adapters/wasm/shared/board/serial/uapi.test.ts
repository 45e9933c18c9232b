import assert from "node:assert/strict";
import { test } from "node:test";
import type { Options } from "@picolet/wit/generated/picolet-board-serial.js";
import fc from "fast-check";
import {
  decodeLines,
  encodeLines,
  encodeTermios,
  hasAppliedOptions,
  isFrame,
  lineTimeMs,
  TERMIOS_BYTES,
} from "./uapi.ts";

const options: fc.Arbitrary<Options> = fc.record({
  baudRate: fc.integer({ min: 0, max: 0xffff_ffff }),
  dataBits: fc.integer({ min: 0, max: 255 }),
  parity: fc.constantFrom("none", "even", "odd"),
  stopBits: fc.integer({ min: 0, max: 255 }),
  flowControl: fc.constantFrom("none", "hardware", "software"),
});

test("a raw port has the flags of asm-generic/termbits.h", () => {
  const frame = { baudRate: 115_200, dataBits: 7, parity: "odd", stopBits: 2, flowControl: "hardware" } as const;
  const memory = encodeTermios(frame);
  assert.equal(memory.length, TERMIOS_BYTES);
  // CRTSCTS, BOTHER twice, CLOCAL, HUPCL, PARODD, PARENB, CREAD, CSTOPB, CS7
  assert.equal(memory.readUInt32LE(8), 0x90001fe0);
  assert.deepEqual([memory.readUInt32LE(36), memory.readUInt32LE(40)], [115_200, 115_200]);
  // Nothing is made of any byte, but with software flow control.
  assert.deepEqual([memory.readUInt32LE(0), memory.readUInt32LE(4), memory.readUInt32LE(12)], [0, 0, 0]);
  assert.equal(encodeTermios({ ...frame, flowControl: "software" }).readUInt32LE(0), 0x1400);
});

test("a port with other options than requested is detected", () => {
  fc.assert(
    fc.property(options.filter(isFrame), options.filter(isFrame), (wanted, other) => {
      assert.ok(hasAppliedOptions(encodeTermios(wanted), wanted));
      const isSame =
        wanted.dataBits === other.dataBits &&
        wanted.parity === other.parity &&
        wanted.stopBits === other.stopBits &&
        (wanted.flowControl === "hardware") === (other.flowControl === "hardware") &&
        Math.abs(wanted.baudRate - other.baudRate) <= wanted.baudRate * 0.03;
      assert.equal(hasAppliedOptions(encodeTermios(other), wanted), isSame);
    }),
  );
});

test("any options are a frame that can be encoded, or are refused", () => {
  fc.assert(
    fc.property(options, fc.nat(1_000_000), (each, bytes) => {
      if (!isFrame(each)) return;
      assert.equal(encodeTermios(each).length, TERMIOS_BYTES);
      assert.ok(lineTimeMs(each, bytes) >= (bytes * 1000 * each.dataBits) / each.baudRate);
    }),
  );
});

test("only dtr and rts of the modem's lines are changed", () => {
  fc.assert(
    fc.property(fc.boolean(), fc.boolean(), fc.nat(0xffff), (dtr, rts, before) => {
      const bits = encodeLines({ dtr, rts, cts: true, ri: true }, before);
      assert.equal(bits & ~0x6, before & ~0x6);
      const { dtr: dtrAfter, rts: rtsAfter } = decodeLines(bits);
      assert.deepEqual([dtrAfter, rtsAfter], [dtr, rts]);
    }),
  );
  assert.deepEqual(decodeLines(0x1e0), { dtr: false, rts: false, cts: true, dsr: true, dcd: true, ri: true });
});
