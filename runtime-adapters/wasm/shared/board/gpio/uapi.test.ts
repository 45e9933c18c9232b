import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  decodeChipLines,
  decodeEvents,
  decodeLineInfo,
  decodeValues,
  encodeLineInfo,
  encodeLineRequest,
  encodeValues,
  GPIO,
  LINE_FLAG,
  LINE_FLAGS,
  requestedFd,
} from "./uapi.ts";

/** _IOR and _IOWR of asm-generic/ioctl.h. */
const numberOf = (direction: 2 | 3, number: number, size: number): number =>
  ((direction << 30) | (size << 16) | (0xb4 << 8) | number) >>> 0;

test("the numbers of requests hold the sizes of their arguments", () => {
  assert.equal(GPIO.getChipInfo, numberOf(2, 0x01, GPIO.chipInfoBytes));
  assert.equal(GPIO.getLineInfo, numberOf(3, 0x05, encodeLineInfo(0).length));
  const config = { flags: LINE_FLAG.input, debounceMicroseconds: undefined, initial: false };
  assert.equal(GPIO.getLine, numberOf(3, 0x07, encodeLineRequest(0, config).length));
  assert.equal(GPIO.getValues, numberOf(3, 0x0e, encodeValues(true).length));
  assert.equal(GPIO.setValues, numberOf(3, 0x0f, GPIO.valuesBytes));
});

test("a request has one line of a chip, with the requested options alone", () => {
  const line = fc.nat(1023);
  const flags = fc.nat(0xffff_ffff);
  const debounce = fc.option(fc.nat(0xffff_ffff), { nil: undefined });
  fc.assert(
    fc.property(line, flags, debounce, fc.boolean(), (each, asked, debounceMicroseconds, initial) => {
      const memory = encodeLineRequest(each, { flags: asked, debounceMicroseconds, initial });
      const given = Number(memory.readBigUInt64LE(288));
      assert.equal(given & ~LINE_FLAGS, 0);
      assert.equal(given, asked & LINE_FLAGS);
      assert.deepEqual([memory.readUInt32LE(0), memory.readUInt32LE(560)], [each, 1]);
      const isOutput = (asked & LINE_FLAG.output) !== 0;
      const count = memory.readUInt32LE(296);
      assert.equal(count, Number(isOutput) + Number(debounceMicroseconds !== undefined));
      const attributes = Array.from({ length: count }, (_, index) => 320 + index * 24);
      const of = (id: number): number | undefined => attributes.find((at) => memory.readUInt32LE(at) === id);
      assert.equal(isOutput ? memory.readBigUInt64LE((of(2) ?? 0) + 8) : 0n, isOutput && initial ? 1n : 0n);
      if (debounceMicroseconds !== undefined) assert.equal(memory.readUInt32LE((of(3) ?? 0) + 8), debounceMicroseconds);
      for (const at of attributes) assert.equal(memory.readBigUInt64LE(at + 16), 1n);
      // Padding has to be zero, or the kernel refuses it.
      const known = [
        [0, 4],
        [256, 264],
        [288, 300],
        [320, 320 + count * 24],
        [560, 568],
      ] as const;
      for (let at = 0; at < memory.length; at += 1) {
        if (!known.some(([from, to]) => at >= from && at < to)) assert.equal(memory[at], 0, `byte ${at}`);
      }
      assert.equal(requestedFd(memory), 0);
    }),
  );
});

test("any bytes from a kernel are read within their bounds", () => {
  const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
  fc.assert(
    fc.property(bytes(GPIO.lineInfoBytes), bytes(GPIO.chipInfoBytes), bytes(GPIO.valuesBytes), (info, chip, values) => {
      const { name, consumer } = decodeLineInfo(Buffer.from(info));
      assert.ok(name.length <= 32 && !name.includes("\0") && (consumer === null) === (((info[72] ?? 0) & 1) === 0));
      assert.equal(decodeChipLines(Buffer.from(chip)), Buffer.from(chip).readUInt32LE(64));
      assert.equal(decodeValues(Buffer.from(values)), ((values[0] ?? 0) & 1) === 1);
    }),
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 4000 }), (events) => {
      assert.equal(decodeEvents(Buffer.from(events)).length, Math.floor(events.length / GPIO.eventBytes));
    }),
  );
});

test("an edge is reported with its time and its sequence number", () => {
  const memory = Buffer.alloc(2 * GPIO.eventBytes);
  for (const [index, [time, id, ofLine]] of [
    [123_456_789_012n, 1, 7],
    [123_456_790_000n, 2, 9],
  ].entries()) {
    const at = index * GPIO.eventBytes;
    memory.writeBigUInt64LE(BigInt(time ?? 0), at);
    memory.writeUInt32LE(Number(id), at + 8);
    memory.writeUInt32LE(17, at + 12);
    memory.writeUInt32LE(1000, at + 16);
    memory.writeUInt32LE(Number(ofLine), at + 20);
  }
  assert.deepEqual(decodeEvents(memory), [
    { edge: "rising", timestamp: 123_456_789_012n, sequence: 7 },
    { edge: "falling", timestamp: 123_456_790_000n, sequence: 9 },
  ]);
});
