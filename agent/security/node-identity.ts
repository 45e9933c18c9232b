/**
 * Keeps this node's identity for a hub: joins with a token, renews in time, falls back when a new certificate does not
 * work, and stores everything so that a power cut leaves one working pair. docs/threat-model.md has the purpose of each
 * check.
 *
 * `main` imports this module only where a hub is configured, because it loads node:tls and node:crypto.
 */
import { isIP } from "node:net";
import { Alarm } from "@picolet/protocol/async/alarm.ts";
import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import { describeError, isCancelled, isPicoletError, PicoletError } from "@picolet/protocol/errors.ts";
import { rotationTimeMs } from "@picolet/protocol/pki/rotation.ts";
import { type Log, type Millis, millis, type Random, seconds } from "@picolet/protocol/ports.ts";
import {
  type HubTlsOptions,
  type IdentityState,
  isRefusal,
  type NodeCredentials,
  type NodeIdentity,
} from "../core/hub/identity.ts";
import { AttemptDelays } from "./attempt-delays.ts";
import { type ConfiguredPins, ConfiguredTrust } from "./configured-trust.ts";
import type { CorrectedClock } from "./corrected-clock.ts";
import { DurableFolderOnDisk } from "./durable-folder.ts";
import { type Certified, HubAuthority, type HubAuthorityInit } from "./hub-authority.ts";
import type { OpenSocket } from "./hub-connection.ts";
import { trustOf } from "./hub-trust.ts";
import { HubVerifier, isClockRefusal } from "./hub-verifier.ts";
import { checkIdentity, type StoredIdentity } from "./identity-file.ts";
import { IdentityStore } from "./identity-store.ts";
import { type JoinTokenInit, readJoinToken, watchJoinToken } from "./join-token.ts";
import { ShownIdentity, type UsableIdentity } from "./shown-identity.ts";
import { TimeFloor } from "./time-floor.ts";

export interface NodeIdentityInit extends HubAuthorityInit, JoinTokenInit {
  /**
   * The trust for first contact with the hub; `pins.caFile` is the path of PEM, "" for none. An unreadable file is a
   * reported problem: a joined node works without it.
   */
  readonly pins: ConfiguredPins;
  /** Path of a folder of its own, made if it is not there. */
  readonly folder: string;
}

export interface NodeIdentityComponents {
  /** The one that the whole agent goes by. */
  readonly clock: CorrectedClock;
  readonly random: Random;
  readonly log: Log;
  /** A hub has let the node in by its token; called before the new certificate is used. */
  readonly onJoin?: () => void;
  /** Opens connections to hubs through a proxy; undefined: hubs are reached directly. */
  readonly openSocket?: OpenSocket | undefined;
}

/** Bounds how late a connected board learns a change of the hub's CAs; 5 KiB each time. */
const CA_CHECK_MS = 24 * 3_600_000;
const CA_RETRY_MS = 3_600_000;
/** Bounds how often due work is checked. */
const MIN_WAIT_MS = 1000;
/** The longest wait between attempts to join: an operator waits for it. */
const MAX_JOIN_DELAY = seconds(60);
/** The longest wait between attempts to renew: there are weeks left, and offline each attempt fails. */
const MAX_RENEW_DELAY = seconds(600);

export class NodeIdentityOnDisk implements NodeIdentity, Component {
  readonly name = "node identity";
  readonly #clock: CorrectedClock;
  readonly #random: Random;
  readonly #log: Log;
  readonly #init: NodeIdentityInit;
  readonly #verifier: HubVerifier;
  readonly #authority: HubAuthority;
  readonly #shown: ShownIdentity;
  readonly #delays: AttemptDelays;
  readonly #onJoin: () => void;
  readonly #trust: ConfiguredTrust;
  readonly #alarm: Alarm;
  /** Made when the component runs: a folder that cannot be made is a problem to show, not a reason not to start. */
  #disk: { readonly floor: TimeFloor; readonly store: IdentityStore } | undefined;
  #rotateAtMs = 0;
  /** Monotonic. */
  #nextCaCheck = 0;
  /** Why the hub would have none of the present certificate; "" when it did not say so. */
  #refusal = "";
  /** A hub's certificate did not fit the time: it has to be asked what the time is. */
  #timeInDoubt = false;
  #lastToken = "";

