import type { KubeClient, KubeObject, ObjectRef } from "@picolet/hub-core/kube-client/kube-client.ts";
import { LEASES } from "@picolet/hub-core/kube-client/resource-types.ts";
import { joinSignals } from "@picolet/protocol/async/abort.ts";
import { EQUAL_JITTER, jittered } from "@picolet/protocol/async/backoff.ts";
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { describeError, isCancelled, isPicoletError } from "@picolet/protocol/errors.ts";
import { isRecord } from "@picolet/protocol/guards.ts";
import { type Clock, type Log, NEVER, type Random, seconds } from "@picolet/protocol/ports.ts";

/** Another replica takes a Lease over that was not renewed for so long. */
const LEASE_DURATION = seconds(30);
/** A leader that could not renew for so long ends its work: before another one can begin. */
const RENEW_DEADLINE = seconds(20);
/** Time between renewals, and between attempts to become the leader. */
const INTERVAL = seconds(5);
/** One that hangs must leave a leader the time to end before another one begins. */
const ATTEMPT_LIMIT = seconds(5);
/** Its holder has given it back. */
const NO_HOLDER = "";

interface Components {
  readonly client: KubeClient;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

export interface LeadershipInit extends ObjectRef {
  /** Different for each replica. */
  readonly identity: string;
}

/**
 * Lets one of the hub's replicas do a task, by a Lease, as Kubernetes' leader election has it: whether a holder still
 * lives is judged by the own clock, from when its last renewal was seen.
 */
export class Leadership {
  readonly #components: Components;
  readonly #init: LeadershipInit;
  /** The renewal that was seen last, and since when. */
  #seen = { text: "", atMs: 0 };

  constructor(components: Components, init: LeadershipInit) {
    this.#components = components;
    this.#init = init;
  }

  /**
   * Until `signal` aborts: runs `lead` whenever this replica is the leader.
   * @param lead ends when its signal aborts, which says that another replica may begin
   */
  async run(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (await this.#attempt(signal)) await this.#leadAndRenew(lead, signal);
      else await this.#pause(signal);
    }
  }

  async #leadAndRenew(lead: (signal: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    const { log, clock } = this.#components;
    log.info("leads rollouts", { identity: this.#init.identity });
    using life = joinSignals(signal);
    const leading = lead(life.signal).finally(() => life.abort());
    try {
      for (let renewedAtMs = clock.monotonic(); !life.signal.aborted; ) {
        await this.#pause(life.signal);
        const startedAtMs = clock.monotonic();
        if (await this.#attempt(life.signal)) renewedAtMs = startedAtMs;
        else if (this.#isLost() || clock.monotonic() - renewedAtMs >= RENEW_DEADLINE) break;
      }
    } catch (error) {
      if (!isCancelled(error)) throw error;
    } finally {
      life.abort();
      await leading.catch((error: unknown) => {
        if (!isCancelled(error)) throw error;
      });
    }
    if (signal.aborted) await this.#giveBack();
    else log.warn("no longer leads rollouts", {});
  }

  #isLost(): boolean {
    const [holder] = this.#seen.text.split("\n");
    return holder !== this.#init.identity && holder !== NO_HOLDER;
  }

  #pause(signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#components;
    return clock.sleep(jittered(INTERVAL, EQUAL_JITTER, random.next()), signal);
  }

  /** @returns true when this replica holds the Lease now */
  async #attempt(signal: AbortSignal): Promise<boolean> {
    const { clock, log } = this.#components;
    try {
      return await withDeadline(clock, ATTEMPT_LIMIT, "renew a Lease", (within) => this.#take(within), signal);
    } catch (error) {
      if (isCancelled(error)) throw error;
      const isRace = isPicoletError(error, "conflict") || isPicoletError(error, "already_exists");
      if (!isRace) log.warn("cannot renew the Lease of rollouts", { error: describeError(error) });
      return false;
    }
  }

  async #take(signal: AbortSignal): Promise<boolean> {
    const { client } = this.#components;
    const lease = await this.#read(signal);
    if (lease !== undefined && !this.#isFree(lease)) return false;
    if (lease === undefined) await client.create(LEASES, this.#init, this.#lease(undefined), {}, signal);
    else await client.update(LEASES, this.#init, this.#lease(lease), {}, signal);
    return true;
  }

  async #read(signal: AbortSignal): Promise<KubeObject | undefined> {
    try {
      return await this.#components.client.get(LEASES, this.#init, signal);
    } catch (error) {
      if (isPicoletError(error, "not_found")) return undefined;
      throw error;
    }
  }

  #isFree(lease: KubeObject): boolean {
    const now = this.#components.clock.monotonic();
    const { holderIdentity = NO_HOLDER, renewTime = "" } = isRecord(lease.spec) ? lease.spec : {};
    const text = `${holderIdentity}\n${renewTime}`;
    if (text !== this.#seen.text) this.#seen = { text, atMs: now };
    const isOwn = holderIdentity === this.#init.identity || holderIdentity === NO_HOLDER;
    return isOwn || now - this.#seen.atMs >= LEASE_DURATION;
  }

  /** @param before replaced only as it was read */
  #lease(before: KubeObject | undefined, holderIdentity = this.#init.identity): KubeObject {
    const { namespace, name } = this.#init;
    const renewTime = this.#components.clock.wall().toISOString().replace("Z", "000Z");
    const spec = { holderIdentity, leaseDurationSeconds: LEASE_DURATION / 1000, renewTime };
    const metadata = before?.metadata ?? { namespace, name };
    return { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec };
  }

  /** So that another replica need not wait. Its failure costs the duration of the Lease. */
  async #giveBack(): Promise<void> {
    const { client, clock, log } = this.#components;
    const task = async (signal: AbortSignal): Promise<void> => {
      const lease = await this.#read(signal);
      if (lease !== undefined && this.#isFree(lease))
        await client.update(LEASES, this.#init, this.#lease(lease, NO_HOLDER), {}, signal);
    };
    try {
      await withDeadline(clock, ATTEMPT_LIMIT, "give a Lease back", task, NEVER);
    } catch (error) {
      log.debug("cannot give the Lease of rollouts back", { error: describeError(error) });
    }
  }
}

/** Leads without a Lease: the only replica. */
export const onlyReplica: Pick<Leadership, "run"> = {
  run: (lead, signal) => lead(signal),
};
