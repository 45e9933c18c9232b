import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { KubeObject } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { NodeObject } from "../../api/typed-objects.ts";
import { type ClaimNeeds, claimNeeds } from "./claim-needs.ts";
import type { ResourceClaim } from "./claims-of-pod.ts";
import { DevicePools } from "./device-pools.ts";
import { planAllocation, TryBudget } from "./plan-allocation.ts";

const DRIVER = "gpu.example.com";
const object = (kind: string, name: string, spec: object): KubeObject => ({
  apiVersion: "resource.k8s.io/v1",
  kind,
  metadata: { name, namespace: "default", uid: `uid-${name}` },
  spec: spec as Record<string, unknown>,
});
const NODE: NodeObject = { apiVersion: "v1", kind: "Node", metadata: { name: "b", labels: { zone: "x" } } };

/** Devices by name, as `card-0=red,size:2`: the value of `color`, and of `size`. */
const devices = (...texts: readonly string[]): readonly object[] =>
  texts.map((text) => {
    const [name, color = "", size = "1"] = text.split(/=|,size:/);
    return { name, attributes: { color: { string: color }, [`${DRIVER}/size`]: { int: Number(size) } } };
  });
const slice = (more: object, pool: object = {}): object => ({
  ...{ driver: DRIVER, nodeName: "b" },
  pool: { name: "b", generation: 1, resourceSliceCount: 1, ...pool },
  ...more,
});
const exactly = (more: object = {}) => ({ deviceClassName: "gpu", allocationMode: "ExactCount", count: 1, ...more });

interface Case {
  readonly slices: readonly object[];
  readonly claims: readonly object[];
  readonly taken?: readonly string[];
  /** `selector` in a request is the color that it wants. */
  readonly gets: readonly (readonly string[])[] | string;
}

const CLASSES = new Map([
  ["gpu", object("DeviceClass", "gpu", { config: [{ opaque: { driver: DRIVER, parameters: { a: 1 } } }] })],
]);

function plan({ slices, claims, taken = [] }: Omit<Case, "gets">, budget = new TryBudget()) {
  const pools = new DevicePools(slices.map((spec, index) => object("ResourceSlice", `s${index}`, spec)));
  const needs: ClaimNeeds[] = claims.map((spec, index) => {
    const result = claimNeeds(object("ResourceClaim", `c${index}`, { devices: spec }) as ResourceClaim, (name) =>
      CLASSES.get(name),
    );
    assert.ok(result.ok);
    return result.needs;
  });
  return planAllocation({
    ...{ node: "b", claims: needs, devices: pools.ofNode(NODE), updatingPool: pools.updatingPool(NODE) },
    taken: new Set(taken.map((name) => `${DRIVER}/b/${name}`)),
    budget,
    suits: ({ selectors }, { spec }) => {
      if (selectors.some(({ expression }) => expression === "fails"))
        return new Error("selector #0: CEL runtime error");
      return selectors.every(({ expression }) => spec.attributes?.color?.string === expression);
    },
  });
}

const one = (more: object = {}) => ({ requests: [{ name: "r", exactly: exactly(more) }] });
const color = (expression: string) => ({ selectors: [{ cel: { expression } }] });
const RED_AND_BLUE = [slice({ devices: devices("0=red", "1=blue", "2=red") })];
const NONE = "cannot allocate all claims";

