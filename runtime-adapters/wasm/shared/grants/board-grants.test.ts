import assert from "node:assert/strict";
import { test } from "node:test";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import fc from "fast-check";
import { checkShape } from "../../adapter/containers/container-launch.ts";
import { parseBuckets } from "../board/keyvalue/grant.ts";
import { LOG_LEVELS, parseLogLevel } from "../board/logging/grant.ts";
import { parseInterfaces } from "./board-grants.ts";
import { podGrants } from "./pod-grants.ts";
import { parseVolumeName } from "./syntax/volume-name.ts";

const pod = (annotations: Readonly<Record<string, string>>): Pod => ({ metadata: { annotations } }) as unknown as Pod;

test("a pod's annotations say which interfaces its components get, and how much of them", () => {
  const grants = podGrants(
    pod({
      "wasm.picolet.io/interfaces": "keyvalue, config,keyvalue",
      "wasm.picolet.io/keyvalue": "settings=64Ki, samples=4Mi/500",
      "wasm.picolet.io/config": "settings",
      "wasm.picolet.io/log-level": "warn",
      "example.com/other": "x",
    }),
  );
  assert.deepEqual(grants.interfaces, ["keyvalue", "config"]);
  assert.deepEqual(grants.buckets, [
    { name: "settings", maxBytes: 65_536, maxKeys: 10_000 },
    { name: "samples", maxBytes: 4_194_304, maxKeys: 500 },
  ]);
  assert.equal(grants.configVolume, "settings");
  assert.equal(grants.logLevel, "warn");
  assert.deepEqual(podGrants(pod({})).interfaces, []);
});

test("all mistakes in the annotations are reported at once", () => {
  const wrong = {
    "wasm.picolet.io/interfaces": "keyvalue, gpi",
    "wasm.picolet.io/keyvalue": "a=1Gi, b, a.b=1Ki, a.b=1Ki, c=1Ki/0",
    "wasm.picolet.io/config": "Not A Name",
    "wasm.picolet.io/log-level": "loud",
  };
  assert.throws(
    () => podGrants(pod(wrong)),
    (error) => {
      assert.ok(isPicoletError(error, "invalid"));
      for (const part of ['"gpi"', "bucket a must hold", '"b" is no bucket', "a.b is named twice", "1 to 100000 keys"])
        assert.ok(error.message.includes(part), `${part} in ${error.message}`);
      assert.match(error.message, /"Not A Name" is no name of a volume.*"loud" is no level/);
      return true;
    },
  );
  assert.equal(parseBuckets(Array.from({ length: 17 }, (_, i) => `b${i}=1Ki`).join()).problems.length, 1);
});

test("a component that imports interfaces that its pod does not name is refused, with all of them and the remedy", () => {
  const shape = {
    imports: [
      "wasi:cli/stdout@0.2.0",
      "wasi:keyvalue/store@0.2.0-draft2",
      "wasi:logging/logging",
      "picolet:board/gpio@0.1.0",
      "picolet:board/gpio@0.2.0",
      "wasi:keyvalue/store@0.3.0",
      "picolet:board/toString@0.1.0",
    ],
    exports: ["wasi:cli/run@0.2.0"],
  };
  assert.throws(
    () => checkShape(shape, "x:1", ["logging"]),
    (error) => {
      assert.ok(isPicoletError(error, "invalid"));
      assert.equal(
        error.message,
        "the component x:1 imports what its pod does not grant: wasi:keyvalue/store@0.2.0-draft2, picolet:board/gpio@0.1.0, picolet:board/gpio@0.2.0, wasi:keyvalue/store@0.3.0, picolet:board/toString@0.1.0; name keyvalue, gpio in the pod's annotation wasm.picolet.io/interfaces; build it for the world wasi:cli/command@0.2, or without picolet:board/gpio@0.2.0, wasi:keyvalue/store@0.3.0, picolet:board/toString@0.1.0",
      );
      return true;
    },
  );
  checkShape({ ...shape, imports: shape.imports.slice(0, 4) }, "x:1", ["logging", "keyvalue", "gpio"]);
});

test("no text breaks the parsers, and parsed values are within their limits and parse again", () => {
  const piece = fc.constantFrom(
    ...[
      "config",
      "keyvalue",
      "gpio",
      ",",
      " ",
      "=",
      "/",
      "settings",
      "a.b-c",
      "64Ki",
      "4Mi",
      "1e9",
      "-1",
      "0",
      "100000",
    ],
    ...["100001", "32Mi", "33Mi", "\n", "é", "debug", "info", "\0"],
  );
  const text = fc.oneof(
    fc.string({ unit: "binary" }),
    fc.array(piece, { maxLength: 40 }).map((parts) => parts.join("")),
  );
  fc.assert(
    fc.property(text, (given) => {
      const interfaces = parseInterfaces(given);
      const entries = new Set(given.split(",").flatMap((each) => each.trim() || []));
      assert.equal(interfaces.value.length + interfaces.problems.length, entries.size);
      const buckets = parseBuckets(given);
      for (const { maxBytes, maxKeys } of buckets.value) {
        assert.ok(maxBytes >= 1 && maxBytes <= 32 * 1_048_576 && maxKeys >= 1 && maxKeys <= 100_000);
      }
      const again = buckets.value.map(({ name, maxBytes, maxKeys }) => `${name}=${maxBytes}/${maxKeys}`).join(",");
      assert.deepEqual(parseBuckets(again).value, buckets.value);
      const volume = parseVolumeName(given);
      assert.equal(volume.problems.length === 0, /^[a-z0-9-]+$/.test(volume.value) && volume.problems.length === 0);
      assert.ok(LOG_LEVELS.includes(parseLogLevel(given).value));
    }),
    { numRuns: 1000 },
  );
});
