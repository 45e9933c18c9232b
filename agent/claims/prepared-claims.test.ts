import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { crc32 } from "node:zlib";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import { TestClusterObjects } from "@picolet/test/support/unit/agent/memory-cluster-objects.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { countedTimes, RecordedLog } from "@picolet/test/support/unit/ports/recorders.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import fc from "fast-check";
import { NodeCounts } from "../core/node/node-counts.ts";
import { parseClaimCheckpoint } from "./claim-checkpoint.ts";
import type { ClaimReference, DraDriver, PreparedClaim } from "./dra-driver.ts";
import { DraDriverTable } from "./dra-driver-table.ts";
import { PreparedClaims } from "./prepared-claims.ts";

const NEVER = new AbortController().signal;
const DRIVER = "gpu.example.com";

/** Prepares every claim as one device, and records what it is asked. */
class RecordingDriver implements DraDriver {
  readonly calls: string[] = [];
  before: () => Promise<void> = async () => undefined;
  answer: (claim: ClaimReference) => PreparedClaim | undefined = ({ name }) => ({
    devices: [{ pool: "board", device: name, requests: ["one"], cdiDevices: [`example.com/gpu=${name}`] }],
    error: "",
  });

  async prepare(claims: readonly ClaimReference[]): Promise<ReadonlyMap<string, PreparedClaim>> {
    this.calls.push(`prepare ${claims.map(({ name }) => name).join()}`);
    await this.before();
    return new Map(
      claims.flatMap((claim) => {
        const answer = this.answer(claim);
        return answer === undefined ? [] : [[claim.uid, answer] as const];
      }),
    );
  }

  follow(): Promise<never> {
    return new Promise(() => undefined);
  }

  async unprepare(claims: readonly ClaimReference[]): Promise<ReadonlyMap<string, string>> {
    this.calls.push(`unprepare ${claims.map(({ name }) => name).join()}`);
    await this.before();
    return new Map(
      claims.map(({ uid, name }) => [uid, this.answer(claims[0] ?? { namespace: "", uid, name })?.error ?? ""]),
    );
  }
}

class Bench implements Disposable {
  readonly folder = new TempFolder();
  readonly path = this.folder.at("dra_manager_state");
  readonly clock = new VirtualClock();
  readonly counts = new NodeCounts();
  readonly log = new RecordedLog();
  readonly objects = new TestClusterObjects(new VirtualClock());
  readonly drivers = new DraDriverTable();
  readonly driver = new RecordingDriver();
  claims = this.restarted();

  restarted(bootId = "boot-1"): PreparedClaims {
    const { drivers, objects, clock, counts, log, path } = this;
    this.claims = new PreparedClaims({ drivers, objects, clock, counts, log }, { path, bootId });
    return this.claims;
  }

  register(): void {
    this.drivers.set(DRIVER, "gpu-reg.sock", this.driver);
  }

  /** A claim that is allocated and reserved for pods `pod-1` and `pod-2`, unless `status` says otherwise. */
  claim(name: string, { metadata = {}, status = {} }: { metadata?: object; status?: object } = {}): void {
    const reservedFor = ["pod-1", "pod-2"].map((uid) => ({ resource: "pods", name: uid, uid }));
    const allocation = { devices: { results: [{ request: "one", driver: DRIVER, pool: "board", device: name }] } };
    this.objects.set(`ResourceClaim/default/${name}`, {
      metadata: { name, namespace: "default", uid: `uid-of-${name}`, ...metadata },
      status: { reservedFor, allocation, ...status },
    });
  }

  prepare(pod: DesiredPod): Promise<void> {
    return this.claims.prepare(pod, NEVER);
  }

  async problem(pod: DesiredPod): Promise<string> {
    const error = await this.prepare(pod).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    assert.ok(isPicoletError(error), "it did not fail");
    assert.equal(error.reason, "FailedPrepareDynamicResources");
    return error.message.replace(/^Failed to prepare dynamic resources: /, "");
  }

  cdiDevices(pod: DesiredPod): readonly string[] {
    const [container] = pod.pod.spec.containers;
    assert.ok(container);
    const claims = this.claims.ofContainer(pod, container);
    return claims.flatMap(({ devices }) => devices.flatMap(({ cdiDevices }) => cdiDevices));
  }

  [Symbol.dispose](): void {
    this.folder[Symbol.dispose]();
  }
}

type Claims = NonNullable<DesiredPod["pod"]["spec"]["resourceClaims"]>;
const NAMED: Claims = [{ name: "gpu", resourceClaimName: "shared" }];

function podWith(resourceClaims: Claims = NAMED, uid = "pod-1", request?: string): DesiredPod {
  const claims = resourceClaims.map(({ name }) => ({ name, ...(request === undefined ? {} : { request }) }));
  const containers = [{ name: "app", image: "app", resources: { claims } }];
  const pod = podOf({ containers, resourceClaims }, { name: uid, uid });
  return { uid: podUid(uid), source: "api", origin: "", pod };
}

