/**
 * Shared parts of the agent's services of all kinds of devices. They judge a runner's call by the pod's grants, and
 * read its arguments, which may be hostile.
 */
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { DeviceGrant, DeviceKind, Plain, ServicePeer } from "@picolet/runtime-contract/board-services.ts";
import type { DeviceTarget, RefusalKind } from "../../messages/device-request.ts";

/** The service of one kind of device. */
export interface DeviceCalls {
  /** The interface's name for each refusal. */
  readonly tags: Readonly<Record<RefusalKind, string>>;
  /** @throws ServiceRefusal `not-granted`; PicoletError `invalid` for a call that no runner of ours makes */
  call(peer: ServicePeer, method: string, value: Plain, open: OpenDevice): Promise<Plain>;
}

/**
 * Starts the child that opens the device.
 * @returns the socket and secret with which the runner fetches the open file; or the child's answer to a question
 * @throws ServiceRefusal with one of the interface's `tags`
 */
export type OpenDevice = (target: DeviceTarget) => Promise<Plain>;

/** Bounds texts of a hostile runner. Paths and names of lines are shorter. */
const MAX_TEXT_LENGTH = 300;
const MAX_UINT32 = 0xffff_ffff;

type Grant<K extends DeviceKind> = Extract<DeviceGrant, { kind: K }>;

export const grantsOf = <K extends DeviceKind>({ devices = [] }: ServicePeer, kind: K): readonly Grant<K>[] =>
  devices.filter((each): each is Grant<K> => each.kind === kind);

const invalid = (problem: string): PicoletError => new PicoletError("invalid", `cannot take the request: ${problem}`);

export function expectMethod(method: string, expected: string): void {
  if (method !== expected) throw invalid(`there is no method ${method}`);
}

export function record(value: Plain): Readonly<Record<string, Plain | undefined>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw invalid("it is no object");
  return value as Readonly<Record<string, Plain | undefined>>;
}

export function textOf(value: Plain | undefined): string {
  if (typeof value !== "string") throw invalid("it has no text where one should be");
  return value.slice(0, MAX_TEXT_LENGTH);
}

export function numberOf(value: Plain | undefined): number {
  if (!Number.isInteger(value) || Number(value) < 0 || Number(value) > MAX_UINT32) throw invalid("it has no number");
  return Number(value);
}