  constructor(components: NodeIdentityComponents, init: NodeIdentityInit) {
    this.#clock = components.clock;
    this.#random = components.random;
    this.#log = components.log;
    this.#init = init;
    this.#alarm = new Alarm(components.clock);
    this.#shown = new ShownIdentity(components);
    this.#delays = new AttemptDelays(components);
    this.#onJoin = components.onJoin ?? (() => undefined);
    this.#trust = new ConfiguredTrust(init.pins);
    this.#verifier = new HubVerifier(components);
    const { clock, openSocket } = components;
    this.#authority = new HubAuthority({ clock, verifier: this.#verifier, openSocket }, init);
  }

  get state(): Watch<IdentityState> {
    return this.#shown.state;
  }

  tlsOptions({ hubCa, certificateChain, privateKey }: NodeCredentials, host: string): HubTlsOptions {
    return {
      ca: hubCa,
      cert: certificateChain,
      key: privateKey,
      rejectUnauthorized: this.#clock.isMachineRight,
      servername: isIP(host) === 0 ? host : "",
    };
  }

  verify(peerChain: readonly Uint8Array[], host: string): void {
    const current = this.#disk?.store.current;
    if (current === undefined) throw new PicoletError("permission_denied", "this node has not joined a hub");
    try {
      this.#verifier.verify(peerChain, host, current.hubCa);
    } catch (error) {
      if (isClockRefusal(error)) {
        this.#timeInDoubt = true;
        this.#alarm.set(millis(0));
      }
      throw error;
    }
  }

  worked({ certificateChain }: NodeCredentials): void {
    const store = this.#disk?.store;
    if (store?.current?.certificateChain !== certificateChain) return;
    this.#refusal = "";
    this.#delays.forget();
    this.#attempt("remove the certificate before this one", () => store.worked());
  }

  refused({ certificateChain }: NodeCredentials, reason: string): void {
    const store = this.#disk?.store;
    if (store?.current?.certificateChain !== certificateChain) return;
    this.#failed();
    if (store.previous !== undefined && checkIdentity(store.previous).node === this.#init.nodeName) {
      this.#log.warn("the hub refused the new certificate; the previous one is used", { reason });
      this.#attempt("go back to the certificate before", () => store.fallBack());
      this.#adopted();
    } else {
      this.#log.warn("the hub refused the node's certificate", { reason });
      this.#refusal = reason;
    }
    this.#alarm.set(this.#delays.untilNext());
  }

