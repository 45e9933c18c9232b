/**
 * The messages of CRI and of containerd's own services as we have them, beside their published definitions: CRI's by a
 * list of its fields, containerd's, and CRI's once more, by what the installed containerd carries in its binary.
 */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { CONTAINERD_CALLS, CONTAINERD_EVENTS } from "@picolet/runtime-cri/wire/containerd-services.ts";
import * as cri from "@picolet/runtime-cri/wire/cri-messages.ts";
import type { GrpcMethod } from "@picolet/runtime-cri/wire/grpc-client.ts";
import type { MessageType } from "@picolet/runtime-cri/wire/protobuf.ts";
import {
  type ComparisonInit,
  camelCase,
  differences,
  publishedMessage,
} from "../support/containerd/message-comparison.ts";
import { PublishedApi, type PublishedField } from "../support/unit/cri/published-api.ts";

const PUBLISHED_CRI = PublishedApi.fromList("test/golden/cri-fields.txt");
const CONTAINERD = "/usr/bin/containerd";
const skip = existsSync(CONTAINERD) ? false : `not installed: ${CONTAINERD}`;
/**
 * Differences of older definitions: a call that no runtime of that time answers, and an environment that is UTF-8,
 * which is the same on the wire.
 */
const CHANGED = [
  "field runtime.v1.ContainerEventResponse 4 pod_sandbox_metadata single runtime.v1.PodSandboxMetadata",
  "field runtime.v1.KeyValue 2 value single string",
];
/** Services that the installed containerd may be too old for. */
const SINCE_1_7 = /^\/containerd\.services\.sandbox\./;
const KEYS = { mapKeys: ["io.kubernetes.pod.name"] };

// biome-ignore lint/suspicious/noExplicitAny: any message, by its call
type AnyMessage = MessageType<any, any>;
type Call = GrpcMethod<unknown, unknown> & { readonly request: AnyMessage; readonly response: AnyMessage };

const isCall = (value: unknown): value is Call => typeof value === "object" && value !== null && "path" in value;

/** All calls among the exports of a module, at any depth. */
function callsIn(value: unknown): Call[] {
  if (isCall(value)) return [value];
  if (typeof value !== "object" || value === null || value instanceof Map) return [];
  return Object.values(value).flatMap(callsIn);
}

const OUR_CRI: readonly Call[] = [
  ...callsIn({ ...cri }),
  ...callsIn(cri.relistCalls(KEYS.mapKeys)),
  ...callsIn(cri.podCalls(KEYS.mapKeys)),
];

function differencesOf(api: PublishedApi, { path, request, response }: Call, init?: ComparisonInit): string[] {
  const call = api.calls.get(path);
  if (call === undefined) return [`${path} is no call`];
  return [...differences(api, call.request, request, init), ...differences(api, call.response, response, init)].map(
    (each) => `${path}: ${each}`,
  );
}

test("each of our messages of CRI has the numbers, names and types of its definition", () => {
  assert.ok(OUR_CRI.length > 35, `${OUR_CRI.length} calls`);
  assert.deepEqual(
    OUR_CRI.flatMap((call) => differencesOf(PUBLISHED_CRI, call, KEYS)),
    [],
  );
});

test("each number that we name has the name that CRI gives it", () => {
  const numbers = (name: string): Record<string, number> =>
    Object.fromEntries(PUBLISHED_CRI.enums.get(`runtime.v1.${name}`) ?? []);
  const published: Readonly<Record<string, (number: number) => string | undefined>> = Object.fromEntries(
    [...PUBLISHED_CRI.enums].map(([name, values]) => [
      name.replace("runtime.v1.", ""),
      (number: number) => [...values].find(([, each]) => each === number)?.[0],
    ]),
  );
  const plain = (text: string | undefined): string => (text ?? "").replaceAll("_", "").toLowerCase();
  const named: readonly (readonly [type: string, ours: Readonly<Record<string, number>>])[] = [
    ["Protocol", cri.PortProtocol],
    ["MountPropagation", cri.MountPropagation],
    ["NamespaceMode", cri.NamespaceMode],
    ["SupplementalGroupsPolicy", cri.SupplementalGroupsPolicy],
    ["SecurityProfile.ProfileType", cri.ProfileType],
    ["PodSandboxState", cri.SandboxState],
    ["ContainerState", cri.ContainerState],
  ];
  for (const [type, ours] of named) {
    for (const [name, number] of Object.entries(ours)) {
      assert.ok(plain(published[type]?.(number)).endsWith(plain(name)), `${type}: ${name} = ${number}`);
    }
    assert.equal(Object.keys(ours).length, Object.keys(numbers(type)).length, type);
  }
  const signals = Object.entries(numbers("Signal")).filter(([, number]) => number > 0);
  const ours = [...cri.SIGNAL_NUMBERS].map(([name, number]) => [
    name.replace("+", "PLUS").replace("-", "MINUS"),
    number,
  ]);
  assert.deepEqual(Object.fromEntries(ours), Object.fromEntries(signals));
});

test("the list of CRI's fields agrees with the definition that the installed containerd carries", { skip }, () => {
  const carried = PublishedApi.fromProgram(CONTAINERD, /^runtime\.v1$/);
  assert.ok(carried.messages.size > 100, `${carried.messages.size} messages`);
  const known = new Set([...PUBLISHED_CRI.lines(), ...CHANGED]);
  assert.deepEqual(
    carried.lines().filter((line) => !known.has(line)),
    [],
  );
});

test("each of our messages of containerd's services has the numbers, names and types of the installed one's", {
  skip,
}, () => {
  const carried = PublishedApi.fromProgram(CONTAINERD, /^(?:containerd|google\.protobuf)\b/);
  const calls = callsIn(CONTAINERD_CALLS).filter(({ path }) => carried.calls.has(path) || !SINCE_1_7.test(path));
  assert.ok(calls.length >= 11, `${calls.length} calls`);
  const keys = { mapKeys: ["containerd.io/gc.ref.content.config"] };
  assert.deepEqual(
    calls.flatMap((call) => differencesOf(carried, call, keys)),
    [],
  );
  for (const [name, event] of Object.entries(CONTAINERD_EVENTS)) {
    assert.deepEqual(differences(carried, `containerd.events.${name}`, event), []);
  }
});

test("the comparison finds every field that has another number", () => {
  const types = new Set([...PUBLISHED_CRI.calls.values()].flatMap(({ request, response }) => [request, response]));
  const direct = [...types].flatMap((type) => PUBLISHED_CRI.fieldsOf(type).map((field) => ({ type, field })));
  const nested = [...PUBLISHED_CRI.messages.keys()]
    .filter((type) => !types.has(type))
    .flatMap((type) => PUBLISHED_CRI.fieldsOf(type).map((field) => ({ type, field })));
  let found = 0;
  for (const { type, field } of [...direct, ...nested]) {
    const numbers = new Set(PUBLISHED_CRI.fieldsOf(type).map(({ number }) => number));
    // Another field's number, and one that no field has.
    const others = [...numbers].filter((number) => number !== field.number).slice(0, 1);
    for (const other of [...others, Math.max(...numbers) + 1]) {
      const numberOf = (owner: string, each: PublishedField): number =>
        owner === type && each === field ? other : each.number;
      const wrong = publishedMessage(PUBLISHED_CRI, type, { keyOf: camelCase, numberOf });
      const all = differences(PUBLISHED_CRI, type, wrong);
      assert.ok(all.length > 0, `${type}.${field.name} = ${other}`);
      found += 1;
    }
  }
  assert.ok(found > 800, `${found} changes`);
});
