import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import fc from "fast-check";
import { type CdiDevice, CdiSpecs, uuidsOfNamed, withCdiEdits } from "./cdi.ts";
import { foldersOf } from "./device-folders.ts";
import { matchingDevices } from "./device-rules.ts";

const NOTHING = { env: [], mounts: [], devices: [], annotations: {}, cdiDevices: [] };
const ids = (root: string, match: readonly string[], cdi: readonly string[] = []): readonly string[] =>
  matchingDevices({ name: "example.com/x", match }, { root, cdiNames: () => cdi }).map(({ id }) => id);

test("a rule matches device nodes by path, but no files and folders", () => {
  assert.deepEqual(ids("", ["/dev/nul?", "/dev/full", "/dev/nothing*"]), ["/dev/null", "/dev/full"]);
  assert.deepEqual(ids("", ["/dev", "/dev/fd"]), []);
});

test("a rule matches nodes of a USB device by its identity", (context) => {
  const root = mkdtempSync(join(tmpdir(), "picolet-usb-"));
  context.after(() => rmSync(root, { recursive: true }));
  const usb = join(root, "sys/devices/usb1/1-1");
  mkdirSync(join(usb, "1-1:1.0/ttyUSB0"), { recursive: true });
  mkdirSync(join(root, "sys/class/tty"), { recursive: true });
  mkdirSync(join(root, "dev"));
  writeFileSync(join(usb, "idVendor"), "0403\n");
  writeFileSync(join(usb, "idProduct"), "6001\n");
  writeFileSync(join(usb, "1-1:1.0/ttyUSB0/uevent"), "MAJOR=188\nDEVNAME=ttyUSB0\n");
  symlinkSync(join(usb, "1-1:1.0/ttyUSB0"), join(root, "sys/class/tty/ttyUSB0"));
  symlinkSync("/dev/null", join(root, "dev/ttyUSB0"));
  assert.deepEqual(ids(root, ["usb:0403:6001"]), ["/dev/ttyUSB0"]);
  assert.deepEqual(ids(root, ["usb:0403:6015"]), []);
});

test("a USB device for libusb is its own node, of which the buses are watched", (context) => {
  const root = mkdtempSync(join(tmpdir(), "picolet-usb-"));
  context.after(() => rmSync(root, { recursive: true }));
  const bus = join(root, "dev/bus/usb/001");
  mkdirSync(bus, { recursive: true });
  for (const name of ["1-1", "1-1:1.0", "1-2"]) mkdirSync(join(root, "sys/bus/usb/devices", name), { recursive: true });
  const write = (path: string, text: string): void => writeFileSync(join(root, "sys/bus/usb/devices", path), text);
  write("1-1/idVendor", "1a6e\n");
  write("1-1/idProduct", "089a\n");
  write("1-1/uevent", "DEVTYPE=usb_device\nDEVNAME=bus/usb/001/004\n");
  symlinkSync("/dev/null", join(bus, "004"));
  assert.deepEqual(ids(root, ["libusb:1A6E:089A"]), ["/dev/bus/usb/001/004"]);
  assert.deepEqual(ids(root, ["usb:1a6e:089a", "libusb:0403:6001"]), []);
  assert.deepEqual(foldersOf(["libusb:1a6e:089a"], root), [join(root, "dev"), bus]);
  assert.deepEqual(foldersOf(["usb:1a6e:089a"], root), [join(root, "dev")]);
});

test("a rule matches CDI devices of a class, without the one for all of them", () => {
  const cdi = ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all", "nvidia.com/gpux=0"];
  assert.deepEqual(ids("", ["cdi:nvidia.com/gpu"], cdi), ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]);
  assert.deepEqual(ids("", ["cdi:nvidia.com/gpu=1"], cdi), ["nvidia.com/gpu=1"]);
  assert.deepEqual(ids("", ["cdi:nvidia.com/gpu"], ["nvidia.com/gpu=all"]), ["nvidia.com/gpu=all"]);
});

test("a GPU that is named by its index and by its UUID is one device", () => {
  const uuidOf = (index: number): string => `GPU-0650a168-e770-3ea8-8ac3-8a1d419763e${index}`;
  const nodes = (...numbers: readonly number[]) => [
    { deviceNodes: numbers.map((each) => ({ path: `/dev/nvidia${each}` })) },
  ];
  const named: readonly (readonly [string, CdiDevice["edits"]])[] = [
    ["nvidia.com/gpu=0", nodes(0)],
    [`nvidia.com/gpu=${uuidOf(0)}`, nodes(0)],
    ["nvidia.com/gpu=all", nodes(0, 1)],
    [`nvidia.com/gpu=${uuidOf(1)}`, nodes(1)],
    [`example.com/gpu=${uuidOf(0)}`, nodes(0)],
    ["example.com/shared=0", nodes(0)],
    ["example.com/shared=1", nodes(0)],
  ];
  const known = new Map(named.map(([name, edits]) => [name, { name, edits }]));
  const aliases = uuidsOfNamed(known);
  const offered = (match: string): readonly string[] =>
    matchingDevices(
      { name: "example.com/x", match: [match] },
      { root: "", cdiNames: () => known.keys(), isAlias: (name) => aliases.has(name) },
    ).map(({ id }) => id);
  assert.deepEqual(offered("cdi:nvidia.com/gpu"), ["nvidia.com/gpu=0", `nvidia.com/gpu=${uuidOf(1)}`]);
  assert.deepEqual(offered(`cdi:nvidia.com/gpu=${uuidOf(0)}`), [`nvidia.com/gpu=${uuidOf(0)}`]);
  assert.deepEqual(offered("cdi:example.com/gpu"), [`example.com/gpu=${uuidOf(0)}`]);
  assert.deepEqual(offered("cdi:example.com/shared"), ["example.com/shared=0", "example.com/shared=1"]);
});

