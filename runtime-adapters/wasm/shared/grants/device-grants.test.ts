import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import fc from "fast-check";
import { MAX_DEVICE_ENTRIES, MAX_DEVICES_TEXT_LENGTH, parseDevices } from "./device-grants.ts";
import { podGrants } from "./pod-grants.ts";

test("a pod names ports, lines of chips and addresses on buses", () => {
  const { value, problems } = parseDevices(
    "serial:/dev/ttyS0; gpio:/dev/gpiochip0:4, 17,4\n  i2c:/dev/i2c-1:0x48,32,0x8123 ;serial:/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0",
  );
  assert.deepEqual(problems, []);
  assert.deepEqual(value, [
    { kind: "serial", path: "/dev/ttyS0" },
    { kind: "gpio", path: "/dev/gpiochip0", lines: [4, 17] },
    { kind: "i2c", path: "/dev/i2c-1", addresses: [0x48, 0x20, 0x8123] },
    { kind: "serial", path: "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0" },
  ]);
});

test("all mistakes are reported at once", () => {
  const wrong: readonly (readonly [entry: string, problem: RegExp])[] = [
    ["ttyS0", /write one of serial:/],
    ["usb:/dev/x", /write one of serial:/],
    ["serial:", /"" is no path/],
    ["serial:ttyS0", /no path of a device/],
    ["serial:/etc/passwd", /no path/],
    ["serial:/dev/../etc/passwd", /no path/],
    ["serial:/dev//ttyS0", /no path/],
    ["serial:/dev/", /no path/],
    ["serial:/dev/./ttyS0", /no path/],
    ["serial:/dev/tty S0", /no path/],
    [`serial:/dev/${"x".repeat(300)}`, /no path/],
    ["gpio:/dev/gpiochip0", /there are no lines/],
    ["gpio:/dev/gpiochip0:", /there are no lines/],
    ["gpio:/dev/gpiochip1:1,,2", /"" is not a number/],
    ["gpio:/dev/gpiochip1:1024", /"1024" is not a number/],
    ["gpio:/dev/gpiochip1:-1", /"-1" is not a number/],
    ["gpio:/dev/gpiochip1:0x4", /"0x4" is not a number/],
    ["i2c:/dev/i2c-1:0x07", /"0x07" is not an address/],
    ["i2c:/dev/i2c-1:0x78", /"0x78" is not an address/],
    ["i2c:/dev/i2c-1:0x8400", /"0x8400" is not an address/],
    ["i2c:/dev/i2c-1:0x10000", /"0x10000" is not an address/],
    [`gpio:/dev/gpiochip1:${Array.from({ length: 129 }, (_, index) => index).join()}`, /more than 128 lines/],
  ];
  const { problems } = parseDevices(wrong.map(([entry]) => entry).join("\n"));
  assert.equal(problems.length, wrong.length, problems.join("\n"));
  for (const [index, [entry, problem]] of wrong.entries()) {
    assert.match(problems[index] ?? "", problem);
    assert.ok(problems[index]?.startsWith(`"${entry}"`));
  }
  assert.match(parseDevices("serial:/dev/a;serial:/dev/a").problems[0] ?? "", /\/dev\/a is named twice/);
  assert.match(parseDevices("x".repeat(MAX_DEVICES_TEXT_LENGTH + 1)).problems[0] ?? "", /longer than/);
  assert.match(parseDevices("x;".repeat(MAX_DEVICE_ENTRIES + 1)).problems[0] ?? "", /more than/);
});

test("interfaces and devices have to agree", () => {
  const refusalOf = (interfaces: string, devices: string): string => {
    const annotations = { "wasm.picolet.io/interfaces": interfaces, "wasm.picolet.io/devices": devices };
    try {
      podGrants({ metadata: { annotations } } as unknown as Pod);
      return "";
    } catch (error) {
      assert.ok(isPicoletError(error, "invalid"));
      assert.equal(error.reason, "CreateContainerConfigError");
      return error.message;
    }
  };
  assert.equal(refusalOf("serial, gpio", "serial:/dev/ttyS0; gpio:/dev/gpiochip0:1"), "");
  assert.match(
    refusalOf("serial, i2c, keyvalue", "gpio:/dev/gpiochip0:1"),
    /serial is named without a device.*gpio are named without the interface.*i2c is named without a device: add i2c:/,
  );
});

test("no text breaks the parser, and parsed paths lie below /dev", () => {
  const piece = fc.constantFrom(
    ...[
      "serial:",
      "gpio:",
      "i2c:",
      "/dev/",
      "/dev",
      "ttyS0",
      "..",
      "/",
      ".",
      ":",
      ",",
      ";",
      "\n",
      " ",
      "1",
      "0x48",
      "-",
    ],
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string({ unit: "binary" }),
        fc.array(piece).map((parts) => parts.join("")),
      ),
      (text) => {
        const { value, problems } = parseDevices(text);
        const entries = text.split(/[;\n]/).filter((entry) => entry.trim() !== "").length;
        assert.equal(problems.length + value.length, entries);
        for (const { path } of value) {
          assert.equal(new URL(`file://${path.replaceAll("#", "%23")}`).pathname.startsWith("/dev/"), true, path);
        }
      },
    ),
  );
});
