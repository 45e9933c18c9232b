import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DEVICES_ANNOTATION } from "./devices-annotation.ts";
import { parseRequestedDevices, problemOfAllowed, refusalOf } from "./requested-devices.ts";

const refusal = (text: string, match: readonly string[], namespaces: readonly string[] = ["default"]) =>
  refusalOf({ namespace: "default", annotations: { [DEVICES_ANNOTATION]: text } }, [{ match, namespaces }]);

test("entries name a device, and end with permissions", () => {
  const { devices, problems } = parseRequestedDevices(
    " /dev/ttyUSB0; usb:0403:60AB:r\n/dev/video0:rw;;gpio:/dev/gpiochip0;i2c:/dev/i2c-1:rwm;/dev/serial/by-id/usb-a:1.0",
  );
  assert.deepEqual(problems, []);
  assert.deepEqual(
    devices.map(({ match, permissions }) => `${match} ${permissions}`),
    [
      ...["/dev/ttyUSB0 rw", "usb:0403:60ab r", "/dev/video0 rw", "/dev/gpiochip0 rw", "/dev/i2c-1 rwm"],
      "/dev/serial/by-id/usb-a:1.0 rw",
    ],
  );
});

const WRONG = [
  ...["ttyUSB0", "/etc/passwd", "/dev", "/dev/", "/dev/../etc/x", "/dev/./x", "/dev//x", "/dev/a*", "usb:403:6001"],
  ...[
    "gpio:/dev/mem",
    "gpio:0",
    "i2c:/dev/gpiochip0",
    "cdi:nvidia.com/gpu",
    "serial:/dev/video0",
    "spi:/dev/spidev0.0",
    "/dev/x:",
    "/dev/x/..",
  ],
];
for (const entry of WRONG)
  test(`${entry} is no device`, () => {
    assert.match(parseRequestedDevices(entry).problems.join(), /is no device: write \/dev\/ttyUSB0/);
  });

test("a container gets no lines of a chip and no addresses of a bus", () => {
  for (const entry of ["gpio:/dev/gpiochip0:4,17", "i2c:/dev/i2c-1:0x48"])
    assert.match(parseRequestedDevices(entry).problems.join(), /a container gets the whole node; only components get/);
});

test("a path of udev with the port's numbers is a device, with and without permissions", () => {
  const path = "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0";
  for (const [entry, permissions] of [
    [path, "rw"],
    [`serial:${path}:r`, "r"],
  ] as const)
    assert.deepEqual(
      parseRequestedDevices(entry).devices.map((each) => [each.match, each.permissions]),
      [[path, permissions]],
    );
});

test("an annotation is bounded, and names a device once", () => {
  assert.match(parseRequestedDevices("x".repeat(8193)).problems.join(), /longer than 8192/);
  const many = Array.from({ length: 65 }, (_, index) => `/dev/a${index}`).join(";");
  assert.match(parseRequestedDevices(many).problems.join(), /more than 64 entries/);
  assert.match(parseRequestedDevices("/dev/gpiochip0;gpio:/dev/gpiochip0").problems.join(), /is named twice/);
});

test("only what an entry allows to the pod's namespace is allowed", () => {
  assert.equal(refusal("", []), undefined);
  assert.equal(refusal("/dev/ttyUSB0:r", ["/dev/ttyUSB*"]), undefined);
  assert.equal(refusal("usb:0403:60AB", ["usb:0403:*"]), undefined);
  assert.equal(refusal("usb:0403:60AB", ["usb:0403:60Ab"], ["*"]), undefined);
  assert.equal(refusal("libusb:1A6E:089A:r", ["libusb:1A6E:*"]), undefined);
  assert.match(refusal("libusb:1a6e:089a", ["usb:1a6e:*"]) ?? "", /does not allow/);
  assert.equal(refusal("gpio:/dev/gpiochip0;/dev/i2c-1", ["/dev/gpiochip?", "i2c:/dev/i2c-1"]), undefined);
  assert.match(refusal("/dev/ttyUSB0", ["/dev/ttyUSB*"], ["kube-system"]) ?? "", /not allow in namespace default/);
  assert.match(
    refusal("/dev/a/b;/dev/ab", ["/dev/a*"]) ?? "",
    /asks for \/dev\/a\/b, which .* add \{match: \[\/dev\/a\/b\]/,
  );
  assert.match(refusal("/dev/xx0", ["/dev/x.0"]) ?? "", /does not allow/);
  assert.equal(refusal("/dev/x+0", ["/dev/x+*"]), undefined);
  assert.match(refusal("/dev/x.0", ["/dev/x+0"]) ?? "", /does not allow/);
  assert.match(refusal("/dev/mem", ["/dev/m*"], ["*"]) ?? "", /memory of the whole board, and no pod gets it/);
  assert.match(refusal("mem", ["/dev/m*"]) ?? "", /annotation picolet.io\/devices is wrong: "mem" is no device/);
});

test("an entry of the configuration must not allow every device, nor the board's memory", () => {
  for (const good of ["/dev/ttyUSB*", "usb:0403:*", "libusb:1a6e:089a", "gpio:/dev/gpiochip*", "/dev/serial/by-id/*"])
    assert.equal(problemOfAllowed(good), undefined, good);
  for (const bad of ["/dev/*", "/dev/?em", "/dev/mem", "/dev/**", "/dev/../x", "/sys/x", "usb:x", ""])
    assert.notEqual(problemOfAllowed(bad), undefined, bad);
});

test("what is read from any text is a device below /dev or a USB identity", () => {
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom("/dev/", "..", "/", ";", ":", "lib", "usb:", "gpio:", "0403", "r", "w", "*", "a", "\0")),
      (parts) => {
        for (const { match, permissions } of parseRequestedDevices(parts.join("")).devices) {
          assert.match(match, /^(\/dev\/(?!.*\/\.\.(\/|$))[^*?;\0]+|(lib)?usb:[0-9a-f]{4}:[0-9a-f]{4})$/);
          assert.match(permissions, /^r?w?m?$/);
        }
      },
    ),
    { numRuns: 2000 },
  );
});
