/** What faces a network or a file, each parser behind one of these. A new one is an entry here. */
import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { makeNodeRequest } from "@picolet/agent/security/certificate-requests.ts";
import { readManifest } from "@picolet/agent/sources/manifests/manifest-reader.ts";
import { mergedConfiguration } from "@picolet/agent/updates/program/configuration-update.ts";
import { parseUpdateDocument } from "@picolet/agent/updates/program/update-documents.ts";
import { BOARD_FILE_TEMPLATE, exampleOf } from "@picolet/firmware/first-boot/board-file-template.ts";
import { planBoard } from "@picolet/firmware/first-boot/plan/board-plan.ts";
import { readBoardFile } from "@picolet/firmware/first-boot/read-board-file.ts";
import { withoutToken } from "@picolet/firmware/first-boot/wipe-token.ts";
import { checkNodeRequest } from "@picolet/hub/identity/node-request.ts";
import { parseFieldSelector, parseLabelSelector } from "@picolet/hub-embedded/api/selectors.ts";
import { StatusError } from "@picolet/hub-embedded/api/status-error.ts";
import { parseObjectBody } from "@picolet/hub-embedded/http/body.ts";
import { YamlReader } from "@picolet/hub-embedded/http/yaml-reader.ts";
import { applyObjectPatch } from "@picolet/hub-embedded/patch/apply-patch.ts";
import { applyConfiguration } from "@picolet/hub-embedded/patch/server-side-apply.ts";
import { nodeResource } from "@picolet/hub-embedded/resources/node-resource.ts";
import { PROTOBUF_TYPE, ProtobufReader } from "@picolet/hub-embedded/schema/protobuf.ts";
import { SpdyFrameReader } from "@picolet/kubelet-api/streaming/spdy/spdy-frames.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { parseImageReference } from "@picolet/protocol/kubernetes/image-reference.ts";
import { parseCertificate } from "@picolet/protocol/pki/certificate.ts";
import { parseCertificateRequest } from "@picolet/protocol/pki/certificate-request.ts";
import { certificatesOf, encodePem } from "@picolet/protocol/pki/pem.ts";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { decodeBatch } from "@picolet/protocol/telemetry/batch.ts";
import { SampleDecoder, SampleEncoder } from "@picolet/protocol/telemetry/sample-codec.ts";
import { decodeCbor, encodeCbor } from "@picolet/protocol/tunnel/encoding/cbor.ts";
import { decodeFrame, encodeFrame, encodeMessageFrame } from "@picolet/protocol/tunnel/frames.ts";
import { packMessage, unpackMessage } from "@picolet/protocol/tunnel/message-codec.ts";
import { parseDirective, parseReport } from "@picolet/protocol/updates/node-updates.ts";
import { decompressStream } from "@picolet/runtime-contract/archive/byte-stream.ts";
import type { ByteStream } from "@picolet/runtime-contract/archive/file-bytes.ts";
import { TarReader } from "@picolet/runtime-contract/archive/tar-reader.ts";
import { ImageService, RuntimeService } from "@picolet/runtime-cri/wire/cri-messages.ts";
import { MessageAssembler, withPrefix } from "@picolet/runtime-cri/wire/grpc-messages.ts";
import { encodeHeaders, HpackDecoder } from "@picolet/runtime-cri/wire/hpack.ts";
import { FRAME, FrameReader, frame } from "@picolet/runtime-cri/wire/http2-frames.ts";
import { parseDocument, parseSignatures, platformOfConfig } from "@picolet/runtime-wasm/pull/manifests.ts";
import { parseChallenges } from "@picolet/runtime-wasm/registry/challenge.ts";
import { readComponentShape } from "@picolet/runtime-wasm/shared/binary/component-shape.ts";
import { padMemoryLimits } from "@picolet/runtime-wasm/shared/binary/memory-limits.ts";
import { parseBuckets } from "@picolet/runtime-wasm/shared/board/keyvalue/grant.ts";
import { parseInterfaces } from "@picolet/runtime-wasm/shared/grants/board-grants.ts";
import { parseDevices } from "@picolet/runtime-wasm/shared/grants/device-grants.ts";
import { parseHttpOptions } from "@picolet/runtime-wasm/shared/grants/http-options.ts";
import { parseVolumeName } from "@picolet/runtime-wasm/shared/grants/syntax/volume-name.ts";
import { parseNetworkRules } from "@picolet/runtime-wasm/shared/network/network-rules.ts";
import { checkNames } from "@picolet/runtime-wasm/transpile/component-names.ts";
import { MODELS } from "../support/unit/embedded/api-server.ts";
import { artifact, indexOf } from "../support/unit/images/oci-content.ts";
import { makeTar } from "../support/unit/images/tar.ts";
import { SAMPLE_FRAMES, SAMPLE_MESSAGES } from "../support/unit/tunnel/tunnel-samples.ts";
import { usageSample } from "../support/unit/tunnel/usage-samples.ts";
import { testComponent } from "../support/wasm/components.ts";
import type { FuzzTarget } from "./fuzzer.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = (input: Uint8Array): string => Buffer.from(input).toString("utf8");

