import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";
import type { Container } from "@picolet/protocol/pod/pod.ts";
import type { PodUid } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { ContainerClaim, PodClaims } from "../core/pods/pod-claims.ts";
import type { PreparedClaims, PreparedClaimsComponents } from "./prepared-claims.ts";

/** Loads `PreparedClaims` with the first pod that has claims, or with the checkpoint that an earlier agent left. */
export class ClaimsOnDemand implements PodClaims {
  readonly #components: PreparedClaimsComponents;
  readonly #path: string;
  #loading: Promise<PreparedClaims> | undefined;
  #loaded: PreparedClaims | undefined;

  constructor(components: PreparedClaimsComponents, init: { readonly rootDir: string }) {
    this.#components = components;
    this.#path = join(init.rootDir, "dra_manager_state");
  }

  async prepare(pod: DesiredPod, signal: AbortSignal): Promise<void> {
    if ((pod.pod.spec.resourceClaims ?? []).length === 0) return;
    await (await this.#load()).prepare(pod, signal);
  }

  ofContainer(pod: DesiredPod, container: Container): readonly ContainerClaim[] {
    if ((container.resources.claims ?? []).length === 0) return [];
    if (this.#loaded !== undefined) return this.#loaded.ofContainer(pod, container);
    throw new PicoletError("internal", `cannot name the devices of pod ${pod.uid}: its claims are not prepared`);
  }

  /** Loads what an earlier agent has kept. */
  async open(): Promise<void> {
    await this.#known();
  }

  /** As `ofContainer`, for those who only show it: nothing while nothing is prepared. */
  listed(pod: DesiredPod, container: Container): readonly ContainerClaim[] {
    return this.#loaded?.ofContainer(pod, container) ?? [];
  }

  holds(uid: PodUid): boolean {
    return this.#loaded?.holds(uid) ?? existsSync(this.#path);
  }

  async release(uid: PodUid, signal: AbortSignal): Promise<void> {
    await (await this.#known())?.release(uid, signal);
  }

  async sweep(known: Pick<ReadonlySet<string>, "has">, signal: AbortSignal): Promise<void> {
    await (await this.#known())?.sweep(known, signal);
  }

  /** @returns undefined while no claim was ever prepared */
  async #known(): Promise<PreparedClaims | undefined> {
    return this.#loading === undefined && !existsSync(this.#path) ? undefined : await this.#load();
  }

  #load(): Promise<PreparedClaims> {
    this.#loading ??= this.#open().catch((error: unknown) => {
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }

  async #open(): Promise<PreparedClaims> {
    const { PreparedClaims } = await import("./prepared-claims.ts");
    const bootId = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    this.#loaded = new PreparedClaims(this.#components, { path: this.#path, bootId });
    return this.#loaded;
  }
}
