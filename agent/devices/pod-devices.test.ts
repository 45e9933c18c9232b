import assert from "node:assert/strict";
import { mkdirSync, symlinkSync } from "node:fs";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import fc from "fast-check";
import { nodesOf, podDevices } from "./pod-devices.ts";

const read = (text: string) => podDevices({ "picolet.io/devices": text });
const machine = { root: "", cdiNames: () => [] };
const given = (text: string, allowed: readonly string[]) => nodesOf(read(text), allowed, machine);

test("an annotation names paths and USB devices, with their permissions", () => {
  assert.deepEqual(podDevices(undefined), []);
  assert.deepEqual(read(" ;\n"), []);
  assert.deepEqual(read("/dev/ttyUSB0; /dev/video0:r\nusb:0403:6001:rw;i2c:/dev/i2c-1;gpio:/dev/gpiochip0"), [
    { match: "/dev/ttyUSB0", permissions: "rw" },
    { match: "/dev/video0", permissions: "r" },
    { match: "usb:0403:6001", permissions: "rw" },
    { match: "/dev/i2c-1", permissions: "rw" },
    { match: "/dev/gpiochip0", permissions: "rw" },
  ]);
  const byPath = "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0";
  assert.deepEqual(read(`${byPath}:r`), [{ match: byPath, permissions: "r" }]);
});

for (const [text, why] of [
  ["/dev/*", /"\/dev\/\*" must be a path below \/dev or usb:VENDOR:PRODUCT/],
  ["/dev/../etc/shadow", /must be a path below \/dev/],
  ["/etc/shadow", /must be a path below \/dev/],
  ["cdi:nvidia.com/gpu", /must be a path below \/dev/],
  ["gpio:/dev/gpiochip0:4,17", /must be a path below \/dev/],
  ["i2c:/dev/i2c-1:0x48", /a container gets the whole node; only components get lines and addresses/],
  [";/dev/x".repeat(17), /it has more than 16 entries/],
  ["x".repeat(2049), /it has more than 2048 characters/],
] as const) {
  test(`refuses ${text.slice(0, 40)}`, () => {
    assert.throws(() => read(text), { code: "invalid", message: why, reason: "CreateContainerConfigError" });
  });
}

test("a container gets what the node allows, by the device that a path leads to", () => {
  const full = { containerPath: "/dev/full", hostPath: "/dev/full", readOnly: false, permissions: "rw" };
  assert.deepEqual(given("/dev/full", ["/dev/fu*"]), [full]);
  assert.deepEqual(given("/dev/full:r", ["/dev/full"]), [{ ...full, readOnly: true, permissions: "r" }]);
  const denied = {
    code: "permission_denied",
    message: /this node gives no pod \/dev\/full: name it in allowedDevices/,
  };
  assert.throws(() => given("/dev/full", []), denied);
  assert.throws(() => given("/dev/full", ["/dev/null"]), denied);
  const absent = { code: "not_found", message: /there is no device \/dev\/none here; the container starts when/ };
  assert.throws(() => given("/dev/none", ["/dev/*"]), { ...absent, retryable: true });
});

test("a link is judged by the node that it leads to", () => {
  using folder = new TempFolder();
  mkdirSync(folder.at("dev"));
  symlinkSync("/dev/null", folder.at("dev/null"));
  symlinkSync("/dev/null", folder.at("dev/harmless"));
  symlinkSync("/dev/full", folder.at("dev/ttyUSB0"));
  const linked = (text: string, allowed: readonly string[]) =>
    nodesOf(read(text), allowed, { ...machine, root: folder.path }).map(({ hostPath }) => hostPath);
  assert.deepEqual(linked("/dev/harmless", ["/dev/null"]), ["/dev/harmless"]);
  assert.throws(() => linked("/dev/harmless", ["/dev/tty*"]), /this node gives no pod/);
});

test("any annotation is read, or refused with its reason", () => {
  const words = fc.constantFrom("/dev/", "usb:", "0403:6001", ":rw", ";", "..", "*", "gpio:", "x", "\n", "\0");
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(words).map((all) => all.join("")),
      ),
      (text) => {
        try {
          for (const { match } of read(text)) assert.match(match, /^(\/dev\/[^*?[\]{}\0;]+|usb:\S{9})$/);
        } catch (error) {
          assert.ok(isPicoletError(error, "invalid"), String(error));
        }
      },
    ),
  );
});