/** A refusal that says who is at fault: the peer, or the file. */
const isRefusal = (error: unknown): boolean =>
  isPicoletError(error) && ["invalid", "corrupt", "resource_exhausted", "unimplemented"].includes(error.code);
const isApiRefusal = (error: unknown): boolean =>
  (error instanceof StatusError && error.statusCode < 500) || isRefusal(error);
const nothing = (): boolean => false;

/** Bytes as the readers of archives take them, in pieces of odd sizes. */
class MemoryBytes implements ByteStream {
  #rest: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#rest = bytes;
  }

  read(limit: number): Promise<Uint8Array | undefined> {
    if (this.#rest.length === 0) return Promise.resolve(undefined);
    const piece = this.#rest.subarray(0, Math.min(limit, 1009));
    this.#rest = this.#rest.subarray(piece.length);
    return Promise.resolve(piece);
  }

  skip(count: number): Promise<void> {
    this.#rest = this.#rest.subarray(count);
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

/** Content of entries that is read; more of it is skipped, as readers do. */
const READ_BYTES = 65_536;

async function readTar(input: Uint8Array): Promise<void> {
  await using stream = await decompressStream(new MemoryBytes(input));
  const reader = new TarReader(stream);
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    await entry.content.read(READ_BYTES);
  }
}

const CRI_ANSWERS = [...Object.values(RuntimeService), ...Object.values(ImageService)].map(({ response }) => response);

/** All that is heard on one HTTP/2 connection: frames, header blocks, messages. */
function readHttp2(input: Uint8Array): void {
  const headers = new HpackDecoder();
  const messages = new MessageAssembler(65_536, () => undefined);
  const ignore = (): void => undefined;
  const reader = new FrameReader({
    onData: (_stream, piece) => messages.feed(piece),
    onHeaders: (_stream, block) => void headers.decode(block),
    ...{ onDataEnd: ignore, onResetStream: ignore, onSettings: ignore, onSettingsAck: ignore, onPing: ignore },
    ...{ onGoAway: ignore, onWindowUpdate: ignore },
  });
  // In two pieces: what is cut in the middle is put together.
  const middle = Math.floor(input.length / 3);
  reader.feed(Buffer.from(input.subarray(0, middle)));
  reader.feed(Buffer.from(input.subarray(middle)));
}

const READERS = { protobuf: new ProtobufReader(MODELS), yaml: new YamlReader(systemClock) };

/** A body of each encoding: the first byte says which. */
const BODY_TYPES = ["application/json", "application/yaml", PROTOBUF_TYPE];

async function readBodyOf(input: Uint8Array): Promise<void> {
  const type = BODY_TYPES[(input[0] ?? 0) % BODY_TYPES.length] ?? "";
  await parseObjectBody(READERS, { bytes: Buffer.from(input.subarray(1)), type, user: "fuzz" }, "V1Pod");
}

const LIVE = {
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: "a", labels: { a: "b" }, resourceVersion: "1" },
  status: { conditions: [{ type: "Ready", status: "True" }], addresses: [{ type: "InternalIP", address: "10.0.0.1" }] },
} as const;

