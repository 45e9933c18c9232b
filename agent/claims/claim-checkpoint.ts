/**
 * The kubelet's checkpoint `dra_manager_state`: which claims are prepared, by whom, for which pods. Fields of our own
 * (`BootID`, `Prepared`, `PodClaims`) are beside the kubelet's, which reads past them.
 */
import { crc32 } from "node:zlib";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { ClaimedDevice } from "../core/pods/pod-claims.ts";
import { type Fields, isFields } from "../topology/state-file.ts";
import type { ClaimReference } from "./dra-driver.ts";

export interface ClaimEntry extends ClaimReference {
  /** The pods that use it, and their names for it in `spec.resourceClaims`. */
  readonly pods: Map<string, Set<string>>;
  /** Prepared devices by driver; undefined: nothing since the node was started. */
  readonly drivers: Map<string, readonly ClaimedDevice[] | undefined>;
}

const KIND = "DRACheckpoint";
const API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1";

export function claimCheckpoint(entries: Iterable<ClaimEntry>, bootId: string): string {
  const Entries = [...entries].map(({ uid, name, namespace, pods, drivers }) => ({
    ClaimUID: uid,
    ClaimName: name,
    Namespace: namespace,
    PodUIDs: Object.fromEntries([...pods.keys()].map((pod) => [pod, {}])),
    DriverState: Object.fromEntries([...drivers].map(([driver, devices]) => [driver, driverState(devices)])),
    Prepared: [...drivers].filter(([, devices]) => devices !== undefined).map(([driver]) => driver),
    PodClaims: Object.fromEntries([...pods].map(([pod, names]) => [pod, [...names]])),
  }));
  const Data = JSON.stringify({ kind: KIND, apiVersion: API_VERSION, Entries, BootID: bootId });
  return JSON.stringify({ Data, Checksum: crc32(Data) });
}

const driverState = (devices: readonly ClaimedDevice[] | undefined): Fields => ({
  Devices: (devices ?? []).map(({ pool, device, requests, cdiDevices }) => ({
    PoolName: pool,
    DeviceName: device,
    RequestNames: requests,
    CDIDeviceIDs: cdiDevices,
  })),
});

/**
 * Reads a checkpoint, a kubelet's too. What was prepared before the node was started counts as not prepared: drivers
 * keep CDI specifications in RAM.
 * @throws `corrupt` with what is wrong
 */
export function parseClaimCheckpoint(text: string, bootId: string): ClaimEntry[] {
  const { Data, Checksum } = objectOf(parsed(text), "the file");
  if (typeof Data !== "string" || Checksum !== crc32(Data)) throw corrupt("the checksum is wrong");
  const { apiVersion, Entries, BootID } = objectOf(parsed(Data), "Data");
  if (apiVersion !== API_VERSION) throw corrupt(`apiVersion is ${JSON.stringify(apiVersion)}, not ${API_VERSION}`);
  return listOf(Entries ?? [], "Entries").map((entry) => entryOf(entry, BootID === bootId));
}

function entryOf(input: unknown, isSameBoot: boolean): ClaimEntry {
  const { ClaimUID, ClaimName, Namespace, PodUIDs, DriverState, Prepared, PodClaims } = objectOf(input, "an entry");
  const names = objectOf(PodClaims ?? {}, "PodClaims");
  const prepared = new Set(isSameBoot ? textsOf(Prepared ?? [], "Prepared") : []);
  const pods = Object.keys(objectOf(PodUIDs ?? {}, "PodUIDs")).map(
    (pod) => [pod, new Set(textsOf(names[pod] ?? [], "PodClaims"))] as const,
  );
  const drivers = Object.entries(objectOf(DriverState ?? {}, "DriverState")).map(
    ([driver, state]) => [driver, prepared.has(driver) ? devicesOf(state) : undefined] as const,
  );
  return {
    uid: textOf(ClaimUID, "ClaimUID"),
    name: textOf(ClaimName, "ClaimName"),
    namespace: textOf(Namespace, "Namespace"),
    pods: new Map(pods),
    drivers: new Map(drivers),
  };
}

function devicesOf(state: unknown): readonly ClaimedDevice[] {
  const { Devices } = objectOf(state, "DriverState");
  return listOf(Devices ?? [], "Devices").map((input) => {
    const { PoolName, DeviceName, RequestNames, CDIDeviceIDs } = objectOf(input, "a device");
    return {
      pool: textOf(PoolName, "PoolName"),
      device: textOf(DeviceName, "DeviceName"),
      requests: textsOf(RequestNames ?? [], "RequestNames"),
      cdiDevices: textsOf(CDIDeviceIDs ?? [], "CDIDeviceIDs"),
    };
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw corrupt("it is no JSON", error);
  }
}

function objectOf(value: unknown, what: string): Fields {
  if (!isFields(value)) throw corrupt(`${what} is no object`);
  return value;
}

function listOf(value: unknown, what: string): readonly unknown[] {
  if (!Array.isArray(value)) throw corrupt(`${what} is no list`);
  return value;
}

function textOf(value: unknown, what: string): string {
  if (typeof value !== "string") throw corrupt(`${what} is no text`);
  return value;
}

const textsOf = (value: unknown, what: string): string[] => listOf(value, what).map((each) => textOf(each, what));

const corrupt = (why: string, cause?: unknown): PicoletError =>
  new PicoletError("corrupt", `cannot read the checkpoint of claims: ${why}`, { cause });