test("a claim that cannot be used yet is reported in the kubelet's words, and nothing is noted", async () => {
  using bench = new Bench();
  const pod = podWith();
  assert.equal(
    await bench.problem(pod),
    'fetch ResourceClaim shared: resourceclaims.resource.k8s.io "shared" not found',
  );
  bench.claim("shared", { status: { reservedFor: [{ resource: "pods", name: "pod-1", uid: "another" }] } });
  assert.equal(
    await bench.problem(pod),
    "pod pod-1 (pod-1) is not allowed to use ResourceClaim shared (uid-of-shared)",
  );
  bench.claim("shared", { status: { allocation: undefined } });
  assert.equal(await bench.problem(pod), "ResourceClaim shared: not allocated");
  bench.claim("shared");
  assert.equal(await bench.problem(pod), "DRA driver gpu.example.com is not registered");
  const templated = podWith([{ name: "gpu", resourceClaimTemplateName: "template" }]);
  assert.equal(await bench.problem(templated), 'pod "default/pod-1": ResourceClaim not created yet');
  assert.equal(await bench.problem({ ...pod, source: "file" }), "static pods may not reference resourceclaims");
  assert.equal(existsSync(bench.path), false);
});

test("a claim is prepared once, given to the containers that name it, and unprepared with its last pod", async () => {
  using bench = new Bench();
  bench.register();
  bench.claim("shared");
  const [first, second] = [podWith(), podWith(NAMED, "pod-2")];
  await Promise.all([bench.prepare(first), bench.prepare(second)]);
  await bench.prepare(first);
  assert.deepEqual(bench.driver.calls, ["prepare shared"]);
  assert.deepEqual(bench.cdiDevices(first), ["example.com/gpu=shared"]);
  assert.deepEqual(bench.cdiDevices(podWith(NAMED, "pod-1", "one")), ["example.com/gpu=shared"]);
  assert.deepEqual(bench.cdiDevices(podWith(NAMED, "pod-1", "another")), []);
  await bench.claims.release(first.uid, NEVER);
  assert.deepEqual(bench.driver.calls, ["prepare shared"]);
  await bench.claims.release(second.uid, NEVER);
  assert.deepEqual(bench.driver.calls, ["prepare shared", "unprepare shared"]);
  assert.equal(existsSync(bench.path), false);
});

test("the start and the end of a pod with claims count once, and each attempt that fails", async () => {
  using bench = new Bench();
  const pod = podWith();
  bench.claim("shared");
  await bench.problem(pod);
  await bench.problem(pod);
  bench.register();
  await bench.prepare(pod);
  await bench.prepare(pod);
  await bench.claims.release(pod.uid, NEVER);
  await bench.claims.release(pod.uid, NEVER);
  assert.deepEqual(countedTimes(bench.counts, "dra_operations_duration_seconds"), {
    "true PrepareResources": 2,
    "false PrepareResources": 1,
    "false UnprepareResources": 1,
  });
});

test("a claim of a template is the one that was made for the pod", async () => {
  using bench = new Bench();
  bench.register();
  const annotations = { "resource.kubernetes.io/pod-claim-name": "gpu" };
  bench.claim("other-x", { metadata: { annotations, ownerReferences: [{ uid: "pod-2", controller: true }] } });
  bench.claim("pod-1-gpu-x", { metadata: { annotations, ownerReferences: [{ uid: "pod-1", controller: true }] } });
  await bench.prepare(podWith([{ name: "gpu", resourceClaimTemplateName: "template" }]));
  assert.deepEqual(bench.driver.calls, ["prepare pod-1-gpu-x"]);
});

test("the next agent knows what is prepared, and asks drivers again only after the node was started", async () => {
  using bench = new Bench();
  bench.register();
  bench.claim("shared");
  const pod = podWith();
  await bench.prepare(pod);
  bench.restarted();
  bench.objects.delete("ResourceClaim/default/shared");
  await bench.prepare(pod);
  assert.deepEqual(bench.driver.calls, ["prepare shared"]);
  assert.deepEqual(bench.cdiDevices(pod), ["example.com/gpu=shared"]);
  bench.restarted("boot-2");
  assert.deepEqual(bench.cdiDevices(pod), []);
  bench.claim("shared");
  await bench.prepare(pod);
  assert.deepEqual(bench.driver.calls, ["prepare shared", "prepare shared"]);
  await bench.restarted().sweep(new Set(), NEVER);
  assert.equal(bench.driver.calls.at(-1), "unprepare shared");
});