/** Every kind of patch, of a Node. */
function patchWith(input: Uint8Array): void {
  let patch: unknown;
  try {
    patch = JSON.parse(textOf(input));
  } catch {
    return;
  }
  for (const type of ["json", "merge", "strategic"] as const) {
    attempt(() =>
      applyObjectPatch(MODELS, nodeResource.model, type, structuredClone(LIVE) as never, structuredClone(patch)),
    );
  }
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return;
  const config = { ...structuredClone(patch), apiVersion: "v1", kind: "Node", metadata: { name: "a" } };
  const request = { definition: nodeResource, live: structuredClone(LIVE) as never, manager: "m", subresource: "" };
  attempt(() => applyConfiguration(MODELS, { ...request, config: config as never, isForced: true, now: new Date(0) }));
}

const POD = `apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {wasm.picolet.io/network: "tcp://*:80"}}
spec:
  restartPolicy: OnFailure
  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}, {name: s, secret: {secretName: s}}]
  containers:
  - {name: app, image: "a/b:1", ports: [{containerPort: 80}], resources: {limits: {memory: 32Mi, cpu: 100m}}}
---
{"apiVersion":"v1","kind":"PodList","items":[]}
`;

const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const CSR = makeNodeRequest("board-1", privateKey.export({ type: "pkcs8", format: "pem" }).toString());

/** A board's own numbers, for names by rule. */
const BOARD = {
  facts: { serial: "10000000deadbeef", mac: "dca632aabbcc" },
  ...{ machine: { memoryBytes: 536_870_912 }, defaults: {}, present: "", owned: [], named: undefined },
};

/** `picolet.yaml`, which anyone edits; a good one is planned, and its token wiped. */
function readBoard(input: Uint8Array): void {
  const read = readBoardFile(input, BOARD);
  if (!read.ok) return;
  planBoard(read);
  withoutToken(textOf(input));
}

