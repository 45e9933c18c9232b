import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { describeError, isPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Millis, type MonotonicMs, millis } from "@picolet/protocol/ports.ts";
import { RegistryClient } from "@picolet/runtime-wasm/registry/registry-client.ts";
import { DEFAULT_PULL_LIMITS, type RegistryAccess } from "@picolet/runtime-wasm/shared/messages/pull-request.ts";
import { digestOf } from "@picolet/test/support/unit/images/oci-content.ts";
import { ScriptedRegistry, sendBlob } from "@picolet/test/support/unit/images/scripted-registry.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import * as fc from "fast-check";
import type { UpdateTask } from "../update-task.ts";
import { BlobServer, parseRange } from "./blob-server.ts";
import { BytePace } from "./byte-pace.ts";
import type { CommandResult, RunCommand } from "./commands.ts";
import { mergedConfiguration, updateConfiguration } from "./configuration-update.ts";
import { isSigned } from "./package-update.ts";
import { parseBundleInfo, updateSystem } from "./system-update.ts";
import { parseUpdateDocument } from "./update-documents.ts";

const NEVER = new AbortController().signal;
const COMPATIBLE = "picolet-generic-amd64-containers";
const OS_TYPE = "application/vnd.picolet.os.v1";
const BUNDLE_TYPE = "application/vnd.rauc.bundle";

/** Time that passes whenever a sleeper waits for it. */
class EagerClock implements Pick<Clock, "monotonic" | "sleep"> {
  slept = 0;

  monotonic(): MonotonicMs {
    return this.slept as MonotonicMs;
  }

  async sleep(duration: Millis): Promise<void> {
    this.slept += duration;
  }
}

const accessTo = (registry: ScriptedRegistry): RegistryAccess => ({
  repository: "fleet/os",
  endpoints: [{ url: `http://${registry.address}`, caFile: undefined }],
  proxies: { httpProxy: "", httpsProxy: "", noProxy: "" },
  ...{ credentials: undefined, credentialsFrom: undefined, limits: DEFAULT_PULL_LIMITS },
});

const bundle = Buffer.from(Array.from({ length: 300_000 }, (_, index) => (index * 7919) % 251));

test("a range header means what HTTP says", () => {
  const cases: readonly [string | undefined, ReturnType<typeof parseRange>][] = [
    [undefined, "whole"],
    ["bytes=0-", { first: 0, last: 99 }],
    ["bytes=10-19", { first: 10, last: 19 }],
    ["bytes=90-500", { first: 90, last: 99 }],
    ["bytes=-10", { first: 90, last: 99 }],
    ["bytes=-500", { first: 0, last: 99 }],
    ["bytes=100-", undefined],
    ["bytes=20-10", undefined],
    ["bytes=-", "whole"],
    ["bytes=0-1,5-6", "whole"],
    ["bytes=99999999999999999999-", "whole"],
  ];
  for (const [header, range] of cases) assert.deepEqual(parseRange(header, 100), range, header);
  fc.assert(
    fc.property(fc.string(), fc.nat(1000), (header, size) => {
      const range = parseRange(`bytes=${header}`, size);
      if (range === undefined || range === "whole") return;
      assert.ok(range.first >= 0 && range.first <= range.last && range.last < size);
    }),
  );
});

