/**
 * The kubelet's checkpoint of device allocations, `device-plugins/kubelet_internal_checkpoint`, with its checksum over
 * Go's print of its structures. A file is read without checking it, because the structures may be another version's.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { podUid } from "@picolet/protocol/ports.ts";
import { MEBIBYTE } from "@picolet/protocol/units.ts";
import { checksumOf, isFields, sortedKeys, writeStateFile } from "../topology/state-file.ts";
import type { Allocation } from "./device-allocations.ts";
import { ContainerAllocateResponse } from "./device-plugin-messages.ts";

/**
 * 32 plugins whose IDs and answers have the greatest size, 300 KiB for each, and 2 MiB for the names of containers take
 * 12 MiB. 100 pods with an answer of a few KB each take less than 1 MiB.
 */
const MAX_BYTES = 16 * MEBIBYTE;
/** The kubelet's key for a device without topology. */
const NO_NODE = "-1";

export interface DeviceCheckpoint {
  readonly allocations: readonly Allocation[];
  /** IDs by resource name. */
  readonly registered: ReadonlyMap<string, readonly string[]>;
}

export function writeCheckpoint(path: string, { allocations, registered }: DeviceCheckpoint): void {
  const entries = allocations.map(({ uid, container, resource, ids, answer }) => ({
    PodUID: uid,
    ContainerName: container,
    ResourceName: resource,
    DeviceIDs: { [NO_NODE]: ids },
    AllocResp: answer === undefined ? "" : ContainerAllocateResponse.encode(answer).toString("base64"),
  }));
  const data = { PodDeviceEntries: entries, RegisteredDevices: Object.fromEntries(registered) };
  writeStateFile(path, JSON.stringify({ Data: data, Checksum: checksumOf(printed(allocations, registered)) }));
}

/** As Go prints what the file has, for the kubelet's checksum. */
function printed(allocations: DeviceCheckpoint["allocations"], registered: DeviceCheckpoint["registered"]): string {
  const entries = allocations.map(({ uid, container, resource, ids, answer }) => {
    const bytes = answer === undefined ? [] : [...ContainerAllocateResponse.encode(answer)];
    return (
      `{PodUID:(string)${uid} ContainerName:(string)${container} ResourceName:(string)${resource} ` +
      `DeviceIDs:(checkpoint.DevicesPerNUMA)map[${NO_NODE}:[${ids.join(" ")}]] AllocResp:([]uint8)[${bytes.join(" ")}]}`
    );
  });
  const resources = sortedKeys(Object.fromEntries(registered)).map(
    (name) => `${name}:[${registered.get(name)?.join(" ") ?? ""}]`,
  );
  return (
    `(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)[${entries.join(" ")}] ` +
    `RegisteredDevices:(map[string][]string)map[${resources.join(" ")}]}`
  );
}

/** @returns undefined: there is no file. @throws `corrupt` for a file that is none of this kind */
export function readCheckpoint(path: string): DeviceCheckpoint | undefined {
  if (!existsSync(path)) return undefined;
  if (statSync(path).size > MAX_BYTES) throw broken(path, `it has more than ${MAX_BYTES} bytes`);
  try {
    const parsed: unknown = JSON.parse(readFileSync(path, "utf8"));
    const data = isFields(parsed) && isFields(parsed.Data) ? parsed.Data : {};
    const { PodDeviceEntries: entries, RegisteredDevices: registered } = data;
    return {
      allocations: (Array.isArray(entries) ? entries : []).map(allocationOf),
      registered: new Map(
        Object.entries(isFields(registered) ? registered : {}).map(([name, ids]) => [name, texts(ids)]),
      ),
    };
  } catch (error) {
    throw broken(path, error instanceof Error ? error.message : String(error));
  }
}

function allocationOf(entry: unknown): Allocation {
  if (!isFields(entry)) throw new Error("an entry is no object");
  const { PodUID: uid, ContainerName: container, ResourceName: resource, DeviceIDs: ids, AllocResp: answer } = entry;
  if (typeof uid !== "string" || typeof container !== "string" || typeof resource !== "string")
    throw new Error("an entry lacks its pod, container or resource");
  return {
    uid: podUid(uid),
    container,
    resource,
    // A kubelet has a device with several NUMA nodes at each of them.
    ids: [...new Set(Object.values(isFields(ids) ? ids : {}).flatMap(texts))],
    answer:
      typeof answer === "string" && answer !== ""
        ? ContainerAllocateResponse.decode(Buffer.from(answer, "base64"))
        : undefined,
  };
}

function texts(value: unknown): readonly string[] {
  if (!Array.isArray(value) || value.some((each) => typeof each !== "string")) throw new Error("IDs are no texts");
  return value as readonly string[];
}

const broken = (path: string, why: string): PicoletError =>
  new PicoletError("corrupt", `cannot read ${path}: ${why}. It is set aside; pods that run keep what they have`);
