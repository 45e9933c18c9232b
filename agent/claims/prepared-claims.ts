import { readFileSync, renameSync, rmSync } from "node:fs";
import { cancelled } from "@picolet/protocol/async/abort.ts";
import { describeError, isCancelled, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { Clock, Log, PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ClusterObjects } from "../core/hub/cluster-objects.ts";
import { type NodeCounts, timed } from "../core/node/node-counts.ts";
import type { ClaimedDevice, ContainerClaim, PodClaims } from "../core/pods/pod-claims.ts";
import { isStatic } from "../plan/admission/critical-pods.ts";
import { writeStateFile } from "../topology/state-file.ts";
import { type AllocatedClaim, allocatedClaims } from "./allocated-claims.ts";
import { type ClaimEntry, claimCheckpoint, parseClaimCheckpoint } from "./claim-checkpoint.ts";
import type { ClaimReference, DraDriver, DraDrivers } from "./dra-driver.ts";

export interface PreparedClaimsComponents {
  readonly drivers: DraDrivers;
  readonly objects: Pick<ClusterObjects, "object" | "keys">;
  readonly clock: Clock;
  readonly log: Log;
  readonly counts?: NodeCounts | undefined;
}

export interface PreparedClaimsInit {
  /** The checkpoint. */
  readonly path: string;
  /** The kernel's `boot_id`. */
  readonly bootId: string;
}

/** `vendor/class=name` as the Container Device Interface has it; a longer one is no name of a device. */
const CDI_DEVICE = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*=[A-Za-z0-9][\w.:-]*$/;
const MAX_CDI_DEVICE_LENGTH = 512;
/**
 * Bounds the checkpoint against a faulty driver: a claim has 32 devices at most (resource.k8s.io/v1), a device a few
 * CDI names.
 */
const MAX_PREPARED_DEVICES = 128;
const MAX_CDI_DEVICES = 64;
/** One driver's part of a claim: 32 devices with their names and ten CDI names each take some 32 KiB. */
const MAX_PREPARED_LENGTH = 64 * 1024;

/** The claims that drivers have prepared on this node. They are on disk before a driver is asked. */
export class PreparedClaims implements PodClaims {
  readonly #components: PreparedClaimsComponents;
  readonly #init: PreparedClaimsInit;
  /** By `namespace/name`. */
  readonly #entries = new Map<string, ClaimEntry>();
  /** The end of the work under way for each claim. */
  readonly #working = new Map<string, Promise<unknown>>();

  constructor(components: PreparedClaimsComponents, init: PreparedClaimsInit) {
    this.#components = components;
    this.#init = init;
    for (const entry of this.#restored()) this.#entries.set(keyOf(entry), entry);
  }

  async prepare(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    if (this.#isPrepared(pod)) return;
    const work = async (): Promise<void> => {
      if (isStatic(pod)) throw new PicoletError("invalid", "static pods may not reference resourceclaims");
      const claims = allocatedClaims(pod.pod, this.#components.objects);
      await this.#alone(claims.map(keyOf), signal, () => this.#prepare(pod, claims, signal));
    };
    try {
      await this.#timed("PrepareResources", work);
    } catch (error) {
      if (isCancelled(error)) throw error;
      throw failedToPrepare(error);
    }
  }

  ofContainer(pod: DesiredPod, container: Container): readonly ContainerClaim[] {
    const wanted = container.resources.claims ?? [];
    return this.#entriesOf(pod.uid).flatMap(({ namespace, name, pods, drivers }) => {
      const names = pods.get(pod.uid);
      const requests = wanted.filter((claim) => names?.has(claim.name)).map(({ request = "" }) => request);
      if (requests.length === 0) return [];
      const devices = [...drivers].flatMap(([driver, prepared = []]) =>
        prepared.filter((device) => isRequested(device, requests)).map((device) => ({ ...device, driver })),
      );
      return [{ namespace, name, devices }];
    });
  }

  holds(uid: PodUid): boolean {
    return this.#entriesOf(uid).length > 0;
  }

  async release(uid: PodUid, signal: AbortSignal): Promise<void> {
    await this.#release(uid, signal);
  }

  async sweep(known: Pick<ReadonlySet<string>, "has">, signal: AbortSignal): Promise<void> {
    const pods = new Set([...this.#entries.values()].flatMap((entry) => [...entry.pods.keys()]));
    for (const uid of pods) {
      if (known.has(uid)) continue;
      try {
        await this.#release(uid, signal);
      } catch (error) {
        if (isCancelled(error)) throw error;
        this.#components.log.warn("cannot unprepare the claims of an unknown pod", {
          pod: uid,
          error: describeError(error),
        });
      }
    }
  }

  /** True when all claims of the pod are prepared, even if their objects are gone. */
  #isPrepared({ uid, pod }: DesiredPod): boolean {
    const entries = this.#entriesOf(uid);
    const names = new Set(entries.flatMap(({ pods }) => [...(pods.get(uid) ?? [])]));
    return (
      (pod.spec.resourceClaims ?? []).every(({ name }) => names.has(name)) &&
      entries.every(({ drivers }) => [...drivers.values()].every((devices) => devices !== undefined))
    );
  }

  async #prepare(pod: DesiredPod, claims: readonly AllocatedClaim[], signal: AbortSignal): Promise<void> {
    const { drivers } = this.#components;
    // All are found before anything is noted: a pod without a driver can be removed without one.
    const names = [...new Set(claims.flatMap((claim) => claim.drivers))].sort();
    const found = names.map((name) => [name, registered(drivers, name)] as const);
    for (const claim of claims) this.#note(pod.uid, claim);
    this.#save();
    for (const [name, driver] of found) {
      const due = claims.filter((claim) => claim.drivers.includes(name) && !this.#hasPrepared(claim, name));
      if (due.length > 0) await this.#prepareWith(name, driver, due, signal);
    }
  }

  async #prepareWith(
    name: string,
    driver: DraDriver,
    claims: readonly AllocatedClaim[],
    signal: AbortSignal,
  ): Promise<void> {
    const answers = await driver.prepare(claims.map(referenceOf), signal);
    for (const claim of claims) {
      const answer = answerFor(answers, claim, "NodePrepareResources");
      if (answer.error !== "") throw failedFor("NodePrepareResources", claim, answer.error);
      checkDevices(answer.devices, claim);
      this.#entries.get(keyOf(claim))?.drivers.set(name, answer.devices);
    }
    this.#save();
  }

  #hasPrepared(claim: AllocatedClaim, driver: string): boolean {
    return this.#entries.get(keyOf(claim))?.drivers.get(driver) !== undefined;
  }

  #note(pod: PodUid, { podClaim, drivers, ...claim }: AllocatedClaim): void {
    const key = keyOf(claim);
    const known = this.#entries.get(key);
    if (known !== undefined && known.uid !== claim.uid) {
      const message = `old ResourceClaim with same name ${claim.name} and different UID ${known.uid} still exists`;
      throw new PicoletError("conflict", `${message} (previous pod force-deleted?!)`, { retryable: true });
    }
    const { namespace, name, uid } = claim;
    const entry: ClaimEntry = known ?? { namespace, name, uid, pods: new Map(), drivers: new Map() };
    this.#entries.set(key, entry);
    const names = entry.pods.get(pod) ?? new Set<string>();
    entry.pods.set(pod, names.add(podClaim));
    for (const driver of drivers) if (!entry.drivers.has(driver)) entry.drivers.set(driver, undefined);
  }

  async #release(uid: string, signal: AbortSignal): Promise<void> {
    const keys = this.#entriesOf(uid).map(keyOf);
    if (keys.length === 0) return;
    const work = async (): Promise<void> => {
      const entries = this.#entriesOf(uid);
      const last = entries.filter(({ pods }) => pods.size === 1);
      for (const name of [...new Set(last.flatMap(({ drivers }) => [...drivers.keys()]))].sort()) {
        await this.#unprepareWith(
          name,
          last.filter(({ drivers }) => drivers.has(name)),
          signal,
        );
      }
      for (const { pods } of entries) pods.delete(uid);
      for (const entry of last) this.#entries.delete(keyOf(entry));
      this.#save();
    };
    await this.#timed("UnprepareResources", () => this.#alone(keys, signal, work));
  }

  async #timed(operation: string, work: () => Promise<void>): Promise<void> {
    const labelsOf = (error: unknown) => [String(error !== undefined), operation];
    await timed(this.#components, "dra_operations_duration_seconds", labelsOf, work);
  }

  async #unprepareWith(name: string, entries: readonly ClaimEntry[], signal: AbortSignal): Promise<void> {
    const errors = await registered(this.#components.drivers, name).unprepare(entries.map(referenceOf), signal);
    for (const entry of entries) {
      const error = answerFor(errors, entry, "NodeUnprepareResources");
      if (error !== "") throw failedFor("NodeUnprepareResources", entry, error);
      entry.drivers.set(name, undefined);
    }
  }

  #entriesOf(uid: string): ClaimEntry[] {
    return [...this.#entries.values()].filter(({ pods }) => pods.has(uid));
  }

  /** Serializes the work for each claim: a pod that comes does not take what is just being unprepared. */
  async #alone<T>(keys: readonly string[], signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const before = Promise.all(keys.map((key) => this.#working.get(key)));
    const { promise: mine, resolve: end } = Promise.withResolvers<void>();
    for (const key of keys) this.#working.set(key, mine);
    try {
      await before;
      if (signal.aborted) throw cancelled("the work for claims");
      return await work();
    } finally {
      end();
      for (const key of keys) if (this.#working.get(key) === mine) this.#working.delete(key);
    }
  }

  /** The file goes with the last claim: without it nothing here is loaded. */
  #save(): void {
    const { path, bootId } = this.#init;
    if (this.#entries.size === 0) rmSync(path, { force: true });
    else writeStateFile(path, claimCheckpoint(this.#entries.values(), bootId));
  }

  /** A damaged checkpoint is set aside; pods that start have their claims prepared again, which changes nothing. */
  #restored(): readonly ClaimEntry[] {
    const { path, bootId } = this.#init;
    try {
      return parseClaimCheckpoint(readFileSync(path, "utf8"), bootId);
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return [];
      if (!(error instanceof PicoletError)) throw error;
      this.#components.log.error("the checkpoint of claims is damaged and set aside", {
        file: `${path}.damaged`,
        error: describeError(error),
      });
      renameSync(path, `${path}.damaged`);
      return [];
    }
  }
}