test("a reader gets the parts that it asks for, and only these leave the registry, over links that break", async () => {
  await using registry = await ScriptedRegistry.start();
  const digest = digestOf(bundle);
  let breaks = 0;
  registry.intercept = (request, response) => {
    const range = request.headers.range;
    // Each third request breaks in the middle.
    breaks += 1;
    if (breaks % 3 !== 2) {
      sendBlob(response, bundle, range);
      return true;
    }
    const [, first = "0", last = "0"] = /bytes=(\d+)-(\d+)/.exec(range ?? "") ?? [];
    const length = Number(last) - Number(first) + 1;
    response.writeHead(206, { "content-length": length, "content-range": `bytes ${first}-${last}/${bundle.length}` });
    response.write(bundle.subarray(Number(first), Number(first) + Math.floor(length / 2)), () => response.destroy());
    return true;
  };
  const clock = new EagerClock();
  const access = accessTo(registry);
  await using client = new RegistryClient(access.endpoints[0] as never, access);
  const components = { clock, random: { next: () => 0 }, registry: client, pace: new BytePace(clock, 0) };
  const layer = { digest, sha256: digest.slice(7), sizeBytes: bundle.length, mediaType: BUNDLE_TYPE };
  await using server = new BlobServer(components, layer);
  const url = await server.listen(NEVER);
  // The end, which is signed, is there already.
  const end = server.bytes;
  assert.equal(end, 65_544);
  let asked = end;
  for (const [first, last] of [
    [0, 3],
    [100_000, 199_999],
    [5, 40_000],
    [230_000, 240_000],
    [299_999, 299_999],
  ] as const) {
    const response = await fetch(url, { headers: { range: `bytes=${first}-${last}` } });
    assert.equal(response.status, 206);
    assert.equal(response.headers.get("content-range"), `bytes ${first}-${last}/${bundle.length}`);
    const got = Buffer.from(await response.arrayBuffer());
    assert.ok(got.equals(bundle.subarray(first, last + 1)));
    asked += Math.max(0, Math.min(last + 1, bundle.length - end) - first);
  }
  assert.equal(server.bytes, asked);
  assert.ok(breaks > 4, "links were broken");
  const head = await fetch(url, { method: "HEAD" });
  assert.deepEqual([head.status, head.headers.get("content-length")], [200, String(bundle.length)]);
  assert.equal((await fetch(url, { headers: { range: "bytes=300000-" } })).status, 416);
  assert.equal((await fetch(new URL("/bundle.raucb", url))).status, 404);
  assert.equal((await fetch(url, { method: "POST" })).status, 405);
});

test("a registry that knows no ranges is named", async () => {
  await using registry = await ScriptedRegistry.start();
  registry.intercept = (_, response) => {
    response.writeHead(200, { "content-length": bundle.length }).end(bundle);
    return true;
  };
  const access = accessTo(registry);
  await using client = new RegistryClient(access.endpoints[0] as never, access);
  await assert.rejects(client.range(digestOf(bundle), 5, 9, NEVER), /answers no requests for a part of a blob/);
});

test("a transfer keeps to its bytes a second, and a rest saves nothing up", async () => {
  const clock = new VirtualClock();
  const pace = new BytePace(clock, 1000);
  const took = async (bytes: number): Promise<number> => {
    const before = clock.monotonic();
    let isOver = false;
    const passing = pace.passed(bytes, NEVER).then(() => {
      isOver = true;
    });
    await clock.advance(millis(60_000), () => isOver);
    await passing;
    return clock.monotonic() - before;
  };
  assert.equal(await took(500), 500);
  await clock.advance(millis(10_000));
  assert.equal(await took(2000), 2000);
  const unlimited = new BytePace(clock, 0);
  await unlimited.passed(1e12, NEVER);
  assert.equal(clock.sleeping, 0);
});

const layerOf = (content: Uint8Array | string, mediaType = BUNDLE_TYPE, more: object = {}) => ({
  ...{ mediaType, digest: digestOf(content), size: Buffer.byteLength(content) },
  ...more,
});
const manifestOf = (version: string, more: object = {}) => ({
  schemaVersion: 2,
  artifactType: OS_TYPE,
  layers: [layerOf(bundle)],
  annotations: { "org.opencontainers.image.version": version, "picolet.io/compatible": COMPATIBLE },
  ...more,
});
const documentOf = (value: object, mediaType = "application/vnd.oci.image.manifest.v1+json") => {
  const content = JSON.stringify(value);
  return { content, mediaType, digest: digestOf(content) };
};
const WANTED = { kind: "os", compatible: COMPATIBLE } as const;
const parse = (value: object) => parseUpdateDocument(Buffer.from(JSON.stringify(value)), WANTED);