test("the kubelet can read the checkpoint", async () => {
  using bench = new Bench();
  bench.register();
  bench.claim("shared");
  await bench.prepare(podWith());
  const { Data, Checksum } = JSON.parse(readFileSync(bench.path, "utf8")) as { Data: string; Checksum: number };
  assert.equal(Checksum, crc32(Data));
  const { Prepared: _, PodClaims: __, ...entry } = JSON.parse(Data).Entries[0];
  assert.deepEqual(entry, {
    ClaimUID: "uid-of-shared",
    ClaimName: "shared",
    Namespace: "default",
    PodUIDs: { "pod-1": {} },
    DriverState: {
      [DRIVER]: {
        Devices: [
          { PoolName: "board", DeviceName: "shared", RequestNames: ["one"], CDIDeviceIDs: ["example.com/gpu=shared"] },
        ],
      },
    },
  });
});

test("a claim whose driver is gone stays noted, and is unprepared when the driver is back", async () => {
  using bench = new Bench();
  bench.register();
  bench.claim("shared");
  const pod = podWith();
  await bench.prepare(pod);
  bench.drivers.remove(DRIVER, "gpu-reg.sock");
  await assert.rejects(bench.claims.release(pod.uid, NEVER), /DRA driver gpu.example.com is not registered/);
  await bench.restarted().sweep(new Set(), NEVER);
  assert.deepEqual(bench.log.problems, ["cannot unprepare the claims of an unknown pod"]);
  bench.register();
  await bench.claims.release(pod.uid, NEVER);
  assert.deepEqual(bench.driver.calls, ["prepare shared", "unprepare shared"]);
});

test("a name that is used again waits for the end of the claim before", async () => {
  using bench = new Bench();
  bench.register();
  bench.claim("shared");
  await bench.prepare(podWith());
  bench.claim("shared", { metadata: { uid: "new" } });
  const later = podWith(NAMED, "pod-2");
  assert.match(await bench.problem(later), /different UID uid-of-shared still exists/);
  await bench.claims.release(podUid("pod-1"), NEVER);
  await bench.prepare(later);
});

test("a pod that comes while its claim is being unprepared has it prepared again", async () => {
  using bench = new Bench();
  bench.register();
  bench.claim("shared");
  await bench.prepare(podWith());
  const gate = Promise.withResolvers<void>();
  bench.driver.before = () => gate.promise;
  const releasing = bench.claims.release(podUid("pod-1"), NEVER);
  const preparing = bench.prepare(podWith(NAMED, "pod-2"));
  gate.resolve();
  await Promise.all([releasing, preparing]);
  assert.deepEqual(bench.driver.calls, ["prepare shared", "unprepare shared", "prepare shared"]);
});

const BAD_ANSWERS: readonly (readonly [string, PreparedClaim | undefined, RegExp])[] = [
  ["an error", { devices: [], error: "no such card" }, /failed for ResourceClaim shared: no such card/],
  ["no answer", undefined, /NodePrepareResources skipped ResourceClaim shared/],
  [
    "names of more than it may keep",
    { devices: [{ pool: "p".repeat(70_000), device: "d", requests: [], cdiDevices: [] }], error: "" },
    /the driver answered with devices of 700\d\d characters, more than 65536/,
  ],
  [
    "a name that is no CDI device",
    { devices: [{ pool: "p", device: "d", requests: [], cdiDevices: ["/dev/sda"] }], error: "" },
    /"\/dev\/sda" is no CDI device/,
  ],
  [
    "too many devices",
    { devices: Array(200).fill({ pool: "p", device: "d", requests: [], cdiDevices: [] }), error: "" },
    /200 devices, more than 128/,
  ],
  [
    "too many CDI devices",
    { devices: [{ pool: "p", device: "d", requests: [], cdiDevices: Array(65).fill("a/b=c") }], error: "" },
    /65 CDI devices, more than 64, for device d/,
  ],
];
for (const [what, answer, expected] of BAD_ANSWERS) {
  test(`a driver that answers with ${what} is asked again`, async () => {
    using bench = new Bench();
    bench.register();
    bench.claim("shared");
    const usual = bench.driver.answer;
    bench.driver.answer = () => answer;
    assert.match(await bench.problem(podWith()), expected);
    bench.driver.answer = usual;
    await bench.prepare(podWith());
    assert.deepEqual(bench.cdiDevices(podWith()), ["example.com/gpu=shared"]);
  });
}

test("a damaged checkpoint is set aside, and claims are prepared again", async () => {
  using bench = new Bench();
  bench.register();
  bench.claim("shared");
  writeFileSync(bench.path, '{"Data":"{}","Checksum":1}');
  bench.restarted();
  await bench.prepare(podWith());
  assert.equal(readFileSync(`${bench.path}.damaged`, "utf8"), '{"Data":"{}","Checksum":1}');
  assert.deepEqual(bench.driver.calls, ["prepare shared"]);
});

test("any bytes are a checkpoint or are refused", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.jsonValue().map((value) => JSON.stringify(value)),
      ),
      (data) => {
        for (const text of [data, JSON.stringify({ Data: data, Checksum: crc32(data) })]) {
          try {
            parseClaimCheckpoint(text, "boot");
          } catch (error) {
            assert.ok(isPicoletError(error, "corrupt"), String(error));
          }
        }
      },
    ),
  );
});