const keyOf = ({ namespace, name }: Pick<ClaimReference, "namespace" | "name">): string => `${namespace}/${name}`;
const referenceOf = ({ namespace, uid, name }: ClaimReference): ClaimReference => ({ namespace, uid, name });

/** A container may take one request of a claim; a request with alternatives is named without its choice. */
function isRequested({ requests }: ClaimedDevice, wanted: readonly string[]): boolean {
  if (requests.length === 0 || wanted.includes("")) return true;
  return requests.some((request) => wanted.includes(request) || wanted.includes(request.split("/", 1)[0] ?? ""));
}

function registered(drivers: DraDrivers, name: string): DraDriver {
  const driver = drivers.driver(name);
  if (driver !== undefined) return driver;
  throw new PicoletError("unavailable", `DRA driver ${name} is not registered`, { retryable: true });
}

function answerFor<T>(answers: ReadonlyMap<string, T>, { uid, name }: ClaimReference, call: string): T {
  const answer = answers.get(uid);
  if (answer !== undefined) return answer;
  throw new PicoletError("failed", `${call} skipped ResourceClaim ${name}`, { retryable: true });
}

const failedFor = (call: string, { name }: ClaimReference, why: string): PicoletError =>
  new PicoletError("failed", `${call} failed for ResourceClaim ${name}: ${why}`, { retryable: true });