const CASES: Readonly<Record<string, Case>> = {
  "one device, the first that is free": { slices: RED_AND_BLUE, claims: [one()], taken: ["0"], gets: [["r:1"]] },
  "a device that suits the selectors": { slices: RED_AND_BLUE, claims: [one(color("blue"))], gets: [["r:1"]] },
  "several devices": { slices: RED_AND_BLUE, claims: [one({ count: 2, ...color("red") })], gets: [["r:0", "r:2"]] },
  "more than there are": { slices: RED_AND_BLUE, claims: [one({ count: 3, ...color("red") })], gets: NONE },
  "all devices": {
    ...{ slices: RED_AND_BLUE, claims: [one({ allocationMode: "All", ...color("red") })], gets: [["r:0", "r:2"]] },
  },
  "all devices, one of which is taken": {
    ...{ slices: RED_AND_BLUE, claims: [one({ allocationMode: "All" })], taken: ["1"], gets: NONE },
  },
  "all devices where none suits": {
    ...{ slices: RED_AND_BLUE, claims: [one({ allocationMode: "All", ...color("green") })], gets: NONE },
  },
  "devices in use, with admin access": {
    slices: RED_AND_BLUE,
    claims: [one({ allocationMode: "All", adminAccess: true })],
    taken: ["0", "1"],
    gets: [["r:0!", "r:1!", "r:2!"]],
  },
  "claims that go back for each other": {
    slices: RED_AND_BLUE,
    claims: [one({ count: 2 }), one(color("red"))],
    gets: [["r:0", "r:1"], ["r:2"]],
  },
  "the second choice where the first is not met": {
    slices: RED_AND_BLUE,
    claims: [
      {
        requests: [
          {
            name: "r",
            firstAvailable: [
              { ...exactly(color("green")), name: "x" },
              { ...exactly(color("blue")), name: "y" },
            ],
          },
        ],
      },
    ],
    gets: [["r/y:1"]],
  },
  "devices with the same attribute": {
    slices: [slice({ devices: devices("0=red", "1=blue", "2=blue") })],
    claims: [{ ...one({ count: 2 }), constraints: [{ matchAttribute: `${DRIVER}/color` }] }],
    gets: [["r:1", "r:2"]],
  },
  "devices with the same attribute of requests that are named": {
    slices: [slice({ devices: devices("0=red", "1=blue,size:2", "2=red,size:2") })],
    claims: [
      {
        requests: ["q", "r", "s"].map((name) => ({ name, exactly: exactly() })),
        constraints: [{ requests: ["q", "s"], matchAttribute: `${DRIVER}/color` }],
      },
    ],
    gets: [["q:0", "r:1", "s:2"]],
  },
  "devices that each have another attribute": {
    slices: [slice({ devices: devices("0=red", "1=red", "2=blue") })],
    claims: [{ ...one({ count: 2 }), constraints: [{ distinctAttribute: `${DRIVER}/color` }] }],
    gets: [["r:0", "r:2"]],
  },
  "an attribute that no device has": {
    slices: RED_AND_BLUE,
    claims: [{ ...one(), constraints: [{ matchAttribute: "other.com/color" }] }],
    gets: NONE,
  },
  "a taint that is not tolerated": {
    slices: [slice({ devices: [{ name: "0", taints: [{ key: "broken", effect: "NoSchedule" }] }, { name: "1" }] })],
    claims: [one()],
    gets: [["r:1"]],
  },
  "a taint that is tolerated": {
    slices: [slice({ devices: [{ name: "0", taints: [{ key: "broken", effect: "NoExecute" }] }] })],
    claims: [one({ tolerations: [{ key: "broken", operator: "Exists" }] })],
    gets: [["r:0"]],
  },
  "a selector that fails": {
    slices: RED_AND_BLUE,
    claims: [one(color("fails"))],
    gets: "claim default/c0: selector #0: CEL runtime error",
  },
  "slices of an older generation": {
    slices: [slice({ devices: devices("0=red") }), slice({ devices: devices("9=red") }, { generation: 2 })],
    claims: [one()],
    gets: [["r:9"]],
  },
  "slices of an older generation that are listed last": {
    slices: [slice({ devices: devices("9=red") }, { generation: 2 }), slice({ devices: devices("0=red") })],
    claims: [one()],
    gets: [["r:9"]],
  },
  "a pool that is not complete": {
    ...{ slices: [slice({ devices: devices("0=red") }, { resourceSliceCount: 2 })], claims: [one()], gets: NONE },
  },
  "all devices of a pool that is not complete": {
    slices: [slice({ devices: devices("0=red") }, { resourceSliceCount: 2 })],
    claims: [one({ allocationMode: "All" })],
    gets: "claim default/c0, request r: asks for all devices, but resource pool b is currently being updated",
  },
  "a pool in two slices": {
    slices: ["0", "1"].map((name) => slice({ devices: devices(name) }, { resourceSliceCount: 2 })),
    claims: [one({ count: 2 })],
    gets: [["r:0", "r:1"]],
  },
  "a pool with one name twice": { slices: [slice({ devices: devices("0", "0") })], claims: [one()], gets: NONE },
  "a device that shares counters": {
    slices: [slice({ devices: [{ name: "0", consumesCounters: [{ counterSet: "x" }] }] })],
    claims: [one()],
    gets: NONE,
  },
  "devices of another node": { slices: [slice({ nodeName: "a", devices: devices("0") })], claims: [one()], gets: NONE },
  "combinations without end": {
    slices: [slice({ devices: devices(...Array.from({ length: 40 }, (_, index) => `${index}=${index}`)) })],
    claims: [
      {
        requests: ["q", "r"].map((name) => ({ name, exactly: exactly({ count: 8 }) })),
        constraints: [{ requests: ["r"], matchAttribute: `${DRIVER}/color` }],
      },
    ],
    gets: "timed out trying to allocate devices",
  },
};