  observeTime(hubTimeMs: number, roundTripMs: number): void {
    if (!this.#verifier.isPlausible(hubTimeMs)) return;
    const wasConfirmed = this.#clock.isConfirmed;
    this.#clock.observe(hubTimeMs, roundTripMs);
    if (!wasConfirmed || this.#isFloorDue()) this.#alarm.set(millis(0));
  }

  async run(signal: AbortSignal): Promise<void> {
    using _watcher = watchJoinToken(this.#init, () => this.#alarm.set(millis(0)));
    for (;;) {
      this.#alarm.set(await this.#step(signal));
      await this.#alarm.ring(signal);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }

  /** Does what is due. @returns when to look again */
  async #step(signal: AbortSignal): Promise<Millis> {
    const store = this.#load();
    if (store === undefined) return this.#delays.untilNext();
    this.#keepFloor();
    const token = this.#readToken();
    const wait = this.#delays.untilNext();
    if (wait > 0) return wait;
    try {
      const usable = this.#usable(store);
      if (usable !== undefined) await this.#keep(store, usable.stored, token, signal);
      else if (token !== "") await this.#join(store, token, signal);
      else {
        this.#shown.joining(this.#withoutToken(store), true);
        // The token file's watch wakes it; where there is none, this does.
        return MAX_JOIN_DELAY;
      }
      this.#keepFloor();
      this.#publish();
      return this.#untilDue();
    } catch (error) {
      if (isCancelled(error)) throw error;
      this.#failed(isPicoletError(error, "permission_denied"));
      this.#publish(error);
      return this.#delays.untilNext();
    }
  }

  async #keep(store: IdentityStore, current: StoredIdentity, token: string, signal: AbortSignal): Promise<void> {
    if (this.#trust.isOther(current)) await this.#learnTrust(store, signal);
    if (this.#timeInDoubt) await this.#checkCa(store, signal);
    if (this.#refusal !== "" || this.#clock.wall().getTime() >= this.#rotateAtMs) {
      await this.#renew(store, token, signal);
    } else if (this.#clock.monotonic() >= this.#nextCaCheck) {
      await this.#checkCa(store, signal).catch((error: unknown) => {
        if (isCancelled(error)) throw error;
        this.#nextCaCheck = this.#clock.monotonic() + CA_RETRY_MS;
        this.#log.debug("cannot ask the hub for its CAs", { error: describeError(error) });
      });
    }
  }

  #load(): IdentityStore | undefined {
    if (this.#disk !== undefined) return this.#disk.store;
    try {
      const folder = new DurableFolderOnDisk({ path: this.#init.folder });
      const store = new IdentityStore({ folder, log: this.#log });
      store.load();
      this.#disk = { floor: new TimeFloor({ clock: this.#clock, folder }), store };
      this.#nextCaCheck = this.#clock.monotonic() + CA_CHECK_MS * this.#random.next();
      this.#adopted();
      return store;
    } catch (error) {
      this.#failed();
      this.#shown.joining(`cannot use ${this.#init.folder}: ${describeError(error)}`, true);
      return undefined;
    }
  }

  /** What is on disk, unless it is another node's: then this board was given another name, and has to join by it. */
  #usable({ current }: IdentityStore): UsableIdentity | undefined {
    if (current === undefined) return undefined;
    const facts = checkIdentity(current);
    return facts.node === this.#init.nodeName ? { stored: current, facts } : undefined;
  }

  async #join(store: IdentityStore, token: string, signal: AbortSignal): Promise<void> {
    const key = store.pendingKey();
    const pins = this.#trust.read();
    const answer = await this.#authority.join(key, token, pins, signal);
    this.#onJoin();
    this.#replace(store, key, answer, trustOf(pins));
    this.#log.info("joined the hub", { node: this.#init.nodeName });
    this.#refusal = "";
    this.#delays.forget();
  }

  #withoutToken({ current }: IdentityStore): string {
    const { nodeName, tokenFile } = this.#init;
    const how = `a token of \`picolet-hub token create\` in ${tokenFile === "" ? "hub.token" : tokenFile}`;
    if (current === undefined) return `needs ${how} to join`;
    return `has the certificate of node ${checkIdentity(current).node}: to join as ${nodeName}, it needs ${how}`;
  }

  /** With the old certificate where the hub lets it, else with a token if there is one. */
  async #renew(store: IdentityStore, token: string, signal: AbortSignal): Promise<void> {
    const old = store.current;
    if (old === undefined) return;
    const key = store.pendingKey();
    try {
      this.#replace(store, key, await this.#authority.renew(old, key, signal), old.trust);
    } catch (error) {
      if (!isPicoletError(error, "permission_denied") || token === "" || isClockRefusal(error)) throw error;
      this.#log.warn("cannot renew the node's certificate; joins again", { error: describeError(error) });
      await this.#join(store, token, signal);
      return;
    }
    this.#log.info("renewed the node's certificate");
    // One that is refused each time must not be renewed each second: `worked` sets that right.
    if (this.#refusal === "") this.#delays.forget();
    this.#refusal = "";
  }

  async #learnTrust(store: IdentityStore, signal: AbortSignal): Promise<void> {
    const pins = this.#trust.read();
    store.replaceTrust(await this.#authority.learnCa(pins, signal), trustOf(pins));
    this.#log.info("knows the hub by the CA that is configured now");
    this.#adopted();
  }

  /** The hub's CAs may have changed; and a hub that answers this has settled what the time is. */
  async #checkCa(store: IdentityStore, signal: AbortSignal): Promise<void> {
    const current = store.current;
    if (current === undefined) return;
    const hubCa = await this.#authority.currentCa(current.hubCa, signal);
    this.#timeInDoubt = false;
    this.#nextCaCheck = this.#clock.monotonic() + CA_CHECK_MS * (0.9 + 0.2 * this.#random.next());
    if (hubCa === current.hubCa) return;
    store.replaceTrust(hubCa, current.trust);
    this.#log.info("the hub has other CAs now");
    this.#adopted();
  }

  /** @throws `invalid` when the hub gave something else than was asked for; nothing is changed then */
  #replace(store: IdentityStore, privateKey: string, { certificateChain, hubCa }: Certified, trust: string): void {
    const next: StoredIdentity = { privateKey, certificateChain, hubCa, trust };
    const facts = checkIdentity(next);
    if (facts.node !== this.#init.nodeName || facts.notAfterMs <= this.#clock.wall().getTime()) {
      throw new PicoletError("invalid", "the hub gave a certificate that is not for this node, or not for now");
    }
    store.replace(next);
    this.#adopted();
  }

  /** `store.current` is another one. */
  #adopted(): void {
    const store = this.#disk?.store;
    const usable = store === undefined ? undefined : this.#usable(store);
    if (usable !== undefined) {
      this.#rotateAtMs = rotationTimeMs(usable.facts, this.#random.next());
      this.#clock.raiseFloor(usable.facts.notBeforeMs);
    }
    this.#publish();
  }

  /** @param error of the last attempt, if it failed */
  #publish(error?: unknown): void {
    const store = this.#disk?.store;
    const usable = store === undefined ? undefined : this.#usable(store);
    const problem = error === undefined ? "" : describeError(error);
    const isRefused = isRefusal(error);
    if (usable === undefined) this.#shown.joining(problem, isRefused);
    else if (this.#trust.isOther(usable.stored))
      this.#shown.joining(problem || "gets to know the hub by its new CA", isRefused);
    else if (this.#clock.wall().getTime() > usable.facts.notAfterMs) {
      const ended = `the certificate ended at ${new Date(usable.facts.notAfterMs).toISOString()}`;
      this.#shown.joining(problem === "" ? ended : `${ended}; ${problem}`, isRefused);
    } else this.#shown.joined(usable, problem);
  }

  /** Reads the join token; "" without one. A new token is tried at once, regardless of the one before. */
  #readToken(): string {
    const token = readJoinToken(this.#init);
    if (token !== "" && token !== this.#lastToken) this.#delays.reset();
    this.#lastToken = token;
    return token;
  }

  #isFloorDue(): boolean {
    return this.#disk?.floor.isDue ?? true;
  }

  #keepFloor(): void {
    this.#attempt("write the time down", () => this.#disk?.floor.keep());
  }

  /** Runs a task whose failure is only logged. */
  #attempt(what: string, task: () => void): void {
    try {
      task();
    } catch (error) {
      this.#log.error(`cannot ${what}`, { error: describeError(error) });
    }
  }

  /** @param forLong it was refused: an operator must act first */
  #failed(forLong = false): void {
    const isJoined = this.#shown.state.current.kind === "joined";
    this.#delays.failed(isJoined ? MAX_RENEW_DELAY : MAX_JOIN_DELAY, forLong);
  }

  #untilDue(): Millis {
    const untilRotation = this.#rotateAtMs - this.#clock.wall().getTime();
    const untilCaCheck = this.#nextCaCheck - this.#clock.monotonic();
    return millis(Math.max(MIN_WAIT_MS, Math.min(untilRotation, untilCaCheck)));
  }
}
