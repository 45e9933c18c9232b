/** Slices by systemd's own interface (org.freedesktop.systemd1(5)), for nodes whose cgroups are systemd's. */
import { withDeadline } from "@picolet/protocol/async/deadline.ts";
import { ignore, isPicoletError, PicoletError, toPicoletError } from "@picolet/protocol/errors.ts";
import { type Clock, type Log, NEVER, seconds } from "@picolet/protocol/ports.ts";
import type { CgroupUnits, UnitProperty } from "../core/node/cgroup-units.ts";
import { DbusConnection } from "./dbus-connection.ts";
import type { DbusArgument, DbusMessage, DbusValue } from "./dbus-message.ts";

const SERVICE = "org.freedesktop.systemd1";
const MANAGER = { destination: SERVICE, path: "/org/freedesktop/systemd1", interface: `${SERVICE}.Manager` };
const JOB_REMOVED = `type='signal',sender='${SERVICE}',interface='${MANAGER.interface}',member='JobRemoved'`;
const UNIT_EXISTS = `${SERVICE}.UnitExists`;
const NO_SUCH_UNIT = `${SERVICE}.NoSuchUnit`;
/** A slice starts and stops in milliseconds; systemd itself gives a unit 90 s. */
const JOB_LIMIT = seconds(30);
/**
 * Jobs that have ended, for answers that name them later, of which there is one at a time; those of the whole machine
 * come too.
 */
const MAX_ENDED_JOBS = 32;
/** For the slices of pods that there were once: a node has a few hundred at most, and a name costs 100 bytes. */
const MAX_KNOWN = 1024;

/** The properties of each of our slices. Accounting makes systemd enable the controllers. */
const OF_EVERY_SLICE: readonly UnitProperty[] = [
  { name: "DefaultDependencies", type: "b", value: false },
  ...["CPUAccounting", "MemoryAccounting", "TasksAccounting", "IOAccounting"].map(
    (name) => ({ name, type: "b", value: true }) as const,
  ),
];

export class SystemdUnits implements CgroupUnits, Disposable {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #busPath: string;
  #opening: Promise<DbusConnection> | undefined;
  /**
   * Ends when the last call does: a node's pods come all at once, and the connection takes no more than a few calls.
   */
  #turn: Promise<unknown> = Promise.resolve();
  /** Slices that were running when they were last heard of: they are changed, not started. */
  readonly #known = new Set<string>();
  readonly #ended = new Map<string, string>();
  /** By job: systemd gives calls for one unit the same job while it lasts. */
  readonly #waiting = new Map<string, PromiseWithResolvers<string>>();

  constructor({ clock, log }: { readonly clock: Clock; readonly log: Log }, { busPath }: { readonly busPath: string }) {
    this.#clock = clock;
    this.#log = log;
    this.#busPath = busPath;
  }

  async ensureSlice(name: string, properties: readonly UnitProperty[]): Promise<void> {
    try {
      if (this.#known.has(name) && (await this.#set(name, properties))) return;
      await this.#start(name, properties);
      if (this.#known.size >= MAX_KNOWN) this.#known.clear();
      this.#known.add(name);
    } catch (error) {
      throw asked(error, `cannot have systemd make ${name}`);
    }
  }

  async removeSlice(name: string): Promise<void> {
    this.#known.delete(name);
    try {
      await this.#job("StopUnit", "ss", [name, "replace"], name);
    } catch (error) {
      if (!isNamed(error, NO_SUCH_UNIT)) throw asked(error, `cannot have systemd remove ${name}`);
    }
  }

  [Symbol.dispose](): void {
    void this.#opening?.then((bus) => bus[Symbol.dispose](), ignore("it was never open"));
    this.#opening = undefined;
  }

  async #start(name: string, properties: readonly UnitProperty[]): Promise<void> {
    const all = [...described(name), ...OF_EVERY_SLICE, ...properties].map(argumentOf);
    try {
      await this.#job("StartTransientUnit", "ssa(sv)a(sa(sv))", [name, "replace", all, []], name);
    } catch (error) {
      // Left by an agent before this one, or begun by systemd for a slice below it.
      if (!isNamed(error, UNIT_EXISTS)) throw error;
      const accounting = OF_EVERY_SLICE.filter(({ name }) => name.endsWith("Accounting"));
      await this.#set(name, [...accounting, ...properties]);
      await this.#job("StartUnit", "ss", [name, "replace"], name);
    }
  }

  /** @returns false: there is no such unit any more */
  async #set(name: string, properties: readonly UnitProperty[]): Promise<boolean> {
    if (properties.length === 0) return true;
    try {
      await this.#call("SetUnitProperties", "sba(sv)", [name, true, properties.map(argumentOf)]);
      return true;
    } catch (error) {
      if (!isNamed(error, NO_SUCH_UNIT)) throw error;
      return false;
    }
  }