const SPEC = `
cdiVersion: 0.6.0
kind: example.com/accelerator
containerEdits:
  env: [DRIVER=1.0]
  mounts: [{ hostPath: /usr/lib, containerPath: /driver, options: [ro, nosuid] }]
devices:
  - name: 0
    containerEdits: { deviceNodes: [{ path: /dev/acc0, hostPath: /dev/full, permissions: rw }], env: [A=b=c] }
  - name: hooked
    containerEdits: { hooks: [{ hookName: createContainer, path: /bin/true }] }
`;

test("the edits of a CDI device are applied, and hooks are left to a runtime that can", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "picolet-cdi-"));
  context.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "accelerator.yaml"), SPEC);
  writeFileSync(join(folder, "broken.json"), "{");
  const problems: string[] = [];
  const specs = new CdiSpecs({ folders: ["/nothing", folder], problem: (path) => problems.push(path) });
  const known = await specs.devices();
  assert.deepEqual(problems, [join(folder, "broken.json")]);
  const named = (...cdiDevices: readonly string[]) => ({ ...NOTHING, cdiDevices });
  assert.deepEqual(withCdiEdits(named("example.com/accelerator=0"), known, false), {
    env: [
      { name: "DRIVER", value: "1.0" },
      { name: "A", value: "b=c" },
    ],
    mounts: [{ hostPath: "/usr/lib", containerPath: "/driver", readOnly: true, propagation: "private" }],
    devices: [{ containerPath: "/dev/acc0", hostPath: "/dev/full", readOnly: false, permissions: "rw" }],
    annotations: {},
    cdiDevices: [],
  });
  const hooked = named("example.com/accelerator=hooked");
  assert.deepEqual(withCdiEdits(hooked, known, true), hooked);
  assert.throws(() => withCdiEdits(hooked, known, false), /it has hooks, which need containerd 1\.7/);
  assert.throws(() => withCdiEdits(named("a.b/c=d"), known, true), /there is no CDI device a\.b\/c=d/);
});

test("a CDI specification is parsed again when it has changed, and its fault reported once", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "picolet-cdi-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const [good, broken] = [join(folder, "good.yaml"), join(folder, "broken.json")];
  writeFileSync(good, SPEC);
  writeFileSync(broken, "{");
  const problems: string[] = [];
  const specs = new CdiSpecs({ folders: [folder], problem: (path) => problems.push(path) });
  const [first, second] = [await specs.devices(), await specs.devices()];
  const name = "example.com/accelerator=0";
  assert.equal(second.get(name), first.get(name));
  assert.deepEqual(problems, [broken]);
  writeFileSync(good, `${SPEC}  - name: 1\n    containerEdits: { env: [A=1] }\n`);
  writeFileSync(broken, "{{");
  assert.deepEqual(
    [...(await specs.devices()).keys()],
    ["0", "hooked", "1"].map((each) => name.replace(/0$/, each)),
  );
  assert.deepEqual(problems, [broken, broken]);
  rmSync(good);
  assert.equal((await specs.devices()).size, 0);
});

test("any document is a CDI specification or is reported", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "picolet-cdi-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const device = fc.record({
    name: fc.jsonValue(),
    containerEdits: fc.dictionary(fc.constantFrom("env", "mounts", "deviceNodes", "hooks"), fc.jsonValue()),
  });
  const spec = fc.record({
    kind: fc.constantFrom<unknown>("a.b/c", 1),
    devices: fc.oneof(fc.array(device), fc.jsonValue()),
  });
  const property = fc.asyncProperty(spec, async (value) => {
    writeFileSync(join(folder, "any.json"), JSON.stringify(value));
    const known = await new CdiSpecs({ folders: [folder], problem: () => undefined }).devices();
    try {
      withCdiEdits({ ...NOTHING, cdiDevices: [...known.keys()] }, known, true);
    } catch (error) {
      assert.ok(isPicoletError(error, "invalid"));
    }
  });
  await fc.assert(property, { numRuns: 40 });
});