export const TARGETS: readonly FuzzTarget[] = [
  {
    name: "board-file",
    seeds: () => [utf8(exampleOf(readFileSync(BOARD_FILE_TEMPLATE, "utf8")))],
    dictionary: [
      "hub:",
      "token: ",
      "\r\n",
      "\t",
      "&a ",
      "*a",
      "<<: ",
      "|\n",
      "- ",
      "{",
      "[",
      "null",
      "\uFEFF",
      "{mac:6}",
    ],
    run: readBoard,
    refuses: nothing,
  },
  {
    name: "tunnel-frame",
    seeds: () => [
      ...Object.values(SAMPLE_MESSAGES).map((message) => encodeMessageFrame(encodeCbor(packMessage(message)))),
      ...Object.values(SAMPLE_FRAMES).map((each) => encodeFrame(each)),
    ],
    run: (input) => {
      const decoded = decodeFrame(input);
      if (decoded.type === "message") unpackMessage(decoded.message);
    },
    refuses: isRefusal,
  },
  {
    name: "tunnel-message",
    seeds: () => Object.values(SAMPLE_MESSAGES).map((message) => encodeCbor(packMessage(message))),
    run: (input) => void unpackMessage(decodeCbor(input)),
    refuses: isRefusal,
  },
  {
    name: "telemetry-batch",
    seeds: () => [encodeCbor([1, [], []]), encodeCbor({ origin: { namespace: "a", pod: "b" }, records: [] })],
    run: (input) => void decodeBatch(input),
    refuses: isRefusal,
  },
  {
    name: "usage-samples",
    seeds: () => {
      const encoder = new SampleEncoder();
      return [encoder.encode(1, usageSample(2, 1)), encoder.encode(2, usageSample(3, 2))].map((frame) =>
        frame.slice(4),
      );
    },
    run: (input) => void new SampleDecoder().decode(input),
    refuses: isRefusal,
  },
  {
    name: "certificate",
    seeds: () => [CSR, utf8(encodePem("CERTIFICATE", CSR))],
    run: (input) => {
      for (const parse of [parseCertificate, parseCertificateRequest]) attempt(() => parse(input));
      attempt(() => checkNodeRequest(encodePem("CERTIFICATE REQUEST", input)));
      attempt(() => certificatesOf(textOf(input)));
    },
    refuses: isRefusal,
  },
  {
    name: "registry-document",
    seeds: () => [
      utf8(artifact(utf8("component")).content),
      utf8(indexOf([{ document: artifact(utf8("component")), platform: "linux/arm64" }]).content),
      utf8('{"schemaVersion":2,"layers":[{"mediaType":"application/vnd.dev.cosign.simplesigning.v1+json"}]}'),
      utf8('Bearer realm="https://a/t",service="s",scope="repository:x:pull"'),
    ],
    dictionary: [
      '"manifests":[',
      '"layers":',
      '"artifactType":',
      '"annotations":{',
      "sha256:",
      '"size":',
      "null",
      "1e999",
    ],
    run: (input) => {
      const content = Buffer.from(input);
      for (const parse of [parseDocument, parseSignatures, platformOfConfig]) attempt(() => parse(content));
      parseChallenges(textOf(input));
    },
    refuses: isRefusal,
  },
  {
    name: "updates",
    seeds: () => [
      utf8(
        '{"picolet.io/os-image":"r/os:1","picolet.io/update-window":"22:00-02:00","picolet.io/update-bandwidth":"1Mi"}',
      ),
      utf8(
        '{"osVersion":"1","slot":"A","updates":[{"kind":"os","target":"r/os:1","state":"good","message":"","since":""}]}',
      ),
      utf8('{"manifests":[{"digest":"sha256:00","size":1,"annotations":{"picolet.io/compatible":"c"}}]}'),
      utf8('{"artifactType":"application/vnd.picolet.os.v1","layers":[{"mediaType":"application/vnd.rauc.bundle"}]}'),
      utf8("hub: {server: https://b}\nmaxPods: 3\nnodeName: null\n"),
    ],
    dictionary: [
      '"picolet.io/configuration":',
      '"picolet.io/update-health-deadline":',
      '"updates":[',
      "null",
      "hub:",
      "~",
    ],
    run: (input) => {
      const text = textOf(input);
      for (const wanted of [
        { kind: "os", compatible: "c" },
        { kind: "agent", architecture: "arm64" },
      ] as const)
        attempt(() => parseUpdateDocument(Buffer.from(input), wanted));
      parseReport(text);
      parseDirective({
        "picolet.io/os-image": text,
        "picolet.io/update-window": text,
        "picolet.io/update-bandwidth": text,
      });
      return mergedConfiguration("maxPods: 1\n", text, "config.yaml").then(() => undefined);
    },
    refuses: isRefusal,
  },
  {
    name: "http2",
    seeds: () => [
      Buffer.concat([
        frame(FRAME.settings, 0, 0, new Uint8Array()),
        frame(FRAME.headers, 0x4, 1, encodeHeaders([":status", "200", "content-type", "application/grpc"])),
        frame(FRAME.data, 0, 1, withPrefix(utf8("message"))),
        frame(FRAME.headers, 0x5, 1, encodeHeaders(["grpc-status", "0"])),
      ]),
    ],
    run: readHttp2,
    refuses: isRefusal,
  },
  {
    name: "cri-answer",
    seeds: () => [Buffer.from("0a0612040a027631", "hex"), Buffer.from("0a030a0161120908011205616263", "hex")],
    run: (input) => {
      for (const answer of CRI_ANSWERS) attempt(() => answer.decode(Buffer.from(input)));
    },
    refuses: isRefusal,
  },
  {
    name: "component",
    seeds: async () => {
      const component = await testComponent("exit-42.wat");
      const bytes = (await import("node:fs")).readFileSync(component);
      return [bytes, bytes.subarray(0, 64), Buffer.from("0061736d01000000050401010102", "hex")];
    },
    maxBytes: 16_384,
    run: (input) => {
      attempt(() => readComponentShape((offset, length) => input.subarray(offset, offset + length), input.length));
      attempt(() => checkNames(input));
      attempt(() => void padMemoryLimits(input));
    },
    refuses: isRefusal,
  },
  {
    name: "archive",
    seeds: () => {
      const tar = makeTar({ "index.json": "{}", "blobs/sha256/a": "content" });
      return [tar, gzipSync(tar)];
    },
    maxBytes: 8192,
    run: readTar,
    refuses: isRefusal,
  },
  {
    name: "manifest",
    seeds: () => [utf8(POD)],
    dictionary: [
      "&a ",
      "*a",
      "<<: ",
      "? ",
      "- ",
      "---\n",
      "!!binary ",
      "!!set ",
      "0x",
      "containers:",
      "name: ",
      "{",
      "[",
    ],
    run: (input) => {
      const read = readManifest(textOf(input));
      if (read.ok) for (const { pod } of read.pods) parsePod(pod);
    },
    refuses: nothing,
  },
  {
    name: "api-body",
    seeds: () => [
      utf8(
        '\0{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}',
      ),
      utf8(`\x01${POD}`),
      Buffer.concat([
        Buffer.from([2]),
        Buffer.from("6b38730012000a0276311203506f64121a0a0812036162630a0012080a060a01631201691a0022001a00", "hex"),
      ]),
    ],
    dictionary: ['{"', '":', "[", "]", "&a ", "*a", "<<: ", "!!binary ", "\\u0000", '"__proto__":', "1e400", "k8s\0"],
    run: readBodyOf,
    refuses: isApiRefusal,
  },
  {
    name: "api-patch",
    seeds: () => [
      utf8('{"status":{"conditions":[{"type":"Ready","status":"False"},{"$patch":"delete","type":"Gone"}]}}'),
      utf8('[{"op":"test","path":"/metadata/labels/a","value":"b"},{"op":"copy","from":"/status","path":"/status/x"}]'),
      utf8(
        '{"metadata":{"labels":null},"status":{"$setElementOrder/conditions":[{"type":"Ready"}],"$retainKeys":["a"]}}',
      ),
    ],
    dictionary: [
      ...[
        '"$patch":"replace"',
        '"$patch":"merge"',
        '"$deleteFromPrimitiveList/finalizers":[',
        '"op":"move"',
        '"/-"',
        "~1",
      ],
      ...['"conditions":[', '"type":"Ready"', "null", "{}", "[]"],
    ],
    run: patchWith,
    refuses: isApiRefusal,
  },
  {
    name: "selector",
    seeds: () => [
      utf8("a in (b, c),!d,e!=f"),
      utf8("metadata.name=a,spec.nodeName!=b"),
      utf8("docker.io/a/b:1@sha256:00"),
    ],
    dictionary: [" in (", " notin (", "!=", "==", "\\,", "metadata.namespace="],
    run: (input) => {
      const text = textOf(input);
      for (const parse of [parseLabelSelector, parseFieldSelector]) attempt(() => parse(text));
      parseImageReference(text);
    },
    refuses: isApiRefusal,
  },
  {
    name: "grant",
    seeds: () => [
      utf8("tcp://192.0.2.1:80; udp://*:53; http://*.example.com; listen-tcp://*:8080"),
      utf8("/dev/ttyUSB0; gpio:chip0/4; i2c:1/0x20"),
      utf8("keyvalue; telemetry; logging"),
    ],
    dictionary: ["://", "*", "::", "/0", "[", "; ", "65536"],
    run: (input) => {
      const text = textOf(input);
      for (const parse of [
        parseNetworkRules,
        parseDevices,
        parseHttpOptions,
        parseInterfaces,
        parseBuckets,
        parseVolumeName,
      ])
        parse(text);
    },
    refuses: nothing,
  },
  {
    name: "spdy",
    seeds: () => [
      Buffer.from("8003000100000012000000010000000000007801e340c60000", "hex"),
      Buffer.from("000000010100000161", "hex"),
    ],
    run: (input) => {
      const reader = new SpdyFrameReader();
      const middle = Math.floor(input.length / 2);
      for (const piece of [input.subarray(0, middle), input.subarray(middle)]) for (const _ of reader.push(piece));
    },
    refuses: isRefusal,
  },
];

/** One of several parsers of the same input: its refusal is no reason to leave out the others. */
function attempt(parse: () => unknown): void {
  try {
    parse();
  } catch (error) {
    if (!isApiRefusal(error)) throw error;
  }
}