test("the artifact of this board is found, and what is none says why", () => {
  const found = parse(manifestOf("1.2"));
  assert.ok(found.kind === "artifact");
  assert.deepEqual([found.artifact.version, found.artifact.layer.digest], ["1.2", digestOf(bundle)]);
  const entry = (compatible: string) => ({
    ...layerOf(compatible),
    annotations: { "picolet.io/compatible": compatible },
  });
  const index = parse({ manifests: [entry("picolet-raspberrypi-containers"), entry(COMPATIBLE)] });
  assert.ok(index.kind === "index");
  assert.equal(index.entry.digest, digestOf(COMPATIBLE));
  const wrong: readonly [object, RegExp][] = [
    [
      { manifests: [entry("picolet-raspberrypi-containers")] },
      /nothing for picolet-generic-amd64.*it has picolet-rasp/,
    ],
    [{ manifests: [] }, /nothing that says what it is for/],
    [{ manifests: [], layers: [] }, /an index too/],
    [{}, /neither layers nor manifests/],
    [manifestOf("1", { artifactType: "application/wasm" }), /no image of a system: its artifact type is "application/],
    [manifestOf("1", { layers: [] }), /one layer of the type application\/vnd.rauc.bundle, and has 0/],
    [manifestOf("1", { layers: [layerOf("a"), layerOf("b")] }), /and has 2/],
    [manifestOf(""), /image.version must be a version/],
    [manifestOf("1\n2"), /must be a version/],
    [manifestOf("1", { annotations: { "picolet.io/compatible": "other" } }), /it is for other, this board is picolet/],
    [{ manifests: Array.from({ length: 300 }, () => entry("x")) }, /300 entries in its index, more than 256/],
  ];
  for (const [value, problem] of wrong) assert.throws(() => parse(value), problem, JSON.stringify(value).slice(0, 80));
});

test("a package is found by its platform, with its signature", () => {
  const agent = { kind: "agent", architecture: "arm64" } as const;
  const entry = (architecture: string) => ({ ...layerOf(architecture), platform: { os: "linux", architecture } });
  const read = (value: object) => parseUpdateDocument(Buffer.from(JSON.stringify(value)), agent);
  const index = read({ manifests: [entry("amd64"), entry("arm64")] });
  assert.ok(index.kind === "index" && index.entry.digest === digestOf("arm64"));
  assert.throws(() => read({ manifests: [entry("amd64")] }), /nothing for linux\/arm64: it has linux\/amd64/);
  const signed = layerOf("deb", "application/vnd.debian.binary-package", {
    annotations: { "picolet.io/signature": "AA==" },
  });
  const found = read(manifestOf("2", { artifactType: "application/vnd.picolet.package.v1", layers: [signed] }));
  assert.ok(found.kind === "artifact" && found.artifact.signature === "AA==");
});

test("any document is read or refused", () => {
  fc.assert(
    fc.property(fc.oneof(fc.json(), fc.string()), (text) => {
      try {
        parseUpdateDocument(Buffer.from(text), WANTED);
      } catch (error) {
        assert.ok(
          isPicoletError(error) && ["corrupt", "invalid", "resource_exhausted"].includes(error.code),
          describeError(error),
        );
      }
    }),
  );
  for (const text of ["", "null", "[]", "{}", '{"version":1,"compatible":"c"}', '{"version":"1"}'])
    assert.throws(() => parseBundleInfo(text), /rauc info/);
  assert.deepEqual(parseBundleInfo('{"compatible":"c","version":"1","x":[]}'), { compatible: "c", version: "1" });
});

/** RAUC, as far as an update needs it: it reads all of a bundle. */
class Rauc {
  readonly calls: string[] = [];
  info = { version: "2.0", compatible: COMPATIBLE };
  canStream = true;
  installs = true;
  got: Buffer | undefined;

  readonly run: RunCommand = async (command): Promise<CommandResult> => {
    const result = (exitCode: number, stdout = "", stderr = ""): CommandResult => ({ exitCode, stdout, stderr });
    const [program = "", verb = ""] = command;
    this.calls.push([program, verb, command.at(-1)?.startsWith("http") ? "URL" : command.at(-1)].join(" "));
    if (program === "modprobe") return result(this.canStream ? 0 : 1);
    if (verb === "info") return result(0, JSON.stringify(this.info));
    if (verb === "install" && !this.installs) return result(1, "", "LastError: signature verification failed\n");
    if (verb === "install") this.got = await contentOf(command.at(-1) ?? "");
    return result(0);
  };
}

const contentOf = async (place: string): Promise<Buffer> =>
  place.startsWith("http") ? Buffer.from(await (await fetch(place)).arrayBuffer()) : readFileSync(place);

async function updated(
  rauc: Rauc,
  more: {
    version?: string;
    offered?: string;
    allowDowngrade?: boolean;
    install?: boolean;
    intercept?: ScriptedRegistry["intercept"];
  } = {},
) {
  const { version = "1.0", offered = rauc.info.version, allowDowngrade = false, install = true } = more;
  await using registry = await ScriptedRegistry.start();
  const manifest = documentOf(manifestOf(offered));
  registry.add(manifest, [bundle], "2");
  if (more.intercept !== undefined) registry.intercept = more.intercept;
  using folder = new TempFolder();
  const task: Extract<UpdateTask, { want: "os" }> = {
    ...{ want: "os", directory: folder.path, install, bytesPerSecond: 0, allowDowngrade, version, slot: "A" },
    compatible: COMPATIBLE,
    source: { kind: "registry", access: accessTo(registry), reference: "2" },
  };
  const clock = new EagerClock();
  const components = {
    clock,
    random: { next: () => 0 },
    run: rauc.run,
    onInstalling: () => rauc.calls.push("installing"),
  };
  const answer = await updateSystem(components, task, NEVER);
  return { answer, requests: registry.requests, left: existsSync(folder.at("bundle.raucb")) };
}

test("RAUC is given a bundle by parts, and the running slot stays the one of the next start", async () => {
  const rauc = new Rauc();
  const { answer } = await updated(rauc);
  assert.deepEqual(answer, {
    kind: "prepared",
    version: "2.0",
    slot: "B",
    bytes: bundle.length,
    totalBytes: bundle.length,
  });
  assert.deepEqual(rauc.calls, [
    "modprobe nbd nbd",
    "rauc info URL",
    "installing",
    "rauc install URL",
    "rauc status booted",
  ]);
  assert.ok(rauc.got?.equals(bundle));
});

test("what was judged is installed: a registry that gives another bundle the second time gets nowhere", async () => {
  const rauc = new Rauc();
  const older = Buffer.from(bundle).reverse();
  const { answer } = await updated(rauc, {
    intercept: ({ url = "", headers }, response) => {
      if (!url.includes("/blobs/")) return false;
      sendBlob(response, rauc.calls.includes("rauc info URL") ? older : bundle, headers.range);
      return true;
    },
  });
  assert.equal(answer.kind, "prepared");
  // All before it has its hash in there.
  assert.ok(rauc.got?.subarray(-65_544).equals(bundle.subarray(-65_544)));
});

test("without network block devices the bundle is stored, and removed once it is installed", async () => {
  const rauc = new Rauc();
  rauc.canStream = false;
  const { answer, left } = await updated(rauc);
  assert.equal(answer.kind, "prepared");
  assert.ok(rauc.got?.equals(bundle));
  assert.equal(left, false);
});

test("what runs is not fetched, what is older or another board's is refused, whatever the registry says", async () => {
  const same = new Rauc();
  const { answer, requests } = await updated(same, { version: "2.0" });
  assert.deepEqual([answer.kind, same.calls], ["current", []]);
  assert.ok(!requests.some((each) => each.includes("/blobs/")));
  await assert.rejects(updated(new Rauc(), { version: "3.0" }), /2.0 is older than 3.0, which runs: picolet.io.*allow/);
  assert.equal((await updated(new Rauc(), { version: "3.0", allowDowngrade: true })).answer.kind, "prepared");
  // The registry names a newer version than the signed bundle has.
  await assert.rejects(updated(new Rauc(), { version: "3.0", offered: "4.0" }), /2.0 is older than 3.0/);
  const other = new Rauc();
  other.info = { version: "2.0", compatible: "picolet-raspberrypi-containers" };
  await assert.rejects(updated(other), /it is for picolet-raspberrypi-containers, this board is/);
  const refusing = new Rauc();
  refusing.installs = false;
  await assert.rejects(updated(refusing), /RAUC could not install it: LastError: signature verification failed/);
  const checked = new Rauc();
  await updated(checked, { install: false });
  assert.ok(!checked.calls.includes("rauc install URL"));
});

test("a package is trusted by the signature of one of the board's keys alone", () => {
  const [ours, theirs] = [generateKeyPairSync("ed25519"), generateKeyPairSync("ed25519")];
  const content = Buffer.from("package");
  const signature = sign(null, content, ours.privateKey).toString("base64");
  assert.ok(isSigned(content, `${signature}\n`, [theirs.publicKey, ours.publicKey]));
  assert.ok(!isSigned(content, signature, [theirs.publicKey]));
  assert.ok(!isSigned(Buffer.from("packagE"), signature, [ours.publicKey]));
  assert.ok(!isSigned(content, "", [ours.publicKey]));
  assert.ok(!isSigned(content, "x".repeat(10_000), [ours.publicKey]));
});

test("a configuration keeps comments and fields of before, and refuses what is the owner's", async () => {
  const current = "# by hand\nmaxPods: 10 # few\nhub:\n  server: https://a\n";
  const merged = await mergedConfiguration(
    current,
    "maxPods: 20\nhub: {heartbeatInterval: 5s}\nnodeLabels: null\n",
    "c",
  );
  assert.equal(merged, "# by hand\nmaxPods: 20 # few\nhub:\n  server: https://a\n  heartbeatInterval: 5s\n");
  assert.equal(await mergedConfiguration("", "maxPods: 20", "c"), "maxPods: 20\n");
  const wrong: readonly [current: string, change: string, problem: RegExp][] = [
    ["", "hub: {token: x}", /a hub may not change hub.token/],
    ["", "- a", /is no YAML mapping/],
    ["", "a: [", /is no YAML$|is no YAML:/],
    ["a: [", "maxPods: 1", /c is no YAML mapping/],
    ["hub: text", "hub: {server: x}", /cannot set hub.server/],
    ["", "a: &a [x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: [*c, *c, *c, *c, *c, *c]", /no YAML/],
  ];
  for (const [before, change, problem] of wrong)
    await assert.rejects(
      mergedConfiguration(before, change, "c"),
      (error) => problem.test(describeError(error)),
      change,
    );
});

test("a configuration is checked by the agent, and the one of before is kept with its mode", async () => {
  using folder = new TempFolder();
  const directory = folder.at("updates");
  mkdirSync(directory);
  const path = folder.at("config.yaml");
  writeFileSync(path, "maxPods: 10\n", { mode: 0o600 });
  const commands: (readonly string[])[] = [];
  const checking =
    (exitCode: number): RunCommand =>
    async (command) => {
      commands.push(command);
      return { exitCode, stdout: "", stderr: `${command.at(-2)}:1: maxPods: Invalid value\n` };
    };
  const task = { want: "configuration", directory, install: true, text: "maxPods: 20", path } as const;
  const run = (exitCode: number) =>
    updateConfiguration(
      { run: checking(exitCode), agent: ["node", "agent"], onInstalling: () => undefined },
      task,
      NEVER,
    );
  await assert.rejects(run(78), (error) => describeError(error).includes(`${path}:1: maxPods: Invalid value`));
  assert.equal(existsSync(folder.at("updates", "previous.yaml")), false);
  const answer = await run(0);
  const version = createHash("sha256").update(task.text).digest("hex").slice(0, 16);
  assert.ok(answer.kind === "prepared" && answer.version === version);
  assert.deepEqual(commands.at(-1), ["node", "agent", "--config", folder.at("updates", "next.yaml"), "--check-config"]);
  assert.equal(readFileSync(folder.at("updates", "next.yaml"), "utf8"), "maxPods: 20\n");
  assert.equal(readFileSync(folder.at("updates", "previous.yaml"), "utf8"), "maxPods: 10\n");
  for (const name of ["next.yaml", "previous.yaml"])
    assert.equal(statSync(folder.at("updates", name)).mode & 0o777, 0o600);
  writeFileSync(path, "maxPods: 20\n");
  assert.equal((await run(0)).kind, "current");
});