describe("devices for the claims of a pod", () => {
  for (const [name, { gets, ...input }] of Object.entries(CASES)) {
    test(name, () => {
      const planned = plan(input);
      const chosen =
        planned.kind === "none"
          ? planned.reason
          : planned.allocations.map(({ devices: { results } }) =>
              results.map(
                ({ request, device, adminAccess }) => `${request}:${device}${adminAccess === true ? "!" : ""}`,
              ),
            );
      assert.deepEqual(chosen, gets);
    });
  }

  test("the tries for one pod are bounded over all nodes, and devices that do not suit are none", () => {
    const budget = new TryBudget();
    let nodes = 0;
    while (plan({ slices: RED_AND_BLUE, claims: [one(color("blue"))] }, budget).kind === "fits") nodes += 1;
    assert.equal(nodes, 30_000);
    const planned = plan({ slices: RED_AND_BLUE, claims: [one(color("green"))] }, budget);
    assert.deepEqual(planned, { kind: "none", reason: NONE });
  });

  test("an allocation has the nodes of its devices, and the settings of class and claim", () => {
    const place = (spec: object, claim: object = one()) => {
      const planned = plan({ slices: [spec], claims: [claim] });
      assert.equal(planned.kind, "fits");
      return planned.kind === "fits" ? planned.allocations[0] : undefined;
    };
    const local = { nodeSelectorTerms: [{ matchFields: [{ key: "metadata.name", operator: "In", values: ["b"] }] }] };
    assert.deepEqual(place(slice({ devices: devices("0") }))?.nodeSelector, local);
    const term = { matchExpressions: [{ key: "zone", operator: "In", values: ["x"] }] };
    const byZone = { nodeName: undefined, nodeSelector: { nodeSelectorTerms: [term] } };
    assert.deepEqual(place(slice({ ...byZone, devices: devices("0") }))?.nodeSelector, { nodeSelectorTerms: [term] });
    assert.equal(place(slice({ nodeName: undefined, allNodes: true, devices: devices("0") }))?.nodeSelector, undefined);
    const perDevice = { nodeName: undefined, perDeviceNodeSelection: true };
    const ownPlaces = [
      { name: "0", nodeName: "a" },
      { name: "1", nodeName: "b" },
    ];
    assert.deepEqual(place(slice({ ...perDevice, devices: ownPlaces }))?.nodeSelector, local);
    const config = [{ opaque: { driver: DRIVER, parameters: { b: 2 } } }, { requests: ["other"], opaque: {} }];
    assert.deepEqual(place(slice({ devices: devices("0") }), { ...one(), config })?.devices.config, [
      { source: "FromClass", requests: ["r"], opaque: { driver: DRIVER, parameters: { a: 1 } } },
      { source: "FromClaim", opaque: { driver: DRIVER, parameters: { b: 2 } } },
    ]);
  });
});