function checkDevices(devices: readonly ClaimedDevice[], claim: ClaimReference): void {
  if (devices.length > MAX_PREPARED_DEVICES) {
    const counts = `${devices.length} devices, more than ${MAX_PREPARED_DEVICES}`;
    throw failedFor("NodePrepareResources", claim, `the driver answered with ${counts}`);
  }
  for (const { device, cdiDevices } of devices) {
    if (cdiDevices.length > MAX_CDI_DEVICES) {
      const counts = `${cdiDevices.length} CDI devices, more than ${MAX_CDI_DEVICES}`;
      throw failedFor("NodePrepareResources", claim, `the driver answered with ${counts}, for device ${device}`);
    }
    const wrong = cdiDevices.find((each) => each.length > MAX_CDI_DEVICE_LENGTH || !CDI_DEVICE.test(each));
    if (wrong === undefined) continue;
    const shown = JSON.stringify(wrong.slice(0, MAX_CDI_DEVICE_LENGTH));
    throw failedFor("NodePrepareResources", claim, `${shown} is no CDI device (vendor/class=name)`);
  }
  const { length } = JSON.stringify(devices);
  if (length > MAX_PREPARED_LENGTH) {
    const counts = `devices of ${length} characters, more than ${MAX_PREPARED_LENGTH}`;
    throw failedFor("NodePrepareResources", claim, `the driver answered with ${counts}`);
  }
}

export const failedToPrepare = (cause: unknown): PicoletError =>
  new PicoletError(
    cause instanceof PicoletError ? cause.code : "failed",
    `Failed to prepare dynamic resources: ${describeError(cause)}`,
    { reason: "FailedPrepareDynamicResources", retryable: true },
  );