  /** Resolves when systemd has done it. */
  async #job(member: string, signature: string, body: readonly DbusArgument[], unit: string): Promise<void> {
    const [job] = await this.#call(member, signature, body);
    const done = (deadline: AbortSignal): Promise<string> => this.#resultOf(String(job), deadline);
    const result = await withDeadline(this.#clock, JOB_LIMIT, `${member} ${unit}`, done, NEVER);
    if (result !== "done" && result !== "skipped")
      throw new PicoletError("failed", `cannot ${member} ${unit}`, { cause: new Error(result), retryable: true });
  }

  async #resultOf(job: string, signal: AbortSignal): Promise<string> {
    const ended = this.#ended.get(job);
    if (ended !== undefined) return ended;
    const waiting = this.#waiting.get(job) ?? Promise.withResolvers<string>();
    this.#waiting.set(job, waiting);
    signal.addEventListener("abort", () => this.#waiting.delete(job), { once: true });
    return await waiting.promise;
  }

  #call(member: string, signature: string, body: readonly DbusArgument[]): Promise<readonly DbusValue[]> {
    const answer = this.#turn.then(() => this.#callNow(member, signature, body));
    this.#turn = answer.catch(ignore("its caller gets the error; the next call does not depend on it"));
    return answer;
  }

  async #callNow(member: string, signature: string, body: readonly DbusArgument[]): Promise<readonly DbusValue[]> {
    this.#opening ??= this.#open();
    const opening = this.#opening;
    try {
      return await (await opening).call({ ...MANAGER, member, signature, body }, NEVER);
    } catch (error) {
      // Any error that is not systemd's answer is a fault of the connection: the next call opens another one.
      if (!isPicoletError(error, "failed") && this.#opening === opening) {
        this[Symbol.dispose]();
        this.#log.warn("the message bus does not answer: cgroups of pods wait for it", { bus: this.#busPath });
      }
      throw error;
    }
  }

  async #open(): Promise<DbusConnection> {
    const bus = await DbusConnection.open(this.#busPath, this.#clock, NEVER, (message) => this.#heard(message));
    await bus.subscribe(JOB_REMOVED, NEVER);
    return bus;
  }

  /** JobRemoved: number, job, unit, result. */
  #heard({ member, interface: from, body }: DbusMessage): void {
    const [, job, , result] = body;
    if (member !== "JobRemoved" || from !== MANAGER.interface) return;
    if (typeof job !== "string" || typeof result !== "string") return;
    this.#waiting.get(job)?.resolve(result);
    this.#waiting.delete(job);
    // Also for a call that got this job and has not seen its answer yet.
    this.#ended.set(job, result);
    for (const oldest of this.#ended.keys()) {
      if (this.#ended.size <= MAX_ENDED_JOBS) break;
      this.#ended.delete(oldest);
    }
  }
}

/** As `systemctl status` shows it; what is above it is wanted, which is how systemd has it there. */
function described(name: string): UnitProperty[] {
  const parent = name.slice(0, name.lastIndexOf("-"));
  const isAtTop = !name.includes("-");
  return [
    { name: "Description", type: "s", value: `picolet cgroup ${name}` },
    ...(isAtTop ? [] : [{ name: "Wants", type: "as", value: [`${parent}.slice`] } as const]),
  ];
}

const argumentOf = ({ name, type, value }: UnitProperty): DbusArgument => [name, { type, value }];

/** @returns whether the peer has answered with that D-Bus error */
function isNamed(error: unknown, name: string): boolean {
  const cause = isPicoletError(error) ? error.cause : undefined;
  return cause instanceof Error && cause.message.startsWith(`${name}:`);
}

const asked = (error: unknown, message: string): PicoletError =>
  new PicoletError(toPicoletError(error, "failed", message).code, message, { cause: error, retryable: true });
