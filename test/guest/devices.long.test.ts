/**
 * Devices of a real kernel, used by components: lines and buses of a USB bridge, edges of another one's lines, a
 * bus of SMBus, and two serial ports.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { runDeviceGuest } from "../support/guest/device-guest.ts";
import { guestMissing } from "../support/guest/guest-image.ts";

describe("components on the kernel's devices", { skip: guestMissing() ?? false }, () => {
  test("transfer, set and read what their pods name, find others' busy, and see what is gone", async () => {
    const { told, console: text } = await runDeviceGuest();
    const said = (name: string): unknown => told.get(name) ?? assert.fail(`nothing of ${name}:\n${text}`);
    assert.equal(told.get("failed"), undefined, text);
    const transfers = [
      ...["bus", "put", "bytes a1b2c3", "bytes 0000", "error too-large", "error too-large", "error too-large"],
      ...["dropped", "bus", "error no-acknowledge 0"],
      ...["bus", "put", "bytes 55", "put", "bytes 01020304", "put", "bytes 55"],
      "error other: the bus speaks SMBus alone, which has no such transfer",
      ...["error not-granted", "error no-such-bus", "error other: /dev/null is no I2C bus"],
    ];
    const pins = "/dev/gpiochip0";
    const lines = [
      ...["output", "input", "read 1", "set", "read 0", "level 0", "set", "level 1", "edges 0"],
      `lines ${pins}:0=picolet ${pins}:1=picolet ${pins}:2`,
      ...["error not-granted", "error not-granted", "error no-such-line", "error no-such-line"],
      // The chip has no interrupts.
      "error unsupported",
    ];
    assert.deepEqual(said("transfers of pins"), transfers);
    assert.deepEqual(said("lines of pins"), lines);
    // The same by a component of WASI 0.3, whose timer goes on meanwhile.
    assert.deepEqual(said("transfers of async-pins"), [...transfers, "and the timer"]);
    assert.deepEqual(said("lines of async-pins"), [...lines, "and the timer"]);
    assert.deepEqual(said("busy"), ["error busy", "error busy", "error busy", "error busy", "input"]);
    assert.deepEqual(said("free"), ["bus", "input", "input"]);
    assert.deepEqual(said("unplugged"), ["error no-such-bus", "error no-such-line"]);
    assert.deepEqual(said("edges"), [
      ...["output", "waits for edges", "edges 0", "set", "rising 1", "set", "falling 2", "edges 0", "read 0"],
    ]);
    // Two stop bits, even parity and seven data bits, which no pseudo terminal has; the cable has all lines up.
    assert.deepEqual(said("near-port"), [
      ...["open", "lines 31", "written", "read pong", "raised", "lines 31", "break", "set", "written"],
    ]);
    assert.deepEqual(said("far-port"), ["open", "read hello", "written"]);
  });
});
